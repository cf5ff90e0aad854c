//! The rank that failed first.
//!
//! Ranks' ends arrive in the order in which they happened ([`super::exits`]). Still, a survivor can end before the rank
//! that it failed for: that rank's sockets close before its process has ended, and a shell in front of it ends later
//! yet. So a rank that had begun to end when the first failure was noticed is waited for, and counts as first if a
//! signal ended it.

use super::event::Ended;
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// Time after the first failure in which the end of a rank by SIGKILL counts as earlier: no rank sends itself that
/// signal because a peer has failed.
const SETTLE: Duration = Duration::from_millis(300);

/// The first failure, as far as it is known.
pub(super) struct FirstFailure {
    pub rank: usize,
    pub how: Ended,
    /// Ranks that had begun to end when the first end was noticed, and have not ended yet.
    suspects: Vec<usize>,
    noticed: Instant,
}

impl FirstFailure {
    /// Makes the failure of the first rank that is known to have ended; `suspects` have begun to end.
    pub(super) fn new(rank: usize, how: Ended, suspects: Vec<usize>, now: Instant) -> Self {
        Self {
            rank,
            how,
            suspects,
            noticed: now,
        }
    }

    /// Takes the end of another rank into account.
    pub(super) fn consider(&mut self, rank: usize, how: Ended, now: Instant) {
        let is_suspect = self.suspects.contains(&rank);
        self.suspects.retain(|&suspect| suspect != rank);
        if self.how.signal().is_some() {
            return;
        }
        let is_killed = how.signal() == Some(Signal::KILL.as_raw());
        let is_earlier = is_suspect && how.signal().is_some()
            || is_killed && now.saturating_duration_since(self.noticed) <= SETTLE;
        if is_earlier {
            (self.rank, self.how) = (rank, how);
        }
    }

    /// Returns when the first failure is certain, unless a suspect ends before; `None` if it is certain already.
    pub(super) fn settles_at(&self) -> Option<Instant> {
        let is_certain = self.how.signal().is_some();
        (!is_certain).then(|| self.noticed + SETTLE)
    }

    /// Returns whether the first failure is certain at `now`.
    pub(super) fn is_certain(&self, now: Instant) -> bool {
        let is_over = self.settles_at().is_none_or(|at| at <= now);
        is_over && (self.suspects.is_empty() || self.how.signal().is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILLED: Ended = Ended::Signal(9);
    const ABORTED: Ended = Ended::Signal(6);
    const FAILED: Ended = Ended::Code(1);

    /// Returns the rank that counts as first of ranks that end 10 ms after one another.
    fn first_of(ends: &[(usize, Ended)], suspects: &[usize]) -> usize {
        let mut now = Instant::now();
        let (rank, how) = ends[0];
        let mut first = FirstFailure::new(rank, how, suspects.to_vec(), now);
        for &(rank, how) in &ends[1..] {
            now += Duration::from_millis(10);
            first.consider(rank, how, now);
        }
        first.rank
    }

    #[test]
    fn of_ranks_that_signals_ended_the_first_counts() {
        assert_eq!(first_of(&[(2, KILLED), (0, KILLED), (1, FAILED)], &[]), 2);
        assert_eq!(first_of(&[(2, ABORTED), (0, KILLED)], &[0]), 2);
        let by_shell = Ended::Code(137);
        assert_eq!(first_of(&[(2, by_shell), (0, KILLED)], &[0]), 2);
    }

    #[test]
    fn a_survivor_that_ended_before_the_killed_rank_does_not_count() {
        assert_eq!(first_of(&[(0, FAILED), (1, FAILED), (2, KILLED)], &[]), 2);
        assert_eq!(first_of(&[(0, FAILED), (2, Ended::Code(137))], &[]), 2);
        assert_eq!(first_of(&[(0, FAILED), (2, ABORTED)], &[2]), 2);
    }

    #[test]
    fn a_rank_that_aborts_because_another_failed_does_not_count() {
        assert_eq!(first_of(&[(0, FAILED), (2, ABORTED)], &[]), 0);
        assert_eq!(first_of(&[(0, FAILED), (2, FAILED)], &[2]), 0);
    }

    #[test]
    fn a_rank_that_is_killed_later_does_not_count() {
        let now = Instant::now();
        let mut first = FirstFailure::new(0, FAILED, Vec::new(), now);
        assert!(!first.is_certain(now) && first.is_certain(now + SETTLE));
        first.consider(1, KILLED, now + 2 * SETTLE);
        assert_eq!(first.rank, 0);
    }

    #[test]
    fn a_rank_that_has_begun_to_end_is_waited_for() {
        let now = Instant::now();
        let mut first = FirstFailure::new(0, FAILED, vec![1, 2], now);
        let late = now + 2 * SETTLE;
        assert!(!first.is_certain(late));
        first.consider(1, FAILED, late);
        assert!(!first.is_certain(late));
        first.consider(2, KILLED, late);
        assert!(first.is_certain(late) && first.rank == 2);
    }
}
