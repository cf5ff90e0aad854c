//! Atomic operations on words of symmetric memory, and waits for such words.
//!
//! These words are the caller's and may be adjacent, so no count of sleepers can follow one. A sleeper on such a word
//! wakes by itself to look again.

use super::progress::{
    ABORT_WORD_SET, DEADLINE_PASSED, Pending, Sleep, Step, fill_record, is_aborted, long_at,
    word_at,
};
use crate::backend::abi::*;
use crate::backend::{CallResult, Failure};
use std::sync::atomic::Ordering;
use std::time::Duration;

const WORD_WAIT: u32 = 3;
/// Longest sleep on a word whose writers wake no sleeper; about the cost of waking a thread.
const LONGEST_UNWOKEN: Duration = Duration::from_micros(100);

fn invalid<T>(call: &str, why: String) -> CallResult<T> {
    Err(Failure::new(Status::INVALID_ARGUMENT, call, why))
}

fn check_word(call: &str, name: &str, address: DeviceAddress, bits: u32) -> CallResult<()> {
    if bits != 32 && bits != 64 {
        return invalid(
            call,
            format!("a word of {bits} bits is not supported; use 32 or 64"),
        );
    }
    if address.0 == 0 || !address.0.is_multiple_of(u64::from(bits / 8)) {
        return invalid(
            call,
            format!(
                "the {name} at {:#x} is null or not aligned to its {bits} bits; align it for atomic operations",
                address.0
            ),
        );
    }
    Ok(())
}

/// Checks the arguments of an operation on a word.
pub(crate) fn check_update(operation: &WordOperation) -> CallResult<()> {
    let (call, bits) = ("word_update", operation.bits);
    check_word(call, "word", operation.word, bits)?;
    if operation.result.0 != 0 {
        check_word(call, "result", operation.result, bits)?;
    }
    if operation.update.0 > WordUpdate::COMPARE_SWAP.0 {
        return invalid(
            call,
            format!(
                "word update {} is unknown; use one of this version",
                operation.update.0
            ),
        );
    }
    Ok(())
}

/// Checks the arguments of a wait for words.
pub(crate) fn check_wait(wait: &WordWait) -> CallResult<()> {
    let (call, bits) = ("word_wait", wait.bits);
    check_word(call, "first word", wait.words, bits)?;
    if wait.count == 0 {
        return invalid(call, "the wait has no words; wait for at least 1".into());
    }
    if wait.count > 1 && !wait.stride.is_multiple_of(u64::from(bits / 8)) {
        return invalid(
            call,
            format!(
                "a stride of {} bytes is not a multiple of the words' {bits} bits; align it",
                wait.stride
            ),
        );
    }
    if !(ConditionCode::EQUAL.0..=ConditionCode::LESS.0).contains(&wait.condition.0) {
        return invalid(
            call,
            format!(
                "condition {} is unknown; use one of this version",
                wait.condition.0
            ),
        );
    }
    Ok(())
}

/// Updates a word atomically, and stores the old value if the operation asks for it.
///
/// # Safety
/// The words are live, and [`check_update`] has passed.
pub(crate) unsafe fn update(operation: &WordOperation) {
    macro_rules! update {
        ($word:expr, $type:ty) => {{
            let word = $word;
            let operand = operation.operand as $type;
            let order = Ordering::AcqRel;
            match operation.update {
                WordUpdate::SET => {
                    // The old value is not needed, so a plain store is enough.
                    if operation.result.0 == 0 {
                        word.store(operand, Ordering::Release);
                        return;
                    }
                    word.swap(operand, order)
                }
                WordUpdate::ADD => word.fetch_add(operand, order),
                WordUpdate::SWAP => word.swap(operand, order),
                WordUpdate::COMPARE_SWAP => {
                    let current = operation.compare as $type;
                    match word.compare_exchange(current, operand, order, Ordering::Acquire) {
                        Ok(old) | Err(old) => old,
                    }
                }
                _ => word.load(Ordering::Acquire),
            }
        }};
    }
    let wide = operation.bits == 64;
    let old = if wide {
        // SAFETY: the word is live and aligned, as this function requires.
        update!(unsafe { long_at(operation.word) }, u64)
    } else {
        // SAFETY: the word is live and aligned, as this function requires.
        update!(unsafe { word_at(operation.word) }, u32).into()
    };
    if operation.result.0 == 0 {
        return;
    }
    // SAFETY: the result's word is live and aligned, as this function requires.
    unsafe {
        if wide {
            long_at(operation.result).store(old, Ordering::Release);
        } else {
            word_at(operation.result).store(old as u32, Ordering::Release);
        }
    }
}

