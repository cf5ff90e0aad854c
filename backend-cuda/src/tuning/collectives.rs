//! The selector's table: algorithm and grid by operation, world size and message size.
//!
//! Sizes are counted as in nccl-tests (see [`CollectiveRow`]). The rows for 2 and 4 ranks were measured in bf16
//! on H200s, replayed from a graph, for all-reduce, reduce-scatter, all-gather and all-to-all
//! (`benches/results/2026-11-21-grids-patient-4xh200.jsonl`). A row has the grid that loses least against the
//! best grid at each size of its range. The benchmark gave the sizes from which on the copy engine is used
//! (`2026-11-21-lanes-4xh200.json`). No row pushes a reduction: on 2 ranks pushing is no faster than loading,
//! and on 4, where a prototype was faster, the kernel has not been timed.
//!
//! Rows for more ranks and other operations were not measured. They follow from the measured rows by a model: the data
//! sent in LL packets grows with the ranks, and the copy engine pays off where a step takes far longer than a launch.

use symmem_core::backend::abi::{AlgorithmCode, CollectiveOperationCode, CollectiveRow};
use symmem_gpu::tuning::*;

/// Size in bytes of a rank's only inbox for pushed reductions. Two pieces from each of 3 peers, for every pair
/// of warps of 128 blocks of 1024 threads, take 49 MiB.
pub const REDUCE_INBOX_BYTES: u32 = 64 << 20;

/// The table.
pub const COLLECTIVES: SelectorTable = &[
    (CollectiveOperationCode::ALL_REDUCE, &ALL_REDUCE),
    (CollectiveOperationCode::REDUCE, &REDUCE),
    (CollectiveOperationCode::REDUCE_SCATTER, &REDUCE_SCATTER),
    (CollectiveOperationCode::ALL_GATHER, &ALL_GATHER),
    (CollectiveOperationCode::ALL_GATHER_V, &ALL_GATHER),
    (CollectiveOperationCode::ALL_TO_ALL, &ALL_TO_ALL),
    (CollectiveOperationCode::ALL_TO_ALL_V, &EXCHANGE),
    (CollectiveOperationCode::BROADCAST, &BROADCAST),
    (CollectiveOperationCode::GATHER, &GATHER),
    (CollectiveOperationCode::SCATTER, &SCATTER),
    (CollectiveOperationCode::EXCHANGE, &EXCHANGE),
];

const ALL_REDUCE: [WorldRows; 8] = [
    (2, TWO),
    (4, FOUR_SMALL),
    (ANY, ANY_SMALL),
    (3, FOUR_LARGE),
    (ANY, MULTICAST_SMALL),
    (ANY, MULTICAST),
    (4, FOUR_LARGE),
    (ANY, ANY_LARGE),
];

/// Multicast for more than 3 ranks, above the sizes for packets. Not measured: multicast has not been run. With
/// fewer ranks a rank loads little more than it would by multicast. If multicast is not set up, or only
/// emulated, the selector uses a later row.
const MULTICAST: &[CollectiveRow] = &[row(ALWAYS, AlgorithmCode::MULTICAST, 32, 512)];
/// For small sizes one rank can load everything, and the results need not leave it.
const MULTICAST_SMALL: &[CollectiveRow] =
    &[row(128 * KIB, AlgorithmCode::MULTICAST_ONE_SHOT, 16, 512)];

const TWO: &[CollectiveRow] = &[
    row(KIB, AlgorithmCode::PACKETS, 1, 128),
    row(2 * KIB, AlgorithmCode::PACKETS, 2, 128),
    row(4 * KIB, AlgorithmCode::PACKETS, 4, 128),
    row(8 * KIB, AlgorithmCode::PACKETS, 8, 128),
    row(16 * KIB, AlgorithmCode::PACKETS, 16, 128),
    row(128 * KIB, AlgorithmCode::PACKETS, 64, 128),
    row(256 * KIB, AlgorithmCode::PACKETS, 32, 512),
    row(MIB, AlgorithmCode::TWO_SHOT, 64, 128),
    row(128 * MIB, AlgorithmCode::TWO_SHOT, 128, 512),
    row(ALWAYS, AlgorithmCode::COPY_ENGINE, 64, 512),
];

