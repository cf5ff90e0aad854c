use super::*;
use crate::kernels::{Kernels, argument_bytes};
use std::sync::LazyLock;

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

/// Kernels that are their own names.
static KERNELS: LazyLock<Kernels<&'static str>> = LazyLock::new(|| {
    let names = argument_bytes().into_iter().map(|(name, _)| {
        let name: &'static str = name.leak();
        (name, name)
    });
    Kernels::new(names.collect()).expect("all kernels")
});

fn geometry(blocks: u32, threads: u32) -> Geometry {
    Geometry {
        blocks: [blocks, 1, 1],
        threads: [threads, 1, 1],
        shared_memory: 0,
    }
}

fn group(world: u32) -> CollectiveGroup {
    CollectiveGroup {
        watch: Watch::default(),
        slots: [DeviceAddress::NULL; MAX_RANKS],
        packet_bytes: 0,
        dependents: DependentsCode::ANSWERED,
        rank: 0,
        world,
        slot: 0,
        operation: CollectiveOperationCode::ALL_GATHER,
        members: [0; MAX_RANKS],
    }
}

/// A move of `bytes` to each of `world` members, whose addresses are `address`.
fn moves(world: u32, bytes: u64, address: u64) -> MoveLamportArguments {
    MoveLamportArguments {
        group: group(world),
        inboxes: [DeviceAddress::NULL; MAX_RANKS],
        sources: [DeviceAddress(address); MAX_RANKS],
        destinations: [DeviceAddress(address); MAX_RANKS],
        bytes,
        counters: DeviceAddress::NULL,
        part_bytes: 0,
        dependents: DependentsCode::ANSWERED,
        pair: MoveLamportPair::default(),
        sender: EVERY_MEMBER,
        receiver: EVERY_MEMBER,
    }
}

/// A sum of `count` elements, from `source` to `destination`.
fn sums(world: u32, count: u64, source: u64, destination: u64) -> ReduceLamportArguments {
    ReduceLamportArguments {
        group: group(world),
        inboxes: [DeviceAddress::NULL; MAX_RANKS],
        sources: [DeviceAddress(source); MAX_RANKS],
        destination: DeviceAddress(destination),
        count,
        counters: DeviceAddress::NULL,
        part_bytes: 0,
        element: ElementTypeCode::F32,
        reduce: ReduceOpCode::SUM,
        dependents: DependentsCode::ANSWERED,
        pair: LamportPair::default(),
        share_bytes: 0,
        receiver: EVERY_MEMBER,
        reserved: 0,
    }
}

/// Returns what the name of the kernel for a call says of its size.
#[track_caller]
fn size_of_move(arguments: &MoveLamportArguments, geometry: &Geometry) -> &'static str {
    let kernel = move_lamport_kernel(&KERNELS.move_lamport, arguments, geometry).kernel;
    kernel.strip_prefix("symmem_move_lamport").expect("a move")
}

#[track_caller]
fn size_of_sum(arguments: &ReduceLamportArguments, geometry: &Geometry) -> &'static str {
    let kernels = KERNELS.lamport(arguments.element).expect("sums of f32");
    let kernel = lamport_kernel(kernels, arguments, geometry);
    let kernel = kernel.expect("sums of f32").kernel;
    let size = kernel.strip_prefix("symmem_reduce_lamport");
    let size = size.and_then(|size| size.strip_suffix("_f32"));
    size.expect("a sum")
}

/// Checks the kernels of a pair on both sides of what each thread takes once, twice and four times: `round` is all that
/// the grid takes once, a vector more is `vector`.
#[track_caller]
fn assert_kernels_of_a_pair(
    size: impl Fn(u64) -> &'static str,
    round: u64,
    vector: u64,
    case: &str,
) {
    for (within, beyond, rounds) in [
        ("_pair1", "_pair2", 1),
        ("_pair2", "_pair4", 2),
        ("_pair4", "", 4),
    ] {
        assert_eq!(size(rounds * round), within, "{case}");
        assert_eq!(size(rounds * round + vector), beyond, "{case}");
    }
}

/// Grids of NVIDIA's tuning rows, with the data that each thread of a pair takes at most once, twice, and four times.
#[test]
fn a_move_between_two_takes_the_kernel_whose_threads_have_room_for_data_and_marks() {
    for (blocks, threads) in [
        (2, 64),
        (20, 64),
        (34, 64),
        (67, 128),
        (67, 512),
        (264, 256),
        (264, 288),
    ] {
        let grid = geometry(blocks, threads);
        // A line of 32 threads has one of marks.
        let round = u64::from(blocks * threads / 32 * 31 * 16);
        let size = |bytes| size_of_move(&moves(2, bytes, 0), &grid);
        let case = format!("{blocks} blocks of {threads} threads");
        assert_eq!(size(16), "_pair1", "{case}");
        assert_kernels_of_a_pair(size, round, 16, &case);
        // Three rounds take the kernel for four.
        assert_eq!(size(3 * round), "_pair4", "{case}");
    }
    // 4 MiB of data and its marks are just more than four vectors for each of 264 blocks of 256 threads.
    let size = |threads| size_of_move(&moves(2, 4 * MIB, 0), &geometry(264, threads));
    assert_eq!((size(256), size(288)), ("", "_pair4"));
}

