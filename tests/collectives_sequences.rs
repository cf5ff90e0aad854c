//! Random sequences of collectives, puts, barriers and replays, each of which uses the results of the previous one, end
//! with what a plain model of all ranks' memory says. A sequence that does not is shrunk.

#[allow(dead_code, reason = "these tests use the fake runtimes only")]
mod support;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use rstest::rstest;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;
use support::hip::{Release, fake_hip};
use symmem::{
    Algorithm, CollectiveOptions, Collectives, Communicator, Queue, ReduceOp, Result, Slice,
    SymmetricBuffer,
};

/// Elements of each half of a buffer. A step reads one half and writes the other.
const HALF: usize = 2048;
/// Most elements of a part, so that the parts of four ranks fit into a half.
const MOST: usize = 400;
/// Deadline of each wait.
const DEADLINE: Duration = Duration::from_secs(5);
/// Time limit of the whole test, much longer than it takes.
const LIMIT: Duration = Duration::from_secs(120);
/// Sequences tried on the host backend.
const SEQUENCES: u32 = 48;
/// Sequences tried over each fake runtime, which is slower.
const ON_DEVICES: u32 = 24;
/// Names the backend of the ranks; the host if it is not set.
const BACKEND: &str = "SEQUENCES_BACKEND";

#[derive(Clone, Copy, Debug)]
enum Operation {
    /// The flag means in place.
    AllReduce(Option<Algorithm>, bool),
    Reduce(usize),
    ReduceScatter(Option<Algorithm>),
    AllGather(Option<Algorithm>),
    Broadcast(Option<Algorithm>, usize),
    AllToAll(Option<Algorithm>),
    Scatter(usize),
    Gather(usize),
    /// To the rank this many after this one, between two barriers.
    Put(usize),
    /// To and from the ranks this many before and after this one.
    Exchange(usize),
    Barrier,
}

/// One step: the operation, how many elements, and the ranges.
#[derive(Clone, Copy, Debug)]
struct Step {
    operation: Operation,
    count: usize,
    /// The half that is read.
    from_half: usize,
    from: usize,
    to: usize,
    channel: u32,
}

/// A sequence of groups of steps. A group runs eagerly once, or is captured and launched this many times.
#[derive(Clone, Debug)]
struct Sequence {
    world: usize,
    groups: Vec<(Vec<Step>, Option<usize>)>,
}

/// Returns the first element of a range of `length` in a half.
fn place(half: usize, offset: usize, length: usize) -> usize {
    half * HALF + offset % (HALF - length + 1)
}

impl Step {
    /// Returns how many elements are read and written in a world of `world` ranks.
    fn lengths(&self, world: usize) -> (usize, usize) {
        let (one, all) = (self.count, self.count * world);
        match self.operation {
            Operation::ReduceScatter(_) | Operation::Scatter(_) => (all, one),
            Operation::AllGather(_) | Operation::Gather(_) => (one, all),
            Operation::AllToAll(_) => (all, all),
            Operation::Barrier => (0, 0),
            _ => (one, one),
        }
    }

    /// Returns the first elements that are read and written.
    fn places(&self, world: usize) -> (usize, usize) {
        let (read, written) = self.lengths(world);
        let from = place(self.from_half, self.from, read);
        match self.operation {
            Operation::AllReduce(_, true) => (from, from),
            _ => (from, place(1 - self.from_half, self.to, written)),
        }
    }

