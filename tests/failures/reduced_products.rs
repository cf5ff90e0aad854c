//! A rank is killed or stopped in each phase of a GEMM + reduce-scatter or GEMM + all-reduce, eager and replayed, by every
//! algorithm and transport.

use crate::loss::{Calls, Loss, Phase, WARM_UP, on_gpus, ranks};
use crate::support::{
    Member, Random, Setting, full, on_each_backend, on_each_device, system_driver,
};
use half::bf16;
use rstest::rstest;
use rstest_reuse::apply;
use symmem::{
    Communicator, Error, GemmReduce, GemmReduceAlgorithm, GemmReduceOperands, GemmReduceOptions,
    GemmReduceShape, GemmTransport, Graph, Matrix, Reduction, Result,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GemmReduceVariant {
    Baseline,
    PipelinePut,
    PipelineKernel,
    Push,
    Packets,
}

impl GemmReduceVariant {
    const ALL: [Self; 5] = [
        Self::Baseline,
        Self::PipelinePut,
        Self::PipelineKernel,
        Self::Push,
        Self::Packets,
    ];

    fn named(self) -> (GemmReduceAlgorithm, GemmTransport) {
        use {GemmReduceAlgorithm as A, GemmTransport as T};
        match self {
            Self::Baseline => (A::Baseline, T::Automatic),
            Self::PipelinePut => (A::Pipeline, T::Put),
            Self::PipelineKernel => (A::Pipeline, T::Kernel),
            Self::Push => (A::Push, T::Automatic),
            Self::Packets => (A::Packets, T::Automatic),
        }
    }
}

/// The argument of a role.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    variant: GemmReduceVariant,
    reduction: Reduction,
    replayed: bool,
    phase: Phase,
    victim: usize,
}

impl Scenario {
    fn loss(&self) -> Loss {
        let Self {
            variant,
            reduction,
            replayed,
            phase,
            victim,
        } = *self;
        Loss {
            role: "reduced_products/loop",
            scenario: format!("{variant:?} {reduction:?} {replayed} {phase:?} {victim}"),
            phase,
            victim,
            is_slow: false,
        }
    }

    fn parse(text: &str) -> Self {
        let words: Vec<&str> = text.split(' ').collect();
        let &[variant, reduction, replayed, phase, victim] = words.as_slice() else {
            panic!("no order: {text}");
        };
        let mut variants = GemmReduceVariant::ALL.into_iter();
        let variant = variants.find(|one| format!("{one:?}") == variant);
        Self {
            variant: variant.expect("a variant"),
            reduction: match reduction {
                "Scatter" => Reduction::Scatter,
                _ => Reduction::All,
            },
            replayed: replayed.parse().expect("whether replayed"),
            phase: Phase::parse(phase),
            victim: victim.parse().expect("a rank"),
        }
    }
}

impl GemmReduceVariant {
    /// Returns why a backend has not the algorithm.
    fn absent(self, setting: Setting) -> Option<&'static str> {
        let lacks = self == Self::Packets && setting.backend() == "hip";
        lacks.then_some("this backend has no such kernel")
    }
}

/// Returns a shape whose rows can be divided among two and three ranks. On GPUs it takes some milliseconds, or with packets, which
/// are for few rows, the better part of one.
fn shape(setting: Setting, variant: GemmReduceVariant) -> GemmReduceShape {
    match (on_gpus(setting), variant) {
        (true, GemmReduceVariant::Packets) => GemmReduceShape::new(48, 8192, 65536),
        (true, _) => GemmReduceShape::new(12288, 8192, 4096),
        (false, GemmReduceVariant::Packets) => GemmReduceShape::new(48, 8, 192),
        (false, _) => GemmReduceShape::new(450, 8, 192),
    }
}

/// Why the algorithm is unavailable, or the error that ends its calls.
enum Outcome {
    Absent(Error),
    Ended(Error),
}

