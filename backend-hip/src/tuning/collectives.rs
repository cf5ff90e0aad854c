//! The selector's table: algorithm and grid by operation, world size and message size.
//!
//! Not measured. Sizes count as in nccl-tests (see `CollectiveRow`). The table follows from two published
//! facts: a mesh gives each pair of devices one link of 45 to 48 GB/s, so that the W−1 links of a device are
//! all busy only if it reaches all peers at once; and RCCL takes 6 to 13 µs for the smallest all-reduce. LL
//! packets double the bytes on the links. They pay off while W−1 links move twice the data in less time than a
//! barrier takes, some 3 µs: up to about 64 KiB per peer. Grids have 8 blocks per link, which fill it
//! (TransferBench). Above 64 MiB the copy engine uses the same links and leaves the compute units free.

use symmem_core::backend::abi::{AlgorithmCode, CollectiveOperationCode};
use symmem_gpu::tuning::*;

/// Most bytes of a rank's inbox for pieces. No row pushes reductions of symmetric buffers until that is measured. It lies
/// in uncached memory, like signals.
pub const REDUCE_INBOX_BYTES: u32 = 64 << 20;

/// The table; reductions come last. An operation's rows for memory that only its rank knows are an entry of their own,
/// behind the others.
pub const COLLECTIVES: SelectorTable = &[
    (CollectiveOperationCode::BROADCAST, &BROADCAST),
    (CollectiveOperationCode::ALL_GATHER, &ALL_GATHER),
    (CollectiveOperationCode::ALL_GATHER_V, &ALL_GATHER),
    (CollectiveOperationCode::ALL_TO_ALL, &ALL_TO_ALL),
    (CollectiveOperationCode::ALL_TO_ALL_V, &EXCHANGE),
    (CollectiveOperationCode::EXCHANGE, &EXCHANGE),
    (CollectiveOperationCode::GATHER, &GATHER),
    (CollectiveOperationCode::SCATTER, &SCATTER),
    (CollectiveOperationCode::REDUCE, &REDUCE),
    (CollectiveOperationCode::REDUCE_SCATTER, &REDUCE_SCATTER),
    (CollectiveOperationCode::ALL_REDUCE, &ALL_REDUCE),
    (CollectiveOperationCode::ALL_REDUCE, &OWN_SUM),
    (CollectiveOperationCode::REDUCE, &OWN_MEMORY),
    (CollectiveOperationCode::REDUCE_SCATTER, &OWN_MEMORY),
    (CollectiveOperationCode::ALL_GATHER, &OWN_MEMORY),
    (CollectiveOperationCode::ALL_GATHER_V, &OWN_MEMORY),
    (CollectiveOperationCode::ALL_TO_ALL, &OWN_MEMORY),
    (CollectiveOperationCode::BROADCAST, &OWN_MEMORY),
    (CollectiveOperationCode::GATHER, &OWN_MEMORY),
    (CollectiveOperationCode::SCATTER, &OWN_MEMORY),
];

/// For memory that only its rank knows, above the sizes at which packets serve symmetric buffers, too: every call of those
/// has an earlier row. As on two H100s, LL packets up to 1 MiB. The inbox has room for the last grid up to 63 ranks, and
/// beyond for one that is almost as large.
const OWN_MEMORY: [WorldRows; 2] = [
    (4, &own_memory(AlgorithmCode::PACKETS, MIB, 64)),
    (ANY, &own_memory(AlgorithmCode::PACKETS, MIB, 32)),
];
const OWN_SUM: [WorldRows; 2] = [
    (4, &own_memory(AlgorithmCode::PACKETS_TWO_SHOT, MIB, 64)),
    (ANY, &own_memory(AlgorithmCode::PACKETS_TWO_SHOT, MIB, 32)),
];

