//! Sums in Lamport packets: a word that is not empty is data, whatever else has arrived.

use super::*;

/// The kernels for all calls, and for one vector a thread in a group of two.
pub const KERNELS: [&str; 2] = [
    "symmem_reduce_lamport_f32",
    "symmem_reduce_lamport_pair1_f32",
];

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
