//! Captured all-gather + GEMM.

use crate::case::{Case, WAYS, options};
use crate::world::world;
use half::bf16;
use symmem::Sharding;
use symmem::*;

#[test]
fn a_captured_product_is_replayed_with_what_a_holds_then() {
    world(3, |communicator| {
        for way in WAYS {
            for sharding in [Sharding::Rows, Sharding::Columns] {
                let shape = GemmShape {
                    sharding,
                    ..GemmShape::new(41, 13, 17)
                };
                let options = GemmOptions {
                    gathered: true,
                    ..options(way)
                };
                let case = Case::<bf16>::new(&communicator, shape, &options);
                let graph = case.capture().expect("captured");
                for round in 0..3 {
                    case.prepare(round);
                    case.stream.launch_graph(&graph).expect("launched");
                    case.stream.synchronize().expect("done");
                    case.check(round)
                        .unwrap_or_else(|why| panic!("{way:?}: {why}"));
                    // Eager calls between replays advance the same counters.
                    case.run(1);
                }
            }
        }
    });
}

#[test]
fn a_graph_keeps_what_it_uses_when_the_operation_is_gone() {
    world(2, |communicator| {
        for way in WAYS {
            let shape = GemmShape::new(20, 6, 7);
            let mut case = Case::<bf16>::new(&communicator, shape, &options(way));
            let graph = case.capture().expect("captured");
            let other = communicator.all_gather_gemm(&shape, &options(way));
            drop(std::mem::replace(&mut case.operation, other.expect("made")));
            case.prepare(4);
            case.stream.launch_graph(&graph).expect("launched");
            case.stream.synchronize().expect("done");
            case.check(4).expect("right");
        }
        communicator.host_barrier().expect("all are done");
    });
}

#[test]
fn what_an_operation_kept_is_given_back() {
    let leaks = world(2, |communicator| {
        for way in WAYS {
            let shape = GemmShape::new(20, 6, 7);
            let case = Case::<bf16>::new(&communicator, shape, &options(way));
            let graph = case.capture().expect("captured");
            case.run(1);
            drop(graph);
        }
        communicator.finalize().expect("finalized")
    });
    assert!(leaks.iter().all(Leaks::is_empty), "{leaks:?}");
}
