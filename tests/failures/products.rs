//! A rank is killed or stopped in each phase of an all-gather + GEMM, eager and replayed, by every algorithm and
//! transport.

use crate::loss::{Calls, Loss, Phase, WARM_UP, on_gpus, ranks};
use crate::support::{Member, Random, Setting, full, on_each_backend};
use half::bf16;
use rstest::rstest;
use rstest_reuse::apply;
use symmem::{
    AllGatherGemm, Communicator, Error, GemmAlgorithm, GemmOptions, GemmShape, GemmTransport,
    Graph, Matrix, Operands, Result, Sharding,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GemmVariant {
    Baseline,
    BaselineNccl,
    PipelineGet,
    PipelinePut,
    PipelineNccl,
    Pull,
    PushPut,
    PushKernel,
}

impl GemmVariant {
    const ALL: [Self; 8] = [
        Self::Baseline,
        Self::BaselineNccl,
        Self::PipelineGet,
        Self::PipelinePut,
        Self::PipelineNccl,
        Self::Pull,
        Self::PushPut,
        Self::PushKernel,
    ];

    fn named(self) -> (GemmAlgorithm, GemmTransport) {
        use {GemmAlgorithm as A, GemmTransport as T};
        match self {
            Self::Baseline => (A::Baseline, T::Automatic),
            Self::BaselineNccl => (A::Baseline, T::Nccl),
            Self::PipelineGet => (A::Pipeline, T::Get),
            Self::PipelinePut => (A::Pipeline, T::Put),
            Self::PipelineNccl => (A::Pipeline, T::Nccl),
            Self::Pull => (A::Pull, T::Kernel),
            Self::PushPut => (A::Push, T::Put),
            Self::PushKernel => (A::Push, T::Kernel),
        }
    }

    /// Whether NCCL or RCCL gathers.
    fn is_nccl(self) -> bool {
        matches!(self, Self::BaselineNccl | Self::PipelineNccl)
    }

    /// Whether a backend supports it: the host has no NCCL, and on HIP no grid may wait for copies.
    fn is_on(self, setting: Setting) -> bool {
        match setting.backend() {
            "host" => !self.is_nccl(),
            "hip" => self != Self::PushPut,
            _ => true,
        }
    }
}

/// The argument of a role.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    way: GemmVariant,
    by_columns: bool,
    replayed: bool,
    phase: Phase,
    victim: usize,
}

impl Scenario {
    fn text(&self) -> String {
        let Self { way, phase, .. } = self;
        let (columns, replayed, victim) = (self.by_columns, self.replayed, self.victim);
        format!("{way:?} {columns} {replayed} {phase:?} {victim}")
    }

    fn loss(&self) -> Loss {
        Loss {
            role: "products/loop",
            scenario: self.text(),
            phase: self.phase,
            victim: self.victim,
            is_slow: false,
        }
    }

    fn parse(text: &str) -> Self {
        let words: Vec<&str> = text.split(' ').collect();
        let &[way, columns, replayed, phase, victim] = words.as_slice() else {
            panic!("no order: {text}");
        };
        let way = GemmVariant::ALL
            .into_iter()
            .find(|one| format!("{one:?}") == way);
        Self {
            way: way.expect("a way"),
            by_columns: columns.parse().expect("whether A is sharded by columns"),
            replayed: replayed.parse().expect("whether replayed"),
            phase: Phase::parse(phase),
            victim: victim.parse().expect("a rank"),
        }
    }
}

/// Returns a shape with two chunks per shard and columns that every kernel supports. On GPUs it takes some
/// milliseconds.
fn shape(setting: Setting, by_columns: bool) -> GemmShape {
    let shape = match on_gpus(setting) {
        true => GemmShape::new(16384, 8192, 8192),
        false => GemmShape::new(450, 8, 192),
    };
    GemmShape {
        sharding: match by_columns {
            true => Sharding::Columns,
            false => Sharding::Rows,
        },
        ..shape
    }
}

/// A prepared call.
enum Call<'a> {
    Eager(&'a AllGatherGemm<bf16>),
    Replayed(Graph),
}

/// Why the algorithm is unavailable, or the error that ends its calls.
enum Outcome {
    Absent(Error),
    Ended(Error),
}

/// Makes calls repeatedly until one fails.
fn use_up(communicator: &Communicator, member: &Member, scenario: &Scenario) -> Outcome {
    let (algorithm, transport) = scenario.way.named();
    let shape = shape(member.setting, scenario.by_columns);
    let options = GemmOptions {
        algorithm,
        transport,
        chunk_rows: (!on_gpus(member.setting)).then_some(128),
        ..GemmOptions::default()
    };
    if scenario.way.is_nccl()
        && let Err(error) = communicator.open_nccl(false)
    {
        return match error {
            Error::Unsupported { .. } => Outcome::Absent(error),
            // NCCL refuses ranks that share a device.
            Error::Backend { .. } if on_gpus(member.setting) => Outcome::Absent(error),
            error => panic!("{scenario:?}: {error}"),
        };
    }
    let make = |deadline| {
        let options = GemmOptions {
            deadline,
            ..options
        };
        match communicator.all_gather_gemm::<bf16>(&shape, &options) {
            Ok(operation) => Ok(operation),
            Err(absent @ Error::Unsupported { .. }) => Err(Outcome::Absent(absent)),
            Err(error) => panic!("{scenario:?}: {error}"),
        }
    };
    // The first calls take long on a busy machine.
    let operations = make(Some(WARM_UP)).and_then(|first| Ok((first, make(None)?)));
    match operations {
        Ok((first, then)) => {
            let ended = repeat(communicator, member, scenario, [&first, &then]);
            Outcome::Ended(ended.expect_err("the calls end in an error"))
        }
        Err(absent) => absent,
    }
}

