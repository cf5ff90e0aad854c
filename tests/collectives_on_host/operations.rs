//! Every operation by every algorithm, out of place and in place, in worlds and groups.

use crate::world::{sum, value, world};
use std::time::Duration;
use symmem::{
    Algorithm as A, CollectiveOptions, Collectives, Communicator, Group, ReduceOp, Result, Slice,
    Stream, SymmetricBuffer,
};

/// A value that no operation produces.
const POISON: i32 = -0x5a5a_5a5a;

type Range<'a> = Slice<'a, i32>;
/// The call of a case, with destination, source and root.
type Method = fn(Collectives<'_>, Range<'_>, Range<'_>, usize) -> Result<()>;

/// A call to test, its arguments, and the expected result.
struct Case {
    name: &'static str,
    /// Elements of destination and source, as multiples of the count.
    parts: fn(usize) -> (usize, usize),
    /// `None` leaves the choice to the selector.
    algorithms: &'static [Option<A>],
    in_place: &'static [Option<A>],
    call: Method,
    /// Returns the expected element of the destination for (rank, world, root, count, index); `None` if it is
    /// unchanged.
    expected: fn(usize, usize, usize, usize, usize) -> Option<i32>,
}

const CASES: &[Case] = &[
    Case {
        name: "all_reduce",
        parts: |_| (1, 1),
        algorithms: &[
            None,
            Some(A::Ll),
            Some(A::LlTwoShot),
            Some(A::Lamport),
            Some(A::OneShot),
            Some(A::TwoShot),
        ],
        in_place: &[
            None,
            Some(A::Ll),
            Some(A::LlTwoShot),
            Some(A::Lamport),
            Some(A::TwoShot),
        ],
        call: |stream, to, from, _| stream.all_reduce(to, from, ReduceOp::Sum),
        expected: |_, world, _, _, index| Some(sum(world, index)),
    },
    Case {
        name: "reduce",
        parts: |_| (1, 1),
        algorithms: &[None, Some(A::Ll), Some(A::OneShot), Some(A::TwoShot)],
        in_place: &[None, Some(A::Ll), Some(A::OneShot), Some(A::TwoShot)],
        call: |stream, to, from, root| stream.reduce(root, to, from, ReduceOp::Sum),
        expected: |rank, world, root, _, index| (rank == root).then(|| sum(world, index)),
    },
    Case {
        name: "reduce_scatter",
        parts: |world| (1, world),
        algorithms: &[None, Some(A::Ll), Some(A::OneShot)],
        in_place: &[None, Some(A::Ll), Some(A::OneShot)],
        call: |stream, to, from, _| stream.reduce_scatter(to, from, ReduceOp::Sum),
        expected: |rank, world, _, count, index| Some(sum(world, rank * count + index)),
    },
    Case {
        name: "all_gather",
        parts: |world| (world, 1),
        algorithms: &[
            None,
            Some(A::Ll),
            Some(A::Lamport),
            Some(A::Push),
            Some(A::Pull),
        ],
        in_place: &[
            None,
            Some(A::Ll),
            Some(A::Lamport),
            Some(A::Push),
            Some(A::Pull),
        ],
        call: |stream, to, from, _| stream.all_gather(to, from),
        expected: |_, _, _, count, index| Some(value(index / count, index % count)),
    },
    Case {
        name: "broadcast",
        parts: |_| (1, 1),
        algorithms: &[
            None,
            Some(A::Ll),
            Some(A::Push),
            Some(A::Pull),
            Some(A::TwoShot),
        ],
        in_place: &[
            None,
            Some(A::Ll),
            Some(A::Push),
            Some(A::Pull),
            Some(A::TwoShot),
        ],
        call: |stream, to, from, root| stream.broadcast(root, to, from),
        expected: |_, _, root, _, index| Some(value(root, index)),
    },
    Case {
        name: "all_to_all",
        parts: |world| (world, world),
        algorithms: &[
            None,
            Some(A::Ll),
            Some(A::Lamport),
            Some(A::Push),
            Some(A::Pull),
        ],
        in_place: &[None, Some(A::Ll), Some(A::Lamport), Some(A::Swap)],
        call: |stream, to, from, _| stream.all_to_all(to, from),
        expected: |rank, _, _, count, index| {
            Some(value(index / count, rank * count + index % count))
        },
    },
    Case {
        name: "gather",
        parts: |world| (world, 1),
        algorithms: &[None, Some(A::Ll), Some(A::Push), Some(A::Pull)],
        in_place: &[None, Some(A::Ll), Some(A::Push), Some(A::Pull)],
        call: |stream, to, from, root| stream.gather(root, to, from),
        expected: |rank, _, root, count, index| {
            (rank == root).then(|| value(index / count, index % count))
        },
    },
    Case {
        name: "scatter",
        parts: |world| (1, world),
        algorithms: &[None, Some(A::Ll), Some(A::Push), Some(A::Pull)],
        in_place: &[None, Some(A::Ll), Some(A::Push), Some(A::Pull)],
        call: |stream, to, from, root| stream.scatter(root, to, from),
        expected: |rank, _, root, count, index| Some(value(root, rank * count + index)),
    },
];

/// Runs a case. If the case is in place, the larger buffer holds both ranges.
fn run_case(
    (rank, world): (usize, usize),
    stream: &Stream,
    buffers: [&SymmetricBuffer<i32>; 2],
    case: &Case,
    count: usize,
    (in_place, algorithm): (bool, Option<A>),
    options: &CollectiveOptions<'_>,
) -> Result<()> {
    let root = world - 1;
    let (to_parts, from_parts) = (case.parts)(world);
    let [destination, source] = buffers;
    // Odd offsets, so that no range is aligned by chance.
    let (to, from) = match (in_place, to_parts.cmp(&from_parts)) {
        (false, _) => (
            destination.slice(3..3 + to_parts * count)?,
            source.slice(1..1 + from_parts * count)?,
        ),
        (true, std::cmp::Ordering::Equal) => {
            let range = destination.slice(3..3 + to_parts * count)?;
            (range, range)
        }
        (true, std::cmp::Ordering::Greater) => (
            destination.slice(3..3 + to_parts * count)?,
            destination.slice(3 + rank * count..3 + rank * count + count)?,
        ),
        (true, std::cmp::Ordering::Less) => (
            destination.slice(3 + rank * count..3 + rank * count + count)?,
            destination.slice(3..3 + from_parts * count)?,
        ),
    };
    destination.write(stream, 0, &vec![POISON; destination.len()])?;
    let given: Vec<i32> = (0..from.len()).map(|index| value(rank, index)).collect();
    stream.write(from, &given)?;
    stream.barrier()?;
    let options = options.algorithm(algorithm);
    (case.call)(stream.with(&options), to, from, root)?;
    let mut seen = vec![0; to.len()];
    destination.read(stream, to.offset(), &mut seen)?;
    let label = format!(
        "{} {} rank {rank} of {world}, {count} elements, in place: {in_place}",
        case.name,
        algorithm.map_or("AUTOMATIC", A::name)
    );
    for (index, &seen) in seen.iter().enumerate() {
        match (case.expected)(rank, world, root, count, index) {
            Some(expected) => assert_eq!(seen, expected, "{label}, index {index}"),
            None if in_place => {}
            None => assert_eq!(seen, POISON, "{label}, index {index} must not change"),
        }
    }
    // Elements around the destination are unchanged, unless they belong to the source.
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
    group: Option<&Group>,
    options: &CollectiveOptions<'_>,
) -> Result<()> {
    let options = options.group(group);
    let place = match group {
        Some(group) => (group.rank(), group.world_size()),
        None => (communicator.rank(), communicator.world_size()),
    };
    let stream = communicator.stream()?;
    let most = counts.iter().max().unwrap() * communicator.world_size() + 16;
    let destination = communicator.allocate::<i32>(&[most])?;
    let source = communicator.allocate::<i32>(&[most])?;
    for case in CASES {
        for &count in counts {
            for (in_place, algorithms) in [(false, case.algorithms), (true, case.in_place)] {
                for &algorithm in algorithms {
                    let way = (in_place, algorithm);
                    let buffers = [&destination, &source];
                    run_case(place, &stream, buffers, case, count, way, &options)?;
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
            run_all(&communicator, &COUNTS, None, &CollectiveOptions::new())?;
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
        // Even ranks in reverse order, and odd ranks; once a rank joins no group.
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
        let options = CollectiveOptions::new().channel(1);
        run_all(&communicator, &[7, 1000], Some(&group), &options)?;
        let stream = communicator.stream()?;
        stream.with(&options.group(&group)).barrier()?;
        stream.synchronize()?;
        drop((group, none));
        communicator.finalize().map(drop)
    }) {
        result.expect("every call succeeds");
    }
}

/// A result that came before its rank had entered the call would be lost: inputs are the same in every round, so nothing
/// else would tell that a rank has not been waited for.
#[test]
fn a_pushed_all_reduce_gives_a_rank_its_result_only_once_that_rank_has_entered() {
    const COUNT: usize = 5001;
    for ranks in [2, 3] {
        for result in world(ranks, |communicator| {
            let (rank, world) = (communicator.rank(), communicator.world_size());
            let stream = communicator.stream()?;
            let source = communicator.allocate::<i32>(&[COUNT])?;
            let destination = communicator.allocate::<i32>(&[COUNT])?;
            let input: Vec<i32> = (0..COUNT).map(|index| value(rank, index)).collect();
            let expected: Vec<i32> = (0..COUNT).map(|index| sum(world, index)).collect();
            source.write(&stream, 0, &input)?;
            stream.barrier()?;
            let options = CollectiveOptions::new().algorithm(A::Push);
            // A different rank is late in each round, by up to 6 ms.
            for round in 0..12 {
                let late = (rank * 5 + round * 7) % 4 * 2;
                std::thread::sleep(Duration::from_millis(late as u64));
                destination.write(&stream, 0, &[POISON; COUNT])?;
                stream
                    .with(&options)
                    .all_reduce(&destination, &source, ReduceOp::Sum)?;
                let mut seen = [0; COUNT];
                destination.read(&stream, 0, &mut seen)?;
                assert!(seen[..] == expected, "rank {rank} in round {round}");
            }
            communicator.finalize().map(drop)
        }) {
            result.expect("every call succeeds");
        }
    }
}
