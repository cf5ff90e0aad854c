//! After an operation's first calls, later calls allocate nothing on the calling thread.

use crate::case::{Case, WAYS, options};
use crate::counting::ALLOCATIONS;
use crate::world::world;
use half::bf16;
use std::time::Duration;
use symmem::GemmShape;

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
            // A wait that blocks starts a host stream's thread and creates its queue, so each rank in turn arrives
            // late.
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
