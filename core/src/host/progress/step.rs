//! One step of work: what it waits for, for how long, and the record that it leaves when it gives up.

use super::word::{LONGEST_SLEEP, SignalWord, Sleep, long_at, word_at};
use crate::backend::abi::{DeviceAddress, WaitRecord, Watch};
use crate::epoch::{self, Outlook};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// [`WaitRecord::reason`]: the deadline passed.
pub(crate) const DEADLINE_PASSED: u32 = 1;
/// [`WaitRecord::reason`]: the abort word was set.
pub(crate) const ABORT_WORD_SET: u32 = 2;

/// The outcome of a step.
#[must_use]
pub(crate) enum Step {
    /// The work is done, or has given up.
    Done,
    /// The work waits; the value says how to sleep.
    Blocked(Sleep),
}

/// A wait that has begun, or a collective between two of its waits.
pub(crate) struct Pending {
    /// The epoch waited for.
    pub(crate) expected: u32,
    /// The next peer or word to wait for.
    pub(crate) peer: u32,
    /// The current step of a collective.
    pub(crate) stage: u32,
    /// Whether that step has signaled the peers.
    begun: bool,
    /// Number of rounds that are done.
    pub(crate) round: u64,
    /// Total number of rounds.
    pub(crate) rounds: u64,
    /// Whether the wait was seen unsatisfied.
    looked: bool,
    /// Time of the second such look, so that a short wait never reads the clock.
    since: Option<Instant>,
    /// Whether the stream's thread has already left this wait to callers for a while.
    graced: bool,
    /// The word on which this wait is counted as a sleeper.
    ///
    /// The wait is counted and not the thread, so that whichever thread completes it can undo the count while the
    /// memory is still live.
    asleep_on: Option<DeviceAddress>,
}

impl Pending {
    pub(crate) fn new(expected: u32) -> Self {
        Self {
            expected,
            peer: 0,
            stage: 0,
            begun: false,
            round: 0,
            rounds: 0,
            looked: false,
            since: None,
            graced: false,
            asleep_on: None,
        }
    }

    /// Returns the start of a collective of `rounds` rounds.
    pub(crate) fn of_rounds(rounds: u64) -> Self {
        Self {
            rounds,
            ..Self::new(0)
        }
    }

    /// Returns true once per step, the first time.
    #[inline]
    pub(crate) fn begin(&mut self) -> bool {
        !std::mem::replace(&mut self.begun, true)
    }

    /// Ends the step with this peer.
    #[inline]
    pub(crate) fn next_peer(&mut self) {
        self.begun = false;
        self.peer += 1;
    }

    /// Ends the step with all peers.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.begun = false;
        self.peer = 0;
    }

    /// Returns the rest of the deadline, after the wait was seen unsatisfied once more.
    pub(crate) fn left_of(&mut self, deadline: Duration) -> Duration {
        if !std::mem::replace(&mut self.looked, true) {
            return deadline;
        }
        deadline.saturating_sub(self.since.get_or_insert_with(Instant::now).elapsed())
    }

    /// Returns how long the wait has lasted, in nanoseconds.
    pub(crate) fn elapsed_ns(&self) -> u64 {
        self.since
            .map_or(0, |since| since.elapsed().as_nanos() as u64)
    }

    /// Returns true once: the first time that the stream's thread finds the wait unsatisfied.
    pub(crate) fn grant_grace(&mut self) -> bool {
        !std::mem::replace(&mut self.graced, true)
    }

    /// Counts this wait as a sleeper on `word`.
    ///
    /// # Safety
    /// `word` is the live word of this wait.
    pub(crate) unsafe fn announce_sleep(&mut self, word: DeviceAddress) {
        if self.asleep_on.is_none() {
            // SAFETY: the word is live, as this function requires.
            epoch::register_sleeper(unsafe { &SignalWord::at(word).sleepers });
            self.asleep_on = Some(word);
        }
    }

    /// Undoes [`Pending::announce_sleep`]. A giver has woken the sleepers; a wait that gives up must wake them
    /// itself.
    ///
    /// # Safety
    /// The word is live, which it is until the wait is over.
    unsafe fn end_sleep(&mut self, gave_up: bool) {
        if let Some(word) = self.asleep_on.take() {
            // SAFETY: the word is live, as this function requires.
            let word = unsafe { SignalWord::at(word) };
            epoch::unregister_sleeper(&word.sleepers);
            if gave_up {
                word.wake();
            }
        }
    }
}

/// The bounds of a wait. Null words are not used.
pub(crate) struct Bounds {
    pub(crate) abort: DeviceAddress,
    pub(crate) aborted: DeviceAddress,
    pub(crate) deadline: Option<Duration>,
}

