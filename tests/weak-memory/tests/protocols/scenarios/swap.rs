//! All-to-alls in place: of each pair of ranks, one swaps the first half of their parts and the other the second.

use super::*;

pub const KERNELS: [&str; 2] = ["symmem_copy_vector", "symmem_swap"];

/// Twice, of data that an earlier kernel stored, with the same memory.
pub fn swaps(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    // Both sides are aligned alike to 16 bytes, to 4 or to 2.
    let part = [2064, 2060, 2058][(seed / 3 % 3) as usize];
    let half = part / 2;
    let mut world = World::new(kernels, seed);
    let slots = world.slots(0);
    let data = world.each("data", (part * RANKS) as u64, false);
    let mut expected = Vec::new();
    for round in 0..2 {
        let fresh = world.filled(&format!("fresh {round}"), part * RANKS, round);
        let taken = world.each(&format!("taken {round}"), (part * RANKS) as u64, false);
        for rank in 0..RANKS {
            let peer = 1 - rank;
            world.copy(rank, data[rank], fresh[rank], part * RANKS, NO_SIGNAL);
            let (skipped, bytes) = if rank == 0 {
                (0, half)
            } else {
                (half, part - half)
            };
            let place = |at: usize, of: usize| data[at] + (of * part + skipped) as u64;
            let arguments = Arguments::default()
                .group(world.watch, &slots, 0, rank)
                .table(&[place(rank, peer)], 0)
                .table(&[place(peer, rank)], 0)
                .table(&[bytes as u64], 0)
                .words(&[1, 1]);
            world.launch(rank, KERNELS[1], BLOCKS, THREADS, arguments);
            world.copy(rank, taken[rank], data[rank], part * RANKS, NO_SIGNAL);
            let parts = (0..RANKS).map(|from| {
                let sent = pattern(part * RANKS, from, round);
                sent[rank * part..][..part].to_vec()
            });
            expected.push((taken[rank], parts.flatten().collect()));
        }
    }
    world.run(&expected)
}
