//! The selector's table: algorithm and grid by operation, world size and message size.
//!
//! Not measured. Sizes count as in nccl-tests (see `CollectiveRow`). The table follows from two published
//! facts: a mesh gives each pair of devices one link of 45 to 48 GB/s, so that the W−1 links of a device are
//! all busy only if it reaches all peers at once; and RCCL takes 6 to 13 µs for the smallest all-reduce. LL
//! packets double the bytes on the links. They pay off while W−1 links move twice the data in less time than a
//! barrier takes, some 3 µs: up to about 64 KiB per peer. Grids have 8 blocks per link, which fill it
//! (TransferBench). Above 64 MiB the copy engine uses the same links and leaves the compute units free.

use symmem_core::backend::abi::{Algorithm, CollectiveOperation};
use symmem_gpu::tuning::*;

/// Size in bytes of a rank's inbox for pushed reductions: for 1024 pairs of warps, one piece being written and
/// one in flight from each of 7 peers. No row pushes reductions until that is measured. The inbox lies in
/// uncached memory, like signals.
pub const REDUCE_INBOX_BYTES: u32 = 64 << 20;

/// The table; reductions come last.
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

/// Up to 32 KiB every rank sends its whole input to every other.
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
        // The only algorithm with barriers that works in place.
        row(ALWAYS, Algorithm::SWAP, 32, 512),
    ],
)];

/// A pull uses one link of the root per peer; scattering first uses the links of all ranks.
const BROADCAST: [World; 1] = [(
    ANY,
    &[
        row(64 * KIB, Algorithm::PACKETS, 16, 256),
        row(MIB, Algorithm::PULL, 16, 512),
        row(ALWAYS, Algorithm::TWO_SHOT, 64, 512),
    ],
)];

/// All ranks but the root move the bytes, each over its own link.
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

/// Blocks per peer, plus the block that announces.
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
