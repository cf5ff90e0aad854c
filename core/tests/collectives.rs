//! What collectives promise whatever the algorithm: ranks are threads on the host backend.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use symmem_core::backend::abi::{Algorithm, ReduceOperation};
use symmem_core::bootstrap::LaunchEnvironment;
use symmem_core::{
    BackendSource, BufferRange, CollectiveOptions, Communicator, Configuration, Error, Graph,
    Group, Provider, Result, Stream, SymmetricBuffer,
};

/// Far beyond what any of these takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn configuration(rank: u32, world: u32, job: &str) -> Configuration {
    let launch = LaunchEnvironment::local(rank, world, job.into()).expect("a rank of the world");
    let mut configuration = Configuration::new(launch);
    configuration.deadline = PATIENCE;
    configuration.setup_deadline = PATIENCE;
    configuration
}

/// Runs `rank` as each rank of a world whose configuration `adapt` changes.
fn world_with<T: Send>(
    world: u32,
    adapt: impl Fn(&mut Configuration) + Sync,
    rank: impl Fn(Communicator) -> T + Sync,
) -> Vec<T> {
    static JOBS: AtomicU32 = AtomicU32::new(0);
    let number = JOBS.fetch_add(1, Ordering::Relaxed);
    let job = format!("collectives-{}-{number}", std::process::id());
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..world)
            .map(|number| {
                let (job, rank, adapt) = (&job, &rank, &adapt);
                scope.spawn(move || {
                    let mut configuration = configuration(number, world, job);
                    adapt(&mut configuration);
                    let opened = Communicator::open(&BackendSource::Host, configuration);
                    rank(opened.expect("the world comes up"))
                })
            })
            .collect();
        let results = ranks.into_iter().map(|rank| rank.join().expect("no panic"));
        results.collect()
    })
}

fn world<T: Send>(ranks: u32, rank: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    world_with(ranks, |_| (), rank)
}

/// What a rank has before the call at an index; nothing that a sum of others would be.
fn value(rank: usize, index: usize) -> i32 {
    (index as i32)
        .wrapping_mul(7919)
        .wrapping_add((rank as i32 + 1) * 1_000_003)
}

const POISON: i32 = -0x5a5a_5a5a;

/// A call to be tested: what it is given, and what has to come out.
struct Case {
    name: &'static str,
    /// Elements of destination and source, as multiples of the count.
    parts: fn(usize) -> (usize, usize),
    algorithms: &'static [Algorithm],
    in_place: &'static [Algorithm],
    call: fn(
        &Stream,
        BufferRange<'_, i32>,
        BufferRange<'_, i32>,
        usize,
        &CollectiveOptions<'_>,
    ) -> Result<()>,
    /// By (rank, world, root, count, index): the destination's element; `None` where it stays.
    expected: fn(usize, usize, usize, usize, usize) -> Option<i32>,
}

fn sum(world: usize, index: usize) -> i32 {
    (0..world).fold(0, |sum, rank| sum.wrapping_add(value(rank, index)))
}

use Algorithm as A;

