//! Heartbeats: every watcher counts its rounds on the page that all ranks map, and a rank whose count stands
//! still has stopped.
//!
//! In a ring each rank waits for its neighbor only, so the first rank whose deadline passes need not be the one
//! that waits for the stopped rank.

use crate::base::limits::WATCH_INTERVAL;
use crate::base::lock::lock;
use crate::health::control::ControlBlock;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Rounds without a count after which a rank is taken for stopped: on a busy machine a watcher misses some.
const MISSED: u32 = 8;
const STOPPED_AFTER: Duration = WATCH_INTERVAL.saturating_mul(MISSED);

/// One rank's observations of every rank's count.
pub struct Heartbeats {
    /// By rank of this node: its number in the world, its count, and the time at which that was first seen.
    seen: Mutex<Vec<(usize, u32, Instant)>>,
}

impl Heartbeats {
    /// Makes the state without observations of `ranks`, those of a node.
    pub fn new(ranks: &[usize], now: Instant) -> Self {
        Self {
            seen: Mutex::new(ranks.iter().map(|&rank| (rank, 0, now)).collect()),
        }
    }

    /// Reads every rank's count.
    pub fn look(&self, control: &ControlBlock, now: Instant) {
        for (rank, seen, since) in lock(&self.seen).iter_mut() {
            let beats = control.beats(*rank);
            if beats != *seen {
                (*seen, *since) = (beats, now);
            }
        }
    }

    /// Returns the rank to blame for a wait for `peer`: `peer`, unless another rank has clearly been silent for longer.
    /// On a busy machine running ranks miss beats too, but not for as long as one that has stopped.
    pub fn stopped(&self, peer: usize, now: Instant) -> usize {
        let seen = lock(&self.seen);
        let silences =
            || (seen.iter()).map(|&(rank, _, since)| (rank, now.saturating_duration_since(since)));
        let own = silences().find(|&(rank, _)| rank == peer);
        let own = own.map_or(Duration::ZERO, |(_, silence)| silence);
        let longest = silences().max_by_key(|&(_, silence)| silence);
        longest
            .filter(|&(_, silence)| silence > own + STOPPED_AFTER)
            .map_or(peer, |(rank, _)| rank)
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_runs_is_not_blamed_for_one_that_has_stopped() {
        let control = ControlBlock::create().unwrap();
        let start = Instant::now();
        let heartbeats = Heartbeats::new(&[0, 1, 2, 3], start);
        let mut now = start;
        for round in 0..3 * MISSED {
            now += WATCH_INTERVAL;
            for rank in 0..4 {
                // Rank 2 stops after a while.
                if rank != 2 || round < MISSED {
                    control.beat(rank);
                }
            }
            heartbeats.look(&control, now);
            if round <= MISSED {
                assert_eq!(heartbeats.stopped(1, now), 1, "all run, at {round}");
            }
        }
        assert_eq!(heartbeats.stopped(1, now), 2);
        assert_eq!(heartbeats.stopped(2, now), 2);
    }

    #[test]
    fn a_rank_that_missed_beats_is_not_blamed_for_one_that_was_silent_for_longer() {
        let control = ControlBlock::create().unwrap();
        let start = Instant::now();
        let heartbeats = Heartbeats::new(&[0, 1, 2], start);
        // Rank 2 never beats; rank 1 does until two thirds of the time, since its watcher does not get to run.
        let late = start + 4 * STOPPED_AFTER;
        control.beat(0);
        control.beat(1);
        heartbeats.look(&control, late);
        let now = late + 2 * STOPPED_AFTER;
        assert_eq!(heartbeats.stopped(1, now), 2);
    }

    #[test]
    fn where_nobody_runs_the_one_that_was_waited_for_is_blamed() {
        let start = Instant::now();
        let heartbeats = Heartbeats::new(&[0, 1, 2], start);
        assert_eq!(heartbeats.stopped(1, start + 2 * STOPPED_AFTER), 1);
        assert_eq!(heartbeats.stopped(9, start), 9, "a rank that is none");
    }
}