/// Sizes up to 64 KiB; above, multicast comes first.
const FOUR_SMALL: &[CollectiveRow] = &[
    row(KIB, AlgorithmCode::PACKETS, 1, 128),
    row(2 * KIB, AlgorithmCode::PACKETS, 2, 128),
    row(4 * KIB, AlgorithmCode::PACKETS, 4, 128),
    row(8 * KIB, AlgorithmCode::PACKETS, 8, 128),
    row(16 * KIB, AlgorithmCode::PACKETS, 16, 128),
    row(64 * KIB, AlgorithmCode::PACKETS, 32, 128),
];

const FOUR_LARGE: &[CollectiveRow] = &[
    row(128 * KIB, AlgorithmCode::PACKETS_TWO_SHOT, 32, 128),
    row(512 * KIB, AlgorithmCode::TWO_SHOT, 16, 256),
    row(MIB, AlgorithmCode::TWO_SHOT, 64, 128),
    row(16 * MIB, AlgorithmCode::TWO_SHOT, 64, 256),
    row(128 * MIB, AlgorithmCode::PUSH, 128, 1024),
    row(ALWAYS, AlgorithmCode::COPY_ENGINE, 64, 256),
];

const ANY_SMALL: &[CollectiveRow] = &[
    row(4 * KIB, AlgorithmCode::PACKETS, 4, 128),
    row(8 * KIB, AlgorithmCode::PACKETS, 8, 128),
    row(16 * KIB, AlgorithmCode::PACKETS, 16, 128),
    row(32 * KIB, AlgorithmCode::PACKETS, 32, 128),
    row(64 * KIB, AlgorithmCode::PACKETS_TWO_SHOT, 16, 128),
];

const ANY_LARGE: &[CollectiveRow] = &[
    row(128 * KIB, AlgorithmCode::PACKETS_TWO_SHOT, 16, 128),
    row(512 * KIB, AlgorithmCode::TWO_SHOT, 16, 256),
    row(MIB, AlgorithmCode::TWO_SHOT, 64, 128),
    row(64 * MIB, AlgorithmCode::TWO_SHOT, 64, 256),
    row(ALWAYS, AlgorithmCode::COPY_ENGINE, 64, 256),
];

const REDUCE: [WorldRows; 1] = [(
    ANY,
    &[
        row(64 * KIB, AlgorithmCode::PACKETS, 16, 512),
        row(512 * KIB, AlgorithmCode::ONE_SHOT, 32, 512),
        row(ALWAYS, AlgorithmCode::TWO_SHOT, 64, 512),
    ],
)];

const REDUCE_SCATTER: [WorldRows; 6] = [
    (
        2,
        &[
            row(2 * KIB, AlgorithmCode::PACKETS, 1, 128),
            row(4 * KIB, AlgorithmCode::PACKETS, 2, 128),
            row(8 * KIB, AlgorithmCode::PACKETS, 4, 128),
            row(16 * KIB, AlgorithmCode::PACKETS, 8, 128),
            row(32 * KIB, AlgorithmCode::PACKETS, 16, 128),
            row(256 * KIB, AlgorithmCode::PACKETS, 64, 128),
            row(512 * KIB, AlgorithmCode::PACKETS, 32, 512),
            row(ALWAYS, AlgorithmCode::ONE_SHOT, 64, 256),
        ],
    ),
    (
        4,
        &[
            row(4 * KIB, AlgorithmCode::PACKETS, 1, 128),
            row(8 * KIB, AlgorithmCode::PACKETS, 2, 128),
            row(16 * KIB, AlgorithmCode::PACKETS, 4, 128),
            row(32 * KIB, AlgorithmCode::PACKETS, 8, 128),
            row(64 * KIB, AlgorithmCode::PACKETS, 16, 128),
            row(512 * KIB, AlgorithmCode::PACKETS, 32, 256),
        ],
    ),
    (
        ANY,
        &[
            row(16 * KIB, AlgorithmCode::PACKETS, 2, 128),
            row(32 * KIB, AlgorithmCode::PACKETS, 4, 128),
            row(64 * KIB, AlgorithmCode::PACKETS, 8, 128),
            row(128 * KIB, AlgorithmCode::PACKETS, 16, 128),
            row(512 * KIB, AlgorithmCode::PACKETS, 32, 256),
        ],
    ),
    (3, SCATTERED),
    (ANY, MULTICAST),
    (ANY, SCATTERED),
];
const SCATTERED: &[CollectiveRow] = &[row(ALWAYS, AlgorithmCode::ONE_SHOT, 64, 256)];

