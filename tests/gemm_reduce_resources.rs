//! Resources of GEMM + reduce-scatter and GEMM + all-reduce over the fake runtimes and libraries: what making an operation takes
//! and dropping it gives back, also if making it fails in the middle. Ranks are threads of a child process.

#[allow(dead_code, reason = "this test uses the fakes only")]
mod support;

use half::bf16;
use rstest::rstest;
use std::time::{Duration, Instant};
use support::amount::sampled_out;
use support::vendors::{Vendor, ranks, ranks_with, role};
use symmem::{
    Communicator, Error, GemmReduce, GemmReduceAlgorithm, GemmReduceOperands, GemmReduceOptions,
    GemmReduceShape, GemmTransport, Matrix, Reduction, Result,
};

const RANKS: u32 = 3;
const SMALL: GemmReduceShape = GemmReduceShape::new(12, 5, 7);
/// Time for what a rank gives back once its peers have.
const PATIENCE: Duration = Duration::from_secs(20);

/// Reduction, algorithm and transport.
type Kind = (Reduction, GemmReduceAlgorithm, GemmTransport);

const KINDS: [Kind; 6] = {
    use {GemmReduceAlgorithm as A, GemmTransport as T};
    [
        (Reduction::Scatter, A::Baseline, T::Automatic),
        (Reduction::Scatter, A::Pipeline, T::Put),
        (Reduction::Scatter, A::Pipeline, T::Kernel),
        (Reduction::All, A::Baseline, T::Automatic),
        (Reduction::All, A::Pipeline, T::Put),
        (Reduction::All, A::Pipeline, T::Kernel),
    ]
};

fn make(
    communicator: &Communicator,
    (reduction, algorithm, transport): Kind,
    shape: GemmReduceShape,
    tune: bool,
) -> Result<GemmReduce<bf16>> {
    let options = GemmReduceOptions {
        algorithm,
        transport,
        streams: 2,
        chunks: Some(2),
        tune,
        ..GemmReduceOptions::default()
    };
    match reduction {
        Reduction::Scatter => communicator.gemm_reduce_scatter(&shape, &options),
        _ => communicator.gemm_all_reduce(&shape, &options),
    }
}

/// Makes an operation of a small shape, calls it and checks the result.
fn use_one(communicator: &Communicator, kind: Kind) {
    let GemmReduceShape { m, n, k, .. } = SMALL;
    let operation = make(communicator, kind, SMALL, true).unwrap();
    let rows = match kind.0 {
        Reduction::Scatter => m / communicator.world_size(),
        _ => m,
    };
    let stream = communicator.stream().unwrap();
    let a = communicator.allocate::<bf16>(&[m * k]).unwrap();
    let b = communicator.allocate::<bf16>(&[k * n]).unwrap();
    let c = communicator.allocate::<bf16>(&[rows * n]).unwrap();
    for matrix in [&a, &b] {
        let ones = vec![bf16::ONE; matrix.len()];
        matrix.write(&stream, 0, &ones).unwrap();
    }
    let operands = GemmReduceOperands {
        a: Matrix::of(&a, m, k).unwrap(),
        b: Matrix::of(&b, k, n).unwrap(),
        c: Matrix::of(&c, rows, n).unwrap(),
        bias: None,
    };
    stream.gemm_reduce(&operation, &operands).unwrap();
    let mut made = vec![bf16::NAN; rows * n];
    c.read(&stream, 0, &mut made).unwrap();
    let right = bf16::from_f64((k * communicator.world_size()) as f64);
    assert!(made.iter().all(|&made| made == right), "{made:?}");
    drop(operation);
    for buffer in [a, b, c] {
        buffer.free().unwrap();
    }
}

/// Returns the free bytes of this rank's device.
fn free(communicator: &Communicator) -> u64 {
    communicator.memory_information().unwrap().free
}

