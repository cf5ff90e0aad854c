//! Release of the resources that a rank has given up, once no work can use them any more.

use crate::base::lock::lock;
use crate::rank::driver::Driver;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A resource that enqueued work may use: an allocation, a graph, a module, a workspace, a stream. It is held
/// by its handle, by graphs that recorded work with it, and, once its handle is gone, by the [`ReleaseQueue`].
pub trait Resource: Send + Sync {
    /// Releases the parts that nothing uses any more. `quiet`: no work of this rank is enqueued or being
    /// enqueued, nor, if [`Resource::waits_for_device`], work of other communicators of this process. `unheld`: neither a handle nor a graph holds the resource. Called by one thread at a time.
    fn release(&self, driver: &Driver, quiet: bool, unheld: bool) -> Progress;

    /// Returns whether it is symmetric memory, which peers may still hold when this rank does not.
    fn is_memory(&self) -> bool {
        false
    }

    /// Whether its release waits for all work on the device, also that of other communicators of this process.
    fn waits_for_device(&self) -> bool {
        false
    }
}

/// A counted reference to a [`Resource`].
pub type Held = Arc<dyn Resource>;

/// A value of the program's, such as the owner of memory that enqueued work uses. Dropped once no work is enqueued.
pub struct Kept<T>(pub T);

impl<T: Send + Sync> Resource for Kept<T> {
    fn release(&self, _driver: &Driver, quiet: bool, _unheld: bool) -> Progress {
        Progress::done(quiet)
    }
}

/// The outcome of an attempt to release a resource.
pub enum Progress {
    /// It is still in use.
    Waits,
    /// It is released, except for these, which are to be released in turn.
    Released(Vec<Held>),
}

impl Progress {
    /// Returns `Released` without further resources if `done`, else `Waits`.
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
    /// Number of resources in the queue, and of those that a thread is releasing.
    count: AtomicUsize,
}

impl ReleaseQueue {
    /// Takes a resource whose handle is gone.
    pub fn push(&self, held: Held) {
        self.count.fetch_add(1, Ordering::AcqRel);
        lock(&self.held).push(held);
    }

    /// Releases resources that are no longer used. Costs one atomic load if the queue is empty.
    #[inline]
    pub fn reclaim(&self, driver: &Driver) {
        if self.count.load(Ordering::Acquire) > 0 {
            self.pass(driver);
        }
    }

    #[cold]
    fn pass(&self, driver: &Driver) {
        loop {
            // Taken out before the device is queried: resources given up from now on may have been used since.
            // The lock is not held meanwhile, since a release may give up other resources.
            let batch = std::mem::take(&mut *lock(&self.held));
            if batch.is_empty() {
                return;
            }
            let quiet = driver.is_quiet();
            // Asks the driver about each stream of the others, so only if the answer matters.
            let asks = batch.iter().any(|held| held.waits_for_device());
            let all_quiet = quiet && asks && driver.neighbors_are_quiet();
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
            // A released resource may have been the last to hold another one.
            if released == 0 {
                return;
            }
        }
    }

    /// Returns the number of symmetric allocations that this rank gave up and that are not released: another rank,
    /// a graph or work on this device may still use them.
    pub fn memory_left(&self) -> usize {
        let held = lock(&self.held);
        held.iter().filter(|held| held.is_memory()).count()
    }

    /// Releases memory even if a handle or graph holds it: no work runs any more, and none will. Returns
    /// whether all memory is released.
    pub fn release_memory(&self, driver: &Driver) -> bool {
        lock(&self.held).retain(|held| {
            let waits = || matches!(held.release(driver, true, true), Progress::Waits);
            !held.is_memory() || waits()
        });
        self.memory_left() == 0
    }
}