const CASES: &[Case] = &[
    Case {
        name: "all_reduce",
        parts: |_| (1, 1),
        algorithms: &[
            A::AUTOMATIC,
            A::PACKETS,
            A::PACKETS_TWO_SHOT,
            A::ONE_SHOT,
            A::TWO_SHOT,
        ],
        in_place: &[A::AUTOMATIC, A::PACKETS, A::PACKETS_TWO_SHOT, A::TWO_SHOT],
        call: |stream, to, from, _, options| {
            stream.all_reduce_with(to, from, ReduceOperation::SUM, options)
        },
        expected: |_, world, _, _, index| Some(sum(world, index)),
    },
    Case {
        name: "reduce",
        parts: |_| (1, 1),
        algorithms: &[A::AUTOMATIC, A::PACKETS, A::ONE_SHOT, A::TWO_SHOT],
        in_place: &[A::AUTOMATIC, A::PACKETS, A::ONE_SHOT, A::TWO_SHOT],
        call: |stream, to, from, root, options| {
            stream.reduce(root, to, from, ReduceOperation::SUM, options)
        },
        expected: |rank, world, root, _, index| (rank == root).then(|| sum(world, index)),
    },
    Case {
        name: "reduce_scatter",
        parts: |world| (1, world),
        algorithms: &[A::AUTOMATIC, A::PACKETS, A::ONE_SHOT],
        in_place: &[A::AUTOMATIC, A::PACKETS, A::ONE_SHOT],
        call: |stream, to, from, _, options| {
            stream.reduce_scatter(to, from, ReduceOperation::SUM, options)
        },
        expected: |rank, world, _, count, index| Some(sum(world, rank * count + index)),
    },
    Case {
        name: "all_gather",
        parts: |world| (world, 1),
        algorithms: &[A::AUTOMATIC, A::PACKETS, A::PUSH, A::PULL],
        in_place: &[A::AUTOMATIC, A::PACKETS, A::PUSH, A::PULL],
        call: |stream, to, from, _, options| stream.all_gather(to, from, options),
        expected: |_, _, _, count, index| Some(value(index / count, index % count)),
    },
    Case {
        name: "broadcast",
        parts: |_| (1, 1),
        algorithms: &[A::AUTOMATIC, A::PACKETS, A::PUSH, A::PULL, A::TWO_SHOT],
        in_place: &[A::AUTOMATIC, A::PACKETS, A::PUSH, A::PULL, A::TWO_SHOT],
        call: |stream, to, from, root, options| stream.broadcast(root, to, from, options),
        expected: |_, _, root, _, index| Some(value(root, index)),
    },
    Case {
        name: "all_to_all",
        parts: |world| (world, world),
        algorithms: &[A::AUTOMATIC, A::PACKETS, A::PUSH, A::PULL],
        in_place: &[A::AUTOMATIC, A::PACKETS],
        call: |stream, to, from, _, options| stream.all_to_all(to, from, options),
        expected: |rank, _, _, count, index| {
            Some(value(index / count, rank * count + index % count))
        },
    },
    Case {
        name: "gather",
        parts: |world| (world, 1),
        algorithms: &[A::AUTOMATIC, A::PACKETS, A::PUSH, A::PULL],
        in_place: &[A::AUTOMATIC, A::PACKETS, A::PUSH, A::PULL],
        call: |stream, to, from, root, options| stream.gather(root, to, from, options),
        expected: |rank, _, root, count, index| {
            (rank == root).then(|| value(index / count, index % count))
        },
    },
    Case {
        name: "scatter",
        parts: |world| (1, world),
        algorithms: &[A::AUTOMATIC, A::PACKETS, A::PUSH, A::PULL],
        in_place: &[A::AUTOMATIC, A::PACKETS, A::PUSH, A::PULL],
        call: |stream, to, from, root, options| stream.scatter(root, to, from, options),
        expected: |rank, _, root, count, index| Some(value(root, rank * count + index)),
    },
];

/// The larger buffer holds both ranges of a case in place.
fn run_case(
    communicator: &Communicator,
    stream: &Stream,
    buffers: [&SymmetricBuffer<i32>; 2],
    case: &Case,
    count: usize,
    in_place: bool,
    options: &CollectiveOptions<'_>,
) -> Result<()> {
    let (rank, world) = match options.group {
        Some(group) => (group.rank(), group.world()),
        None => (communicator.rank(), communicator.world()),
    };
    let root = world - 1;
    let (to_parts, from_parts) = (case.parts)(world);
    let [destination, source] = buffers;
    // Odd offsets, so that nothing is aligned by chance.
    let (to, from) = match (in_place, to_parts.cmp(&from_parts)) {
        (false, _) => (
            destination.range(3, to_parts * count)?,
            source.range(1, from_parts * count)?,
        ),
        (true, std::cmp::Ordering::Equal) => {
            let range = destination.range(3, to_parts * count)?;
            (range, range)
        }
        (true, std::cmp::Ordering::Greater) => (
            destination.range(3, to_parts * count)?,
            destination.range(3 + rank * count, count)?,
        ),
        (true, std::cmp::Ordering::Less) => (
            destination.range(3 + rank * count, count)?,
            destination.range(3, from_parts * count)?,
        ),
    };
    destination.write(stream, 0, &vec![POISON; destination.len()])?;
    let given: Vec<i32> = (0..from.len()).map(|index| value(rank, index)).collect();
    from.buffer().write(stream, from.offset(), &given)?;
    stream.barrier()?;
    (case.call)(stream, to, from, root, options)?;
    let mut seen = vec![0; to.len()];
    destination.read(stream, to.offset(), &mut seen)?;
    let label = format!(
        "{} {} rank {rank} of {world}, {count} elements, in place: {in_place}",
        case.name,
        options.algorithm.name()
    );
    for (index, &seen) in seen.iter().enumerate() {
        match (case.expected)(rank, world, root, count, index) {
            Some(expected) => assert_eq!(seen, expected, "{label}, index {index}"),
            None if in_place => {}
            None => assert_eq!(seen, POISON, "{label}, index {index} was to stay"),
        }
    }
    // What is beside the destination stays, where it is not the source.
    let mut around = [0; 3];
    destination.read(stream, 0, &mut around)?;
    assert_eq!(around, [POISON; 3], "{label}: before");
    let end = 3 + count * to_parts.max(if in_place { from_parts } else { 0 });
    let mut around = [0; 1];
    destination.read(stream, end, &mut around)?;
    assert_eq!(around, [POISON], "{label}: behind");
    stream.barrier()
}

