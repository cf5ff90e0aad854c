//! What a rank has given up, and when it is released: once no work can use it any more.

use crate::base::lock::lock;
use crate::rank::driver::Driver;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Something that enqueued work may use: an allocation, a graph, a module, a workspace, a stream. Held by its
/// handle, by graphs that recorded work with it, and, once its handle is gone, by the [`ReleaseQueue`].
pub trait Resource: Send + Sync {
    /// Gives back what nothing uses any more. `quiet` says that no work of this rank is enqueued or being
    /// enqueued; `unheld` that neither a handle nor a graph has it. Called by one thread at a time.
    fn release(&self, driver: &Driver, quiet: bool, unheld: bool) -> Progress;

    /// Whether it is symmetric memory, which peers may hold when this rank does not any more.
    fn is_memory(&self) -> bool {
        false
    }

    /// Whether its release waits for all work on the device, also that of other communicators of this process.
    fn waits_for_device(&self) -> bool {
        false
    }
}

/// A count of a [`Resource`].
pub type Held = Arc<dyn Resource>;

/// What became of a resource that was to be released.
pub enum Progress {
    /// It is in use.
    Waits,
    /// Nothing of it is left but these, which are to be released in turn.
    Released(Vec<Held>),
}

impl Progress {
    /// Nothing of it is left, or it waits.
    pub fn done(done: bool) -> Self {
        match done {
            true => Self::Released(Vec::new()),
            false => Self::Waits,
        }
    }
}

/// Resources whose handles are gone.
#[derive(Default)]
pub struct ReleaseQueue {
    held: Mutex<Vec<Held>>,
    /// Those in the queue and those that a thread is looking at.
    count: AtomicUsize,
}

impl ReleaseQueue {
    /// Takes a resource whose handle is gone.
    pub fn push(&self, held: Held) {
        self.count.fetch_add(1, Ordering::AcqRel);
        lock(&self.held).push(held);
    }

    /// Releases what is no longer used. A load where nothing was given up.
    #[inline]
    pub fn reclaim(&self, driver: &Driver) {
        if self.count.load(Ordering::Acquire) > 0 {
            self.pass(driver);
        }
    }

    #[cold]
    fn pass(&self, driver: &Driver) {
        loop {
            // Taken out before the device is asked: what is given up from now on may have been enqueued
            // since. And not locked meanwhile, since a release may give up other resources.
            let batch = std::mem::take(&mut *lock(&self.held));
            if batch.is_empty() {
                return;
            }
            let quiet = driver.is_quiet();
            let all_quiet = quiet && driver.neighbors_are_quiet();
            let (mut kept, mut more) = (Vec::new(), Vec::new());
            let taken = batch.len();
            for held in batch {
                let quiet = match held.waits_for_device() {
                    true => all_quiet,
                    false => quiet,
                };
                match held.release(driver, quiet, Arc::strong_count(&held) == 1) {
                    Progress::Waits => kept.push(held),
                    Progress::Released(next) => more.extend(next),
                }
            }
            let released = taken - kept.len();
            self.count.fetch_add(more.len(), Ordering::AcqRel);
            self.count.fetch_sub(released, Ordering::AcqRel);
            {
                let mut held = lock(&self.held);
                held.extend(kept);
                held.extend(more);
            }
            // What was released may have been the last to hold another.
            if released == 0 {
                return;
            }
        }
    }

    /// Symmetric allocations that are given up here and not released: some rank still uses them.
    pub fn memory_left(&self) -> usize {
        let held = lock(&self.held);
        held.iter().filter(|held| held.is_memory()).count()
    }

    /// Releases memory whatever holds it here: nothing runs any more, and nothing will. Says whether none is
    /// left.
    pub fn release_memory(&self, driver: &Driver) -> bool {
        lock(&self.held).retain(|held| {
            let waits = || matches!(held.release(driver, true, true), Progress::Waits);
            !held.is_memory() || waits()
        });
        self.memory_left() == 0
    }
}
