//! The thread that progresses the network without calls of the user.

use super::network::Network;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time that the thread looks again at once after something happened: the next message is probably near.
const SPIN: Duration = Duration::from_micros(30);
/// Time that the thread leaves the engine to a host thread that waits, and so progresses it; and on a crowded machine, where
/// each look takes a processor from a rank.
const HELPED: Duration = Duration::from_micros(200);
const HELPED_IN_CROWD: Duration = Duration::from_millis(1);
/// Longest waits: for a stream's word, which no event announces; at first and later; for commands under way; for nothing.
const ARMED: Duration = Duration::from_micros(50);
const LONG_ARMED: Duration = Duration::from_micros(500);
const BUSY: Duration = Duration::from_millis(2);
const IDLE: Duration = Duration::from_millis(50);

impl Network {
    /// Serves until the network ends.
    pub(super) fn serve(&self) {
        let mut last = Instant::now();
        let helped = match self.spins {
            true => HELPED,
            false => HELPED_IN_CROWD,
        };
        while !self.stopping.load(Ordering::Acquire) {
            if self.helped.swap(false, Ordering::Relaxed) {
                std::thread::park_timeout(helped);
                continue;
            }
            if self.attended.load(Ordering::Relaxed) {
                // What arrives is seen by the thread that attends; the words of other streams, and the watcher's time, by
                // this one.
                std::thread::park_timeout(helped.max(LONG_ARMED));
            }
            if self.health.check().is_err() {
                self.abandon();
                return;
            }
            self.health.watch_if_late();
            let before = self.changes();
            let Some(outlook) = self.drive() else {
                // Another thread advances the engine.
                std::thread::park_timeout(match self.spins {
                    true => ARMED,
                    false => helped,
                });
                continue;
            };
            if outlook.moved {
                last = Instant::now();
                continue;
            }
            let since = last.elapsed();
            if self.spins && since < SPIN {
                std::hint::spin_loop();
                continue;
            }
            let left = self.left.swap(false, Ordering::Relaxed);
            let limit = match (outlook.armed, outlook.busy) {
                (true, _) if since < Duration::from_millis(5) && !left => ARMED,
                (true, _) => LONG_ARMED,
                (_, true) => BUSY,
                _ => IDLE,
            };
            // A short sleep ends soon enough by itself: only a long one is worth a call to wake.
            self.sleeping.store(limit > LONG_ARMED, Ordering::SeqCst);
            if self.changes() == before {
                self.wait(limit);
            }
            self.sleeping.store(false, Ordering::SeqCst);
        }
    }
}
