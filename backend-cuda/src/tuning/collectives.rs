//! The selector's table: algorithm and grid by operation, world size and message size.
//!
//! Sizes are counted as in nccl-tests (see [`CollectiveRow`]). The rows for 2 and 4 ranks were measured in bf16
//! on H200s, replayed from a graph, for all-reduce, reduce-scatter, all-gather and all-to-all
//! (`benches/results/2026-11-21-grids-patient-4xh200.jsonl`). A row has the grid that loses least against the
//! best grid at each size of its range. The benchmark gave the sizes from which on the copy engine is used
//! (`2026-11-21-lanes-4xh200.json`). On 2 ranks no row pushes a reduction, since that is no faster than loading. On 4
//! one does (`2026-11-22-reduce-push-128x1024-4xh200.json`, timed with pieces of 4 KiB; they have 2 KiB since).
//!
//! Rows of Lamport packets for 4 ranks were measured in bf16 on H200s (`2026-11-26-lamport-4xh200.json`), those of
//! operations with a root also for 2.
//!
//! Rows for more ranks and other operations were not measured. They follow from the measured rows by a model: the data
//! sent in LL packets grows with the ranks, and the copy engine pays off where a step takes far longer than a launch.

use symmem_core::backend::abi::{AlgorithmCode, CollectiveOperationCode, CollectiveRow};
use symmem_gpu::tuning::*;

/// Most bytes of a rank's only inbox for pieces. The row that pushes reductions of 4 ranks takes 25 MiB: two pieces from
/// each of 3 peers, for every pair of warps of 128 blocks of 1024 threads.
pub const REDUCE_INBOX_BYTES: u32 = 64 << 20;