    /// Applies the step to the model of all ranks' memory.
    fn apply(&self, memory: &mut [Vec<u32>]) {
        let world = memory.len();
        let before: Vec<Vec<u32>> = memory.to_vec();
        let ((from, to), count) = (self.places(world), self.count);
        let part = |rank: usize, part: usize| &before[rank][from + part * count..][..count];
        let sum = |number: usize| -> Vec<u32> {
            (0..count)
                .map(|at| {
                    (0..world).fold(0u32, |sum, rank| sum.wrapping_add(part(rank, number)[at]))
                })
                .collect()
        };
        for (rank, memory) in memory.iter_mut().enumerate() {
            let mut write = |number: usize, elements: &[u32]| {
                memory[to + number * count..][..count].copy_from_slice(elements);
            };
            match self.operation {
                Operation::AllReduce(..) => write(0, &sum(0)),
                Operation::Reduce(root) if rank == root % world => write(0, &sum(0)),
                Operation::ReduceScatter(_) => write(0, &sum(rank)),
                Operation::Broadcast(_, root) => write(0, part(root % world, 0)),
                Operation::Scatter(root) => write(0, part(root % world, rank)),
                Operation::Put(shift) | Operation::Exchange(shift) => {
                    write(0, part((rank + world - shift % world) % world, 0));
                }
                Operation::AllGather(_) => {
                    (0..world).for_each(|other| write(other, part(other, 0)))
                }
                Operation::Gather(root) if rank == root % world => {
                    (0..world).for_each(|other| write(other, part(other, 0)));
                }
                Operation::AllToAll(_) => {
                    (0..world).for_each(|other| write(other, part(other, rank)));
                }
                Operation::Reduce(_) | Operation::Gather(_) | Operation::Barrier => {}
            }
        }
    }

    /// Enqueues the step.
    fn enqueue(
        &self,
        communicator: &Communicator,
        queue: &Queue,
        buffer: &SymmetricBuffer<u32>,
    ) -> Result<()> {
        let (rank, world) = (communicator.rank(), communicator.world_size());
        let ((read, written), (from, to)) = (self.lengths(world), self.places(world));
        let (from, to) = (
            buffer.slice(from..from + read)?,
            buffer.slice(to..to + written)?,
        );
        let sum = ReduceOp::Sum;
        let by = |algorithm| {
            CollectiveOptions::new()
                .algorithm(algorithm)
                .channel(self.channel)
                .deadline(DEADLINE)
        };
        let plain = by(None);
        match self.operation {
            Operation::AllReduce(algorithm, _) => {
                queue.with(&by(algorithm)).all_reduce(to, from, sum)
            }
            Operation::Reduce(root) => queue.with(&plain).reduce(root % world, to, from, sum),
            Operation::ReduceScatter(algorithm) => {
                queue.with(&by(algorithm)).reduce_scatter(to, from, sum)
            }
            Operation::AllGather(algorithm) => queue.with(&by(algorithm)).all_gather(to, from),
            Operation::Broadcast(algorithm, root) => {
                queue.with(&by(algorithm)).broadcast(root % world, to, from)
            }
            Operation::AllToAll(algorithm) => queue.with(&by(algorithm)).all_to_all(to, from),
            Operation::Scatter(root) => queue.with(&plain).scatter(root % world, to, from),
            Operation::Gather(root) => queue.with(&plain).gather(root % world, to, from),
            Operation::Put(shift) => {
                queue.barrier_within(self.channel, DEADLINE)?;
                queue.put((rank + shift) % world, to, from)?;
                queue.barrier_within(self.channel, DEADLINE)
            }
            Operation::Exchange(shift) => {
                exchange(queue.with(&plain), (rank, world, shift), to, from)
            }
            Operation::Barrier => queue.barrier_within(self.channel, DEADLINE),
        }
    }
}

fn exchange(
    collectives: Collectives<'_>,
    (rank, world, shift): (usize, usize, usize),
    to: Slice<'_, u32>,
    from: Slice<'_, u32>,
) -> Result<()> {
    let mut exchange = collectives.exchange();
    exchange.send((rank + shift) % world, from)?;
    exchange.recv((rank + world - shift % world) % world, to)?;
    exchange.enqueue()
}

