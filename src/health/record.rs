//! Conversion of a wait record into an error.

use crate::backend::abi::{CollectiveOperationCode, WaitRecord};
use crate::base::error::Error;
use std::time::Duration;

/// Returns the error of a complete record; `None` if the wait left because of an abort.
pub fn error_of(rank: usize, record: &WaitRecord) -> Option<Error> {
    // A receive that cannot be served neither waited too long nor was aborted.
    if record.reason != 1 && !matches!(record.kind, 4 | 5) {
        return None;
    }
    let waited = Duration::from_nanos(record.elapsed_ns);
    let operation = match record.kind {
        1 => "wait_signal",
        2 => "barrier",
        3 => {
            return Some(Error::WordTimeout {
                rank,
                index: record.peer as usize,
                expected: record.expected,
                seen: record.seen,
                waited,
            });
        }
        4 => {
            return Some(Error::Mismatch {
                rank,
                peer: record.peer as usize,
                operation: "receive",
                what: "the number of bytes",
                mine: bytes_of(record.expected),
                theirs: bytes_of(record.seen),
            });
        }
        5 => {
            return Some(Error::Mismatch {
                rank,
                peer: record.peer as usize,
                operation: "receive",
                what: "the sender's buffer",
                mine: "freed (keep it until the receive is complete)".into(),
                theirs: "allocated".into(),
            });
        }
        kind => method_of(CollectiveOperationCode(
            kind.wrapping_sub(WaitRecord::COLLECTIVE),
        )),
    };
    Some(Error::Timeout {
        rank,
        peer: record.peer as usize,
        operation,
        channel: record.slot,
        expected: record.expected,
        seen: record.seen,
        waited: Some(waited),
    })
}

/// Formats a size of a record, which saturates.
fn bytes_of(bytes: u32) -> String {
    match bytes {
        u32::MAX => "4 GiB or more".into(),
        bytes => bytes.to_string(),
    }
}

/// Returns the method of [`crate::Stream`] behind an operation.
fn method_of(operation: CollectiveOperationCode) -> &'static str {
    match operation {
        CollectiveOperationCode::BARRIER => "barrier",
        CollectiveOperationCode::BROADCAST => "broadcast",
        CollectiveOperationCode::ALL_GATHER => "all_gather",
        CollectiveOperationCode::ALL_GATHER_V => "all_gather_v",
        CollectiveOperationCode::REDUCE => "reduce",
        CollectiveOperationCode::REDUCE_SCATTER => "reduce_scatter",
        CollectiveOperationCode::ALL_REDUCE => "all_reduce",
        CollectiveOperationCode::ALL_TO_ALL => "all_to_all",
        CollectiveOperationCode::ALL_TO_ALL_V => "all_to_all_v",
        CollectiveOperationCode::GATHER => "gather",
        CollectiveOperationCode::SCATTER => "scatter",
        CollectiveOperationCode::EXCHANGE => "exchange",
        CollectiveOperationCode::ALL_GATHER_GEMM => "all_gather_gemm",
        CollectiveOperationCode::ALL_REDUCE_NORM => "all_reduce_norm",
        _ => "an operation unknown to this version",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32) -> WaitRecord {
        WaitRecord {
            state: 2,
            kind,
            rank: 1,
            peer: 3,
            slot: 5,
            expected: 7,
            seen: u32::MAX,
            reason: 1,
            elapsed_ns: 2_000_000,
        }
    }

    #[test]
    fn a_wait_in_a_collective_is_named_by_its_method() {
        let mut names = Vec::new();
        for operation in 1..=CollectiveOperationCode::ALL_REDUCE_NORM.0 {
            let record = record(WaitRecord::COLLECTIVE + operation);
            let Some(Error::Timeout {
                rank: 1,
                peer: 3,
                operation: name,
                channel: 5,
                expected: 7,
                waited: Some(waited),
                ..
            }) = error_of(1, &record)
            else {
                panic!("{:?}", error_of(1, &record));
            };
            assert_eq!(waited, Duration::from_millis(2));
            assert_eq!(
                name.to_uppercase(),
                CollectiveOperationCode(operation).name(),
                "the method is the operation in lower case"
            );
            names.push(name);
        }
        names.dedup();
        assert_eq!(names.len(), 14);
    }

    #[test]
    fn a_wait_for_words_names_the_word_and_no_rank() {
        let error = error_of(1, &record(3)).unwrap();
        assert!(
            matches!(error, Error::WordTimeout { index: 3, .. }),
            "{error}"
        );
    }

    #[test]
    fn a_receipt_of_another_size_is_a_mismatch_that_names_the_sender() {
        let error = error_of(1, &record(4)).unwrap();
        assert!(matches!(error, Error::Mismatch { peer: 3, .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("7 here, 4 GiB or more at rank 3"), "{text}");
    }

    #[test]
    fn a_receipt_from_a_buffer_that_was_given_up_is_no_wait_and_names_the_sender() {
        let record = WaitRecord {
            reason: 0,
            ..record(5)
        };
        let error = error_of(1, &record).unwrap();
        assert!(matches!(error, Error::Mismatch { peer: 3, .. }), "{error}");
        assert!(error.to_string().contains("freed"), "{error}");
    }

    #[test]
    fn a_wait_that_left_because_of_an_abort_is_no_cause() {
        for kind in [1, 2, 3, 23] {
            let aborted = WaitRecord {
                reason: 2,
                ..record(kind)
            };
            assert!(error_of(1, &aborted).is_none());
        }
    }
}