const COUNTS: [usize; 6] = [1, 3, 16, 129, 4097, 70_001];

fn run_all(
    communicator: &Communicator,
    counts: &[usize],
    options: &CollectiveOptions<'_>,
) -> Result<()> {
    let stream = communicator.stream()?;
    let most = counts.iter().max().unwrap() * communicator.world() + 16;
    let destination = communicator.allocate::<i32>(&[most])?;
    let source = communicator.allocate::<i32>(&[most])?;
    for case in CASES {
        for &count in counts {
            for (in_place, algorithms) in [(false, case.algorithms), (true, case.in_place)] {
                for &algorithm in algorithms {
                    let options = CollectiveOptions {
                        algorithm,
                        ..*options
                    };
                    let buffers = [&destination, &source];
                    run_case(
                        communicator,
                        &stream,
                        buffers,
                        case,
                        count,
                        in_place,
                        &options,
                    )?;
                }
            }
        }
    }
    Ok(())
}

#[test]
fn every_algorithm_gives_every_rank_what_the_operation_says() {
    for ranks in [1, 2, 3, 4] {
        for result in world(ranks, |communicator| {
            run_all(&communicator, &COUNTS, &CollectiveOptions::default())?;
            communicator.finalize()
        }) {
            let leaks = result.expect("every call succeeds");
            assert!(leaks.is_empty(), "{leaks:?}");
        }
    }
}

#[test]
fn groups_number_their_ranks_anew_and_do_not_disturb_each_other() {
    for result in world(5, |communicator| {
        let rank = communicator.rank();
        // Evens, in reverse order; odds; and nobody, once.
        let key = 10 - rank as u32;
        let group = communicator
            .split(Some(rank as u32 % 2), key)?
            .expect("joined");
        assert_eq!(
            group.members(),
            if rank % 2 == 0 {
                &[4, 2, 0][..]
            } else {
                &[3, 1]
            }
        );
        let none = communicator.split((rank > 0).then_some(0), 0)?;
        assert_eq!(none.is_none(), rank == 0);
        let options = CollectiveOptions {
            group: Some(&group),
            channel: 1,
            ..Default::default()
        };
        run_all(&communicator, &[7, 1000], &options)?;
        let stream = communicator.stream()?;
        stream.group_barrier(&options)?;
        stream.synchronize()?;
        drop((group, none));
        communicator.finalize().map(drop)
    }) {
        result.expect("every call succeeds");
    }
}