impl Bounds {
    /// The bounds of a wait that never gives up.
    pub(crate) const NONE: Self = Self {
        abort: DeviceAddress::NULL,
        aborted: DeviceAddress::NULL,
        deadline: None,
    };

    /// Returns the bounds of a wait with a deadline.
    pub(crate) fn of(watch: &Watch) -> Self {
        Self {
            abort: watch.abort,
            aborted: watch.aborted,
            deadline: Some(Duration::from_nanos(watch.deadline_ns)),
        }
    }

    /// Notes on the device that a wait has seen the abort word, for kernels of a GPU that share this word. Waits here
    /// read the abort word itself, which is as near.
    ///
    /// # Safety
    /// The word is null or live.
    unsafe fn note_abort(&self) {
        if self.aborted.0 != 0 {
            // SAFETY: the word is live, as this function requires.
            unsafe { word_at(self.aborted) }.store(1, Ordering::Relaxed);
        }
    }
}

/// Returns whether the abort word is set, and notes it on the device.
///
/// # Safety
/// The words of `watch` are null or live.
pub(crate) unsafe fn is_aborted(watch: &Watch) -> bool {
    // SAFETY: the abort word is not null, and live, as this function requires.
    let aborted =
        watch.abort.0 != 0 && unsafe { word_at(watch.abort) }.load(Ordering::Acquire) != 0;
    if aborted {
        // SAFETY: the word is null or live, as this function requires.
        unsafe { Bounds::of(watch).note_abort() };
    }
    aborted
}

/// The outcome of a look at a word.
pub(crate) enum PollOutcome {
    Reached,
    Blocked(Sleep),
    GaveUp { seen: u32, reason: u32 },
}

/// Looks at a word once, and ends the sleep on it if the wait is over.
///
/// # Safety
/// The word is live, and the bounds' words are null or live.
#[inline]
pub(crate) unsafe fn look(
    word: DeviceAddress,
    bounds: &Bounds,
    pending: &mut Pending,
) -> PollOutcome {
    // SAFETY: the word is live, as this function requires.
    let signal = unsafe { SignalWord::at(word) };
    // SAFETY: the abort word is not null, and live, as this function requires.
    let abort = (bounds.abort.0 != 0).then(|| unsafe { word_at(bounds.abort) });
    let look = match epoch::look(&signal.value, pending.expected, abort) {
        Outlook::Reached => PollOutcome::Reached,
        Outlook::Aborted { seen } => {
            // SAFETY: the bounds' words are null or live, as this function requires.
            unsafe { bounds.note_abort() };
            PollOutcome::GaveUp {
                seen,
                reason: ABORT_WORD_SET,
            }
        }
        Outlook::Waiting { seen } => {
            let limit = bounds
                .deadline
                .map_or(LONGEST_SLEEP, |deadline| pending.left_of(deadline));
            if limit.is_zero() {
                PollOutcome::GaveUp {
                    seen,
                    reason: DEADLINE_PASSED,
                }
            } else {
                return PollOutcome::Blocked(Sleep {
                    word,
                    seen,
                    limit,
                    counted: true,
                });
            }
        }
    };
    // SAFETY: the word is live, as this function requires.
    unsafe { pending.end_sleep(matches!(look, PollOutcome::GaveUp { .. })) };
    look
}

/// Fills the record, if there is one and no other wait has filled it.
///
/// # Safety
/// `address` is 0 or that of a live [`WaitRecord`].
pub(crate) unsafe fn fill_record(address: DeviceAddress, record: &WaitRecord) {
    if address.0 == 0 {
        return;
    }
    // SAFETY: the record is live and starts with this 32-bit word.
    let state = unsafe { word_at(address) };
    if !epoch::claim(state) {
        return;
    }
    let fields = [
        record.kind,
        record.rank,
        record.peer,
        record.slot,
        record.expected,
        record.seen,
        record.reason,
    ];
    const { assert!(size_of::<WaitRecord>() == 8 * 4 + 8) };
    for (index, field) in fields.into_iter().enumerate() {
        let word = DeviceAddress(address.0 + 4 * (index as u64 + 1));
        // SAFETY: the word is within the record, as asserted above.
        unsafe { word_at(word) }.store(field, Ordering::Relaxed);
    }
    let elapsed = DeviceAddress(address.0 + std::mem::offset_of!(WaitRecord, elapsed_ns) as u64);
    // SAFETY: the field is within the record.
    unsafe { long_at(elapsed) }.store(record.elapsed_ns, Ordering::Relaxed);
    epoch::complete(state);
}
