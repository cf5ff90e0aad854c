//! Sums and moves in Lamport packets: a word that is not empty is data, whatever else has arrived.

use super::*;

/// The kernels for all calls, and for one vector a thread in a group of two.
pub const KERNELS: [&str; 2] = [
    "symmem_reduce_lamport_f32",
    "symmem_reduce_lamport_pair1_f32",
];

/// The kernels that move, for all calls and for one vector a thread in a group of two.
pub const MOVES: [&str; 2] = ["symmem_move_lamport", "symmem_move_lamport_pair1"];

/// Bytes of a row of packets, and of the data in it.
const PACKET_ROW: usize = 512;
const DATA_ROW: usize = 496;

/// Threads of a block, and the bytes of one vector for each thread of a grid.
const FEW: usize = 64;
const ROW: usize = BLOCKS * FEW * 16;
/// Bytes of a part: a little more than the longest message.
const PART_BYTES: u64 = ROW as u64 + 128;
const BUFFERS: u64 = 3;

/// All-reduces of different lengths, more often than an inbox has buffers, so that each is emptied and used again.
pub fn sums(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    let mut world = World::new(kernels, seed);
    let slots = world.slots(0);
    let inboxes = world.each("inbox", BUFFERS * (RANKS as u64 - 1) * PART_BYTES, true);
    let counters = world.each("counters", 16, true);
    let mut expected = Vec::new();
    for round in 0..5 {
        // Whole vectors for the small kernel; more than a row of them, the last in part, for the other.
        let (kernel, bytes) = match (round + seed as usize) % 2 {
            0 => (KERNELS[1], ROW - 16 * round),
            _ => (KERNELS[0], ROW + 4 + 12 * round),
        };
        let count = bytes / 4;
        let data = world.each(&format!("data {round}"), bytes as u64, false);
        let results = world.each(&format!("result {round}"), bytes as u64, false);
        let numbers = |value: &dyn Fn(usize) -> f32| -> Vec<u8> {
            (0..count).map(value).flat_map(f32::to_le_bytes).collect()
        };
        for rank in 0..RANKS {
            let own = numbers(&|at| number(at, rank, round));
            world.machine.memory().write(data[rank], &own);
            let arguments = Arguments::default()
                .group(world.abort, &slots, 0, rank)
                .table(&inboxes, 0)
                .table(&[data[rank]; RANKS], 0)
                .longs(&[results[rank], count as u64, counters[rank]])
                .words(&[PART_BYTES as u32])
                .words(&SUM_OF_F32)
                .words(&[0])
                .longs(&[data[rank], data[rank], inboxes[rank], inboxes[1 - rank]]);
            world.launch(rank, kernel, BLOCKS, FEW, arguments);
            let sum = numbers(&|at| (0..RANKS).map(|each| number(at, each, round)).sum());
            expected.push((results[rank], sum));
        }
    }
    world.run(&expected)
}

/// All-to-alls of different lengths, in turn with sums on the same inboxes. Many words are those that need a mark.
pub fn moves(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    let mut world = World::new(kernels, seed);
    let slots = world.slots(0);
    let rows = BLOCKS * FEW / 32;
    let part = (rows + 1) * PACKET_ROW;
    let inboxes = world.each("inbox", BUFFERS * (RANKS as u64 - 1) * part as u64, true);
    let counters = world.each("counters", 16, true);
    let mut expected = Vec::new();
    for round in 0..5 {
        // Whole vectors for the small kernel; one row more than threads, the last vector in part, for the other.
        let (kernel, bytes) = match (round + seed as usize) % 2 {
            0 => (MOVES[1], rows * DATA_ROW - 16 * round),
            _ => (MOVES[0], rows * DATA_ROW + 4 + 12 * round),
        };
        let all = (RANKS * bytes) as u64;
        let from = world.each(&format!("from {round}"), all, false);
        let to = world.each(&format!("to {round}"), all, false);
        let message = |rank: usize, peer: usize| -> Vec<u8> {
            let words = (0..bytes / 4).map(|at| match (at / 3 + at + rank) % 3 {
                0 => u32::MAX,
                _ => (1 + round * 1000 + peer * 100 + rank * 10 + at % 7) as u32,
            });
            words.flat_map(u32::to_le_bytes).collect()
        };
        for rank in 0..RANKS {
            let sent: Vec<u8> = (0..RANKS).flat_map(|peer| message(rank, peer)).collect();
            world.machine.memory().write(from[rank], &sent);
            let at = |base: u64, peer: usize| base + (peer * bytes) as u64;
            let (sources, destinations) = (
                [at(from[rank], 0), at(from[rank], 1)],
                [at(to[rank], 0), at(to[rank], 1)],
            );
            let peer = 1 - rank;
            let arguments = Arguments::default()
                .group(world.abort, &slots, 0, rank)
                .table(&inboxes, 0)
                .table(&sources, 0)
                .table(&destinations, 0)
                .longs(&[bytes as u64, counters[rank]])
                .words(&[part as u32, 0])
                .longs(&[sources[peer], destinations[peer]])
                .longs(&[sources[rank], destinations[rank]])
                .longs(&[inboxes[rank], inboxes[peer]]);
            world.launch(rank, kernel, BLOCKS, FEW, arguments);
            let arrived: Vec<u8> = (0..RANKS).flat_map(|from| message(from, rank)).collect();
            expected.push((to[rank], arrived));
        }
    }
    world.run(&expected)
}
