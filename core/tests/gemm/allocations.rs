//! After an operation's first calls, calls allocate nothing in the thread that makes them.

use crate::case::{Case, WAYS, options};
use crate::world::world;
use half::bf16;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;
use symmem_core::GemmShape;

/// The system's allocator, which counts for each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that is ending has no counter any more, and nobody who would ask.
    let _ = ALLOCATIONS.try_with(|counter| counter.set(counter.get() + 1));
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's word.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's word.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's word.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn calls_allocate_nothing() {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(
        ALLOCATIONS.get(),
        before + 1,
        "the counter sees an allocation"
    );
    world(2, |communicator| {
        for way in WAYS {
            let case = Case::<bf16>::new(&communicator, GemmShape::new(9, 5, 7), &options(way));
            case.prepare(0);
            let operands = case.operands();
            let call = || {
                case.stream
                    .all_gather_gemm(&case.operation, &operands)
                    .and_then(|()| case.stream.synchronize())
                    .expect("done");
            };
            // A wait that really waits starts a host stream's thread and makes its queue: each rank comes late
            // in turn.
            for round in 0..10 {
                communicator.host_barrier().expect("all are here");
                if round % 2 == communicator.rank() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                call();
            }
            let before = ALLOCATIONS.get();
            for _ in 0..50 {
                call();
            }
            let allocated = ALLOCATIONS.get() - before;
            assert_eq!(allocated, 0, "{way:?}: allocations in 50 calls");
        }
    });
}
