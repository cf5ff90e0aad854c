//! Refused calls, mismatches between ranks, and ranks that never arrive.

use crate::case::{Case, WAYS, options};
use crate::world::{world, world_with};
use half::bf16;
use std::time::{Duration, Instant};
use symmem::Sharding;
use symmem::*;

const SHAPE: GemmShape = GemmShape::new(32, 8, 16);

#[test]
fn shapes_and_options_that_differ_are_a_mismatch_on_every_rank() {
    world(3, |communicator| {
        let odd = communicator.rank() == 1;
        let shape = GemmShape {
            m: if odd { 33 } else { 32 },
            ..SHAPE
        };
        let options = GemmOptions::default();
        let error = communicator.all_gather_gemm::<bf16>(&shape, &options);
        let error = error.expect_err("shapes differ");
        assert!(
            matches!(
                error,
                Error::Mismatch {
                    what: "the shape",
                    ..
                }
            ),
            "{error}"
        );
        let options = GemmOptions {
            streams: if odd { 3 } else { 2 },
            ..options
        };
        let error = communicator.all_gather_gemm::<bf16>(&SHAPE, &options);
        let error = error.expect_err("options differ");
        assert!(
            matches!(
                error,
                Error::Mismatch {
                    what: "the options",
                    ..
                }
            ),
            "{error}"
        );
        let error = if odd {
            let made = communicator.all_gather_gemm::<half::f16>(&SHAPE, &GemmOptions::default());
            made.map(drop)
        } else {
            let made = communicator.all_gather_gemm::<bf16>(&SHAPE, &GemmOptions::default());
            made.map(drop)
        };
        let error = error.expect_err("types differ");
        assert!(matches!(error, Error::Mismatch { .. }), "{error}");
        // The ranks are in step and continue.
        Case::<bf16>::new(&communicator, SHAPE, &GemmOptions::default()).run(1);
    });
}

#[test]
fn what_cannot_be_is_refused_on_every_rank() {
    world(2, |communicator| {
        let refused = |shape: GemmShape, options: GemmOptions| {
            let made = communicator.all_gather_gemm::<bf16>(&shape, &options);
            made.expect_err("refused")
        };
        let fine = GemmOptions::default();
        for error in [
            refused(GemmShape { k: 0, ..SHAPE }, fine),
            refused(
                GemmShape {
                    c_stride: Some(7),
                    ..SHAPE
                },
                fine,
            ),
            refused(SHAPE, GemmOptions { streams: 0, ..fine }),
            refused(
                SHAPE,
                GemmOptions {
                    channel: 99,
                    ..fine
                },
            ),
            refused(
                SHAPE,
                GemmOptions {
                    chunk_rows: Some(0),
                    ..fine
                },
            ),
            refused(
                SHAPE,
                GemmOptions {
                    blocks: Some(2),
                    ..options(WAYS[3])
                },
            ),
            refused(
                SHAPE,
                options((GemmAlgorithm::Baseline, GemmTransport::Get)),
            ),
        ] {
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        }
        let no_vendor = options((GemmAlgorithm::Pipeline, GemmTransport::Nccl));
        let error = refused(SHAPE, no_vendor);
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    });
}

#[test]
fn matrices_of_another_shape_or_place_are_refused_by_name() {
    world(2, |communicator| {
        let case = Case::<bf16>::new(&communicator, SHAPE, &GemmOptions::default());
        let good = case.operands();
        let refused = |operands: Operands<'_, bf16>, what: &str| {
            let error = case.stream.all_gather_gemm(&case.operation, &operands);
            let error = error.expect_err(what);
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
            assert!(error.to_string().contains(what), "{error}");
        };
        let other = communicator.allocate::<bf16>(&[4096]).unwrap();
        let part = |length| other.slice(..length).unwrap();
        refused(
            Operands {
                a: part(255),
                ..good
            },
            "the shard of A has 255 elements",
        );
        let narrow = Matrix::of(part(16 * 7), 16, 7).unwrap();
        refused(Operands { b: narrow, ..good }, "B is");
        refused(
            Operands {
                bias: Some(narrow),
                ..good
            },
            "the bias was passed, but the operation was made without it",
        );
        refused(
            Operands {
                gathered: Some(part(512)),
                ..good
            },
            "made without one",
        );
        refused(Operands { b: good.c, ..good }, "B is");
        let b = Matrix::of(part(16 * 8), 16, 8).unwrap();
        let c = Matrix::of(other.slice(64..320).unwrap(), 32, 8).unwrap();
        refused(Operands { b, c, ..good }, "C, which is written, overlaps B");
        let short = Matrix::<bf16>::of(part(10), 3, 4).expect_err("ten elements");
        assert!(matches!(short, Error::OutOfRange { .. }), "{short}");
        case.run(1);
    });
}

