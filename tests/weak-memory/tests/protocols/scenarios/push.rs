//! Reductions of what peers push into inboxes.

use super::*;

/// All-reduces by push: each rank stores the other's share into its inbox, reduces its own share from there, and stores
/// the sums at all ranks. There are more pieces than slots, so slots are reused. It runs twice, so that the counters
/// continue.
pub fn push(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    const NUMBERS: usize = 500;
    const SHARE: usize = 4 * NUMBERS;
    const PIECE_BYTES: u64 = 256;
    const SLOTS: u64 = 2;
    /// Words of 32 bytes each, rounded up to a multiple of 128.
    const WORDS: u64 = ((2 * RANKS as u64 + 1) * 32).next_multiple_of(128);
    const CHANNEL_BYTES: u64 = WORDS + (RANKS as u64 - 1) * SLOTS * PIECE_BYTES;
    let mut world = World::new(kernels, seed);
    let slots = world.slots(0);
    let inboxes = world.each("inbox", BLOCKS as u64 * CHANNEL_BYTES, true);
    let data = world.each("data", (SHARE * RANKS) as u64, false);
    let results = world.each("result", (SHARE * RANKS) as u64, false);
    let mut expected = Vec::new();
    for round in 0..2 {
        let fresh = world.each(&format!("fresh {round}"), (SHARE * RANKS) as u64, false);
        let taken = world.each(&format!("taken {round}"), (SHARE * RANKS) as u64, false);
        let bytes = |value: &dyn Fn(usize) -> f32| -> Vec<u8> {
            let all = (0..NUMBERS * RANKS).map(value);
            all.flat_map(f32::to_le_bytes).collect()
        };
        for (rank, base) in fresh.iter().enumerate() {
            let numbers = bytes(&|at| number(at, rank, round));
            world.machine.memory().write(*base, &numbers);
        }
        for rank in 0..RANKS {
            let share = |base: u64, of: usize| base + (of * SHARE) as u64;
            let own: Vec<u64> = data.iter().map(|base| share(*base, rank)).collect();
            let stored: Vec<u64> = results.iter().map(|base| share(*base, rank)).collect();
            let pushed: Vec<u64> = (0..RANKS).map(|of| share(data[rank], of)).collect();
            world.copy(rank, data[rank], fresh[rank], SHARE * RANKS, NO_SIGNAL);
            let arguments = Arguments::default()
                .group(world.watch, &slots, 0, rank)
                .reduce(&own, &stored, NUMBERS as u64, SUM_OF_F32)
                .table(&pushed, 0)
                .table(&[NUMBERS as u64; RANKS], 0)
                .table(&inboxes, 0)
                .longs(&[CHANNEL_BYTES])
                .words(&[BLOCKS as u32, SLOTS as u32, PIECE_BYTES as u32, 1]);
            world.launch(rank, "symmem_reduce_push_f32", BLOCKS, THREADS, arguments);
            world.copy(rank, taken[rank], results[rank], SHARE * RANKS, NO_SIGNAL);
            let sums = bytes(&|at| (0..RANKS).map(|each| number(at, each, round)).sum());
            expected.push((taken[rank], sums));
        }
    }
    world.run(&expected)
}
