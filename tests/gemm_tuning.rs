//! All-gather + GEMM with stored tuning rows, on both vendors' backends over the fakes: the row decides, and the
//! library runs the algorithm that the row names. The fake library logs each GEMM.

#[path = "gemm/case.rs"]
#[allow(
    dead_code,
    reason = "this test does not use the part for the host backend"
)]
mod case;
#[path = "gemm/checker.rs"]
mod checker;
#[allow(dead_code, reason = "this test uses the fakes only")]
mod support;

use case::Case;
use half::{bf16, f16};
use rstest::rstest;
use std::path::Path;
use support::vendors::{Vendor, ranks, ranks_with, role};
use symmem::{
    Communicator, ElementType, Error, GemmAlgorithm, GemmOptions, GemmRow, GemmShape,
    GemmTransport, MatrixOrder, Sharding,
};

/// Names the file in which the fake library logs its GEMMs.
const LOG: &str = "FAKE_BLASLT_LOG";

/// Two shards of 16 rows, aligned to the widest access.
const SHAPE: GemmShape = GemmShape::new(32, 16, 32);

#[rstest]
#[case("the_row_decides_and_its_way_is_the_one_that_runs")]
#[case("in_another_way_the_bits_are_others")]
#[case("what_was_stored_for_another_library_is_timed_anew")]
#[case("a_row_holds_for_its_product_and_device_only")]
#[case("ranks_with_different_rows_are_told")]
fn by_a_stored_row(#[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor, #[case] name: &str) {
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{vendor:?}-{name}.log"));
    let environment = [(LOG, log.to_str().unwrap())];
    let report = role(vendor, name, vendor.libraries(), &environment);
    assert_eq!(report, [""; 0]);
}

/// Returns the GEMMs logged since the last call, as rows and algorithm. Collective over all ranks.
fn noted(communicator: &Communicator) -> Vec<(u64, u32)> {
    communicator.host_barrier().unwrap();
    let path = std::env::var(LOG).unwrap();
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    communicator.host_barrier().unwrap();
    let _ = std::fs::remove_file(&path);
    communicator.host_barrier().unwrap();
    let number = |line: &str| {
        let (rows, candidate) = line.split_once(' ').unwrap();
        (rows.parse().unwrap(), candidate.parse().unwrap())
    };
    text.lines().map(number).collect()
}

fn count(noted: &[(u64, u32)], product: (u64, u32)) -> usize {
    noted.iter().filter(|known| **known == product).count()
}

/// Returns the row of a call without a stored row, by an algorithm that times the library's GEMM.
fn row() -> GemmRow {
    let rows = ranks(2, |communicator| {
        let baseline = GemmOptions {
            algorithm: GemmAlgorithm::Baseline,
            ..GemmOptions::default()
        };
        let made = communicator.all_gather_gemm::<bf16>(&SHAPE, &baseline);
        let noted = noted(&communicator);
        // Each rank runs each algorithm of the library several times.
        assert!(count(&noted, (32, 1)) > 2, "{noted:?}");
        made.unwrap().row()
    });
    assert_eq!(rows[0].shape, SHAPE);
    assert!(matches!(rows[0].candidates[..], [(32, _)]), "{:?}", rows[0]);
    rows[0].clone()
}

/// Returns a row by `Pipeline`, whose GEMMs have 16 rows, with one of the library's algorithms.
fn stored(candidate: u32) -> GemmRow {
    GemmRow {
        algorithm: GemmAlgorithm::Pipeline,
        transport: GemmTransport::Get,
        candidates: vec![(16, candidate)],
        ..row()
    }
}

#[test]
#[ignore = "run in a child process by the test above"]
fn the_row_decides_and_its_way_is_the_one_that_runs() {
    for candidate in 0..3 {
        let stored = stored(candidate);
        let result = || {
            ranks_with(
                2,
                |_, builder| builder.gemm_tuning(std::slice::from_ref(&stored)),
                |communicator| {
                    let case = Case::<bf16>::new(&communicator, SHAPE, &GemmOptions::default());
                    assert_eq!(case.operation.algorithm(), GemmAlgorithm::Pipeline);
                    assert_eq!(case.operation.transport(), GemmTransport::Get);
                    assert_eq!(case.operation.row(), stored);
                    // Each rank loads the algorithm once and does not time it. The heuristic's first also serves
                    // unaligned matrices.
                    let made = noted(&communicator);
                    assert_eq!(count(&made, (16, 1)), 2, "{made:?}");
                    case.run(2);
                    // Two calls of two GEMMs each on two ranks.
                    assert_eq!(noted(&communicator), [(16, candidate); 8]);
                    case.result()
                        .iter()
                        .map(|c| c.to_bits())
                        .collect::<Vec<_>>()
                },
            )
        };
        assert_eq!(result(), result(), "every run gives the same bits");
    }
}

