//! The rules, and the outcomes of a look at a word.

use std::sync::atomic::{AtomicU32, Ordering};

/// A 32-bit atomic: the standard library's, or loom's in a model.
pub trait Word {
    /// Reads the word.
    fn load(&self, order: Ordering) -> u32;
    /// Writes the word.
    fn store(&self, value: u32, order: Ordering);
    /// Adds `value`, wrapping, and returns the old value.
    fn fetch_add(&self, value: u32, order: Ordering) -> u32;
    /// Stores `new` if the word equals `current`; otherwise returns the word's value as the error. A failed exchange
    /// is relaxed.
    fn compare_exchange(&self, current: u32, new: u32, order: Ordering) -> Result<u32, u32>;
    /// A sequentially consistent fence.
    fn full_fence();
}

impl Word for AtomicU32 {
    #[inline]
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }
    #[inline]
    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }
    #[inline]
    fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        self.fetch_add(value, order)
    }
    #[inline]
    fn compare_exchange(&self, current: u32, new: u32, order: Ordering) -> Result<u32, u32> {
        self.compare_exchange(current, new, order, Ordering::Relaxed)
    }
    #[inline]
    fn full_fence() {
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// The outcome of a look at a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// The signal has come, and the giver's earlier writes are visible.
    Reached,
    /// The signal has not come, and the abort word is set.
    Aborted {
        /// The word's value.
        seen: u32,
    },
    /// The signal has not come yet.
    Waiting {
        /// The word's value.
        seen: u32,
    },
}

/// Whether `seen` is `expected` or one of the 2³¹ − 1 epochs after it.
#[inline]
pub fn reached(seen: u32, expected: u32) -> bool {
    seen.wrapping_sub(expected) < 1 << 31
}

/// Advances a counter of uses and returns the new epoch. Streams may share the counter.
#[inline]
pub fn next<W: Word>(counter: &W) -> u32 {
    counter.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
}

/// Stores `value` in the word. A reader that sees it with acquire order sees all earlier writes. Returns whether a
/// waiter may be asleep on the word and must be woken.
#[inline]
#[must_use]
pub fn publish<W: Word>(word: &W, sleepers: &W, value: u32) -> bool {
    word.store(value, Ordering::Release);
    somebody_sleeps(sleepers)
}

/// Publishes `value` like [`publish`] to several words, each with its count of sleepers, with one fence for all.
/// Calls `wake` for each word on which a waiter may be asleep.
#[inline]
pub fn publish_all<'a, W: Word + 'a>(
    words: impl Iterator<Item = (&'a W, &'a W)> + Clone,
    value: u32,
    mut wake: impl FnMut(&'a W),
) {
    for (word, _) in words.clone() {
        word.store(value, Ordering::Release);
    }
    W::full_fence();
    for (word, sleepers) in words {
        if sleepers.load(Ordering::Relaxed) != 0 {
            wake(word);
        }
    }
}

/// Returns which of an inbox's two halves a use writes; uses alternate between them.
///
/// In every use each member sends to all others and waits for all of them. Before a member begins use `n`, it has
/// received use `n - 1` from every peer, and each peer had by then read use `n - 2`, so that half is free.
#[inline]
pub fn half_of(number: u32) -> u32 {
    number & 1
}

/// Publishes like [`publish`], but never lowers the word: of two streams that share one counter, the one with the
/// earlier epoch may come second. Which of the two released a waiter is not defined.
#[inline]
#[must_use]
pub fn raise<W: Word>(word: &W, sleepers: &W, value: u32) -> bool {
    let mut seen = word.load(Ordering::Relaxed);
    while !reached(seen, value) {
        match word.compare_exchange(seen, value, Ordering::Release) {
            Ok(_) => break,
            Err(other) => seen = other,
        }
    }
    somebody_sleeps(sleepers)
}

/// The giver's half of the handshake with a sleeper. The fence orders the giver's store before this load, and
/// [`register_sleeper`] orders the sleeper's count before its last look. So at least one of the two sees the other
/// (Dekker's algorithm), and no wake-up is lost.
#[inline]
fn somebody_sleeps<W: Word>(sleepers: &W) -> bool {
    W::full_fence();
    sleepers.load(Ordering::Relaxed) != 0
}

/// Counts the caller as asleep. The caller must look at the word once more before it sleeps, which `FUTEX_WAIT` does.
#[inline]
pub fn register_sleeper<W: Word>(sleepers: &W) {
    sleepers.fetch_add(1, Ordering::SeqCst);
    W::full_fence();
}

/// Undoes one [`register_sleeper`].
#[inline]
pub fn unregister_sleeper<W: Word>(sleepers: &W) {
    sleepers.fetch_add(u32::MAX, Ordering::Relaxed);
}

/// Looks at the word once. A signal that has come counts even if the abort word is set.
#[inline]
pub fn look<W: Word>(word: &W, expected: u32, abort: Option<&W>) -> Outlook {
    let seen = word.load(Ordering::Acquire);
    if reached(seen, expected) {
        Outlook::Reached
    } else if abort.is_some_and(|abort| abort.load(Ordering::Acquire) != 0) {
        Outlook::Aborted { seen }
    } else {
        Outlook::Waiting { seen }
    }
}

/// Claims a record whose state goes 0 → 1 → 2. Returns true for exactly one caller, which then fills the record and
/// calls [`complete`].
#[inline]
#[must_use]
pub fn claim<W: Word>(state: &W) -> bool {
    state.compare_exchange(0, 1, Ordering::Relaxed).is_ok()
}

/// Marks a claimed record complete. A reader that sees 2 with acquire order sees the record's fields.
#[inline]
pub fn complete<W: Word>(state: &W) {
    state.store(2, Ordering::Release);
}