#[test]
fn a_scale_is_refused_but_for_8_bit_floats_which_none_multiplies_before_a_reduction() {
    world(2, |communicator| {
        let case = Case::<half::f16>::new(&communicator, SHAPE, &GemmOptions::default());
        let case = case.scaled(0.5);
        let error = case.enqueue().expect_err("a scale");
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        let wanted = "a scale was passed, but matrices of F16 take none; leave it out";
        assert!(error.to_string().contains(wanted), "{error}");
        let case = Case::<F8E4M3>::new(&communicator, SHAPE, &GemmOptions::default());
        let two = communicator.allocate::<f32>(&[2]).unwrap();
        let operands = Operands {
            scale: Some(Matrix::of(&two, 1, 2).unwrap()),
            ..case.operands()
        };
        let error = case.stream.all_gather_gemm(&case.operation, &operands);
        let error = error.expect_err("two scales");
        assert!(error.to_string().contains("the scale is"), "{error}");
        let made = communicator.gemm_reduce_scatter::<F8E4M3>(
            &GemmReduceShape::new(32, 8, 16),
            &GemmReduceOptions::default(),
        );
        let error = made.map(drop).expect_err("8-bit floats before a reduction");
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        let wanted = "cannot be multiplied before a reduction; use f16 or bf16";
        assert!(error.to_string().contains(wanted), "{error}");
        case.run(1);
    });
}

#[test]
fn debug_mode_finds_another_shard_or_another_call() {
    let debug = |configuration: &mut Configuration| configuration.check_calls = true;
    world_with(2, debug, |communicator| {
        for way in WAYS {
            let case = Case::<bf16>::new(&communicator, SHAPE, &options(way));
            case.run(2);
            let other = communicator.allocate::<bf16>(&[2 * 256]).unwrap();
            let start = if communicator.rank() == 0 { 0 } else { 256 };
            let operands = Operands {
                a: other.slice(start..start + 256).unwrap(),
                ..case.operands()
            };
            let error = case.stream.all_gather_gemm(&case.operation, &operands);
            let error = error.expect_err("other ranges");
            assert!(matches!(error, Error::Mismatch { .. }), "{way:?}: {error}");
        }
        // A rank that left would take the memory that the others still compare with.
        communicator.host_barrier().expect("all are here");
    });
}

#[test]
fn in_debug_mode_peers_hear_of_matrices_that_one_rank_gets_wrong() {
    let debug = |configuration: &mut Configuration| configuration.check_calls = true;
    world_with(3, debug, |communicator| {
        for way in WAYS {
            let case = Case::<bf16>::new(&communicator, SHAPE, &options(way));
            let good = case.operands();
            let bad = communicator.rank() == 1;
            let operands = Operands {
                b: if bad { good.c } else { good.b },
                ..good
            };
            let error = case.stream.all_gather_gemm(&case.operation, &operands);
            match error.expect_err("one rank's B overlaps C") {
                Error::InvalidArgument { message, .. } if bad => {
                    assert!(message.starts_with("B is"), "{message}");
                }
                Error::Mismatch {
                    peer: 1,
                    what: "the matrices",
                    theirs,
                    ..
                } if !bad => assert!(theirs.contains("B is"), "{theirs}"),
                error => panic!("{way:?}: {error}"),
            }
            // No rank has begun, so all can continue.
            case.run(2);
        }
    });
}

#[test]
fn a_rank_that_does_not_come_is_named_when_the_deadline_has_passed() {
    for way in WAYS {
        for sharding in [Sharding::Rows, Sharding::Columns] {
            let errors = world(3, |communicator| {
                let options = GemmOptions {
                    deadline: Some(Duration::from_millis(200)),
                    ..options(way)
                };
                let shape = GemmShape { sharding, ..SHAPE };
                let case = Case::<bf16>::new(&communicator, shape, &options);
                case.run(1);
                communicator.host_barrier().expect("all are here");
                if communicator.rank() == 2 {
                    // Stays alive until the others have given up, so that they do not take it for dead.
                    let start = Instant::now();
                    while communicator.check().is_ok() && start.elapsed() < crate::world::PATIENCE {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    return None;
                }
                let enqueued = case.enqueue();
                Some(
                    enqueued
                        .and_then(|()| case.stream.synchronize())
                        .expect_err("rank 2 never arrives"),
                )
            });
            let named = errors
                .iter()
                .flatten()
                .any(|error| matches!(error, Error::Timeout { peer: 2, .. }));
            assert!(named, "{way:?}: {errors:?}");
        }
    }
}

#[test]
fn an_abort_ends_a_product_that_waits() {
    world(2, |communicator| {
        let case = Case::<bf16>::new(&communicator, SHAPE, &options(WAYS[4]));
        case.run(1);
        communicator.host_barrier().expect("all are here");
        if communicator.rank() == 1 {
            communicator.abort();
            return;
        }
        let start = Instant::now();
        let enqueued = case.enqueue();
        let error = enqueued.and_then(|()| case.stream.synchronize());
        assert!(error.is_err());
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{:?}",
            start.elapsed()
        );
    });
}
