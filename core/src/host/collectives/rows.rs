//! The selector's table for the host.
//!
//! Measured with `examples/host_collective_speed.rs` between two ranks. Packets save a barrier and cost a copy, which
//! pays up to about [`SMALL`]. Above that, the algorithm is the one that spreads the work: if one rank has what all
//! need, each rank pulls what it needs; if each rank has a part, each pushes it to the others.

use crate::backend::abi::*;

/// Returns row `index` of the table; `None` past its end.
pub(crate) fn row(index: u32) -> Option<CollectiveRow> {
    ROWS.get(index as usize).copied()
}

/// Maximum bytes that one rank sends another in packets.
const SMALL: u64 = 512;

const fn row_of(
    operation: CollectiveOperationCode,
    bytes: u64,
    algorithm: AlgorithmCode,
) -> CollectiveRow {
    CollectiveRow {
        operation,
        world: u32::MAX,
        bytes,
        algorithm,
        blocks: 1,
        threads: 32,
        concurrent: 0,
    }
}

const fn small(operation: CollectiveOperationCode, bytes: u64) -> CollectiveRow {
    row_of(operation, bytes, AlgorithmCode::PACKETS)
}

const fn large(operation: CollectiveOperationCode, algorithm: AlgorithmCode) -> CollectiveRow {
    row_of(operation, u64::MAX, algorithm)
}

const ROWS: &[CollectiveRow] = &[
    small(CollectiveOperationCode::ALL_REDUCE, SMALL),
    large(CollectiveOperationCode::ALL_REDUCE, AlgorithmCode::TWO_SHOT),
    small(CollectiveOperationCode::REDUCE, SMALL),
    large(CollectiveOperationCode::REDUCE, AlgorithmCode::TWO_SHOT),
    small(CollectiveOperationCode::REDUCE_SCATTER, 2 * SMALL),
    large(
        CollectiveOperationCode::REDUCE_SCATTER,
        AlgorithmCode::ONE_SHOT,
    ),
    small(CollectiveOperationCode::ALL_GATHER, 2 * SMALL),
    large(CollectiveOperationCode::ALL_GATHER, AlgorithmCode::PUSH),
    // No row covers a large all-to-all in place; the selector then uses `SWAP`.
    small(CollectiveOperationCode::ALL_TO_ALL, 2 * SMALL),
    large(CollectiveOperationCode::ALL_TO_ALL, AlgorithmCode::PUSH),
    small(CollectiveOperationCode::BROADCAST, SMALL),
    large(CollectiveOperationCode::BROADCAST, AlgorithmCode::PULL),
    small(CollectiveOperationCode::SCATTER, 2 * SMALL),
    large(CollectiveOperationCode::SCATTER, AlgorithmCode::PULL),
    small(CollectiveOperationCode::GATHER, 2 * SMALL),
    large(CollectiveOperationCode::GATHER, AlgorithmCode::PUSH),
    large(CollectiveOperationCode::EXCHANGE, AlgorithmCode::RENDEZVOUS),
];

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_an_operation_go_from_small_to_all_and_the_table_ends() {
        for (index, this) in ROWS.iter().enumerate() {
            assert_eq!(row(index as u32), Some(*this));
            let next = ROWS.get(index + 1);
            let goes_on = next.is_some_and(|next| next.operation == this.operation);
            assert_eq!(goes_on, this.bytes != u64::MAX, "{}", this.operation.name());
            assert!(!goes_on || next.is_some_and(|next| next.bytes > this.bytes));
        }
        assert_eq!(row(ROWS.len() as u32), None);
    }
}
