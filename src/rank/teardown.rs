//! How a communicator ends: work drains, everything goes back, within a few seconds whatever happens.

use crate::backend::Device;
use crate::backend::abi::Status;
use crate::base::error::{Error, Result};
use crate::gemm::workspace::Workspace;
use crate::health::control::RankState;
use crate::rank::context::{Inner, Loaded, lock};
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long teardown waits in good order for work that is under way, and for peers.
const GOOD_ORDER: Duration = Duration::from_secs(3);
/// How long waiting kernels and streams have to leave once all is lost.
pub(crate) const DRAIN: Duration = Duration::from_secs(2);

impl Inner {
    /// Waits until nothing of this rank runs on the device any more; says whether that is so.
    fn drain(&self, limit: Duration) -> bool {
        let start = Instant::now();
        let staging = lock(&self.staging).stream;
        loop {
            let idle = self
                .idle_now()
                .and_then(|idle| Ok(idle && self.is_idle(staging)?));
            match idle {
                Ok(true) => return true,
                // With the context everything that ran in it is gone.
                Err(failure) if failure.status == Status::CONTEXT_LOST => return true,
                Ok(false) | Err(_) if start.elapsed() > limit => return false,
                Ok(false) | Err(_) => std::thread::sleep(Duration::from_micros(200)),
            }
        }
    }

    /// Waits, for seconds at most, until waiting kernels and streams have left a poisoned communicator.
    ///
    /// # Errors
    /// [`Error::HostTimeout`] if some have not: they may write to peers' memory yet.
    pub(crate) fn drain_after_poison(&self) -> Result<()> {
        // The vendor's library takes longer than our own kernels, and there is no hurry.
        let limit = GOOD_ORDER + DRAIN;
        if self.drain(limit) {
            return Ok(());
        }
        Err(Error::HostTimeout {
            rank: self.rank,
            operation: "draining streams for a rebuild",
            waited: limit,
        })
    }
}

impl Drop for Inner {
    /// Gives everything back, within [`GOOD_ORDER`] and [`DRAIN`] where no call of the driver's is slow; whoever
    /// drops the last of it waits a bounded time for that. What a stuck device or a peer may still touch is left
    /// to the end of the process.
    fn drop(&mut self) {
        let start = Instant::now();
        self.leaving.store(true, Ordering::Release);
        if let Some(fault) = self.fault.get()
            && !self.finalized.load(Ordering::Acquire)
        {
            // It leaves because of that: peers may be waiting for what was not enqueued.
            self.health.poison(fault.clone());
        }
        let drained = self.drain(GOOD_ORDER) || {
            // Nobody will ever synchronise with these waits: they leave by the abort word.
            self.health.poison(Error::Aborted { rank: self.rank });
            self.drain(DRAIN)
        };
        if drained {
            self.close_remaining_streams();
            self.close_idle_streams();
            // They are idle: where that question failed, it is asked once more.
            self.close_idle_streams();
            self.destroy_graphs();
            // What graphs held that did not know of it.
            lock(&self.kept).retain(|kept| !kept.is::<Loaded>() && !kept.is::<Workspace>());
            self.unload_modules();
            self.release_workspaces();
            if let Some(multicast) = self.multicast.get() {
                multicast.unmap(self);
            }
            for allocation in lock(&self.dropped).iter() {
                allocation.unmap(self);
            }
            if let Some(pad) = self.pad.get() {
                pad.close(self);
            }
            if let Some(collectives) = self.collectives.get() {
                // Without the others: they may be gone. `finalize` gives them up in good order.
                collectives.vendors.abort(&self.backend, self.rank);
            }
            for allocation in self.permanent() {
                allocation.unmap(self);
            }
        }
        let state = match self.health.check() {
            Ok(()) => RankState::Left,
            Err(_) if drained => RankState::FailedAndLeft,
            // A stuck device may still touch peers' memory: they keep it while this process lives.
            Err(_) => RankState::Failed,
        };
        self.health
            .control()
            .set_state(self.rank, state, self.health.blame());
        // Memory shared by file may go at once: peers' mappings keep it. Other kinds wait a while
        // for peers that leave later.
        let patience = match self.waited_enough.load(Ordering::Acquire) {
            true => Duration::ZERO,
            false => GOOD_ORDER + DRAIN,
        };
        let mut free = drained && self.free_given_up();
        while drained && !free && start.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(1));
            free = self.free_given_up();
        }
        // Whatever is bound was given up by all, and is unbound.
        if free && let Some(multicast) = self.multicast.get() {
            free = multicast.give_back(self);
        }
        if let Some(watcher) = lock(&self.watcher).take() {
            self.health.stop_watcher(watcher);
        }
        if drained {
            let staging = lock(&self.staging);
            // SAFETY: no work is left, and nothing else holds these.
            unsafe {
                let _ = self.backend.stream_destroy(staging.stream);
                let _ = self.backend.host_free(staging.memory);
                let _ = self.backend.host_free(self.words);
            }
        }
        if drained && free {
            // SAFETY: dropped once, here; what is dropped after this does not call it.
            unsafe { ManuallyDrop::drop(&mut self.backend) };
        } else {
            tracing::warn!(
                rank = self.rank,
                drained,
                "memory that may still be in use is left to the end of the process"
            );
            // Its host words may still be waited on.
            std::mem::forget(self.pad.take());
        }
    }
}