#[test]
fn sends_and_receives_meet_in_order_and_only_their_pair_takes_part() {
    for result in world(4, |communicator| {
        let (rank, world) = (communicator.rank(), communicator.world());
        let stream = communicator.stream()?;
        let out = communicator.allocate::<i32>(&[100])?;
        let inbox = communicator.allocate::<i32>(&[400])?;
        let given: Vec<i32> = (0..100).map(|index| value(rank, index)).collect();
        out.write(&stream, 0, &given)?;
        let options = CollectiveOptions::default();
        // A ring, twice each way, and to itself; of different sizes.
        let (right, left) = ((rank + 1) % world, (rank + world - 1) % world);
        stream.exchange(&options, |exchange| {
            exchange.send(right, out.range(0, 40)?)?;
            exchange.send(right, out.range(40, 7)?)?;
            exchange.receive(left, inbox.range(0, 40)?)?;
            exchange.receive(left, inbox.range(50, 7)?)?;
            exchange.send(rank, out.range(90, 10)?)?;
            exchange.receive(rank, inbox.range(60, 10)?)
        })?;
        let mut seen = vec![0; 70];
        inbox.read(&stream, 0, &mut seen)?;
        for index in 0..40 {
            assert_eq!(seen[index], value(left, index));
        }
        for index in 0..7 {
            assert_eq!(seen[50 + index], value(left, 40 + index));
        }
        for index in 0..10 {
            assert_eq!(seen[60 + index], value(rank, 90 + index));
        }
        // Two ranks only, and offsets that are not symmetric.
        for round in 0..3 {
            match rank {
                1 => stream.send(3, out.range(round, 30)?, &options)?,
                3 => stream.receive(1, inbox.range(300 - round, 30)?, &options)?,
                _ => {}
            }
        }
        if rank == 3 {
            let mut seen = vec![0; 30];
            inbox.read(&stream, 298, &mut seen)?;
            for (index, &seen) in seen.iter().enumerate() {
                assert_eq!(seen, value(1, 2 + index));
            }
        }
        stream.synchronize()?;
        communicator.host_barrier()
    }) {
        result.expect("every call succeeds");
    }
}

/// What rank `from` sends rank `to`; some send nothing.
fn sent(from: usize, to: usize) -> usize {
    (from * 7 + to * 3) % 5 * 11
}

#[test]
fn parts_of_any_size_arrive_where_the_offsets_say() {
    for result in world(4, |communicator| {
        let (rank, world) = (communicator.rank(), communicator.world());
        let stream = communicator.stream()?;
        let out = communicator.allocate::<i32>(&[400])?;
        let inbox = communicator.allocate::<i32>(&[400])?;
        let given: Vec<i32> = (0..400).map(|index| value(rank, index)).collect();
        out.write(&stream, 0, &given)?;
        let options = CollectiveOptions::default();
        // Offsets that leave gaps, and that only the rank itself knows.
        let at: Vec<usize> = (0..world).map(|peer| peer * 60 + rank).collect();
        let sends: Vec<usize> = (0..world).map(|peer| sent(rank, peer)).collect();
        let receives: Vec<usize> = (0..world).map(|peer| sent(peer, rank)).collect();
        let (to, from) = (inbox.all(), out.all());
        stream.all_to_all_v(to, &receives, &at, from, &sends, &at, &options)?;
        let mut seen = vec![0; 400];
        inbox.read(&stream, 0, &mut seen)?;
        for peer in 0..world {
            for index in 0..receives[peer] {
                // The sender's offset is its own.
                let expected = value(peer, rank * 60 + peer + index);
                assert_eq!(seen[at[peer] + index], expected);
            }
        }
        let counts = [3, 0, 50, 1];
        let total = counts.iter().sum();
        for algorithm in [A::AUTOMATIC, A::PACKETS, A::PUSH, A::PULL] {
            for in_place in [false, true] {
                let options = CollectiveOptions {
                    algorithm,
                    ..options
                };
                stream.barrier()?;
                let start: usize = counts[..rank].iter().sum();
                let from = if in_place {
                    inbox.range(5 + start, counts[rank])?
                } else {
                    out.range(9, counts[rank])?
                };
                let given: Vec<i32> = (0..counts[rank]).map(|index| value(rank, index)).collect();
                from.buffer().write(&stream, from.offset(), &given)?;
                stream.all_gather_v(inbox.range(5, total)?, from, &counts, &options)?;
                let mut seen = vec![0; total];
                inbox.read(&stream, 5, &mut seen)?;
                let expected: Vec<i32> = (0..world)
                    .flat_map(|peer| (0..counts[peer]).map(move |index| value(peer, index)))
                    .collect();
                assert_eq!(seen, expected, "{} in place: {in_place}", algorithm.name());
            }
        }
        communicator.host_barrier()
    }) {
        result.expect("every call succeeds");
    }
}

#[test]
fn a_receipt_of_another_size_than_was_sent_is_told() {
    let results = world(2, |communicator| {
        let stream = communicator.stream()?;
        let buffer = communicator.allocate::<i32>(&[64])?;
        let options = CollectiveOptions::default();
        match communicator.rank() {
            0 => stream.send(1, buffer.range(0, 8)?, &options)?,
            _ => stream.receive(0, buffer.range(0, 9)?, &options)?,
        }
        stream.synchronize()
    });
    let error = results[1].as_ref().expect_err("nine are not eight");
    assert!(matches!(error, Error::Mismatch { peer: 0, .. }), "{error}");
    results[0].as_ref().expect_err("nobody received it");
}

