//! Waiting: how long to spin before a sleep.

use super::step::Step;
use super::word::word_at;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long the caller of a wait on an idle stream polls before the wait is queued. A thread hand-off
/// costs about as much.
const SPIN: Duration = Duration::from_micros(20);
/// How long the stream's thread leaves a wait to a caller who may be about to synchronise.
pub(crate) const GRACE: Duration = Duration::from_micros(50);
/// How long it keeps away after a caller has polled the stream.
pub(crate) const HELPED: Duration = Duration::from_micros(100);

/// Whether waiters of this instance may burn cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Every rank on this host has a processor to itself.
    spin: bool,
}

impl Policy {
    /// The policy for `ranks` on a machine with `processors`.
    pub(crate) fn new(ranks: u32, processors: u32) -> Self {
        Self {
            spin: ranks <= processors,
        }
    }

    /// Polls for a short bounded time, if ranks have processors to themselves; true once `ready` is.
    #[inline]
    pub(crate) fn spin(self, mut ready: impl FnMut() -> bool) -> bool {
        if !self.spin {
            return false;
        }
        let start = Instant::now();
        loop {
            // Reading the clock costs more than looking at the word.
            for _ in 0..32 {
                if ready() {
                    return true;
                }
                std::hint::spin_loop();
            }
            if start.elapsed() > SPIN {
                return false;
            }
        }
    }

    /// Goes on with work until it is done, or has to wait. Where ranks have processors to
    /// themselves it watches the word that the work waits for, a short bounded time.
    #[inline]
    pub(crate) fn spin_on(self, mut step: impl FnMut() -> Step) -> Step {
        let mut start = None;
        loop {
            let Step::Blocked(sleep) = step() else {
                return Step::Done;
            };
            if !self.spin || start.is_some_and(|start: Instant| start.elapsed() > SPIN) {
                return Step::Blocked(sleep);
            }
            // Reading the clock, or doing a step, costs more than looking at the word.
            start.get_or_insert_with(Instant::now);
            // SAFETY: the step has not ended, so what it waits for is live.
            let word = unsafe { word_at(sleep.word) };
            for _ in 0..64 {
                if word.load(Ordering::Relaxed) != sleep.seen {
                    break;
                }
                std::hint::spin_loop();
            }
        }
    }

    /// Between two polls of a caller who synchronises: lets another rank run if it needs this
    /// processor.
    pub(crate) fn between_polls(self) {
        if !self.spin {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_spin_only_if_every_rank_has_a_processor() {
        assert!(Policy::new(2, 2).spin(|| true));
        assert!(!Policy::new(3, 2).spin(|| unreachable!("polled")));
        assert!(!Policy::new(1, 1).spin(|| false));
    }
}
