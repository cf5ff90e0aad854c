//! GEMM + reduce-scatter and GEMM + all-reduce with stored tuning rows, on the host backend: a row decides what the caller
//! leaves open, for its operation, shape, element type, world size and device.

use half::{bf16, f16};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use symmem::bootstrap::LaunchEnvironment;
use symmem::{
    BackendSource, Communicator, Configuration, ErrorKind, GemmReduceAlgorithm, GemmReduceOptions,
    GemmReduceRow, GemmReduceShape, GemmTransport, Reduction,
};

/// Much longer than any of these tests takes.
const PATIENCE: Duration = Duration::from_secs(50);

const SHAPE: GemmReduceShape = GemmReduceShape::new(32, 16, 8);

/// Runs `rank` as each of two ranks with the rows that `rows` returns for its number.
fn host(rows: impl Fn(u32) -> Vec<GemmReduceRow> + Sync, rank: impl Fn(Communicator) + Sync) {
    let job = format!("gemm-rows-{}-{:?}", std::process::id(), Instant::now());
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (job, rank, rows) = (&job, &rank, &rows);
            scope.spawn(move || {
                let launch = LaunchEnvironment::local(number, 2, job).unwrap();
                let mut configuration = Configuration::new(launch);
                configuration.deadline = PATIENCE;
                configuration.setup_deadline = PATIENCE;
                configuration.gemm_reduce_rows = rows(number);
                rank(Communicator::open(&BackendSource::Host, configuration).unwrap());
            });
        }
    });
}

/// Returns a row of this host that no rule gives.
fn stored() -> GemmReduceRow {
    let row = Mutex::new(None);
    host(
        |_| Vec::new(),
        |communicator| {
            let options = GemmReduceOptions::default();
            let made = communicator.gemm_reduce_scatter::<bf16>(&SHAPE, &options);
            let made = made.unwrap().row();
            assert_ne!(made.algorithm, GemmReduceAlgorithm::Pipeline);
            *row.lock().unwrap() = Some(made);
        },
    );
    GemmReduceRow {
        algorithm: GemmReduceAlgorithm::Pipeline,
        transport: GemmTransport::Kernel,
        chunks: 4,
        streams: 2,
        ..row.into_inner().unwrap().unwrap()
    }
}

#[test]
fn a_row_decides_what_is_left_open() {
    let row = stored();
    host(
        |_| vec![row.clone()],
        |communicator| {
            let make = |options| communicator.gemm_reduce_scatter::<bf16>(&SHAPE, &options);
            let automatic = GemmReduceOptions::default();
            assert_eq!(make(automatic).unwrap().row(), row);
            let in_two = GemmReduceOptions {
                chunks: Some(2),
                ..automatic
            };
            assert_eq!(make(in_two).unwrap().chunks(), 2);
            let chosen = GemmReduceOptions {
                algorithm: GemmReduceAlgorithm::Baseline,
                ..automatic
            };
            let chosen = make(chosen).unwrap().algorithm();
            assert_eq!(chosen, GemmReduceAlgorithm::Baseline);
        },
    );
}

#[test]
fn a_row_holds_for_its_own_operation_shape_type_world_and_device() {
    let row = stored();
    for other in [
        GemmReduceRow {
            device: "another".into(),
            ..row.clone()
        },
        GemmReduceRow {
            world: 3,
            ..row.clone()
        },
        GemmReduceRow {
            reduction: Reduction::All,
            ..row.clone()
        },
        GemmReduceRow {
            shape: GemmReduceShape { m: 34, ..SHAPE },
            ..row.clone()
        },
    ] {
        host(
            |_| vec![other.clone()],
            |communicator| {
                let options = GemmReduceOptions::default();
                let made = communicator.gemm_reduce_scatter::<bf16>(&SHAPE, &options);
                let algorithm = made.unwrap().algorithm();
                assert_ne!(algorithm, GemmReduceAlgorithm::Pipeline, "{other:?}");
            },
        );
    }
    host(
        |_| vec![row.clone()],
        |communicator| {
            let options = GemmReduceOptions::default();
            let made = communicator.gemm_reduce_scatter::<f16>(&SHAPE, &options);
            assert_ne!(made.unwrap().algorithm(), GemmReduceAlgorithm::Pipeline);
            // A stride that equals the default changes nothing.
            let same = GemmReduceShape {
                b_stride: Some(SHAPE.n),
                ..SHAPE
            };
            let made = communicator.gemm_reduce_scatter::<bf16>(&same, &options);
            assert_eq!(made.unwrap().algorithm(), GemmReduceAlgorithm::Pipeline);
        },
    );
}

#[test]
fn ranks_with_different_rows_are_told() {
    let row = stored();
    host(
        |rank| match rank {
            0 => Vec::new(),
            _ => vec![row.clone()],
        },
        |communicator| {
            let options = GemmReduceOptions::default();
            let made = communicator.gemm_reduce_scatter::<bf16>(&SHAPE, &options);
            let error = made.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Mismatch);
            assert!(error.to_string().contains("options"), "{error}");
        },
    );
}