#[test]
fn a_move_among_more_takes_the_small_kernel_for_one_vector_a_thread_and_up_to_eight_members() {
    let grid = geometry(17, 64);
    let round = 17 * 64 / 32 * 31 * 16;
    for (world, bytes, expected) in [
        (3, round, "_few"),
        (3, round + 16, ""),
        (4, round, "_four"),
        (4, round + 16, ""),
        (7, round, "_few"),
        (8, round, "_eight"),
        (9, round, ""),
        (9, 16, ""),
    ] {
        let size = size_of_move(&moves(world, bytes, 0), &grid);
        assert_eq!(size, expected, "{bytes} bytes among {world}");
    }
}

#[test]
fn a_sum_between_two_takes_the_kernel_whose_threads_have_room_for_its_vectors() {
    for (blocks, threads) in [(1, 64), (64, 64), (32, 512), (128, 512), (264, 256)] {
        let grid = geometry(blocks, threads);
        // Elements of f32.
        let round = u64::from(blocks * threads * 4);
        let size = |count| size_of_sum(&sums(2, count, 0, 0), &grid);
        let case = format!("{blocks} blocks of {threads} threads");
        assert_kernels_of_a_pair(size, round, 4, &case);
    }
}

#[test]
fn a_sum_among_more_takes_the_small_kernel_if_all_members_reduce_the_same_elements() {
    let grid = geometry(64, 64);
    let count = 64 * KIB / 4;
    for (world, small, scatter) in [
        (3, "_few", ""),
        (4, "_four", "_scatter_four"),
        (8, "_eight", "_scatter_eight"),
        (72, "_few", ""),
    ] {
        let all = sums(world, count, 32, 16);
        assert_eq!(size_of_sum(&all, &grid), small, "{world}");
        let more = sums(world, count + 4, 32, 16);
        assert_eq!(size_of_sum(&more, &grid), "", "{world}");
        let mut shares = all;
        shares.sources[1] = DeviceAddress(32 + 64 * KIB);
        assert_eq!(size_of_sum(&shares, &grid), scatter, "{world}");
        shares.count += 4;
        assert_eq!(size_of_sum(&shares, &grid), "", "{world}");
    }
}

#[test]
fn what_is_not_whole_and_aligned_takes_the_kernel_for_every_call() {
    let grid = geometry(64, 512);
    for world in [2, 4] {
        assert_ne!(size_of_move(&moves(world, 1024, 16), &grid), "");
        assert_eq!(size_of_move(&moves(world, 1025, 16), &grid), "");
        assert_eq!(size_of_move(&moves(world, 1024, 8), &grid), "");
        let mut to_odd = moves(world, 1024, 16);
        to_odd.destinations[world as usize - 1] = DeviceAddress(17);
        assert_eq!(size_of_move(&to_odd, &grid), "");
        assert_ne!(size_of_sum(&sums(world, 1024, 16, 16), &grid), "");
        assert_eq!(size_of_sum(&sums(world, 1025, 16, 16), &grid), "");
        assert_eq!(size_of_sum(&sums(world, 1024, 20, 16), &grid), "");
        assert_eq!(size_of_sum(&sums(world, 1024, 16, 20), &grid), "");
    }
}

#[test]
fn a_two_shot_sum_takes_the_small_kernel_for_a_vector_of_each_share_a_thread() {
    let grid = geometry(16, 64);
    // As many vectors of f32 as the grid has threads.
    let share = 16 * 64 * 16;
    for (world, share, count, expected) in [
        (2, share, 2 * share / 4, "_two_shot_few"),
        (4, share, 4 * share / 4, "_two_shot_four"),
        (8, share, 8 * share / 4, "_two_shot_eight"),
        (8, share, 8 * share / 4 - 4, "_two_shot_eight"),
        (8, share, 8 * share / 4 - 1, "_two_shot"),
        (8, share + 16, 8 * share / 4 + 4, "_two_shot"),
        (9, share, 9 * share / 4, "_two_shot"),
    ] {
        let mut call = sums(world, count, 0, 0);
        call.share_bytes = share;
        assert_eq!(size_of_sum(&call, &grid), expected, "{count} among {world}");
        call.destination = DeviceAddress(4);
        assert_eq!(size_of_sum(&call, &grid), "_two_shot");
    }
}

#[test]
fn a_call_with_a_root_takes_the_kernel_for_those() {
    let grid = geometry(16, 64);
    let mut reduce = sums(4, 64, 0, 0);
    reduce.receiver = 1;
    assert_eq!(size_of_sum(&reduce, &grid), "_rooted");
    let mut broadcast = moves(4, 64, 0);
    broadcast.sender = 1;
    assert_eq!(size_of_move(&broadcast, &grid), "_rooted");
    let mut gather = moves(4, 64, 0);
    gather.receiver = 1;
    assert_eq!(size_of_move(&gather, &grid), "_rooted");
}