/// Up to 32 KiB every rank sends its whole input to every other.
const ALL_REDUCE: [WorldRows; 2] = [
    (
        2,
        &[
            row(8 * KIB, AlgorithmCode::PACKETS, 4, 256),
            row(64 * KIB, AlgorithmCode::PACKETS, 16, 256),
            row(64 * MIB, AlgorithmCode::TWO_SHOT, 16, 512),
            row(ALWAYS, AlgorithmCode::COPY_ENGINE, 32, 512),
        ],
    ),
    (
        ANY,
        &[
            row(8 * KIB, AlgorithmCode::PACKETS, 4, 256),
            row(32 * KIB, AlgorithmCode::PACKETS, 16, 256),
            row(256 * KIB, AlgorithmCode::PACKETS_TWO_SHOT, 32, 256),
            row(MIB, AlgorithmCode::TWO_SHOT, 32, 512),
            row(64 * MIB, AlgorithmCode::TWO_SHOT, 64, 512),
            row(ALWAYS, AlgorithmCode::COPY_ENGINE, 64, 512),
        ],
    ),
];

const REDUCE: [WorldRows; 1] = [(
    ANY,
    &[
        row(64 * KIB, AlgorithmCode::PACKETS, 16, 256),
        row(256 * KIB, AlgorithmCode::ONE_SHOT, 32, 512),
        row(ALWAYS, AlgorithmCode::TWO_SHOT, 64, 512),
    ],
)];

const REDUCE_SCATTER: [WorldRows; 1] = [(
    ANY,
    &[
        row(64 * KIB, AlgorithmCode::PACKETS, 8, 256),
        row(512 * KIB, AlgorithmCode::PACKETS, 32, 256),
        row(ALWAYS, AlgorithmCode::ONE_SHOT, 64, 512),
    ],
)];

/// Each rank stores its part to each peer.
const ALL_GATHER: [WorldRows; 1] = [(
    ANY,
    &[
        row(64 * KIB, AlgorithmCode::PACKETS, 8, 256),
        row(512 * KIB, AlgorithmCode::PACKETS, 32, 256),
        row(4 * MIB, AlgorithmCode::PUSH, 32, 512),
        row(64 * MIB, AlgorithmCode::PUSH, 64, 512),
        copies(ALWAYS),
    ],
)];

const ALL_TO_ALL: [WorldRows; 1] = [(
    ANY,
    &[
        row(64 * KIB, AlgorithmCode::PACKETS, 8, 256),
        row(512 * KIB, AlgorithmCode::PACKETS, 32, 256),
        row(64 * MIB, AlgorithmCode::PUSH, 64, 512),
        copies(ALWAYS),
        // The only algorithm with barriers that works in place.
        row(ALWAYS, AlgorithmCode::SWAP, 32, 512),
    ],
)];

/// A pull uses one link of the root per peer; scattering first uses the links of all ranks.
const BROADCAST: [WorldRows; 1] = [(
    ANY,
    &[
        row(64 * KIB, AlgorithmCode::PACKETS, 16, 256),
        row(MIB, AlgorithmCode::PULL, 16, 512),
        row(ALWAYS, AlgorithmCode::TWO_SHOT, 64, 512),
    ],
)];

/// All ranks but the root move the bytes, each over its own link.
const GATHER: [WorldRows; 1] = [(
    ANY,
    &[
        row(128 * KIB, AlgorithmCode::PACKETS, 16, 256),
        row(ALWAYS, AlgorithmCode::PUSH, 16, 512),
    ],
)];

const SCATTER: [WorldRows; 1] = [(
    ANY,
    &[
        row(128 * KIB, AlgorithmCode::PACKETS, 16, 256),
        row(ALWAYS, AlgorithmCode::PULL, 16, 512),
    ],
)];

/// Blocks per peer, plus the block that announces.
const EXCHANGE: [WorldRows; 2] = [
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
    fn the_table_has_no_flaw() {
        assert_eq!(collective_flaws(COLLECTIVES, 64), [""; 0]);
    }
}