/// Makes calls repeatedly until one fails.
fn use_up(communicator: &Communicator, member: &Member, scenario: &Scenario) -> Outcome {
    let (algorithm, transport) = scenario.variant.named();
    let shape = shape(member.setting, scenario.variant);
    let make = |deadline| {
        let options = GemmReduceOptions {
            algorithm,
            transport,
            chunks: Some(2),
            symmetric_result: scenario.replayed,
            deadline,
            ..GemmReduceOptions::default()
        };
        let made = match scenario.reduction {
            Reduction::Scatter => communicator.gemm_reduce_scatter::<bf16>(&shape, &options),
            _ => communicator.gemm_all_reduce::<bf16>(&shape, &options),
        };
        match made {
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

/// A prepared call.
enum Call<'a> {
    Eager(&'a GemmReduce<bf16>),
    Replayed(Graph),
}

fn repeat(
    communicator: &Communicator,
    member: &Member,
    scenario: &Scenario,
    [first, then]: [&GemmReduce<bf16>; 2],
) -> Result<()> {
    let GemmReduceShape { m, n, k, .. } = *first.shape();
    let rows = match scenario.reduction {
        Reduction::Scatter => m / member.world,
        _ => m,
    };
    let mut stream = communicator.stream()?;
    let a = communicator.allocate::<bf16>(&[m * k])?;
    let b = communicator.allocate::<bf16>(&[k * n])?;
    let c = communicator.allocate::<bf16>(&[rows * n])?;
    let operands = GemmReduceOperands {
        a: Matrix::of(a.all(), m, k)?,
        b: Matrix::of(b.all(), k, n)?,
        c: Matrix::of(c.all(), rows, n)?,
        bias: None,
    };
    for buffer in [&a, &b] {
        buffer.write(&stream, 0, &vec![bf16::ONE; buffer.len()])?;
    }
    let mut prepare = |operation| -> Result<Call<'_>> {
        Ok(match scenario.replayed {
            true => {
                Call::Replayed(stream.capture(|queue| queue.gemm_reduce(operation, &operands))?)
            }
            false => Call::Eager(operation),
        })
    };
    let (first, then) = (prepare(first)?, prepare(then)?);
    let enqueue = |call: &Call<'_>| match call {
        Call::Replayed(graph) => stream.launch_graph(graph),
        Call::Eager(operation) => stream.gemm_reduce(operation, &operands),
    };
    let calls = Calls {
        communicator,
        stream: &stream,
        phase: scenario.phase,
        victim: scenario.victim,
        c: &c,
        width: n,
        right: (k * member.world) as f64,
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
fn a_rank_killed_in_a_reduced_product_is_heard_of_within_a_second(
    setting: Setting,
    #[values(0, 1, 2, 3, 4)] variant: usize,
    #[values(Reduction::Scatter, Reduction::All)] reduction: Reduction,
) {
    if let Some(why) = GemmReduceVariant::ALL[variant].absent(setting) {
        return crate::built::skipped(why);
    }
    let kind = variant + GemmReduceVariant::ALL.len() * reduction as usize;
    let mut random = Random::new(kind as u64);
    for (number, phase) in Phase::ALL.into_iter().enumerate() {
        // The sample has each phase of each algorithm, of one reduction or of both, eager or replayed. HIP, whose waits
        // the large test covers, gets half of that.
        let sampled = match setting {
            Setting::Hip => number == kind % 4,
            _ => number % 2 == kind % 2,
        };
        if !full() && !sampled {
            continue;
        }
        for replayed in [false, true] {
            let chosen = replayed == ((number / 2 + variant) % 2 == 1);
            if !full() && !chosen {
                continue;
            }
            let scenario = Scenario {
                variant: GemmReduceVariant::ALL[variant],
                reduction,
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

/// Every survivor names it, though in a ring one of them waits for the other.
#[apply(on_each_backend)]
fn a_rank_stopped_in_a_reduced_product_is_named_at_the_deadline(
    setting: Setting,
    #[values(0, 1, 2, 3, 4)] variant: usize,
    #[values(Reduction::Scatter, Reduction::All)] reduction: Reduction,
    #[values(Phase::Before, Phase::Moving, Phase::Multiplying)] phase: Phase,
) {
    use {GemmReduceVariant as V, Reduction as R};
    let named = V::ALL[variant];
    if let Some(why) = named.absent(setting) {
        return crate::built::skipped(why);
    }
    let kind = variant + V::ALL.len() * reduction as usize;
    // Few cases on backends that must start a driver.
    let few = match setting {
        Setting::Host => phase != Phase::Before || kind.is_multiple_of(2),
        Setting::Hip => [
            (V::PipelinePut, R::All, Phase::Moving),
            (V::Push, R::Scatter, Phase::Multiplying),
        ]
        .contains(&(named, reduction, phase)),
        _ => [
            (V::PipelinePut, R::Scatter, Phase::Before),
            (V::PipelineKernel, R::All, Phase::Multiplying),
            (V::Push, R::All, Phase::Multiplying),
            (V::Packets, R::Scatter, Phase::Moving),
        ]
        .contains(&(named, reduction, phase)),
    };
    if !full() && !few {
        return crate::built::skipped("SYMMEM_TESTS=all runs it");
    }
    let scenario = Scenario {
        variant: GemmReduceVariant::ALL[variant],
        reduction,
        replayed: kind.is_multiple_of(2),
        phase,
        victim: 1,
    };
    let loss = scenario.loss();
    loss.stop(setting, &mut Random::new(kind as u64), true);
}

/// The others all give up at once, each on the rank before it, and only one of them on the victim. None takes the sum of a rank
/// that gave up for the right one: [`Calls`] compares it.
#[apply(on_each_device)]
fn a_rank_stopped_in_a_reduced_product_is_named_by_those_that_wait_for_others(
    setting: Setting,
    #[values(1, 2)] variant: usize,
    #[values(Reduction::Scatter, Reduction::All)] reduction: Reduction,
) {
    if system_driver() {
        return crate::built::skipped("the fakes' GEMMs last as long as this needs");
    }
    let scenario = Scenario {
        variant: GemmReduceVariant::ALL[variant],
        reduction,
        replayed: false,
        phase: Phase::Moving,
        victim: 1,
    };
    let loss = Loss {
        is_slow: true,
        ..scenario.loss()
    };
    loss.stop(setting, &mut Random::new(variant as u64), true);
}