/// The table. An operation's rows for memory that only its rank knows are an entry of their own, behind the others.
pub const COLLECTIVES: SelectorTable = &[
    (CollectiveOperationCode::ALL_REDUCE, &ALL_REDUCE),
    (CollectiveOperationCode::REDUCE, &REDUCE),
    (CollectiveOperationCode::REDUCE_SCATTER, &REDUCE_SCATTER),
    (CollectiveOperationCode::ALL_GATHER, &MOVE_LAMPORT),
    (CollectiveOperationCode::ALL_GATHER, &ALL_GATHER),
    (CollectiveOperationCode::ALL_GATHER_V, &ALL_GATHER),
    (CollectiveOperationCode::ALL_TO_ALL, &MOVE_LAMPORT),
    (CollectiveOperationCode::ALL_TO_ALL, &MOVE_LAMPORT_LARGE),
    (CollectiveOperationCode::ALL_TO_ALL, &ALL_TO_ALL),
    (CollectiveOperationCode::ALL_TO_ALL_V, &EXCHANGE),
    (CollectiveOperationCode::BROADCAST, &BROADCAST),
    (CollectiveOperationCode::GATHER, &GATHER),
    (CollectiveOperationCode::SCATTER, &SCATTER),
    (CollectiveOperationCode::EXCHANGE, &EXCHANGE),
    (CollectiveOperationCode::ALL_REDUCE, &OWN_LAMPORT_ALL_REDUCE),
    (
        CollectiveOperationCode::REDUCE_SCATTER,
        &OWN_LAMPORT_SCATTER,
    ),
    (CollectiveOperationCode::REDUCE, &OWN_LAMPORT_REDUCE),
    (CollectiveOperationCode::ALL_GATHER, &OWN_LAMPORT_MOVE),
    (CollectiveOperationCode::ALL_TO_ALL, &OWN_LAMPORT_MOVE),
    (CollectiveOperationCode::BROADCAST, &OWN_LAMPORT_ROOTED),
    (CollectiveOperationCode::GATHER, &OWN_LAMPORT_ROOTED),
    (CollectiveOperationCode::SCATTER, &OWN_LAMPORT_ROOTED),
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
/// has an earlier row. With 64 blocks, LL packets took less time than pieces up to 2 MiB
/// (`2026-11-25-own-memory-2xh100.json`). Of pieces, 128 blocks take 0.81 to 0.86 of the time of 64 at 64 MiB, and 0.87 to
/// 0.93 at 16 MiB, between two and between four (`2026-11-26-pieces-4xh200.json`); more ranks were not measured. The inbox
/// has room for the last grid up to 63 ranks, and beyond for one that is almost as large.
const OWN_MEMORY: [WorldRows; 3] = [
    (2, &own_memory(AlgorithmCode::PACKETS, 2 * MIB, 128)),
    (4, &own_memory(AlgorithmCode::PACKETS, MIB, 128)),
    (ANY, &own_memory(AlgorithmCode::PACKETS, MIB, 32)),
];
/// Launches of what a part holds, one after the other, take less time than pieces up to these sizes
/// (`2026-11-25-move-lamport-2xh100.json`, `2026-11-26-lamport-4xh200.json`).
const OWN_LAMPORT_ALL_REDUCE: [WorldRows; 2] = [
    (2, OWN_TWO_SUM),
    (
        4,
        &[row(8 * MIB, AlgorithmCode::LAMPORT_TWO_SHOT, 128, 512)],
    ),
];
const OWN_LAMPORT_SCATTER: [WorldRows; 2] = [
    (2, OWN_TWO_SUM),
    (4, &[row(8 * MIB, AlgorithmCode::LAMPORT, 264, 256)]),
];
const OWN_LAMPORT_REDUCE: [WorldRows; 1] = [(4, &[row(4 * MIB, AlgorithmCode::LAMPORT, 132, 512)])];
const OWN_TWO_SUM: &[CollectiveRow] = &[row(32 * MIB, AlgorithmCode::LAMPORT, 264, 256)];
const OWN_LAMPORT_MOVE: [WorldRows; 2] = [
    (2, OWN_16_MIB),
    (4, &[row(8 * MIB, AlgorithmCode::LAMPORT, 264, 288)]),
];
const OWN_LAMPORT_ROOTED: [WorldRows; 1] = [(4, OWN_16_MIB)];
const OWN_16_MIB: &[CollectiveRow] = &[row(16 * MIB, AlgorithmCode::LAMPORT, 264, 288)];

const OWN_SUM: [WorldRows; 3] = [
    (
        2,
        &own_memory(AlgorithmCode::PACKETS_TWO_SHOT, 2 * MIB, 128),
    ),
    (4, &own_memory(AlgorithmCode::PACKETS_TWO_SHOT, MIB, 128)),
    (ANY, &own_memory(AlgorithmCode::PACKETS_TWO_SHOT, MIB, 32)),
];

const ALL_REDUCE: [WorldRows; 14] = [
    (2, TWO_LAMPORT),
    (2, TWO),
    (4, FOUR_LAMPORT),
    (4, FOUR_SMALL),
    (8, EIGHT_LAMPORT),
    (ANY, ANY_SMALL),
    (3, FOUR_LAMPORT_LARGE),
    (3, FOUR_LARGE),
    (ANY, MULTICAST_SMALL),
    (ANY, MULTICAST),
    (4, FOUR_LAMPORT_LARGE),
    (4, FOUR_LARGE),
    (8, EIGHT_LAMPORT_LARGE),
    (ANY, ANY_LARGE),
];

/// Multicast for more than 3 ranks, above the sizes for packets. Not measured: multicast has not been run. With
/// fewer ranks a rank loads little more than it would by multicast. If multicast is not set up, or only
/// emulated, the selector uses a later row.
const MULTICAST: &[CollectiveRow] = &[row(ALWAYS, AlgorithmCode::MULTICAST, 32, 512)];
/// For small sizes one rank can load everything, and the results need not leave it.
const MULTICAST_SMALL: &[CollectiveRow] =
    &[row(128 * KIB, AlgorithmCode::MULTICAST_ONE_SHOT, 16, 512)];

/// Sums and averages of floating-point types. Geometries of a sketch with the same kernels (`benches/NOTES.md`, 23
/// November 2026): one vector of 16 bytes a thread up to 1 MiB, two at 2 MiB, four at 4 MiB
/// (`2026-11-26-lamport-2xh200.json`); and two launches above (`2026-11-25-move-lamport-2xh100.json`).
const TWO_LAMPORT: &[CollectiveRow] = &[
    row(KIB, AlgorithmCode::LAMPORT, 1, 64),
    row(2 * KIB, AlgorithmCode::LAMPORT, 2, 64),
    row(4 * KIB, AlgorithmCode::LAMPORT, 4, 64),
    row(8 * KIB, AlgorithmCode::LAMPORT, 8, 64),
    row(16 * KIB, AlgorithmCode::LAMPORT, 16, 64),
    row(32 * KIB, AlgorithmCode::LAMPORT, 32, 64),
    row(64 * KIB, AlgorithmCode::LAMPORT, 64, 64),
    row(128 * KIB, AlgorithmCode::LAMPORT, 64, 128),
    row(256 * KIB, AlgorithmCode::LAMPORT, 32, 512),
    row(512 * KIB, AlgorithmCode::LAMPORT, 64, 512),
    row(2 * MIB, AlgorithmCode::LAMPORT, 128, 512),
    row(8 * MIB, AlgorithmCode::LAMPORT, 264, 256),
];

/// All-gathers of equal parts, and all-to-alls.
const MOVE_LAMPORT: [WorldRows; 2] = [(2, TWO_MOVE_LAMPORT), (8, FOUR_MOVE_LAMPORT)];
/// All-to-alls do not go by multicast.
const MOVE_LAMPORT_LARGE: [WorldRows; 1] = [(8, FOUR_MOVE_LAMPORT_LARGE)];
/// For any type; each sends half of the bytes, and 32 vectors for 31 of data. The grids have a vector for each thread up to
/// 2 MiB, two at 4 MiB and four at 8 MiB (`2026-11-25-move-lamport-2xh100.json`, `2026-11-26-lamport-2xh200.json`).
const TWO_MOVE_LAMPORT: &[CollectiveRow] = &[
    row(KIB, AlgorithmCode::LAMPORT, 2, 64),
    row(4 * KIB, AlgorithmCode::LAMPORT, 4, 64),
    row(8 * KIB, AlgorithmCode::LAMPORT, 8, 64),
    row(16 * KIB, AlgorithmCode::LAMPORT, 20, 64),
    row(32 * KIB, AlgorithmCode::LAMPORT, 34, 64),
    row(64 * KIB, AlgorithmCode::LAMPORT, 66, 64),
    row(128 * KIB, AlgorithmCode::LAMPORT, 66, 128),
    row(256 * KIB, AlgorithmCode::LAMPORT, 67, 128),
    row(512 * KIB, AlgorithmCode::LAMPORT, 34, 512),
    row(MIB, AlgorithmCode::LAMPORT, 67, 512),
    row(8 * MIB, AlgorithmCode::LAMPORT, 264, 288),
];

/// Measured between four (`2026-11-26-lamport-4xh200.json`): a vector for each thread. Three and five to eight were not
/// measured.
const FOUR_MOVE_LAMPORT: &[CollectiveRow] = &[
    row(4 * KIB, AlgorithmCode::LAMPORT, 2, 64),
    row(16 * KIB, AlgorithmCode::LAMPORT, 5, 64),
    row(64 * KIB, AlgorithmCode::LAMPORT, 17, 64),
    row(128 * KIB, AlgorithmCode::LAMPORT, 34, 64),
    row(256 * KIB, AlgorithmCode::LAMPORT, 34, 128),
    row(512 * KIB, AlgorithmCode::LAMPORT, 67, 128),
];
/// The same above what comes before multicast.
const FOUR_MOVE_LAMPORT_LARGE: &[CollectiveRow] = &[
    row(MIB, AlgorithmCode::LAMPORT, 67, 256),
    row(2 * MIB, AlgorithmCode::LAMPORT, 67, 512),
    row(4 * MIB, AlgorithmCode::LAMPORT, 264, 288),
];

/// Sizes for which multicast, with its two barriers, should not be faster; above, it comes first. Measured between four
/// (`2026-11-26-lamport-4xh200.json`), with a vector for each thread; between three nothing was. From the times at 128 and
/// 256 KiB, one shot and two are equal at 230 KiB.
const FOUR_LAMPORT: &[CollectiveRow] = &[
    row(KIB, AlgorithmCode::LAMPORT, 1, 64),
    row(4 * KIB, AlgorithmCode::LAMPORT, 4, 64),
    row(16 * KIB, AlgorithmCode::LAMPORT, 16, 64),
    row(64 * KIB, AlgorithmCode::LAMPORT, 64, 64),
    row(128 * KIB, AlgorithmCode::LAMPORT, 128, 64),
    row(224 * KIB, AlgorithmCode::LAMPORT, 128, 128),
    row(256 * KIB, AlgorithmCode::LAMPORT_TWO_SHOT, 64, 64),
];
const FOUR_LAMPORT_LARGE: &[CollectiveRow] = &[
    row(512 * KIB, AlgorithmCode::LAMPORT_TWO_SHOT, 64, 128),
    row(MIB, AlgorithmCode::LAMPORT_TWO_SHOT, 128, 128),
    row(2 * MIB, AlgorithmCode::LAMPORT_TWO_SHOT, 128, 256),
];
/// Not measured. By a model from what four take, a one-shot call takes 2 us and the time of what a rank sends, its elements
/// to each peer, at 350 GB/s; a two-shot call 1.25 us more, and the time of two shares to each peer. For eight both are equal
/// at 81 KiB.
const EIGHT_LAMPORT: &[CollectiveRow] = &[
    row(4 * KIB, AlgorithmCode::LAMPORT, 4, 64),
    row(16 * KIB, AlgorithmCode::LAMPORT, 16, 64),
    row(64 * KIB, AlgorithmCode::LAMPORT, 64, 64),
    row(128 * KIB, AlgorithmCode::LAMPORT_TWO_SHOT, 16, 64),
    row(256 * KIB, AlgorithmCode::LAMPORT_TWO_SHOT, 32, 64),
];
const EIGHT_LAMPORT_LARGE: &[CollectiveRow] = &[
    row(512 * KIB, AlgorithmCode::LAMPORT_TWO_SHOT, 64, 64),
    row(MIB, AlgorithmCode::LAMPORT_TWO_SHOT, 64, 128),
    row(2 * MIB, AlgorithmCode::LAMPORT_TWO_SHOT, 128, 128),
];

const TWO: &[CollectiveRow] = &[
    row(KIB, AlgorithmCode::PACKETS, 1, 128),
    row(2 * KIB, AlgorithmCode::PACKETS, 2, 128),
    row(4 * KIB, AlgorithmCode::PACKETS, 4, 128),
    row(8 * KIB, AlgorithmCode::PACKETS, 8, 128),
    row(16 * KIB, AlgorithmCode::PACKETS, 16, 128),
    row(128 * KIB, AlgorithmCode::PACKETS, 64, 128),
    row(256 * KIB, AlgorithmCode::PACKETS, 32, 512),
    row(MIB, AlgorithmCode::TWO_SHOT, 64, 128),
    row(16 * MIB, AlgorithmCode::TWO_SHOT, 128, 512),
    row(64 * MIB, AlgorithmCode::TWO_SHOT, 96, 512),
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

/// Lamport packets were measured between two and four (`2026-11-26-lamport-4xh200.json`).
const REDUCE: [WorldRows; 3] = [
    (
        2,
        &[
            row(32 * KIB, AlgorithmCode::LAMPORT, 32, 128),
            row(256 * KIB, AlgorithmCode::LAMPORT, 132, 256),
            row(32 * MIB, AlgorithmCode::LAMPORT, 264, 256),
        ],
    ),
    (
        4,
        &[
            row(64 * KIB, AlgorithmCode::PACKETS, 16, 512),
            row(512 * KIB, AlgorithmCode::LAMPORT, 132, 256),
            row(MIB, AlgorithmCode::LAMPORT, 132, 512),
        ],
    ),
    (
        ANY,
        &[
            row(64 * KIB, AlgorithmCode::PACKETS, 16, 512),
            row(512 * KIB, AlgorithmCode::ONE_SHOT, 32, 512),
            row(ALWAYS, AlgorithmCode::TWO_SHOT, 64, 512),
        ],
    ),
];

/// Bytes are those of both shares, of which one is sent. Geometries as of an all-reduce of a share; two launches above
/// 8 MiB.
const TWO_SCATTER_LAMPORT: &[CollectiveRow] = &[
    row(2 * KIB, AlgorithmCode::LAMPORT, 1, 64),
    row(4 * KIB, AlgorithmCode::LAMPORT, 2, 64),
    row(8 * KIB, AlgorithmCode::LAMPORT, 4, 64),
    row(16 * KIB, AlgorithmCode::LAMPORT, 8, 64),
    row(32 * KIB, AlgorithmCode::LAMPORT, 16, 64),
    row(64 * KIB, AlgorithmCode::LAMPORT, 32, 64),
    row(128 * KIB, AlgorithmCode::LAMPORT, 64, 64),
    row(256 * KIB, AlgorithmCode::LAMPORT, 64, 128),
    row(512 * KIB, AlgorithmCode::LAMPORT, 128, 128),
    row(MIB, AlgorithmCode::LAMPORT, 128, 256),
    row(4 * MIB, AlgorithmCode::LAMPORT, 128, 512),
    row(16 * MIB, AlgorithmCode::LAMPORT, 264, 256),
];

/// Bytes are those of all four shares, of which one goes to each peer: a vector for each thread, up to what multicast should
/// do faster (`2026-11-26-lamport-4xh200.json`).
const FOUR_SCATTER_LAMPORT: &[CollectiveRow] = &[
    row(4 * KIB, AlgorithmCode::LAMPORT, 1, 64),
    row(16 * KIB, AlgorithmCode::LAMPORT, 4, 64),
    row(64 * KIB, AlgorithmCode::LAMPORT, 16, 64),
    row(256 * KIB, AlgorithmCode::LAMPORT, 64, 64),
    row(512 * KIB, AlgorithmCode::LAMPORT, 128, 64),
];
const FOUR_SCATTER_LAMPORT_LARGE: &[CollectiveRow] = &[
    row(MIB, AlgorithmCode::LAMPORT, 128, 128),
    row(2 * MIB, AlgorithmCode::LAMPORT, 128, 256),
    row(4 * MIB, AlgorithmCode::LAMPORT, 128, 512),
];
/// Not measured: the same shares.
const EIGHT_SCATTER_LAMPORT: &[CollectiveRow] = &[
    row(8 * KIB, AlgorithmCode::LAMPORT, 1, 64),
    row(32 * KIB, AlgorithmCode::LAMPORT, 4, 64),
    row(128 * KIB, AlgorithmCode::LAMPORT, 16, 64),
    row(512 * KIB, AlgorithmCode::LAMPORT, 64, 64),
];

const REDUCE_SCATTER: [WorldRows; 13] = [
    (2, TWO_SCATTER_LAMPORT),
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
            row(2 * MIB, AlgorithmCode::ONE_SHOT, 64, 256),
            row(ALWAYS, AlgorithmCode::ONE_SHOT, 128, 512),
        ],
    ),
    // The small kernels that scatter are for four and eight.
    (3, FOUR_SCATTER_PACKETS),
    (4, FOUR_SCATTER_LAMPORT),
    (4, FOUR_SCATTER_PACKETS),
    (7, ANY_SCATTER_PACKETS),
    (8, EIGHT_SCATTER_LAMPORT),
    (ANY, ANY_SCATTER_PACKETS),
    (3, FOUR_SCATTER_LAMPORT_LARGE),
    (3, SCATTERED),
    (ANY, MULTICAST),
    (4, FOUR_SCATTER_LAMPORT_LARGE),
    (ANY, SCATTERED),
];
const FOUR_SCATTER_PACKETS: &[CollectiveRow] = &[
    row(4 * KIB, AlgorithmCode::PACKETS, 1, 128),
    row(8 * KIB, AlgorithmCode::PACKETS, 2, 128),
    row(16 * KIB, AlgorithmCode::PACKETS, 4, 128),
    row(32 * KIB, AlgorithmCode::PACKETS, 8, 128),
    row(64 * KIB, AlgorithmCode::PACKETS, 16, 128),
    row(512 * KIB, AlgorithmCode::PACKETS, 32, 256),
];
const ANY_SCATTER_PACKETS: &[CollectiveRow] = &[
    row(16 * KIB, AlgorithmCode::PACKETS, 2, 128),
    row(32 * KIB, AlgorithmCode::PACKETS, 4, 128),
    row(64 * KIB, AlgorithmCode::PACKETS, 8, 128),
    row(128 * KIB, AlgorithmCode::PACKETS, 16, 128),
    row(512 * KIB, AlgorithmCode::PACKETS, 32, 256),
];
const SCATTERED: &[CollectiveRow] = &[row(ALWAYS, AlgorithmCode::ONE_SHOT, 64, 256)];

