//! Measures how much memory a parser reserves.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator with a count of each thread's bytes.
struct Counting;

thread_local! {
    /// Bytes that this thread has allocated less those that it has freed.
    static HELD: Cell<isize> = const { Cell::new(0) };
    /// The most of them since [`most_held`] began.
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that is ending has lost its counters, and nothing reads them any more.
    let _ = HELD.try_with(|held| {
        held.set(held.get().wrapping_add(bytes));
        MOST.try_with(|most| most.set(most.get().max(held.get())))
    });
}

// SAFETY: every call is passed to the system's allocator unchanged, and counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `parse` and returns its result. Panics if this thread held more than `most` further bytes at any time of it.
#[track_caller]
pub fn within<T>(most: usize, parse: impl FnOnce() -> T) -> T {
    let (result, held) = most_held(parse);
    assert!(
        held <= most,
        "parsing reserved {held} bytes; this input allows {most}"
    );
    result
}

/// Runs `work`. Returns its result and the most bytes that this thread held at any time of it, beyond those before.
fn most_held<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    MOST.set(before);
    let result = work();
    (result, MOST.get().wrapping_sub(before).max(0) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_bytes_held_count_and_not_those_of_before_or_after() {
        let before = vec![0u8; 1 << 20];
        let (kept, most) = most_held(|| {
            drop(vec![0u8; 5000]);
            let mut kept = Vec::with_capacity(100);
            kept.push(7u8);
            kept.reserve_exact(2000);
            kept
        });
        assert!((5000..6000).contains(&most), "{most}");
        assert_eq!(most_held(|| drop(before)).1, 0);
        drop(kept);
    }

    #[test]
    #[should_panic(expected = "parsing reserved 4096 bytes; this input allows 4095")]
    fn more_than_the_input_allows_is_a_failure() {
        within(4095, || vec![1u8; 4096]);
    }
}
