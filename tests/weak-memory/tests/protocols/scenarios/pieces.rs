//! Moves in pieces: a flag says that a piece is in an inbox, and another that its slot is free.

use super::*;

pub const KERNEL: &str = "symmem_move_pieces";

const PIECE_BYTES: u64 = 256;
const SLOTS: u64 = 2;
/// Words of 32 bytes each, rounded up to a multiple of 128.
const WORDS: u64 = ((2 * RANKS as u64 + 1) * 32).next_multiple_of(128);
const CHANNEL_BYTES: u64 = WORDS + (RANKS as u64 - 1) * SLOTS * PIECE_BYTES;
/// More pieces for a channel than it has slots; the last piece is short, and its end is no whole vector.
const LENGTH: usize = 1900;

/// All-to-alls of fresh data, in turn in place and not. The second message does not begin at a multiple of 16.
pub fn moves(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    const BOTH: usize = 2 * LENGTH;
    let mut world = World::new(kernels, seed);
    let slots = world.slots(0);
    // Inboxes lie in uncached memory, which needs no write-back. The kernel must not rely on that where cached words can be
    // polled, too.
    let uncached = seed % 4 < 2 || kernels.target == Target::Gfx90a;
    let inboxes = world.each("inbox", BLOCKS as u64 * CHANNEL_BYTES, uncached);
    let data = world.each("data", BOTH as u64, false);
    let results = world.each("result", BOTH as u64, false);
    let mut expected = Vec::new();
    for round in 0..3 {
        let in_place = (round + seed as usize).is_multiple_of(2);
        let fresh = world.filled(&format!("fresh {round}"), BOTH, round);
        let taken = world.each(&format!("taken {round}"), BOTH as u64, false);
        for rank in 0..RANKS {
            let destinations = if in_place { data[rank] } else { results[rank] };
            let parts = |base: u64| [base, base + LENGTH as u64];
            world.copy(rank, data[rank], fresh[rank], BOTH, NO_SIGNAL);
            let arguments = Arguments::default()
                .group(world.watch, &slots, 0, rank)
                .table(&parts(data[rank]), 0)
                .table(&parts(destinations), 0)
                .table(&[LENGTH as u64; RANKS], 0)
                .table(&[LENGTH as u64; RANKS], 0)
                .table(&inboxes, 0)
                .longs(&[LENGTH as u64, CHANNEL_BYTES])
                .words(&[BLOCKS as u32, SLOTS as u32, PIECE_BYTES as u32])
                .words(&[in_place.into()]);
            world.launch(rank, KERNEL, BLOCKS, THREADS, arguments);
            world.copy(rank, taken[rank], destinations, BOTH, NO_SIGNAL);
            let parts = (0..RANKS).map(|from| {
                let sent = pattern(BOTH, from, round);
                sent[rank * LENGTH..][..LENGTH].to_vec()
            });
            expected.push((taken[rank], parts.flatten().collect()));
        }
    }
    world.run(&expected)
}
