//! The pulse of a rank's connection to a store on another node: each end notices that the other is silent.
//!
//! A process that ends closes its connections, and its peers notice at once. A host that stops, or a cable that is
//! pulled, closes nothing. So the rank sends a pulse several times within the time that it may be silent, and the store
//! answers each.

use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

use crate::base::lock::lock;

/// Pulses within the time after which silence means death: a few may be late.
const PULSES: u32 = 8;

/// The part of that time for which the first pulse may be without an answer. A cable is pulled up to an interval before
/// that pulse is sent, and the watcher that sends it and looks for the answer has rounds of its own: together they must
/// not exceed the time.
const UNANSWERED: f64 = 0.8;

/// The part of that time after which a store takes a rank for dead that it has not heard from. The other ranks are to know
/// within all of it.
const UNHEARD: f64 = 0.9;

/// Returns the time after which a rank is dead that is not heard from, if silence means death after `silence`.
pub(super) fn most_unheard(silence: Duration) -> Duration {
    silence.mul_f64(UNHEARD)
}

/// The pulses of one rank.
#[derive(Debug, Default)]
pub(super) struct Pulse(Mutex<Option<State>>);

#[derive(Debug)]
struct State {
    silence: Duration,
    /// When the last pulse was sent; `None` before the first.
    sent: Option<Instant>,
    /// When the first pulse was due that is not answered.
    unanswered: Option<Instant>,
}

impl Pulse {
    /// Returns whether a pulse is due at `now`. `silence` is the time after which an end that is not heard from is dead.
    /// Does not block.
    pub(super) fn is_due(&self, silence: Duration, now: Instant) -> bool {
        let state = match self.0.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread is at it.
            Err(TryLockError::WouldBlock) => return false,
        };
        let interval = silence / PULSES;
        let sent = state.as_ref().and_then(|state| state.sent);
        sent.is_none_or(|sent| now.saturating_duration_since(sent) >= interval)
    }

    /// Notes that a pulse was sent at `now`.
    pub(super) fn sent(&self, silence: Duration, now: Instant) {
        self.was_due(silence, Some(now), now);
    }

    /// Notes that a pulse was due at `now` and could not be sent: there is no answer to it either.
    pub(super) fn held_back(&self, silence: Duration, now: Instant) {
        self.was_due(silence, None, now);
    }

    fn was_due(&self, silence: Duration, sent: Option<Instant>, now: Instant) {
        let mut state = lock(&self.0);
        let (before, unanswered) = match &*state {
            Some(state) => (state.sent, state.unanswered),
            None => (None, None),
        };
        *state = Some(State {
            silence,
            sent: sent.or(before),
            unanswered: unanswered.or(Some(now)),
        });
    }

    /// Notes that the store answered.
    pub(super) fn answered(&self) {
        if let Some(state) = &mut *lock(&self.0) {
            state.unanswered = None;
        }
    }

    /// Ends the pulse.
    pub(super) fn end(&self) {
        *lock(&self.0) = None;
    }

    /// Returns whether there is a pulse.
    pub(super) fn is_on(&self) -> bool {
        self.period().is_some()
    }

    /// Returns the time after which silence means death, if there is a pulse.
    pub(super) fn period(&self) -> Option<Duration> {
        lock(&self.0).as_ref().map(|state| state.silence)
    }

    /// Returns for how long the store may be without an answer, if there is a pulse.
    pub(super) fn allowed(&self) -> Option<Duration> {
        self.period().map(|silence| silence.mul_f64(UNANSWERED))
    }

    /// Returns for how long the store has been silent at `now`, if that is too long. Asked when all that has arrived has
    /// been read: a rank that was stopped must not blame the store.
    pub(super) fn silence(&self, now: Instant) -> Option<Duration> {
        let state = lock(&self.0);
        let state = state.as_ref()?;
        let silent = now.saturating_duration_since(state.unanswered?);
        (silent >= state.silence.mul_f64(UNANSWERED)).then_some(silent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::WATCH_INTERVAL;

    const SILENCE: Duration = Duration::from_secs(3);

    #[test]
    fn a_pulse_is_due_several_times_within_the_silence_and_an_answer_ends_it() {
        let (pulse, start) = (Pulse::default(), Instant::now());
        assert!(pulse.is_due(SILENCE, start) && !pulse.is_on());
        pulse.sent(SILENCE, start);
        assert!(!pulse.is_due(SILENCE, start + SILENCE / (PULSES + 1)));
        assert!(pulse.is_due(SILENCE, start + SILENCE / PULSES));
        pulse.answered();
        assert_eq!(pulse.silence(start + 2 * SILENCE), None);
    }

    #[test]
    fn silence_counts_from_the_first_pulse_without_an_answer() {
        let (pulse, start) = (Pulse::default(), Instant::now());
        pulse.sent(SILENCE, start);
        pulse.sent(SILENCE, start + SILENCE / 2);
        assert_eq!(pulse.silence(start + SILENCE * 7 / 10), None);
        assert_eq!(pulse.silence(start + SILENCE), Some(SILENCE));
        pulse.end();
        assert_eq!(pulse.silence(start + SILENCE), None);
    }

    #[test]
    fn a_pulse_that_cannot_be_sent_is_without_an_answer_and_due_until_it_is() {
        let (pulse, start) = (Pulse::default(), Instant::now());
        pulse.sent(SILENCE, start);
        pulse.answered();
        let due = start + SILENCE / PULSES;
        pulse.held_back(SILENCE, due);
        assert!(pulse.is_due(SILENCE, due));
        assert_eq!(pulse.silence(due + SILENCE / 2), None);
        assert_eq!(pulse.silence(due + SILENCE), Some(SILENCE));
        pulse.answered();
        assert_eq!(pulse.silence(due + SILENCE), None);
    }

    #[test]
    fn an_end_that_falls_silent_right_after_an_answer_is_dead_within_the_time() {
        let (pulse, start) = (Pulse::default(), Instant::now());
        pulse.sent(SILENCE, start);
        pulse.answered();
        // The watcher sends the next pulse, which nobody answers, in its first round in which one is due.
        let next = start + SILENCE / PULSES + WATCH_INTERVAL;
        assert!(pulse.is_due(SILENCE, next));
        pulse.sent(SILENCE, next);
        let last_round = start + SILENCE - WATCH_INTERVAL;
        assert!(pulse.silence(last_round).is_some());
    }
}
