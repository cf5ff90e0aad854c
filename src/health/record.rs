//! Conversion of a wait record into an error.

use crate::backend::abi::{CollectiveOperationCode, WaitRecord};
use crate::base::error::Error;
use std::time::Duration;

/// A call of several steps, in which a rank passes on what it has received: the rank that a step waits for may itself wait for
/// another. Its steps wait for signals and at barriers, so it is told apart by its number, in the upper half of the channel that
/// kernels copy into the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingCall {
    GemmReduceScatter = 1,
    GemmAllReduce = 2,
}

impl RingCall {
    /// Returns the `slot` of a wait on a channel.
    pub fn slot(self, channel: u32) -> u32 {
        channel | (self as u32) << u16::BITS
    }

    /// Returns the call that a wait belongs to, if it is one of these.
    pub fn of(record: &WaitRecord) -> Option<Self> {
        match (record.kind, record.slot >> u16::BITS) {
            (1 | 2, 1) => Some(Self::GemmReduceScatter),
            (1 | 2, 2) => Some(Self::GemmAllReduce),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::GemmReduceScatter => "gemm_reduce_scatter",
            Self::GemmAllReduce => "gemm_all_reduce",
        }
    }
}

/// Returns whether the record numbers its peer among the ranks of this node, as kernels of collectives and barriers do;
/// otherwise among all ranks.
pub fn counts_members(record: &WaitRecord) -> bool {
    matches!(record.kind, 2 | 4 | 5) || record.kind >= WaitRecord::COLLECTIVE
}

/// Returns the error of a complete record; `None` if the wait left because of an abort.
pub fn error_of(rank: usize, record: &WaitRecord) -> Option<Error> {
    // A receive that cannot be served neither waited too long nor was aborted.
    if record.reason != 1 && !matches!(record.kind, 4 | 5) {
        return None;
    }
    let waited = Duration::from_nanos(record.elapsed_ns);
    let call = RingCall::of(record);
    let operation = match record.kind {
        kind @ (1 | 2) => match (call, kind) {
            (Some(call), _) => call.name(),
            (None, 1) => "wait_signal",
            (None, _) => "barrier",
        },
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
        channel: match call {
            Some(_) => record.slot & u32::from(u16::MAX),
            None => record.slot,
        },
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
        CollectiveOperationCode::GEMM_REDUCE_SCATTER => "gemm_reduce_scatter",
        CollectiveOperationCode::GEMM_ALL_REDUCE => "gemm_all_reduce",
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
    fn a_step_of_a_call_is_named_by_the_call_and_keeps_its_channel() {
        for (call, name) in [
            (RingCall::GemmReduceScatter, "gemm_reduce_scatter"),
            (RingCall::GemmAllReduce, "gemm_all_reduce"),
        ] {
            for kind in [1, 2] {
                let record = WaitRecord {
                    slot: call.slot(3),
                    ..record(kind)
                };
                assert_eq!(RingCall::of(&record), Some(call));
                let error = error_of(1, &record);
                let Some(Error::Timeout {
                    operation, channel, ..
                }) = error
                else {
                    panic!("{error:?}");
                };
                assert_eq!((operation, channel), (name, 3));
            }
        }
        assert_eq!(RingCall::of(&record(1)), None);
    }

    #[test]
    fn a_wait_in_a_collective_is_named_by_its_method() {
        let mut names = Vec::new();
        for operation in 1..=CollectiveOperationCode::GEMM_ALL_REDUCE.0 {
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
        assert_eq!(names.len(), 16);
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
