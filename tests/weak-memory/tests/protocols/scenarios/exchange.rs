//! Messages between pairs of ranks, announced by packets that say where they lie.

use super::*;

/// Each rank sends data that an earlier kernel stored to the other. Twice, with the same memory; in each round one of the
/// ranks sends it as memory that only it can address, in more chunks than its staging holds.
pub fn exchange(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    exchange_in(1, kernels, seed)
}

/// The same with so many blocks for each peer that more than a wave announces.
pub fn exchange_by_many(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    exchange_in(9, kernels, seed)
}

fn exchange_in(blocks_per_peer: usize, kernels: &Kernels, seed: u64) -> Result<(), Error> {
    const STAGING: u64 = SLOT_BLOCKS * SLOT_BYTES;
    const CHUNK_BYTES: u32 = 1536;
    const OWN_ROW: u64 = 0xfffe << 48;
    let mut world = World::new(kernels, seed);
    // What other kernels use for packets has room for the chunks.
    let slots = world.slots(u64::from(CHUNK_BYTES) * blocks_per_peer as u64);
    let data = world.each("data", BYTES as u64, false);
    let tables = world.each("table", 64, false);
    for table in &tables {
        let bytes: Vec<u8> = data.iter().flat_map(|base| base.to_le_bytes()).collect();
        world.machine.memory().write(*table, &bytes);
    }
    let mut expected = Vec::new();
    for round in 0..2 {
        let fresh = world.filled(&format!("fresh {round}"), BYTES, round);
        let received = world.each(&format!("received {round}"), BYTES as u64, false);
        for rank in 0..RANKS {
            let to_peer = |value: u64, rest: u64| -> Vec<u64> {
                (0..RANKS)
                    .map(|each| if each == rank { rest } else { value })
                    .collect()
            };
            world.copy(rank, data[rank], fresh[rank], BYTES, NO_SIGNAL);
            let token = match (rank + round) % RANKS {
                0 => 0,
                _ => OWN_ROW | data[rank],
            };
            let arguments = Arguments::default()
                .group(world.watch, &slots, 0, rank)
                .table(&to_peer(token, NO_TOKEN), NO_TOKEN)
                .table(&to_peer(BYTES as u64, 0), 0)
                .table(&to_peer(received[rank], NO_TOKEN), NO_TOKEN)
                .table(&to_peer(BYTES as u64, 0), 0)
                .longs(&[tables[rank]])
                .words(&[RANKS as u32, blocks_per_peer as u32])
                .longs(&[STAGING])
                .words(&[CHUNK_BYTES, 0]);
            world.launch(
                rank,
                "symmem_exchange",
                RANKS * blocks_per_peer + 1,
                THREADS,
                arguments,
            );
            expected.push((received[rank], pattern(BYTES, 1 - rank, round)));
        }
    }
    world.run(&expected)
}