/// The fake adds in reverse order in every other algorithm, so equal bits show the same algorithm.
#[test]
#[ignore = "run in a child process by the test above"]
fn in_another_way_the_bits_are_others() {
    // Long sums and enough f16 elements that some are rounded differently.
    let shape = GemmShape::new(64, 64, 512);
    let result = |candidate| {
        let row = GemmRow {
            shape,
            element: ElementType::F16,
            candidates: vec![(32, candidate)],
            ..stored(candidate)
        };
        ranks_with(
            2,
            |_, builder| builder.gemm_tuning(std::slice::from_ref(&row)),
            |communicator| {
                let case = Case::<f16>::new(&communicator, shape, &GemmOptions::default());
                assert_eq!(case.operation.row(), row);
                case.run(1);
                case.result()
                    .iter()
                    .map(|c| c.to_bits())
                    .collect::<Vec<_>>()
            },
        )
    };
    let first = result(0);
    assert_eq!(first, result(0));
    assert_ne!(first, result(1));
    assert_eq!(first, result(2));
}

#[test]
#[ignore = "run in a child process by the test above"]
fn what_was_stored_for_another_library_is_timed_anew() {
    let timed = |stored: GemmRow, options: GemmOptions, rows| {
        ranks_with(
            2,
            |_, builder| builder.gemm_tuning(std::slice::from_ref(&stored)),
            |communicator| {
                let made = communicator.all_gather_gemm::<bf16>(&SHAPE, &options);
                let noted = noted(&communicator);
                let (made, timed) = (made.unwrap(), count(&noted, (rows, 1)) > 2);
                assert!(noted.iter().all(|(known, _)| *known == rows), "{noted:?}");
                (made.algorithm(), timed)
            },
        )[0]
    };
    let automatic = GemmOptions::default();
    let good = stored(1);
    let pipeline = GemmAlgorithm::Pipeline;
    assert_eq!(timed(good.clone(), automatic, 16), (pipeline, false));
    let mut other = good.clone();
    other.library += "1";
    assert_eq!(timed(other, automatic, 16), (pipeline, true), "the version");
    let mut gone = good.clone();
    gone.candidates = vec![(16, 99)];
    assert_eq!(
        timed(gone, automatic, 16),
        (pipeline, true),
        "no such algorithm"
    );
    // A caller's algorithm takes precedence; its library algorithms come from the row if the row has its GEMM shape.
    let baseline = GemmOptions {
        algorithm: GemmAlgorithm::Baseline,
        ..automatic
    };
    let both = GemmRow {
        candidates: vec![(16, 1), (32, 1)],
        ..good.clone()
    };
    assert_eq!(timed(both, baseline, 32), (GemmAlgorithm::Baseline, false));
    assert_eq!(timed(good, baseline, 32), (GemmAlgorithm::Baseline, true));
}

#[test]
#[ignore = "run in a child process by the test above"]
fn a_row_holds_for_its_product_and_device_only() {
    let stored = stored(1);
    let mut elsewhere = stored.clone();
    elsewhere.device += " of another kind";
    for row in [stored, elsewhere] {
        let holds_here = !row.device.ends_with("kind");
        ranks_with(
            2,
            |_, builder| builder.gemm_tuning(std::slice::from_ref(&row)),
            |communicator| {
                let algorithm = |shape: GemmShape| {
                    let made =
                        communicator.all_gather_gemm::<bf16>(&shape, &GemmOptions::default());
                    made.unwrap().algorithm()
                };
                let pipeline = GemmAlgorithm::Pipeline;
                assert_eq!(algorithm(SHAPE) == pipeline, holds_here);
                // Explicit strides that equal the defaults change nothing.
                let said = GemmShape {
                    b_stride: Some(SHAPE.n),
                    c_stride: Some(SHAPE.n),
                    ..SHAPE
                };
                assert_eq!(algorithm(said) == pipeline, holds_here);
                for other in [
                    GemmShape { m: 16, ..SHAPE },
                    GemmShape {
                        bias: true,
                        ..SHAPE
                    },
                    GemmShape {
                        sharding: Sharding::Columns,
                        ..SHAPE
                    },
                    GemmShape {
                        b_order: MatrixOrder::Columns,
                        ..SHAPE
                    },
                    GemmShape {
                        c_stride: Some(SHAPE.n + 8),
                        ..SHAPE
                    },
                ] {
                    assert_ne!(algorithm(other), pipeline, "{other:?}");
                }
                assert!(communicator.finalize().unwrap().is_empty());
            },
        );
    }
}

#[test]
#[ignore = "run in a child process by the test above"]
fn ranks_with_different_rows_are_told() {
    let rows = [stored(1), stored(2)];
    let errors = ranks_with(
        2,
        |rank, builder| builder.gemm_tuning(&rows[rank as usize..][..1]),
        |communicator| {
            let made = communicator.all_gather_gemm::<bf16>(&SHAPE, &GemmOptions::default());
            let error = made.map(drop).unwrap_err();
            assert!(communicator.finalize().unwrap().is_empty());
            error
        },
    );
    for error in errors {
        assert!(
            matches!(
                error,
                Error::Mismatch {
                    what: "the stored tuning row (SYMMEM_TUNING, Builder::gemm_tuning)",
                    ..
                }
            ),
            "{error}"
        );
    }
}