/// Whether a word satisfies the condition; both values have `bits` bits.
fn holds(condition: ConditionCode, seen: u64, value: u64, bits: u32) -> bool {
    // Shifted to the upper end, the difference wraps like a word of `bits` bits.
    let ahead = (seen.wrapping_sub(value) << (64 - bits)) as i64;
    match condition {
        ConditionCode::EQUAL => ahead == 0,
        ConditionCode::NOT_EQUAL => ahead != 0,
        ConditionCode::GREATER_OR_EQUAL => ahead >= 0,
        ConditionCode::GREATER => ahead > 0,
        ConditionCode::LESS_OR_EQUAL => ahead <= 0,
        _ => ahead < 0,
    }
}

/// Advances a wait for words. A wait for all words takes them in turn, and does not look again at a word that has
/// satisfied the condition.
///
/// # Safety
/// All memory in `wait` is live, and [`check_wait`] has passed.
pub(crate) unsafe fn advance_wait(wait: &WordWait, pending: &mut Option<Pending>) -> Step {
    let pending = pending.get_or_insert_with(|| Pending::new(wait.value as u32));
    let address = |index: u32| DeviceAddress(wait.words.0 + u64::from(index) * wait.stride);
    let read = |index: u32| {
        // SAFETY: the words are live and aligned, as this function requires.
        unsafe {
            match wait.bits {
                64 => long_at(address(index)).load(Ordering::Acquire),
                _ => word_at(address(index)).load(Ordering::Acquire).into(),
            }
        }
    };
    let mut seen = 0;
    let mut good = |index: u32| {
        let word = read(index);
        seen = word as u32;
        holds(wait.condition, word, wait.value, wait.bits)
    };
    let found = if wait.any == 1 {
        // Backwards, so that the first satisfying word wins, and otherwise the sleep is on the first word.
        let all = (0..wait.count).rev();
        all.fold(None, |found, index| good(index).then_some(index).or(found))
    } else {
        while pending.peer < wait.count && good(pending.peer) {
            pending.peer += 1;
        }
        (pending.peer == wait.count).then_some(0)
    };
    if let Some(index) = found {
        if wait.index.0 != 0 {
            // SAFETY: the word for the index is live, as this function requires.
            unsafe { word_at(wait.index) }.store(index, Ordering::Release);
        }
        return Step::Done;
    }
    // SAFETY: the watch's words are null or live, as this function requires.
    let aborted = unsafe { is_aborted(&wait.watch) };
    let deadline = Duration::from_nanos(wait.watch.deadline_ns);
    let remaining = pending.left_of(deadline);
    if !aborted && !remaining.is_zero() {
        // Of a 64-bit word this is the lower half (little endian). A change of only the upper half is seen when the
        // sleep ends.
        return Step::Blocked(Sleep {
            word: address(pending.peer),
            seen,
            limit: remaining.min(LONGEST_UNWOKEN),
            counted: false,
        });
    }
    let record = WaitRecord {
        kind: WORD_WAIT,
        rank: wait.watch.rank,
        peer: pending.peer,
        expected: pending.expected,
        seen,
        reason: if aborted {
            ABORT_WORD_SET
        } else {
            DEADLINE_PASSED
        },
        elapsed_ns: pending.elapsed_ns(),
        ..WaitRecord::default()
    };
    // SAFETY: the record is live, as this function requires.
    unsafe { fill_record(wait.watch.record, &record) };
    Step::Done
}
