//! The selector's table: which algorithm and grid for which operation, world and size.
//!
//! Not measured. Sizes are nccl-tests' (see `CollectiveRow`). Two published facts decide: a mesh gives each
//! pair one link of 45 to 48 GB/s, so W−1 links of a device work only if all peers are reached at once; and
//! RCCL takes 6 to 13 µs for the smallest all-reduce. Packets double the bytes on the links, so they pay
//! while W−1 links move twice the data in less time than a barrier takes, some 3 µs: up to about 64 KiB for
//! each peer. Grids have 8 blocks for each link, which is what fills one (TransferBench). Above 64 MiB the
//! copy engine, which leaves the compute units to others, has the same links.

use symmem_core::backend::abi::{Algorithm, CollectiveOperation};
use symmem_gpu::tuning::*;

/// Bytes of a rank's inbox for pushed reductions: one piece in the making and one on its way from each of 7
/// peers for 1024 pairs of warps. No row pushes reductions until that has been measured; an inbox is where
/// signals are, in memory that is not cached.
pub const REDUCE_INBOX_BYTES: u32 = 64 << 20;

/// The table, reductions last.
pub const COLLECTIVES: Collectives = &[
    (CollectiveOperation::BROADCAST, &BROADCAST),
    (CollectiveOperation::ALL_GATHER, &ALL_GATHER),
    (CollectiveOperation::ALL_GATHER_V, &ALL_GATHER),
    (CollectiveOperation::ALL_TO_ALL, &ALL_TO_ALL),
    (CollectiveOperation::ALL_TO_ALL_V, &EXCHANGE),
    (CollectiveOperation::EXCHANGE, &EXCHANGE),
    (CollectiveOperation::GATHER, &GATHER),
    (CollectiveOperation::SCATTER, &SCATTER),
    (CollectiveOperation::REDUCE, &REDUCE),
    (CollectiveOperation::REDUCE_SCATTER, &REDUCE_SCATTER),
    (CollectiveOperation::ALL_REDUCE, &ALL_REDUCE),
];

/// Up to 32 KiB every rank sends all it has to every other.
const ALL_REDUCE: [World; 2] = [
    (
        2,
        &[
            row(8 * KIB, Algorithm::PACKETS, 4, 256),
            row(64 * KIB, Algorithm::PACKETS, 16, 256),
            row(64 * MIB, Algorithm::TWO_SHOT, 16, 512),
            row(ALWAYS, Algorithm::COPY_ENGINE, 32, 512),
        ],
    ),
    (
        ANY,
        &[
            row(8 * KIB, Algorithm::PACKETS, 4, 256),
            row(32 * KIB, Algorithm::PACKETS, 16, 256),
            row(256 * KIB, Algorithm::PACKETS_TWO_SHOT, 32, 256),
            row(MIB, Algorithm::TWO_SHOT, 32, 512),
            row(64 * MIB, Algorithm::TWO_SHOT, 64, 512),
            row(ALWAYS, Algorithm::COPY_ENGINE, 64, 512),
        ],
    ),
];

const REDUCE: [World; 1] = [(
    ANY,
    &[
        row(64 * KIB, Algorithm::PACKETS, 16, 256),
        row(256 * KIB, Algorithm::ONE_SHOT, 32, 512),
        row(ALWAYS, Algorithm::TWO_SHOT, 64, 512),
    ],
)];

const REDUCE_SCATTER: [World; 1] = [(
    ANY,
    &[
        row(64 * KIB, Algorithm::PACKETS, 8, 256),
        row(512 * KIB, Algorithm::PACKETS, 32, 256),
        row(ALWAYS, Algorithm::ONE_SHOT, 64, 512),
    ],
)];

/// Each rank stores its part to each peer.
const ALL_GATHER: [World; 1] = [(
    ANY,
    &[
        row(64 * KIB, Algorithm::PACKETS, 8, 256),
        row(512 * KIB, Algorithm::PACKETS, 32, 256),
        row(4 * MIB, Algorithm::PUSH, 32, 512),
        row(64 * MIB, Algorithm::PUSH, 64, 512),
        copies(ALWAYS),
    ],
)];

const ALL_TO_ALL: [World; 1] = [(
    ANY,
    &[
        row(64 * KIB, Algorithm::PACKETS, 8, 256),
        row(512 * KIB, Algorithm::PACKETS, 32, 256),
        row(64 * MIB, Algorithm::PUSH, 64, 512),
        copies(ALWAYS),
        // In place nothing else between barriers can.
        row(ALWAYS, Algorithm::SWAP, 32, 512),
    ],
)];

/// Pulled, each peer has the root's link to itself; scattered first, everybody's links work.
const BROADCAST: [World; 1] = [(
    ANY,
    &[
        row(64 * KIB, Algorithm::PACKETS, 16, 256),
        row(MIB, Algorithm::PULL, 16, 512),
        row(ALWAYS, Algorithm::TWO_SHOT, 64, 512),
    ],
)];

/// Whoever is not the root moves the bytes, each over its own link.
const GATHER: [World; 1] = [(
    ANY,
    &[
        row(128 * KIB, Algorithm::PACKETS, 16, 256),
        row(ALWAYS, Algorithm::PUSH, 16, 512),
    ],
)];

const SCATTER: [World; 1] = [(
    ANY,
    &[
        row(128 * KIB, Algorithm::PACKETS, 16, 256),
        row(ALWAYS, Algorithm::PULL, 16, 512),
    ],
)];

/// Blocks for each peer, and one more that announces.
const EXCHANGE: [World; 2] = [
    (8, &[row(ALWAYS, Algorithm::RENDEZVOUS, 8 * 8 + 1, 512)]),
    (ANY, &[row(ALWAYS, Algorithm::RENDEZVOUS, ANY * 2 + 1, 512)]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_no_flaw() {
        assert_eq!(collective_flaws(COLLECTIVES, 64), [""; 0]);
    }
}
