//! One step of work that may have to wait: what it waits for, for how long, and what it leaves when it gives up.

use super::word::{LONGEST_SLEEP, SignalWord, Sleep, long_at, word_at};
use crate::backend::abi::{DeviceAddress, WaitRecord};
use crate::epoch::{self, Outlook};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// [`WaitRecord::reason`]: the deadline passed.
pub(crate) const DEADLINE_PASSED: u32 = 1;
/// [`WaitRecord::reason`]: the abort word was set.
pub(crate) const ABORT_WORD_SET: u32 = 2;

/// What became of an attempt to do an operation.
#[must_use]
pub(crate) enum Step {
    /// It is done, or has given up.
    Done,
    /// It waits; this is how to sleep on what it waits for.
    Blocked(Sleep),
}

/// A wait that has begun, or a collective between two of its waits.
pub(crate) struct Pending {
    /// The epoch waited for.
    pub(crate) expected: u32,
    /// The next peer, or the next word, to wait for.
    pub(crate) peer: u32,
    /// Which of a collective's steps it is in.
    pub(crate) stage: u32,
    /// Whether that step has told the peers.
    begun: bool,
    /// Rounds of packets that are done.
    pub(crate) round: u64,
    /// And how many there are.
    pub(crate) rounds: u64,
    /// Whether it was seen unsatisfied.
    looked: bool,
    /// When it was seen so for the second time: one that is satisfied soon reads no clock.
    since: Option<Instant>,
    /// Whether the stream's thread has already left it to callers for a while.
    graced: bool,
    /// The word whose sleepers it is counted among.
    ///
    /// The wait is counted, not the thread, so that whoever completes it can take the count back
    /// while the memory is certainly alive.
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

    /// A collective of so many rounds.
    pub(crate) fn of_rounds(rounds: u64) -> Self {
        Self {
            rounds,
            ..Self::new(0)
        }
    }

    /// True once a step: the first time.
    #[inline]
    pub(crate) fn begin(&mut self) -> bool {
        !std::mem::replace(&mut self.begun, true)
    }

    /// A step with this peer is over.
    #[inline]
    pub(crate) fn next_peer(&mut self) {
        self.begun = false;
        self.peer += 1;
    }

    /// A step with all peers is over.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.begun = false;
        self.peer = 0;
    }

    /// What is left of a deadline, now that the wait was seen unsatisfied once more.
    pub(crate) fn left_of(&mut self, deadline: Duration) -> Duration {
        if !std::mem::replace(&mut self.looked, true) {
            return deadline;
        }
        deadline.saturating_sub(self.since.get_or_insert_with(Instant::now).elapsed())
    }

    /// For how long it has waited.
    pub(crate) fn elapsed_ns(&self) -> u64 {
        self.since
            .map_or(0, |since| since.elapsed().as_nanos() as u64)
    }

    /// True once: the first time that the stream's thread finds the wait unsatisfied.
    pub(crate) fn grant_grace(&mut self) -> bool {
        !std::mem::replace(&mut self.graced, true)
    }

    /// Announces a sleep on `word`.
    ///
    /// # Safety
    /// `word` is the live word that this wait waits for.
    pub(crate) unsafe fn announce_sleep(&mut self, word: DeviceAddress) {
        if self.asleep_on.is_none() {
            // SAFETY: the caller's word.
            epoch::register_sleeper(unsafe { &SignalWord::at(word).sleepers });
            self.asleep_on = Some(word);
        }
    }

    /// Takes the announcement back. The giver has woken the sleeper; who gives up must do it.
    ///
    /// # Safety
    /// The word is live, as it is until the wait is over.
    unsafe fn end_sleep(&mut self, gave_up: bool) {
        if let Some(word) = self.asleep_on.take() {
            // SAFETY: the caller's word.
            let word = unsafe { SignalWord::at(word) };
            epoch::unregister_sleeper(&word.sleepers);
            if gave_up {
                word.wake();
            }
        }
    }
}

/// What bounds a wait. A null abort word is not read.
pub(crate) struct Bounds {
    pub(crate) abort: DeviceAddress,
    pub(crate) deadline: Option<Duration>,
}

/// What a wait finds when it looks.
pub(crate) enum Look {
    Reached,
    Blocked(Sleep),
    GaveUp { seen: u32, reason: u32 },
}

/// Looks at a word once.
///
/// # Safety
/// The word and the abort word are live.
#[inline]
pub(crate) unsafe fn look(word: DeviceAddress, bounds: &Bounds, pending: &mut Pending) -> Look {
    // SAFETY: the caller's word.
    let signal = unsafe { SignalWord::at(word) };
    // SAFETY: as above, where there is one.
    let abort = (bounds.abort.0 != 0).then(|| unsafe { word_at(bounds.abort) });
    let look = match epoch::look(&signal.value, pending.expected, abort) {
        Outlook::Reached => Look::Reached,
        Outlook::Aborted { seen } => Look::GaveUp {
            seen,
            reason: ABORT_WORD_SET,
        },
        Outlook::Waiting { seen } => {
            let limit = bounds
                .deadline
                .map_or(LONGEST_SLEEP, |deadline| pending.left_of(deadline));
            if limit.is_zero() {
                Look::GaveUp {
                    seen,
                    reason: DEADLINE_PASSED,
                }
            } else {
                return Look::Blocked(Sleep {
                    word,
                    seen,
                    limit,
                    counted: true,
                });
            }
        }
    };
    // SAFETY: the word is live.
    unsafe { pending.end_sleep(matches!(look, Look::GaveUp { .. })) };
    look
}

/// Fills the record, if there is one and nobody has.
///
/// # Safety
/// `address` is 0 or that of a live [`WaitRecord`].
pub(crate) unsafe fn fill_record(address: DeviceAddress, record: &WaitRecord) {
    if address.0 == 0 {
        return;
    }
    // SAFETY: the caller's word; the record is made of 32-bit words, of which this is the first.
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
        // SAFETY: within the record, as asserted above.
        unsafe { word_at(word) }.store(field, Ordering::Relaxed);
    }
    let elapsed = DeviceAddress(address.0 + std::mem::offset_of!(WaitRecord, elapsed_ns) as u64);
    // SAFETY: as above.
    unsafe { long_at(elapsed) }.store(record.elapsed_ns, Ordering::Relaxed);
    epoch::complete(state);
}
