//! The lock around every UCX call of a context.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lock that its owner may take again: a message handler runs inside of `progress` and may send.
///
/// UCX runs in its serialized mode, where any thread may call it, but only one at a time. Messages, completions and
/// errors are delivered inside such calls.
pub struct Lock {
    mutex: Mutex<()>,
    /// Identity of the thread that holds the mutex, or 0.
    owner: AtomicUsize,
    waiting: AtomicUsize,
}

/// Holds the [`Lock`].
pub struct Held<'a> {
    lock: &'a Lock,
    /// `None` where an outer frame of this thread holds the mutex.
    guard: Option<MutexGuard<'a, ()>>,
}

thread_local! {
    static HERE: Cell<u8> = const { Cell::new(0) };
}

/// Returns a number that no other living thread has.
fn this_thread() -> usize {
    HERE.with(|here| std::ptr::from_ref(here) as usize)
}

impl Lock {
    pub const fn new() -> Self {
        Self {
            mutex: Mutex::new(()),
            owner: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Takes the lock. Blocks while another thread holds it.
    pub fn take(&self) -> Held<'_> {
        // Only this thread stores its own identity, so that equality cannot come from another thread.
        if self.owner.load(Ordering::Relaxed) == this_thread() {
            return Held {
                lock: self,
                guard: None,
            };
        }
        let guard = match self.mutex.try_lock() {
            Ok(guard) => guard,
            Err(_) => {
                self.waiting.fetch_add(1, Ordering::Relaxed);
                // A handler that panics aborts the process, so the data is never inconsistent.
                let guard = self.mutex.lock().unwrap_or_else(PoisonError::into_inner);
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                guard
            }
        };
        self.owner.store(this_thread(), Ordering::Relaxed);
        Held {
            lock: self,
            guard: Some(guard),
        }
    }

    /// Lets a waiting thread have the lock before this one takes it again. The mutex is not fair, and a thread that
    /// polls would win every race.
    pub fn give_way(&self) {
        if self.waiting.load(Ordering::Relaxed) != 0 {
            std::thread::yield_now();
        }
    }
}

impl Held<'_> {
    /// Returns whether an outer frame of this thread holds the lock too.
    pub fn is_nested(&self) -> bool {
        self.guard.is_none()
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.guard.is_some() {
            self.lock.owner.store(0, Ordering::Relaxed);
        }
    }
}