const ALL_GATHER: [WorldRows; 6] = [
    (
        2,
        &[
            row(2 * KIB, AlgorithmCode::PACKETS, 1, 128),
            row(4 * KIB, AlgorithmCode::PACKETS, 2, 128),
            row(8 * KIB, AlgorithmCode::PACKETS, 4, 128),
            row(16 * KIB, AlgorithmCode::PACKETS, 8, 128),
            row(32 * KIB, AlgorithmCode::PACKETS, 16, 128),
            row(64 * KIB, AlgorithmCode::PACKETS, 32, 128),
            row(512 * KIB, AlgorithmCode::PACKETS, 64, 256),
            row(16 * MIB, AlgorithmCode::PUSH, 64, 128),
            row(128 * MIB, AlgorithmCode::PUSH, 64, 512),
            copies(ALWAYS),
        ],
    ),
    (
        4,
        &[
            row(4 * KIB, AlgorithmCode::PACKETS, 1, 128),
            row(8 * KIB, AlgorithmCode::PACKETS, 2, 128),
            row(16 * KIB, AlgorithmCode::PACKETS, 4, 128),
            row(32 * KIB, AlgorithmCode::PACKETS, 8, 128),
            row(64 * KIB, AlgorithmCode::PACKETS, 8, 256),
            row(128 * KIB, AlgorithmCode::PACKETS, 32, 128),
            row(512 * KIB, AlgorithmCode::PACKETS, 64, 256),
        ],
    ),
    (
        ANY,
        &[
            row(8 * KIB, AlgorithmCode::PACKETS, 1, 128),
            row(32 * KIB, AlgorithmCode::PACKETS, 4, 128),
            row(64 * KIB, AlgorithmCode::PACKETS, 8, 128),
            row(128 * KIB, AlgorithmCode::PACKETS, 16, 128),
            row(512 * KIB, AlgorithmCode::PACKETS, 64, 256),
        ],
    ),
    (3, GATHERED),
    (ANY, MULTICAST),
    (ANY, GATHERED),
];
const GATHERED: &[CollectiveRow] = &[
    two_at_once(32 * MIB, AlgorithmCode::PUSH, 64, 128),
    two_at_once(256 * MIB, AlgorithmCode::PUSH, 128, 256),
    copies(ALWAYS),
];

/// The row for in-place calls: swap works only in place, and is the only algorithm with barriers that does. Not
/// measured. Each rank moves as much as in a push, but half of it by loads, which take more blocks than stores.
const IN_PLACE: CollectiveRow = row(ALWAYS, AlgorithmCode::SWAP, 32, 512);