fn repeat(
    communicator: &Communicator,
    member: &Member,
    scenario: &Scenario,
    [first, then]: [&AllGatherGemm<bf16>; 2],
) -> Result<()> {
    let shape = *first.shape();
    let mut stream = communicator.stream()?;
    let a = communicator.allocate::<bf16>(&[shape.shard_elements(member.world)])?;
    let b = communicator.allocate::<bf16>(&[shape.k * shape.n])?;
    let c = communicator.allocate::<bf16>(&[shape.m * shape.n])?;
    let operands = Operands {
        a: a.all(),
        b: Matrix::of(b.all(), shape.k, shape.n)?,
        c: Matrix::of(c.all(), shape.m, shape.n)?,
        bias: None,
        scale: None,
        gathered: None,
    };
    for buffer in [&a, &b] {
        buffer.write(&stream, 0, &vec![bf16::ONE; buffer.len()])?;
    }
    let mut prepare = |operation| -> Result<Call<'_>> {
        Ok(match scenario.replayed {
            true => {
                Call::Replayed(stream.capture(|queue| queue.all_gather_gemm(operation, &operands))?)
            }
            false => Call::Eager(operation),
        })
    };
    let (first, then) = (prepare(first)?, prepare(then)?);
    let enqueue = |call: &Call<'_>| match call {
        Call::Replayed(graph) => stream.launch_graph(graph),
        Call::Eager(operation) => stream.all_gather_gemm(operation, &operands),
    };
    let calls = Calls {
        communicator,
        stream: &stream,
        phase: scenario.phase,
        victim: scenario.victim,
        c: &c,
        width: shape.n,
        right: shape.k as f64,
        first: &|| enqueue(&first),
        then: &|| enqueue(&then),
    };
    calls.repeat(member)
}

pub fn role(role: &str, member: &Member) {
    assert_eq!(role, "loop", "the only role");
    let scenario = Scenario::parse(&member.argument);
    let communicator = member.join();
    match use_up(&communicator, member, &scenario) {
        Outcome::Absent(error) => member.say("made", format!("{error}")),
        Outcome::Ended(error) => member.say("heard", format!("{error:#?} {error}")),
    }
    // The operation and its buffers have been dropped before.
    drop(communicator);
    member.say("done", "");
}

#[apply(on_each_backend)]
fn a_rank_killed_in_a_product_is_heard_of_within_a_second(
    setting: Setting,
    #[values(0, 1, 2, 3, 4, 5, 6, 7)] way: usize,
    #[values(false, true)] by_columns: bool,
) {
    if crate::built::amount::sampled_out(4) {
        return;
    }
    let kind = GemmVariant::ALL[way];
    if !kind.is_on(setting) {
        return;
    }
    let columns = usize::from(by_columns);
    let mut random = Random::new((2 * way + columns) as u64);
    for (number, phase) in Phase::ALL.into_iter().enumerate() {
        // The sample has each phase of each algorithm, sharded by rows or by columns, eager or replayed. HIP, whose
        // waits the large test covers, gets half of that.
        let sampled = match setting {
            Setting::Hip => number == (way + 2 * columns) % 4,
            _ => number % 2 == (way + columns) % 2,
        };
        if !full() && !sampled {
            continue;
        }
        for replayed in [false, true] {
            let chosen = replayed == ((number / 2 + way) % 2 == 1);
            if !full() && !chosen {
                continue;
            }
            let scenario = Scenario {
                way: kind,
                by_columns,
                replayed,
                phase,
                victim: random.below(ranks(setting) as u64) as usize,
            };
            for _ in 0..if full() { 3 } else { 1 } {
                scenario.loss().kill(setting, &mut random);
            }
        }
    }
}

/// Algorithms that differ in what ranks wait for: words of a collective, of barriers and turns, of signals, and of
/// arrivals, in a kernel or beside copies.
#[apply(on_each_backend)]
fn a_rank_stopped_in_a_product_is_named_at_the_deadline(
    setting: Setting,
    #[values(0, 2, 3, 5, 6, 7)] way: usize,
    #[values(Phase::Before, Phase::Moving)] phase: Phase,
) {
    if crate::built::amount::sampled_out(4) {
        return;
    }
    let kind = GemmVariant::ALL[way];
    // Few cases on backends that must start a driver.
    let few = match setting {
        Setting::Host => phase == Phase::Moving,
        Setting::Hip => (kind, phase) == (GemmVariant::PushKernel, Phase::Moving),
        _ => (kind, phase) == (GemmVariant::PipelinePut, Phase::Before),
    };
    if !kind.is_on(setting) {
        return;
    }
    if !full() && !few {
        return crate::built::skipped("SYMMEM_TESTS=all runs it");
    }
    let scenario = Scenario {
        way: kind,
        by_columns: way % 2 == 1,
        replayed: way.is_multiple_of(3),
        phase,
        victim: 1,
    };
    // In step-by-step algorithms, a rank may wait for another that waits for the victim.
    let loss = scenario.loss();
    loss.stop(setting, &mut Random::new(way as u64), false);
}
