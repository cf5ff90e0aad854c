//! Which algorithm for which size: the selector's table for the host.

use crate::backend::abi::*;

/// Row `index` of the table; past its end one of [`Algorithm::AUTOMATIC`].
pub(super) fn row(index: u32) -> CollectiveRow {
    ROWS.get(index as usize).copied().unwrap_or_default()
}

const fn up_to(operation: CollectiveOperation, bytes: u64, algorithm: Algorithm) -> CollectiveRow {
    CollectiveRow {
        operation,
        world: u32::MAX,
        bytes,
        algorithm,
        blocks: 1,
        threads: 1,
        concurrent: 0,
    }
}

const ALL: u64 = u64::MAX;

const ROWS: &[CollectiveRow] = &[
    up_to(CollectiveOperation::ALL_REDUCE, 4096, Algorithm::PACKETS),
    up_to(CollectiveOperation::ALL_REDUCE, ALL, Algorithm::TWO_SHOT),
];
