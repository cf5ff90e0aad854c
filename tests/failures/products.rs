//! A rank is killed or stopped in each phase of an all-gather + GEMM, eager and replayed, by every algorithm and
//! transport.

use crate::support::{Member, Plan, Random, Setting, World, full, on_each_backend, system_driver};
use half::bf16;
use rstest::rstest;
use rstest_reuse::apply;
use std::time::{Duration, Instant};
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

/// When a rank is lost, as parts of the time that a call takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Before its call: the others wait at the start barrier.
    Before,
    /// While shards move.
    Moving,
    /// While all multiply.
    Multiplying,
    /// About when the call ends.
    End,
}

impl Phase {
    const ALL: [Self; 4] = [Self::Before, Self::Moving, Self::Multiplying, Self::End];

    /// Returns the range in percent of the call's time.
    fn percents(self) -> (u64, u64) {
        match self {
            Self::Before => (0, 0),
            Self::Moving => (0, 40),
            Self::Multiplying => (40, 90),
            Self::End => (90, 120),
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

    fn parse(text: &str) -> Self {
        let words: Vec<&str> = text.split(' ').collect();
        let &[way, columns, replayed, phase, victim] = words.as_slice() else {
            panic!("no order: {text}");
        };
        let way = GemmVariant::ALL
            .into_iter()
            .find(|one| format!("{one:?}") == way);
        let phase = Phase::ALL
            .into_iter()
            .find(|one| format!("{one:?}") == phase);
        Self {
            way: way.expect("a way"),
            by_columns: columns.parse().expect("whether A is sharded by columns"),
            replayed: replayed.parse().expect("whether replayed"),
            phase: phase.expect("a phase"),
            victim: victim.parse().expect("a rank"),
        }
    }
}

/// Returns the number of ranks. On a machine's own driver this is `FAILURES_WORLD`, because some algorithms need a
/// device for each rank.
fn ranks(setting: Setting) -> usize {
    if !on_gpus(setting) {
        return 3;
    }
    std::env::var("FAILURES_WORLD").map_or(2, |ranks| ranks.parse().expect("a number of ranks"))
}

fn on_gpus(setting: Setting) -> bool {
    setting.is_device() && system_driver()
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

/// Calls before the one in which a rank is lost. NCCL and cuBLASLt connect ranks and load kernels in the first.
const CALLS_BEFORE: usize = 2;

/// Deadline of those calls, whatever the deadline under test is, because the machine may be busy.
const WARM_UP: Duration = Duration::from_secs(30);

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
    // Some rows are enough to check a large result.
    let rows = (0..shape.m).step_by(shape.m.div_ceil(8));
    let (poison, right) = (vec![bf16::NAN; shape.n], bf16::from_f64(shape.k as f64));
    let call = |call: &Call<'_>, limit, begin: &dyn Fn()| -> Result<Duration> {
        for row in rows.clone() {
            c.write(&stream, row * shape.n, &poison)?;
        }
        begin();
        let start = Instant::now();
        match call {
            Call::Replayed(graph) => stream.launch_graph(graph)?,
            Call::Eager(operation) => stream.all_gather_gemm(operation, &operands)?,
        }
        match limit {
            Some(limit) => stream.synchronize_within(limit)?,
            None => stream.synchronize()?,
        }
        let lasts = start.elapsed();
        let mut found = poison.clone();
        for row in rows.clone() {
            c.read(&stream, row * shape.n, &mut found)?;
            // A call that lost a rank ends in an error, not in a wrong result.
            assert!(found.iter().all(|&found| found == right), "row {row}");
        }
        Ok(lasts)
    };
    let mut lasts = Duration::ZERO;
    for _ in 0..CALLS_BEFORE {
        lasts = call(&first, Some(WARM_UP), &|| ())?;
    }
    member.say("made", "ok");
    member.say("lasts", lasts.as_micros());
    member.ready();
    let last = || {
        if member.rank != scenario.victim {
            return;
        }
        member.say("here", "");
        while scenario.phase == Phase::Before && communicator.check().is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    call(&then, None, &last)?;
    loop {
        call(&then, None, &|| ())?;
    }
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

/// Starts a world whose ranks are about to make the call in which one of them is lost. Returns `None` if the algorithm
/// is unavailable.
fn start(setting: Setting, scenario: &Scenario, deadline: Option<Duration>) -> Option<World> {
    let mut plan = Plan::new("products/loop", ranks(setting), setting)
        .argument(scenario.text())
        // Multicast must not be used, by NCCL either.
        .env("NCCL_NVLS_ENABLE", 0)
        // Without these variables, the fakes' copies and GEMMs take no time.
        .env("FAKE_DEVICE_COPY_US", 2000)
        .env("FAKE_BLASLT_PRODUCT_US", 2000);
    if let Some(libraries) = setting.libraries_with_collectives() {
        plan = plan.env("SYMMEM_LIBRARY_PATH", libraries.display());
    }
    if let Some(deadline) = deadline {
        plan = plan.deadline(deadline);
    }
    let mut world = plan.start();
    let made = world.expect("made");
    if let Some(why) = made.iter().find(|made| *made != "ok") {
        assert!(on_gpus(setting), "{scenario:?}: {why}");
        crate::built::skipped(&format!("{scenario:?}: {why}"));
        world.expect("done");
        world.ends_well();
        return None;
    }
    Some(world)
}

/// Waits until the victim is in the order's phase.
fn reach(world: &mut World, scenario: &Scenario, random: &mut Random) {
    let lasts = world.expect("lasts")[scenario.victim].parse();
    let lasts = Duration::from_micros(lasts.expect("microseconds"));
    world.ready().go();
    let (begun, _) = world.ranks[scenario.victim].expect("here");
    let (first, last) = scenario.phase.percents();
    let percents = first + random.below(last - first + 1);
    let pause = match scenario.phase {
        // Time for the others to begin their wait.
        Phase::Before => Duration::from_millis(20),
        _ => lasts * percents as u32 / 100,
    };
    println!("{scenario:?}: a call lasts {lasts:?}; after {pause:?}");
    std::thread::sleep(pause.saturating_sub(begun.elapsed()));
}

fn kill_one(setting: Setting, scenario: &Scenario, random: &mut Random) {
    let Some(mut world) = start(setting, scenario, None) else {
        return;
    };
    let victim = scenario.victim;
    reach(&mut world, scenario, random);
    let killed = world.ranks[victim].kill();
    let dead = world.ranks.remove(victim);
    for rank in &mut world.ranks {
        let (heard, error) = rank.expect("heard");
        let detection = heard.saturating_duration_since(killed);
        println!("rank {} heard after {detection:?}", rank.number);
        let named = error.contains("PeerDied") && error.contains(&format!("peer: {victim}"));
        assert!(named, "{scenario:?}: {error}");
        assert!(
            detection < crate::support::detection(),
            "{scenario:?}: detected after {detection:?}"
        );
    }
    for rank in &mut world.ranks {
        rank.expect("done");
    }
    world.ends_well();
    drop(dead);
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
                kill_one(setting, &scenario, &mut random);
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
    let deadline = Duration::from_millis(600);
    let scenario = Scenario {
        way: kind,
        by_columns: way % 2 == 1,
        replayed: way.is_multiple_of(3),
        phase,
        victim: 1,
    };
    let Some(mut world) = start(setting, &scenario, Some(deadline)) else {
        return;
    };
    reach(&mut world, &scenario, &mut Random::new(way as u64));
    let stopped = world.ranks[scenario.victim].stop();
    let (mut timeouts, mut named) = (0, 0);
    let others = world.ranks.iter_mut();
    for rank in others.filter(|rank| rank.number != scenario.victim) {
        let (heard, error) = rank.expect("heard");
        let waited = heard.saturating_duration_since(stopped);
        println!("{error} after {waited:?}");
        // The first rank that gives up names the peer and the call; the other may learn it from that rank.
        let timeout = error.contains("Timeout");
        timeouts += usize::from(timeout);
        assert!(timeout || error.contains("PeerFailed"), "{error}");
        // In step-by-step algorithms, a rank may wait for another that waits for the victim.
        named += usize::from(error.contains(&format!("rank {}", scenario.victim)));
        // A rank may have begun to wait long before the victim was stopped.
        assert!(
            waited < deadline + crate::support::SLACK,
            "after {waited:?}: {error}"
        );
    }
    assert!(timeouts > 0, "no rank timed out");
    assert!(named > 0, "no rank named the victim");
    world.ranks[scenario.victim].resume();
    world.ranks[scenario.victim].expect("heard");
    world.expect("done");
    world.ends_well();
}