fn operation() -> impl Strategy<Value = Operation> {
    use Algorithm as A;
    let of = |algorithms: &'static [Option<Algorithm>]| proptest::sample::select(algorithms);
    let reducing = of(&[None, Some(A::Ll), Some(A::LlTwoShot), Some(A::TwoShot)]);
    let moving = of(&[None, Some(A::Ll), Some(A::Push), Some(A::Pull)]);
    prop_oneof![
        (reducing, any::<bool>()).prop_map(|(by, in_place)| Operation::AllReduce(by, in_place)),
        Just(Operation::AllReduce(Some(A::OneShot), false)),
        (0usize..4).prop_map(Operation::Reduce),
        of(&[None, Some(A::Ll), Some(A::OneShot)]).prop_map(Operation::ReduceScatter),
        moving.clone().prop_map(Operation::AllGather),
        (
            of(&[
                None,
                Some(A::Ll),
                Some(A::Push),
                Some(A::Pull),
                Some(A::TwoShot)
            ]),
            0usize..4
        )
            .prop_map(|(by, root)| Operation::Broadcast(by, root)),
        moving.prop_map(Operation::AllToAll),
        (0usize..4).prop_map(Operation::Scatter),
        (0usize..4).prop_map(Operation::Gather),
        (0usize..4).prop_map(Operation::Put),
        (0usize..4).prop_map(Operation::Exchange),
        Just(Operation::Barrier),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let count = prop_oneof![0usize..20, 0..=MOST];
    (operation(), count, 0usize..2, 0..HALF, 0..HALF, 0u32..4).prop_map(
        |(operation, count, from_half, from, to, channel)| Step {
            operation,
            count,
            from_half,
            from,
            to,
            channel,
        },
    )
}

fn sequence() -> impl Strategy<Value = Sequence> {
    let group = (
        proptest::collection::vec(step(), 1..6),
        proptest::option::weighted(0.4, 0usize..4),
    );
    (1usize..=4, proptest::collection::vec(group, 1..5))
        .prop_map(|(world, groups)| Sequence { world, groups })
}

fn initial(rank: usize) -> Vec<u32> {
    let element = |at: usize| {
        (at as u32)
            .wrapping_mul(2_654_435_761)
            .wrapping_add(rank as u32 * 97)
    };
    (0..2 * HALF).map(element).collect()
}

/// Returns what the model says that every rank's memory holds at the end.
fn model(sequence: &Sequence) -> Vec<Vec<u32>> {
    let mut memory: Vec<Vec<u32>> = (0..sequence.world).map(initial).collect();
    for (steps, launches) in &sequence.groups {
        for _ in 0..launches.unwrap_or(1) {
            steps.iter().for_each(|step| step.apply(&mut memory));
        }
    }
    memory
}

/// Runs a sequence as one rank and returns its memory at the end.
fn rank(communicator: &Communicator, sequence: &Sequence) -> Result<Vec<u32>> {
    let mut stream = communicator.stream()?;
    let buffer = communicator.allocate::<u32>(&[2 * HALF])?;
    buffer.write(&stream, 0, &initial(communicator.rank()))?;
    for (steps, launches) in &sequence.groups {
        let enqueue = |queue: &Queue| {
            let mut steps = steps.iter();
            steps.try_for_each(|step| step.enqueue(communicator, queue, &buffer))
        };
        match launches {
            None => enqueue(&stream)?,
            Some(launches) => {
                let graph = stream.capture(enqueue)?;
                for _ in 0..*launches {
                    stream.launch_graph(&graph)?;
                }
            }
        }
    }
    stream.synchronize_within(2 * DEADLINE)?;
    let mut seen = vec![0; 2 * HALF];
    buffer.read(&stream, 0, &mut seen)?;
    buffer.free()?;
    Ok(seen)
}

/// Runs a sequence with ranks as threads and returns every rank's memory at the end.
fn run(sequence: &Sequence) -> std::result::Result<Vec<Vec<u32>>, String> {
    let job = support::job("sequences");
    let world = sequence.world as u32;
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..world)
            .map(|number| {
                let job = job.clone();
                scope.spawn(move || {
                    let built = support::rank(BACKEND, number, world, &job)
                        .setup_deadline(2 * DEADLINE)
                        .deadline(DEADLINE)
                        .build();
                    let outcome = built.and_then(|communicator| rank(&communicator, sequence));
                    outcome.map_err(|error| error.to_string())
                })
            })
            .collect();
        let outcomes = ranks
            .into_iter()
            .map(|rank| rank.join().expect("a rank does not panic"));
        outcomes.collect()
    })
}