/// For 2 ranks, packets have the grids that were best on one H200 (`2026-11-23-small-kernels-1xh200.json`).
const ALL_GATHER: [WorldRows; 8] = [
    (
        2,
        &[
            row(KIB, AlgorithmCode::PACKETS, 1, 64),
            row(2 * KIB, AlgorithmCode::PACKETS, 2, 64),
            row(4 * KIB, AlgorithmCode::PACKETS, 2, 128),
            row(8 * KIB, AlgorithmCode::PACKETS, 4, 128),
            row(16 * KIB, AlgorithmCode::PACKETS, 4, 256),
            row(32 * KIB, AlgorithmCode::PACKETS, 4, 512),
            row(64 * KIB, AlgorithmCode::PACKETS, 32, 128),
            row(128 * KIB, AlgorithmCode::PACKETS, 32, 256),
            row(512 * KIB, AlgorithmCode::PACKETS, 32, 512),
            row(MIB, AlgorithmCode::PACKETS, 64, 512),
            row(16 * MIB, AlgorithmCode::PUSH, 64, 128),
            row(128 * MIB, AlgorithmCode::PUSH, 64, 512),
            copies_to_peers(ALWAYS),
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
    (3, FOUR_MOVE_LAMPORT_LARGE),
    (3, GATHERED),
    (ANY, MULTICAST),
    (8, FOUR_MOVE_LAMPORT_LARGE),
    (ANY, GATHERED),
];
const GATHERED: &[CollectiveRow] = &[
    two_at_once(32 * MIB, AlgorithmCode::PUSH, 64, 128),
    two_at_once(256 * MIB, AlgorithmCode::PUSH, 128, 256),
    copies_to_peers(ALWAYS),
];

/// The row for in-place calls: swap works only in place, and is the only algorithm with barriers that does. Not
/// measured. Each rank moves as much as in a push, but half of it by loads, which take more blocks than stores.
const IN_PLACE: CollectiveRow = row(ALWAYS, AlgorithmCode::SWAP, 32, 512);

const ALL_TO_ALL: [WorldRows; 3] = [
    (
        2,
        &[
            row(KIB, AlgorithmCode::PACKETS, 1, 64),
            row(2 * KIB, AlgorithmCode::PACKETS, 2, 64),
            row(4 * KIB, AlgorithmCode::PACKETS, 2, 128),
            row(8 * KIB, AlgorithmCode::PACKETS, 4, 128),
            row(16 * KIB, AlgorithmCode::PACKETS, 4, 256),
            row(32 * KIB, AlgorithmCode::PACKETS, 4, 512),
            row(64 * KIB, AlgorithmCode::PACKETS, 32, 128),
            row(128 * KIB, AlgorithmCode::PACKETS, 32, 256),
            row(512 * KIB, AlgorithmCode::PACKETS, 32, 512),
            row(MIB, AlgorithmCode::PACKETS, 64, 512),
            row(16 * MIB, AlgorithmCode::PUSH, 64, 128),
            row(128 * MIB, AlgorithmCode::PUSH, 64, 512),
            copies_to_peers(ALWAYS),
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
            copies_to_peers(ALWAYS),
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
            copies_to_peers(ALWAYS),
            IN_PLACE,
        ],
    ),
];

/// A pulled broadcast leaves entirely by the root's link; a scattered one leaves by all links.
/// Lamport packets were measured between two and four (`2026-11-26-lamport-4xh200.json`).
const BROADCAST: [WorldRows; 8] = [
    (
        2,
        &[
            row(128 * KIB, AlgorithmCode::PACKETS, 16, 512),
            row(256 * KIB, AlgorithmCode::LAMPORT, 132, 256),
            row(4 * MIB, AlgorithmCode::LAMPORT, 264, 256),
            row(ALWAYS, AlgorithmCode::PUSH, 32, 512),
        ],
    ),
    (ANY, &[row(64 * KIB, AlgorithmCode::PACKETS, 16, 512)]),
    (4, &[row(256 * KIB, AlgorithmCode::LAMPORT, 264, 256)]),
    (3, FOUR_BROADCAST_LAMPORT),
    (3, BROADCAST_LARGE),
    (ANY, MULTICAST),
    (4, FOUR_BROADCAST_LAMPORT),
    (ANY, BROADCAST_LARGE),
];
const FOUR_BROADCAST_LAMPORT: &[CollectiveRow] = &[row(MIB, AlgorithmCode::LAMPORT, 264, 256)];
const BROADCAST_LARGE: &[CollectiveRow] = &[
    row(512 * KIB, AlgorithmCode::PULL, 32, 512),
    row(ALWAYS, AlgorithmCode::TWO_SHOT, 64, 512),
];

/// The root's link bounds gather and scatter no matter who moves the bytes, so the other ranks do. Lamport packets were
/// measured between two and four (`2026-11-26-lamport-4xh200.json`).
const GATHER: [WorldRows; 2] = [
    (4, ROOTED_LAMPORT),
    (
        ANY,
        &[
            row(128 * KIB, AlgorithmCode::PACKETS, 16, 512),
            row(ALWAYS, AlgorithmCode::PUSH, 64, 512),
        ],
    ),
];

const SCATTER: [WorldRows; 3] = [
    (2, ROOTED_LAMPORT),
    (
        4,
        &[
            row(128 * KIB, AlgorithmCode::PACKETS, 16, 512),
            row(512 * KIB, AlgorithmCode::LAMPORT, 132, 256),
            row(4 * MIB, AlgorithmCode::LAMPORT, 264, 256),
        ],
    ),
    (
        ANY,
        &[
            row(128 * KIB, AlgorithmCode::PACKETS, 16, 512),
            row(ALWAYS, AlgorithmCode::PULL, 64, 512),
        ],
    ),
];
const ROOTED_LAMPORT: &[CollectiveRow] = &[
    row(128 * KIB, AlgorithmCode::PACKETS, 16, 512),
    row(512 * KIB, AlgorithmCode::LAMPORT, 132, 256),
    row(8 * MIB, AlgorithmCode::LAMPORT, 264, 256),
];

/// Blocks per peer, plus the one that announces. With 24 blocks a pair of devices is near the link's rate
/// (`benches/NOTES.md`), and behind a switch the peers share that rate.
const EXCHANGE: [WorldRows; 3] = [
    (
        2,
        &[row(ALWAYS, AlgorithmCode::RENDEZVOUS, 2 * 24 + 1, 512)],
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
    use symmem_core::backend::abi::MoveLamportArguments;

    #[test]
    fn every_operation_has_a_row_for_every_world_and_size_and_each_can_be_launched() {
        assert_eq!(collective_flaws(COLLECTIVES, 32), [""; 0]);
        let rows = COLLECTIVES.iter().flat_map(|(_, worlds)| *worlds);
        assert!(rows.map(|(_, rows)| rows.len()).sum::<usize>() > 50);
    }

    /// The largest kernels for two ranks that are not for all calls carry four vectors a thread.
    #[test]
    fn each_grid_for_lamport_packets_of_two_has_a_small_kernel() {
        const LAUNCH: u64 = 4 << 20;
        let packets_of_sum = |bytes: u64| bytes.min(LAUNCH).div_ceil(16);
        let packets_of_move =
            |bytes: u64| MoveLamportArguments::taken_bytes(bytes.min(LAUNCH)) / 16;
        let most = |row: &CollectiveRow| 4 * u64::from(row.blocks) * u64::from(row.threads);
        for row in TWO_LAMPORT {
            assert!(packets_of_sum(row.bytes) <= most(row), "{row:?}");
        }
        for row in TWO_SCATTER_LAMPORT {
            assert!(packets_of_sum(row.bytes / 2) <= most(row), "{row:?}");
        }
        for row in TWO_MOVE_LAMPORT {
            assert!(packets_of_move(row.bytes / 2) <= most(row), "{row:?}");
        }
        // One vector for each thread, as its comment says, and two and four.
        let last = TWO_MOVE_LAMPORT.last().expect("there are rows");
        for (bytes, vectors) in [(2 * MIB, 1), (4 * MIB, 2), (8 * MIB, 4)] {
            assert!(
                packets_of_move(bytes / 2) <= vectors * most(last) / 4,
                "{bytes}"
            );
        }
    }

    /// The small kernels for more than two ranks carry one vector a thread.
    #[test]
    fn each_grid_for_lamport_packets_of_four_and_eight_has_a_thread_for_every_vector() {
        let check = |parts: u64, all: &[&[CollectiveRow]], packets: &dyn Fn(u64) -> u64| {
            for row in all.iter().copied().flatten() {
                let threads = u64::from(row.blocks) * u64::from(row.threads);
                assert!(packets(row.bytes / parts) <= threads, "{row:?}");
            }
        };
        let sums = |bytes: u64| bytes.div_ceil(16);
        let moves = |bytes| MoveLamportArguments::taken_bytes(bytes) / 16;
        check(
            4,
            &[FOUR_SCATTER_LAMPORT, FOUR_SCATTER_LAMPORT_LARGE],
            &sums,
        );
        check(8, &[EIGHT_SCATTER_LAMPORT], &sums);
        check(4, &[FOUR_MOVE_LAMPORT, FOUR_MOVE_LAMPORT_LARGE], &moves);
        let of_four = FOUR_LAMPORT.iter().chain(FOUR_LAMPORT_LARGE);
        let of_eight = EIGHT_LAMPORT.iter().chain(EIGHT_LAMPORT_LARGE);
        let of_four = of_four.map(|row| (4, row));
        for (world, &row) in of_four.chain(of_eight.map(|row| (8, row))) {
            let two_shot = row.algorithm == AlgorithmCode::LAMPORT_TWO_SHOT;
            check(if two_shot { world } else { 1 }, &[&[row]], &sums);
        }
    }
}
