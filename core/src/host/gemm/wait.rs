//! A wait for another member of a GEMM that communicates.

use crate::backend::abi::*;
use crate::host::progress::{Bounds, Pending, PollOutcome, Step, fill_record, look};

/// Waits until a word that `member` raises has reached its value. An error is the step with which the caller returns.
///
/// # Safety
/// The word and the words of the group's watch are live.
pub(super) unsafe fn wait(
    group: &CollectiveGroup,
    word: DeviceAddress,
    member: usize,
    pending: &mut Pending,
) -> Result<(), Step> {
    let watch = &group.watch;
    let bounds = Bounds::of(watch);
    // SAFETY: the word and the watch's words are live, as this function requires.
    match unsafe { look(word, &bounds, pending) } {
        PollOutcome::Reached => Ok(()),
        PollOutcome::Blocked(sleep) => Err(Step::Blocked(sleep)),
        PollOutcome::GaveUp { seen, reason } => {
            let record = WaitRecord {
                kind: WaitRecord::COLLECTIVE + group.operation.0,
                rank: watch.rank,
                peer: group.members[member].into(),
                slot: group.slot,
                expected: pending.expected,
                seen,
                reason,
                elapsed_ns: pending.elapsed_ns(),
                ..WaitRecord::default()
            };
            // SAFETY: the record is live, as this function requires.
            unsafe { fill_record(watch.record, &record) };
            Err(Step::Done)
        }
    }
}