#[test]
fn a_captured_collective_runs_at_every_replay_beside_eager_ones() {
    for result in world(3, |communicator| {
        let (rank, world) = (communicator.rank(), communicator.world());
        let stream = communicator.stream()?;
        let group = communicator.split(Some(0), 0)?.expect("joined");
        let numbers = communicator.allocate::<i32>(&[100])?;
        let sums = communicator.allocate::<i32>(&[100])?;
        let parts = communicator.allocate::<i32>(&[300])?;
        let reduce = |stream: &Stream, algorithm, group: Option<&Group>| {
            let options = CollectiveOptions {
                algorithm,
                group,
                ..Default::default()
            };
            stream.all_reduce_with(sums.all(), numbers.all(), ReduceOperation::SUM, &options)
        };
        let right = (rank + 1) % world;
        let left = (rank + world - 1) % world;
        let graph = Graph::capture(&stream, |stream| {
            reduce(stream, A::PACKETS, None)?;
            reduce(stream, A::TWO_SHOT, Some(&group))?;
            let options = CollectiveOptions::default();
            stream.all_gather(parts.all(), sums.all(), &options)?;
            stream.exchange(&options, |exchange| {
                exchange.send(right, numbers.range(0, 1)?)?;
                exchange.receive(left, parts.range(0, 1)?)
            })
        })?;
        // The graph keeps what it needs of the group.
        drop(group);
        for round in 0..5 {
            let given: Vec<i32> = (0..100).map(|index| value(rank, index + round)).collect();
            numbers.write(&stream, 0, &given)?;
            graph.launch(&stream)?;
            let mut seen = vec![0; 300];
            parts.read(&stream, 0, &mut seen)?;
            assert_eq!(seen[0], value(left, round));
            for (index, &seen) in seen.iter().enumerate().skip(1) {
                assert_eq!(seen, sum(world, index % 100 + round));
            }
            stream.barrier()?;
            reduce(&stream, A::ONE_SHOT, None)?;
            let mut seen = vec![0; 100];
            sums.read(&stream, 0, &mut seen)?;
            assert_eq!(seen[99], sum(world, 99 + round));
        }
        drop(graph);
        communicator.finalize().map(drop)
    }) {
        result.expect("every call succeeds");
    }
}

#[test]
fn calls_on_different_channels_do_not_wait_for_each_other() {
    for result in world(2, |communicator| {
        let streams = [communicator.stream()?, communicator.stream()?];
        let numbers = communicator.allocate::<i32>(&[10])?;
        let sums = communicator.allocate::<i32>(&[20])?;
        numbers.write(&streams[0], 0, &[1; 10])?;
        // Each rank in another order.
        let order = [[0, 1], [1, 0]][communicator.rank()];
        for channel in order {
            let options = CollectiveOptions {
                channel: channel as u32,
                ..Default::default()
            };
            let sums = sums.range(channel * 10, 10)?;
            let (sum, stream) = (ReduceOperation::SUM, &streams[channel]);
            stream.all_reduce_with(sums, numbers.all(), sum, &options)?;
        }
        let mut seen = vec![0; 20];
        for stream in &streams {
            stream.synchronize()?;
        }
        sums.read(&streams[0], 0, &mut seen)?;
        assert_eq!(seen, [2; 20]);
        communicator.finalize().map(drop)
    }) {
        result.expect("every call succeeds");
    }
}