/// Waits until as much memory is free as before.
fn is_given_back(communicator: &Communicator, before: u64, what: &str) {
    let stream = communicator.stream().unwrap();
    let start = Instant::now();
    loop {
        // Releases what no rank uses any more.
        stream.synchronize().unwrap();
        let now = free(communicator);
        if now >= before {
            return;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "{what}: {before} bytes were free, and now {now}"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[rstest]
fn two_hundred_operations_that_are_made_and_dropped_keep_nothing(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    if sampled_out(2) {
        return;
    }
    let report = role(vendor, "rounds", vendor.libraries(), &[]);
    assert_eq!(report, [""; 0]);
}

#[test]
#[ignore = "run in a child process by the test above"]
fn rounds() {
    const WARM_UP: usize = 2 * KINDS.len();
    /// Descriptors that the watchers and the test open for a moment.
    const FEW: usize = 3 * RANKS as usize;
    ranks(RANKS, |communicator| {
        let mut before = (0, 0);
        for round in 0..WARM_UP + 200 {
            if round == WARM_UP {
                communicator.host_barrier().unwrap();
                before = (free(&communicator), descriptors());
            }
            let kind = KINDS[round % KINDS.len()];
            match round % 20 {
                0..6 => use_one(&communicator, kind),
                _ => drop(make(&communicator, kind, SMALL, false).unwrap()),
            }
        }
        communicator.host_barrier().unwrap();
        is_given_back(&communicator, before.0, "after 200 operations");
        communicator.host_barrier().unwrap();
        let now = descriptors();
        assert!(
            now <= before.1 + FEW,
            "{} descriptors, then {now}",
            before.1
        );
        assert!(communicator.finalize().unwrap().is_empty());
    });
}

#[rstest]
fn a_rank_whose_library_fails_says_so_and_all_ranks_give_everything_back(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    let prefix = match vendor {
        Vendor::Cuda => "cublasLt",
        Vendor::Hip => "hipblasLt",
    };
    // The first GEMM fails, and one behind others that were prepared.
    for call in [
        "Create",
        "MatmulAlgoGetHeuristic",
        "MatmulAlgoGetHeuristic:4",
        "MatrixLayoutCreate:7",
    ] {
        let fail = format!("{prefix}{call}");
        let environment = [("FAKE_BLASLT_FAIL", fail.as_str())];
        let report = role(vendor, "failing", vendor.libraries(), &environment);
        assert_eq!(report, [""; 0], "{fail}");
    }
}

#[test]
#[ignore = "run in a child process by the test above"]
fn failing() {
    let failed = std::env::var("FAKE_BLASLT_FAIL").unwrap();
    let function = failed.split(':').next().unwrap();
    let errors = ranks(RANKS, |communicator| {
        let made = make(&communicator, KINDS[4], SMALL, true);
        let error = made.map(drop).unwrap_err().to_string();
        // Only one call failed: the next operation succeeds.
        use_one(&communicator, KINDS[4]);
        assert!(communicator.finalize().unwrap().is_empty());
        error
    });
    let telling = errors.iter().filter(|error| error.contains(function));
    assert_ne!(telling.count(), 0, "{errors:?}");
}

#[rstest]
fn a_device_without_memory_for_an_operation_says_so_and_keeps_nothing(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    let report = role(vendor, "no_memory", vendor.libraries(), &[]);
    assert_eq!(report, [""; 0]);
}

/// An operation has room for none of its memory, or for the first or the first two parts of it.
#[test]
#[ignore = "run in a child process by the test above"]
fn no_memory() {
    ranks(RANKS, |communicator| {
        for kind in KINDS {
            use_one(&communicator, kind);
        }
        communicator.host_barrier().unwrap();
        let before = free(&communicator);
        // The sum in percent of the free memory. Two thirds of it come from other ranks, and go to them by copy engines.
        for (kind, percents) in [
            (KINDS[0], vec![110]),
            (KINDS[1], vec![160, 90]),
            (KINDS[2], vec![160]),
            (KINDS[4], vec![160, 90, 60]),
            (KINDS[5], vec![160, 80]),
        ] {
            for percent in percents {
                let n = 1 << 12;
                let m = (before * percent / 100 / 2) as usize / n;
                let m = m.next_multiple_of(communicator.world_size());
                let made = make(&communicator, kind, GemmReduceShape::new(m, n, 1), false);
                let error = made.map(drop).unwrap_err();
                let what = format!("{kind:?} {percent}: {error}");
                assert!(
                    matches!(error, Error::OutOfMemory { .. }),
                    "{what}: {error:?}"
                );
                communicator.host_barrier().unwrap();
                is_given_back(&communicator, before, &what);
                communicator.host_barrier().unwrap();
            }
            use_one(&communicator, kind);
        }
        assert!(communicator.finalize().unwrap().is_empty());
    });
}

/// A timing that takes too long fails on all ranks, and keeps its memory until it has ended.
#[rstest]
fn gemms_that_do_not_end_in_time_are_told_of_and_keep_their_memory(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    // Several GEMMs are timed at once, within half of the setup deadline.
    let environment = [("FAKE_BLASLT_PRODUCT_US", "500000")];
    let report = role(vendor, "too_slow", vendor.libraries(), &environment);
    assert_eq!(report, [""; 0]);
}

#[test]
#[ignore = "run in a child process by the test above"]
fn too_slow() {
    let short = |_, builder: symmem::Builder| builder.setup_deadline(Duration::from_secs(3));
    ranks_with(2, short, |communicator| {
        let error = make(&communicator, KINDS[4], SMALL, true).map(drop);
        let error = error.unwrap_err();
        assert!(error.to_string().contains("not done after"), "{error}");
        // Once they have ended, everything continues.
        drop(make(&communicator, KINDS[4], SMALL, false).unwrap());
        assert!(communicator.finalize().unwrap().is_empty());
    });
}
