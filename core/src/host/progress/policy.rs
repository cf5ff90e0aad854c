//! How long a wait spins before it sleeps.

use super::step::Step;
use super::word::word_at;
use crate::backend::abi::OpenOptions;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a caller polls for a wait on an idle stream before it queues the wait; about the cost of a thread
/// hand-off.
const SPIN: Duration = Duration::from_micros(20);
/// How long the stream's thread leaves a wait to a caller that may be about to synchronize.
pub(crate) const GRACE: Duration = Duration::from_micros(50);
/// How long the stream's thread pauses after a caller has polled the stream.
pub(crate) const HELPED: Duration = Duration::from_micros(100);

/// How long the stream's thread pauses while a caller sleeps in its place.
pub(crate) const ATTENDED: Duration = Duration::from_millis(2);

/// Whether waits of this instance may spin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Whether every rank on this host has a processor to itself.
    spin: bool,
    /// Whether a caller that polls yields its processor to the other ranks.
    yields: bool,
}

impl Policy {
    /// Returns the policy for `ranks` ranks on a machine with `processors` processors.
    pub(crate) fn new(ranks: u32, processors: u32) -> Self {
        Self {
            spin: ranks <= processors,
            yields: ranks > processors && ranks != OpenOptions::OTHER_NODES,
        }
    }

    /// Polls for at most [`SPIN`], if ranks have processors to themselves; returns true once `ready` does.
    #[inline]
    pub(crate) fn spin(self, mut ready: impl FnMut() -> bool) -> bool {
        if !self.spin {
            return false;
        }
        let start = Instant::now();
        loop {
            // Reading the clock costs more than a poll.
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

    /// Repeats `step` until it is done or has to wait. If ranks have processors to themselves, first polls the word
    /// that the step waits for, for at most [`SPIN`].
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
            // Reading the clock, or a step, costs more than a look at the word.
            start.get_or_insert_with(Instant::now);
            // SAFETY: the step has not ended, so the word that it waits for is live.
            let word = unsafe { word_at(sleep.word) };
            for _ in 0..64 {
                if word.load(Ordering::Relaxed) != sleep.seen {
                    break;
                }
                std::hint::spin_loop();
            }
        }
    }

    /// Yields between two polls of a synchronizing caller, if another rank may need this processor.
    pub(crate) fn between_polls(self) {
        if self.yields {
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
