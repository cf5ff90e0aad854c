//! Teardown of a context: work drains, everything is released, within a few seconds in every case.

use crate::base::error::{Error, Result};
use crate::base::limits::{DRAIN, GOOD_ORDER};
use crate::base::lock::lock;
use crate::health::control::RankState;
use crate::health::words;
use crate::rank::context::ContextState;
use crate::rank::release::{Progress, Resource};
use crate::rank::side::destroy;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl ContextState {
    /// Waits, for a few seconds at most, until waiting kernels and streams have left a poisoned communicator.
    ///
    /// # Errors
    /// [`Error::HostTimeout`] if some have not left: they may still write to peers' memory.
    pub fn drain_after_poison(&self) -> Result<()> {
        // NCCL takes longer than symmem's kernels, and there is no hurry.
        let limit = GOOD_ORDER + DRAIN;
        if self.drain(limit) {
            return Ok(());
        }
        Err(Error::HostTimeout {
            rank: self.rank,
            operation: "drain streams for a rebuild",
            waited: limit,
        })
    }

    /// Frees memory that all peers have given up. Returns whether that was everything.
    fn free_given_up(&self) -> bool {
        let permanent = lock(&self.permanent);
        let left = |one: &&_| {
            let one: &std::sync::Arc<crate::rank::allocation::Allocation> = one;
            matches!(one.release(self, true, true), Progress::Waits)
        };
        let left = permanent.iter().filter(left).count();
        self.released.release_memory(self) && left == 0
    }
}

impl Drop for ContextState {
    /// Releases everything, within [`GOOD_ORDER`] and [`DRAIN`] if no call of the driver is slow. Memory that a
    /// stuck device or a peer may still touch stays allocated until the process ends.
    fn drop(&mut self) {
        let start = Instant::now();
        self.leaving.store(true, Ordering::Release);
        if let Some(fault) = self.fault()
            && !self.finalized.load(Ordering::Acquire)
        {
            // The rank leaves because of the fault: peers may be waiting for work that was not enqueued.
            self.health.poison(fault.clone());
        }
        let drained = self.drain(GOOD_ORDER) || {
            // No call will synchronize with these waits any more: they leave by the abort word.
            self.health.poison(Error::Aborted { rank: self.rank });
            self.drain(DRAIN)
        };
        let closing = std::mem::take(&mut *lock(&self.closing));
        if drained {
            self.reclaim();
            closing
                .iter()
                .rev()
                .for_each(|one| one.before_unmap(&self.driver));
            self.released.release_memory(&self.driver);
            closing.iter().rev().for_each(|one| one.close(&self.driver));
            for allocation in lock(&self.permanent).iter() {
                allocation.release(&self.driver, true, true);
            }
        }
        let state = match self.health.check() {
            Ok(()) => RankState::Left,
            Err(_) if drained => RankState::FailedAndLeft,
            // A stuck device may still touch peers' memory: peers keep it while this process lives.
            Err(_) => RankState::Failed,
        };
        self.health
            .control()
            .set_state(self.rank, state, self.health.blame());
        // Memory shared by file can be freed at once: peers' mappings keep it. For other kinds, and for memory
        // bound to multicast, the rank waits a while for peers that leave later.
        let patience = match self.waited_enough.load(Ordering::Acquire) {
            true => Duration::ZERO,
            false => GOOD_ORDER + DRAIN,
        };
        let mut free = drained && self.free_given_up();
        while drained && !free && start.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(1));
            free = self.free_given_up();
        }
        // All ranks have given up the memory of higher layers.
        if free {
            // Each is called, whatever the others return.
            let kept = closing.iter().rev();
            free = kept.filter(|one| !one.give_back(&self.driver)).count() == 0;
        }
        if let Some(watcher) = lock(&self.watcher).take() {
            self.health.stop_watcher(watcher);
        }
        if drained {
            closing.iter().rev().for_each(|one| one.end(&self.driver));
            for stream in self.take_streams() {
                destroy(&self.driver, &stream);
            }
            // SAFETY: no work is left, and nothing else holds them.
            let _ = unsafe { words::free(&self.backend, self.words) };
        }
        if drained && free {
            // SAFETY: dropped once, here; what is dropped after this does not call it.
            unsafe { ManuallyDrop::drop(&mut self.driver.backend) };
        } else {
            tracing::warn!(
                rank = self.rank,
                drained,
                "memory that may still be in use stays allocated until the process ends"
            );
            // Host words may still be waited on.
            std::mem::forget(closing);
        }
        if !(drained && free) {
            // The drop of what is left in the queue would free memory that work or a peer may still use.
            std::mem::forget(std::mem::take(&mut self.released));
        }
    }
}