#[test]
fn what_cannot_be_served_is_refused_with_what_can() {
    for result in world(2, |communicator| {
        let stream = communicator.stream()?;
        let buffer = communicator.allocate::<i32>(&[64])?;
        let other = communicator.allocate::<i32>(&[64])?;
        let plain = CollectiveOptions::default();
        let sum = ReduceOperation::SUM;
        let refused = |outcome: Result<()>, word: &str| {
            let error = outcome.expect_err(word);
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
            assert!(error.to_string().contains(word), "{error}");
        };
        let with = |algorithm| CollectiveOptions { algorithm, ..plain };
        let (all, half) = (buffer.all(), other.range(0, 32)?);
        let one_shot = with(A::ONE_SHOT);
        refused(stream.all_reduce_with(all, all, sum, &one_shot), "TWO_SHOT");
        refused(stream.all_to_all(all, all, &with(A::PUSH)), "PACKETS");
        refused(stream.all_gather(all, half, &with(A::TWO_SHOT)), "PULL");
        refused(
            stream.all_gather(all, half, &with(A::COPY_ENGINE)),
            "copy engine",
        );
        let vendor = CollectiveOptions {
            provider: Provider::Vendor,
            ..plain
        };
        refused(
            stream.all_reduce_with(all, all, sum, &vendor),
            "open_vendor",
        );
        refused(stream.all_reduce(all, half, sum), "32");
        let overlapping = other.range(1, 32)?;
        refused(stream.all_reduce(half, overlapping, sum), "overlap");
        refused(stream.broadcast(2, half, half, &plain), "rank 2");
        let many = CollectiveOptions {
            blocks: Some(1 << 20),
            ..plain
        };
        refused(stream.all_gather(all, half, &many), "blocks");
        let channel = CollectiveOptions {
            channel: 99,
            ..plain
        };
        refused(stream.all_gather(all, half, &channel), "channel 99");
        let odd = buffer.range(0, 7)?;
        refused(stream.all_to_all(odd, odd, &plain), "evenly");
        refused(
            stream.all_reduce(all, all, ReduceOperation(77)),
            "reduction 77",
        );
        // Nothing is enqueued for nothing.
        let none = buffer.range(0, 0)?;
        stream.all_reduce(none, none, sum)?;
        stream.all_gather(none, none, &plain)?;
        // After all that the ranks are in step.
        stream.all_reduce(all, all, sum)?;
        stream.synchronize()?;
        communicator.finalize().map(drop)
    }) {
        result.expect("every call succeeds");
    }
}

#[test]
fn a_call_that_differs_on_one_rank_is_named_before_it_is_made() {
    let check = |configuration: &mut Configuration| configuration.check_calls = true;
    for (rank, result) in world_with(3, check, |communicator| {
        let stream = communicator.stream()?;
        let buffer = communicator.allocate::<i32>(&[64])?;
        let odd_one_out = communicator.rank() == 1;
        let sum = ReduceOperation::SUM;
        stream.all_reduce(buffer.all(), buffer.all(), sum)?;
        let mut errors = Vec::new();
        let length = if odd_one_out { 5 } else { 6 };
        let range = buffer.range(0, length)?;
        errors.push(stream.all_reduce(range, range, sum));
        let reduction = if odd_one_out {
            ReduceOperation::MAXIMUM
        } else {
            sum
        };
        errors.push(stream.all_reduce(buffer.all(), buffer.all(), reduction));
        let root = usize::from(odd_one_out);
        let options = CollectiveOptions::default();
        errors.push(stream.broadcast(root, buffer.all(), buffer.all(), &options));
        // In place each rank's part is its own: no difference.
        let third = buffer.range(communicator.rank() * 21, 21)?;
        stream.all_gather(buffer.range(0, 63)?, third, &options)?;
        stream.synchronize()?;
        communicator.finalize()?;
        Result::Ok(errors)
    })
    .into_iter()
    .enumerate()
    {
        let errors = result.expect("everything else goes on");
        for error in errors {
            let error = error.expect_err("the ranks differ");
            let expected = if rank == 1 { 0 } else { 1 };
            assert!(
                matches!(error, Error::Mismatch { peer, .. } if peer == expected),
                "rank {rank}: {error}"
            );
        }
    }
}

#[test]
fn a_member_that_does_not_come_is_named_by_the_collective_that_waits() {
    let short = |configuration: &mut Configuration| {
        configuration.deadline = Duration::from_millis(300);
    };
    let results = world_with(2, short, |communicator| {
        let stream = communicator.stream()?;
        let buffer = communicator.allocate::<i32>(&[64])?;
        if communicator.rank() == 0 {
            stream.all_reduce(buffer.all(), buffer.all(), ReduceOperation::SUM)?;
            stream.synchronize()?;
        } else {
            std::thread::sleep(Duration::from_secs(2));
        }
        Result::Ok(())
    });
    let error = results[0].as_ref().expect_err("rank 1 never came");
    assert!(
        matches!(
            error,
            Error::Timeout {
                peer: 1,
                operation: "all_reduce",
                ..
            }
        ),
        "{error}"
    );
}