/// Fails with the first element that differs from the model.
fn compare(expected: &[Vec<u32>], seen: &[Vec<u32>]) -> std::result::Result<(), TestCaseError> {
    for (rank, (expected, seen)) in expected.iter().zip(seen).enumerate() {
        let wrong = (0..2 * HALF).find(|&at| expected[at] != seen[at]);
        if let Some(at) = wrong {
            let reason = format!(
                "rank {rank}: element {at} is {}, not {}",
                seen[at], expected[at]
            );
            return Err(TestCaseError::fail(reason));
        }
    }
    Ok(())
}

/// Tries sequences until one fails; the reason contains its shrunk form.
fn try_all(
    sequences: u32,
    run: impl Fn(&Sequence) -> std::result::Result<Vec<Vec<u32>>, String> + Send + 'static,
) -> std::result::Result<(), String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let config = Config {
            cases: sequences,
            max_shrink_time: 20_000,
            failure_persistence: None,
            ..Config::default()
        };
        let mut runner = TestRunner::new(config);
        let outcome = runner.run(&sequence(), |sequence| {
            let seen = run(&sequence).map_err(TestCaseError::fail)?;
            compare(&model(&sequence), &seen)
        });
        let _ = sender.send(outcome.map_err(|error| error.to_string()));
    });
    receiver
        .recv_timeout(LIMIT)
        .map_err(|_| format!("not done within {LIMIT:?}"))?
}

#[test]
fn any_sequence_ends_with_what_the_model_says() {
    if let Err(reason) = try_all(SEQUENCES, run) {
        panic!("{reason}");
    }
}

/// Runs in a child process, because an environment variable selects the runtime. The runtime must report no violation.
#[rstest]
fn any_sequence_on_devices_ends_with_what_the_model_says(#[values("cuda", "hip")] backend: &str) {
    let libraries = match backend {
        "hip" => fake_hip(Release::Seven),
        _ => support::fake_driver(),
    };
    let report = format!("{}/sequences-{backend}", env!("CARGO_TARGET_TMPDIR"));
    let _ = std::fs::remove_file(&report);
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["on_devices", "--exact", "--ignored", "--nocapture"])
        .env("SYMMEM_LIBRARY_PATH", libraries)
        .env("FAKE_DEVICE_COUNT", "4")
        .env("FAKE_DEVICE_REPORT", &report)
        .env(BACKEND, backend)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{backend}: {text}");
    let report = std::fs::read_to_string(&report).unwrap();
    let wrong = report.lines().find(|line| !line.starts_with("process "));
    assert_eq!(wrong, None, "{backend}: the runtime's report");
}

#[test]
#[ignore = "run in a child process by the test above"]
fn on_devices() {
    if let Err(reason) = try_all(ON_DEVICES, run) {
        panic!("{reason}");
    }
}

/// Tests the checker: plants a broadcast that omits the last element.
#[test]
fn a_fault_in_one_operation_is_found_and_shrunk_to_it() {
    let faulty = |sequence: &Sequence| {
        let mut memory: Vec<Vec<u32>> = (0..sequence.world).map(initial).collect();
        for (steps, launches) in &sequence.groups {
            for _ in 0..launches.unwrap_or(1) {
                for step in steps {
                    let mut step = *step;
                    if matches!(step.operation, Operation::Broadcast(..)) {
                        // The offsets stay those of the whole range.
                        let (from, to) = step.places(sequence.world);
                        (step.from, step.to) = (from % HALF, to % HALF);
                        step.count = step.count.saturating_sub(1);
                    }
                    step.apply(&mut memory);
                }
            }
        }
        Ok(memory)
    };
    let reason = try_all(2000, faulty).expect_err("the fault is found");
    assert!(reason.contains("Broadcast"), "{reason}");
    let others = reason.matches("operation:").count();
    assert_eq!(others, 1, "shrunk to one step: {reason}");
}