const ALL_TO_ALL: [WorldRows; 3] = [
    (
        2,
        &[
            row(2 * KIB, AlgorithmCode::PACKETS, 1, 128),
            row(4 * KIB, AlgorithmCode::PACKETS, 2, 128),
            row(64 * KIB, AlgorithmCode::PACKETS, 32, 128),
            row(128 * KIB, AlgorithmCode::PACKETS, 64, 128),
            row(512 * KIB, AlgorithmCode::PACKETS, 64, 256),
            row(16 * MIB, AlgorithmCode::PUSH, 64, 128),
            row(128 * MIB, AlgorithmCode::PUSH, 64, 512),
            copies(ALWAYS),
            IN_PLACE,
        ],
    ),
    (
        4,
        &[
            row(4 * KIB, AlgorithmCode::PACKETS, 1, 128),
            row(8 * KIB, AlgorithmCode::PACKETS, 2, 128),
            row(16 * KIB, AlgorithmCode::PACKETS, 4, 128),
            row(32 * KIB, AlgorithmCode::PACKETS, 8, 128),
            row(64 * KIB, AlgorithmCode::PACKETS, 16, 128),
            row(128 * KIB, AlgorithmCode::PACKETS, 32, 128),
            row(512 * KIB, AlgorithmCode::PACKETS, 64, 256),
            two_at_once(32 * MIB, AlgorithmCode::PUSH, 64, 256),
            two_at_once(256 * MIB, AlgorithmCode::PUSH, 128, 256),
            copies(ALWAYS),
            IN_PLACE,
        ],
    ),
    (
        ANY,
        &[
            row(8 * KIB, AlgorithmCode::PACKETS, 1, 128),
            row(32 * KIB, AlgorithmCode::PACKETS, 4, 128),
            row(64 * KIB, AlgorithmCode::PACKETS, 8, 128),
            row(128 * KIB, AlgorithmCode::PACKETS, 16, 128),
            row(512 * KIB, AlgorithmCode::PACKETS, 64, 256),
            two_at_once(32 * MIB, AlgorithmCode::PUSH, 64, 256),
            two_at_once(256 * MIB, AlgorithmCode::PUSH, 128, 256),
            copies(ALWAYS),
            IN_PLACE,
        ],
    ),
];

/// A pulled broadcast leaves entirely by the root's link; a scattered one leaves by all links.
const BROADCAST: [WorldRows; 5] = [
    (
        2,
        &[
            row(128 * KIB, AlgorithmCode::PACKETS, 16, 512),
            row(ALWAYS, AlgorithmCode::PUSH, 32, 512),
        ],
    ),
    (ANY, &[row(64 * KIB, AlgorithmCode::PACKETS, 16, 512)]),
    (3, BROADCAST_LARGE),
    (ANY, MULTICAST),
    (ANY, BROADCAST_LARGE),
];
const BROADCAST_LARGE: &[CollectiveRow] = &[
    row(512 * KIB, AlgorithmCode::PULL, 32, 512),
    row(ALWAYS, AlgorithmCode::TWO_SHOT, 64, 512),
];

/// The root's link bounds gather and scatter no matter who moves the bytes, so the other ranks do.
const GATHER: [WorldRows; 1] = [(
    ANY,
    &[
        row(128 * KIB, AlgorithmCode::PACKETS, 16, 512),
        row(ALWAYS, AlgorithmCode::PUSH, 64, 512),
    ],
)];

const SCATTER: [WorldRows; 1] = [(
    ANY,
    &[
        row(128 * KIB, AlgorithmCode::PACKETS, 16, 512),
        row(ALWAYS, AlgorithmCode::PULL, 64, 512),
    ],
)];

/// Blocks per peer, plus the one that announces. With 16 blocks a pair of devices is near the link's rate
/// (`benches/NOTES.md`), and behind a switch the peers share that rate.
const EXCHANGE: [WorldRows; 3] = [
    (
        2,
        &[row(ALWAYS, AlgorithmCode::RENDEZVOUS, 2 * 16 + 1, 512)],
    ),
    (8, &[row(ALWAYS, AlgorithmCode::RENDEZVOUS, 8 * 8 + 1, 512)]),
    (
        ANY,
        &[row(ALWAYS, AlgorithmCode::RENDEZVOUS, ANY * 2 + 1, 512)],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_row_for_every_world_and_size_and_each_can_be_launched() {
        assert_eq!(collective_flaws(COLLECTIVES, 32), [""; 0]);
        let rows = COLLECTIVES.iter().flat_map(|(_, worlds)| *worlds);
        assert!(rows.map(|(_, rows)| rows.len()).sum::<usize>() > 50);
    }
}
