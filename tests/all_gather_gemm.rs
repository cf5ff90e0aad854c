//! All-gather + GEMM on both vendors' backends over the fake runtimes, with the fake cuBLASLt, hipBLASLt, NCCL and
//! RCCL. Ranks are threads of a child process. `on_this_machine`, which is run by hand, does the same on a machine's
//! own GPUs and libraries.

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

use case::{Case, options};
use half::{bf16, f16};
use rstest::rstest;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;
use support::amount::sampled_out;
use support::vendors::{Vendor, ranks, ranks_with, role};
use symmem::{
    Communicator, ErrorKind, F8E4M3, GemmAlgorithm, GemmOptions, GemmReduceOptions,
    GemmReduceShape, GemmShape, GemmTransport, MatrixOrder, Method, Sharding, TransferOptions,
};

type AlgorithmAndTransport = (GemmAlgorithm, GemmTransport);

/// Variants without a fused kernel that need symmem only.
const OWN: [AlgorithmAndTransport; 3] = [
    (GemmAlgorithm::Baseline, GemmTransport::Automatic),
    (GemmAlgorithm::Pipeline, GemmTransport::Get),
    (GemmAlgorithm::Pipeline, GemmTransport::Put),
];
/// Variants without a fused kernel that need NCCL or RCCL.
const VENDOR: [AlgorithmAndTransport; 2] = [
    (GemmAlgorithm::Baseline, GemmTransport::Nccl),
    (GemmAlgorithm::Pipeline, GemmTransport::Nccl),
];

/// Variants by the fused kernel, if the shape has one.
const KERNEL: [AlgorithmAndTransport; 3] = [
    (GemmAlgorithm::Pull, GemmTransport::Kernel),
    (GemmAlgorithm::Push, GemmTransport::Put),
    (GemmAlgorithm::Push, GemmTransport::Kernel),
];

/// Calls `body` with each variant without a fused kernel.
fn each_way(communicator: &Communicator, mut body: impl FnMut(AlgorithmAndTransport)) {
    OWN.into_iter().for_each(&mut body);
    communicator.open_nccl(false).unwrap();
    VENDOR.into_iter().for_each(body);
}

/// An even shape; one whose rows do not divide evenly among ranks, with barely aligned operands; one with fewer rows
/// than ranks.
const SHAPES: [(usize, usize, usize); 3] = [(48, 32, 64), (33, 17, 31), (2, 5, 3)];

#[rstest]
fn products_are_right_in_every_way_that_needs_no_kernel(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    if sampled_out(2) {
        return;
    }
    let report = role(vendor, "every_way", vendor.libraries(), &[]);
    assert_eq!(report, [""; 0]);
}

#[test]
#[ignore = "run in a child process by the test above"]
fn every_way() {
    for world in [2, 3] {
        ranks(world, |communicator| {
            each_way(&communicator, |way| {
                for (number, (m, n, k)) in SHAPES.into_iter().enumerate() {
                    one(&communicator, GemmShape::new(m, n, k), way, number);
                }
            });
            assert!(communicator.finalize().unwrap().is_empty());
        });
    }
}

#[rstest]
fn matrices_of_f32_are_multiplied_by_the_library_and_by_no_fused_kernel(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    let report = role(vendor, "single_precision", vendor.libraries(), &[]);
    assert_eq!(report, [""; 0]);
}

#[test]
#[ignore = "run in a child process by the test above"]
fn single_precision() {
    ranks(2, |communicator| {
        let shape = GemmShape::new(33, 17, 31);
        each_way(&communicator, |way| {
            Case::<f32>::new(&communicator, shape, &options(way)).run(2);
        });
        let in_columns = GemmShape {
            sharding: Sharding::Columns,
            b_order: MatrixOrder::Columns,
            bias: true,
            ..shape
        };
        Case::<f32>::new(&communicator, in_columns, &options(OWN[0])).run(2);
        // Every vendor's kernels take this shape in f16 and bf16.
        let (m, n, k) = ALIGNED[0];
        for way in KERNEL {
            let shape = GemmShape::new(m, n, k);
            let refused = communicator.all_gather_gemm::<f32>(&shape, &options(way));
            let error = refused.expect_err("no kernel takes f32");
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            let text = error.to_string();
            assert!(
                text.contains("no fused kernel here takes these matrices of F32"),
                "{text}"
            );
        }
        let refused = communicator.gemm_all_reduce::<f32>(
            &GemmReduceShape::new(m, n, k),
            &GemmReduceOptions::default(),
        );
        let text = refused.expect_err("not before a reduction").to_string();
        assert!(text.contains("use f16 or bf16"), "{text}");
        assert!(communicator.finalize().unwrap().is_empty());
    });
}

#[rstest]
fn matrices_of_8_bit_floats_are_multiplied_by_the_library_with_b_by_columns(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    let report = role(vendor, "eight_bits", vendor.libraries(), &[]);
    assert_eq!(report, [""; 0]);
}

#[test]
#[ignore = "run in a child process by the test above"]
fn eight_bits() {
    ranks(2, |communicator| {
        // Shards of either sharding are of multiples of 16, too.
        let shape = GemmShape {
            b_order: MatrixOrder::Columns,
            bias: true,
            ..GemmShape::new(64, 32, 96)
        };
        let in_columns = GemmShape {
            sharding: Sharding::Columns,
            c_stride: Some(48),
            ..shape
        };
        each_way(&communicator, |way| {
            let case = Case::<F8E4M3>::new(&communicator, shape, &options(way));
            case.scaled(0.37).run(2);
            let gathered = GemmOptions {
                gathered: true,
                ..options(way)
            };
            Case::<F8E4M3>::new(&communicator, in_columns, &gathered).run(2);
        });
        let refused = |shape: GemmShape, options: &GemmOptions| {
            let made = communicator.all_gather_gemm::<F8E4M3>(&shape, options);
            let error = made.map(drop).expect_err("not taken");
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            error.to_string()
        };
        let by_rows = GemmShape {
            b_order: MatrixOrder::Rows,
            ..shape
        };
        for way in OWN.into_iter().chain(VENDOR) {
            let text = refused(by_rows, &options(way));
            assert!(text.contains("store B by columns"), "{text}");
        }
        let text = refused(GemmShape { k: 40, ..shape }, &options(OWN[0]));
        assert!(text.contains("MatmulAlgoGetHeuristic"), "{text}");
        // Shards of 24 rows.
        let short = GemmShape { m: 48, ..shape };
        Case::<F8E4M3>::new(&communicator, short, &options(OWN[0])).run(2);
        let text = refused(short, &options(OWN[1]));
        assert!(text.contains("use `Baseline`"), "{text}");
        if Vendor::of_role() == Vendor::Cuda {
            let text = refused(shape, &options(KERNEL[0]));
            let wanted = "no fused kernel here takes these matrices of F8_E4M3";
            assert!(text.contains(wanted), "{text}");
        }
        assert!(communicator.finalize().unwrap().is_empty());
    });
}

/// Checks a shape in both shardings, with various numbers of streams.
fn one(communicator: &Communicator, shape: GemmShape, way: AlgorithmAndTransport, number: usize) {
    let options = GemmOptions {
        streams: 1 + number,
        ordered: number != 1,
        ..options(way)
    };
    in_rows_and_columns(communicator, shape, options, 3);
}

/// Checks A sharded by rows, then A sharded by columns with a bias, B stored by columns, `gap` elements between the
/// rows of C, and the caller's own buffer for the gathered A.
fn in_rows_and_columns(
    communicator: &Communicator,
    shape: GemmShape,
    options: GemmOptions,
    gap: usize,
) {
    Case::<bf16>::new(communicator, shape, &options).run(2);
    let in_columns = GemmShape {
        sharding: Sharding::Columns,
        b_order: MatrixOrder::Columns,
        bias: true,
        c_stride: Some(shape.n + gap),
        ..shape
    };
    let gathered = GemmOptions {
        gathered: true,
        ..options
    };
    Case::<f16>::new(communicator, in_columns, &gathered).run(2);
}

/// Shapes that every fused kernel supports, with lines of whole vectors: an even shape, one with tails of tiles and
/// chunks, and one with fewer rows than ranks. When A is sharded by columns, shards are whole boxes of 64 for worlds of
/// up to 4.
const ALIGNED: [(usize, usize, usize); 3] = [(128, 256, 256), (300, 264, 256), (1, 8, 256)];
/// Shapes for the split-K kernel: its ring is filled more than once, the window is as wide as the ring, parts of `k`
/// have no step, and there are two tiles of rows. For A sharded by columns, [`ALIGNED`] says what holds.
const FEW_ROWS: [(usize, usize, usize); 6] = [
    (17, 136, 8448),
    (300, 8, 4352),
    (128, 8, 8192),
    (256, 16, 8192),
    (16, 8, 32768),
    (1, 136, 768),
];
/// Shapes for the kernel whose tiles share their loads, if A is sharded by columns: K in two parts and in one, the rows and
/// columns of the last tiles cut short.
const SOME_HUNDRED_ROWS: [(usize, usize, usize); 3] =
    [(129, 2056, 768), (256, 3584, 8192), (300, 3576, 1536)];
/// Shapes for the fake, which multiplies slowly, in a world of two ranks.
const SMALL: [(usize, usize, usize); 3] = [(64, 16, 128), (268, 24, 128), (1, 8, 128)];

#[test]
fn products_are_right_where_a_kernel_gathers() {
    // The fake checks the launch arguments of Hopper's kernel and multiplies itself.
    let libraries = Vendor::Cuda.libraries();
    let report = role(Vendor::Cuda, "by_a_kernel", libraries, &[]);
    assert_eq!(report, [""; 0]);
}

#[test]
fn the_kernels_on_hip_take_any_stride_and_alignment() {
    let report = role(
        Vendor::Hip,
        "by_a_kernel_whatever_the_shape",
        Vendor::Hip.libraries(),
        &[],
    );
    assert_eq!(report, [""; 0]);
}

#[test]
#[ignore = "run in a child process by the test above"]
fn by_a_kernel_whatever_the_shape() {
    // The last shape has two chunks per shard in a world of two ranks.
    let shapes = SHAPES.into_iter().chain([(300, 9, 17)]);
    let ways: Vec<AlgorithmAndTransport> = kernels(Vendor::Hip).collect();
    for world in 1..=3 {
        ranks(world, |communicator| {
            for &way in &ways {
                for (number, (m, n, k)) in shapes.clone().enumerate() {
                    one(&communicator, GemmShape::new(m, n, k), way, number);
                }
            }
            assert!(communicator.finalize().unwrap().is_empty());
        });
    }
}

#[test]
fn the_kernels_on_hip_have_the_tiles_that_the_caller_chooses() {
    let report = role(
        Vendor::Hip,
        "by_a_kernel_in_every_tile",
        Vendor::Hip.libraries(),
        &[],
    );
    assert_eq!(report, [""; 0]);
}

#[test]
#[ignore = "run in a child process by the test above"]
fn by_a_kernel_in_every_tile() {
    ranks(2, |communicator| {
        // A whole tile of each and the tail of a second one.
        let shape = GemmShape::new(2 * 270, 265, 40);
        for tile in ["256x256", "128x256", "256x128", "64x256", "256x64"] {
            let tile = Some(tile.parse().unwrap());
            for way in kernels(Vendor::Hip) {
                let options = GemmOptions {
                    tile,
                    ..options(way)
                };
                in_rows_and_columns(&communicator, shape, options, 0);
            }
        }
        // So few tiles, and so long, that blocks divide them.
        let long = GemmShape::new(2 * 30, 70, 2048);
        let few = GemmOptions {
            tile: Some("64x256".parse().unwrap()),
            ..options(KERNEL[0])
        };
        in_rows_and_columns(&communicator, long, few, 0);
        let tile = Some("96x32".parse().unwrap());
        let options = GemmOptions {
            tile,
            ..options(KERNEL[0])
        };
        let refused = communicator.all_gather_gemm::<f16>(&shape, &options);
        let text = refused.expect_err("no kernel has this tile").to_string();
        assert!(text.contains("no kernel here has tiles of 96x32"), "{text}");
        assert!(communicator.finalize().unwrap().is_empty());
    });
}

#[test]
#[ignore = "run in a child process by the test above"]
fn by_a_kernel() {
    ranks(2, |communicator| {
        for way in KERNEL {
            for (number, (m, n, k)) in SMALL.into_iter().enumerate() {
                one_aligned(&communicator, GemmShape::new(m, n, k), way, number);
            }
        }
        // As wide as the kernel whose tiles share their loads needs it.
        let shape = GemmShape {
            sharding: Sharding::Columns,
            ..GemmShape::new(130, 1800, 128)
        };
        let options = options((GemmAlgorithm::Push, GemmTransport::Kernel));
        Case::<f16>::new(&communicator, shape, &options).run(2);
        assert!(communicator.finalize().unwrap().is_empty());
    });
}

/// Like [`one`], in chunks, and with rows of `C` that start at whole vectors.
fn one_aligned(
    communicator: &Communicator,
    shape: GemmShape,
    way: AlgorithmAndTransport,
    number: usize,
) {
    let options = GemmOptions {
        chunk_rows: (number == 1).then_some(128),
        ..options(way)
    };
    in_rows_and_columns(communicator, shape, options, 8);
}

/// Runs every variant on the machine's own GPUs, with `GEMM_WORLD` ranks as threads. Variants that the machine does not
/// support are skipped by name. `SYMMEM_BACKEND` names the backend.
#[test]
#[ignore = "for a machine with GPUs, by hand"]
fn on_this_machine() {
    let world = std::env::var("GEMM_WORLD").map_or(2, |world| world.parse().expect("a number"));
    let job = support::job("all-gather-gemm");
    std::thread::scope(|scope| {
        for rank in 0..world {
            let job = job.clone();
            scope.spawn(move || {
                let rank = support::rank("SYMMEM_BACKEND", rank, world, &job);
                let communicator = rank.build().expect("a communicator");
                let open = communicator.open_nccl(false);
                if let Err(absent) = &open {
                    eprintln!("skipped NCCL or RCCL: {absent}");
                }
                let vendor = open.iter().flat_map(|_| VENDOR);
                for way in OWN.into_iter().chain(KERNEL).chain(vendor) {
                    for (number, (m, n, k)) in ALIGNED.into_iter().enumerate() {
                        one_aligned(&communicator, GemmShape::new(m, n, k), way, number);
                        same_bits(&communicator, GemmShape::new(m, n, k), way, true);
                    }
                    same_bits(&communicator, GemmShape::new(2048, 1032, 1024), way, true);
                    if way != (GemmAlgorithm::Push, GemmTransport::Kernel) {
                        continue;
                    }
                    let shapes = FEW_ROWS.into_iter().chain(SOME_HUNDRED_ROWS);
                    for (number, (m, n, k)) in shapes.enumerate() {
                        let shape = GemmShape::new(m, n, k);
                        let gap = 8 * number;
                        in_rows_and_columns(&communicator, shape, options(way), gap);
                        same_bits(&communicator, shape, way, false);
                        // A last step along K that is cut short.
                        let shape = GemmShape::new(m, n, k + 8);
                        Case::<f16>::new(&communicator, shape, &options(way)).run(2);
                    }
                }
                assert!(communicator.finalize().expect("finalized").is_empty());
            });
        }
    });
}

/// Asserts that calls of one operation, and of a second operation like it, give the same bits in whatever order ranks
/// and chunks arrive, if the GEMM algorithm is not chosen by timing. Returns a digest of the bits for each sharding of
/// `A`.
fn same_bits(
    communicator: &Communicator,
    shape: GemmShape,
    way: AlgorithmAndTransport,
    chunked: bool,
) -> [u64; 2] {
    [Sharding::Rows, Sharding::Columns].map(|sharding| {
        let shape = GemmShape { sharding, ..shape };
        let options = GemmOptions {
            // Without chunks, the split-K kernel serves as its own barrier.
            chunk_rows: chunked.then_some(128),
            ..options(way)
        };
        // Timing loads the library's kernels, which no call may do while the device waits for a peer.
        let timed = communicator.all_gather_gemm::<bf16>(&shape, &options);
        drop(timed.expect("made on every rank"));
        let options = GemmOptions {
            tune: false,
            ..options
        };
        let made = || Case::<bf16>::new(communicator, shape, &options);
        let case = made();
        let first = case.bits(0);
        for call in 1..3 {
            // `assert_eq` would print all elements.
            assert!(case.bits(0) == first, "{way:?} {sharding:?}: call {call}");
        }
        assert!(
            made().bits(0) == first,
            "{way:?} {sharding:?}: a second operation has other bits"
        );
        let mut hasher = DefaultHasher::new();
        first.hash(&mut hasher);
        hasher.finish()
    })
}

/// Names the file that a run of the role below writes its digests to.
const DIGESTS: &str = "BITS_DIGESTS";

#[rstest]
fn bits_are_the_same_from_run_to_run_however_long_copies_and_products_take(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    if sampled_out(2) {
        return;
    }
    let digests = ["0", "1500"].map(|microseconds| {
        let name = format!("bits-{vendor:?}-{}-{microseconds}", std::process::id());
        let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let environment = [
            ("FAKE_DEVICE_COPY_US", microseconds),
            ("FAKE_BLASLT_PRODUCT_US", microseconds),
            (DIGESTS, file.to_str().expect("a path")),
        ];
        let report = role(vendor, "bits", vendor.libraries(), &environment);
        assert_eq!(report, [""; 0]);
        let digests = std::fs::read_to_string(&file).expect("written by the role");
        let _ = std::fs::remove_file(&file);
        digests
            .lines()
            .map(str::to_owned)
            .collect::<BTreeSet<String>>()
    });
    let ways = OWN.len() + VENDOR.len() + kernels(vendor).count();
    assert_eq!(digests[0].len(), 2 * ways, "a line for each rank and way");
    assert_eq!(digests[0], digests[1]);
}

/// Returns the fused kernel's variants that a vendor supports.
fn kernels(vendor: Vendor) -> impl Iterator<Item = AlgorithmAndTransport> {
    // On HIP no grid may wait for copies, because the copies may need compute units.
    let any = vendor != Vendor::Hip;
    let ways = KERNEL.into_iter();
    ways.filter(move |(_, by)| any || *by == GemmTransport::Kernel)
}

#[test]
#[ignore = "run in a child process by the test above"]
fn bits() {
    let lines = ranks(2, |communicator| {
        let mut lines = Vec::new();
        let mut each = |way| {
            // Two chunks per shard, of which the second is small.
            let digests = same_bits(&communicator, GemmShape::new(268, 8, 128), way, true);
            let rank = communicator.rank();
            lines.push(format!("{rank} {way:?} {digests:x?}"));
        };
        kernels(Vendor::of_role()).for_each(&mut each);
        each_way(&communicator, each);
        assert!(communicator.finalize().unwrap().is_empty());
        lines
    });
    let file = std::env::var_os(DIGESTS).expect("set by the test");
    std::fs::write(file, lines.concat().join("\n")).expect("written");
}

#[rstest]
fn captured_products_are_replayed(#[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor) {
    let report = role(vendor, "replayed", vendor.libraries(), &[]);
    assert_eq!(report, [""; 0]);
}

#[test]
#[ignore = "run in a child process by the test above"]
fn replayed() {
    ranks(3, |communicator| {
        each_way(&communicator, |way| {
            let shape = GemmShape::new(41, 13, 17);
            let case = Case::<bf16>::new(&communicator, shape, &options(way));
            let graph = case.capture().unwrap();
            for round in 0..3 {
                case.prepare(round);
                case.stream.launch_graph(&graph).unwrap();
                case.stream.synchronize().unwrap();
                case.check(round)
                    .unwrap_or_else(|why| panic!("{way:?}: {why}"));
            }
            // All ranks must be done with the graph before one of them drops it.
            communicator.host_barrier().unwrap();
        });
    });
}

#[rstest]
fn a_rank_whose_library_fails_says_so_and_all_ranks_give_everything_back(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    if sampled_out(2) {
        return;
    }
    let prefix = match vendor {
        Vendor::Cuda => "cublasLt",
        Vendor::Hip => "hipblasLt",
    };
    for function in ["Create", "MatmulAlgoGetHeuristic", "MatrixLayoutCreate"] {
        let fail = format!("{prefix}{function}");
        let environment = [("FAKE_BLASLT_FAIL", fail.as_str())];
        let report = role(vendor, "failing", vendor.libraries(), &environment);
        assert_eq!(report, [""; 0], "{fail}");
    }
}

#[test]
#[ignore = "run in a child process by the test above"]
fn failing() {
    let failed = std::env::var("FAKE_BLASLT_FAIL").unwrap();
    let errors = ranks(2, |communicator| {
        let shape = GemmShape::new(33, 17, 31);
        let options = options(OWN[2]);
        let made = communicator.all_gather_gemm::<bf16>(&shape, &options);
        let error = made.map(drop).unwrap_err().to_string();
        // Only one call failed: the next operation succeeds.
        Case::<bf16>::new(&communicator, shape, &options).run(1);
        assert!(communicator.finalize().unwrap().is_empty());
        error
    });
    let telling = errors.iter().filter(|error| error.contains(&failed));
    assert_ne!(telling.count(), 0, "{errors:?}");
}

/// A timing that takes too long fails on all ranks, and keeps its memory until it has ended.
#[rstest]
fn products_that_do_not_end_in_time_are_told_of_and_keep_their_memory(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    // Four GEMMs are timed at once, within half of the setup deadline.
    let environment = [("FAKE_BLASLT_PRODUCT_US", "500000")];
    let report = role(vendor, "too_slow", vendor.libraries(), &environment);
    assert_eq!(report, [""; 0]);
}

#[test]
#[ignore = "run in a child process by the test above"]
fn too_slow() {
    let short = |_, builder: symmem::Builder| builder.setup_deadline(Duration::from_secs(3));
    ranks_with(2, short, |communicator| {
        let shape = GemmShape::new(33, 17, 31);
        let made = communicator.all_gather_gemm::<bf16>(&shape, &options(OWN[2]));
        let error = made.map(drop).unwrap_err();
        assert!(error.to_string().contains("not done after"), "{error}");
        // Once they have ended, everything continues.
        let untimed = GemmOptions {
            tune: false,
            ..options(OWN[2])
        };
        let made = communicator.all_gather_gemm::<bf16>(&shape, &untimed);
        drop(made.unwrap());
        assert!(communicator.finalize().unwrap().is_empty());
    });
}

/// Opening cuBLASLt or hipBLASLt may wait for the device, so no kernel may wait for a peer meanwhile.
#[rstest]
fn the_library_is_opened_once_this_ranks_streams_are_idle(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    // The signal that follows a rank's copy is delayed by this time.
    let environment = [("FAKE_DEVICE_COPY_US", "100000")];
    let report = role(vendor, "waiting", vendor.libraries(), &environment);
    assert_eq!(report, [""; 0]);
}

#[test]
#[ignore = "run in a child process by the test above"]
fn waiting() {
    ranks(2, |communicator| {
        let stream = communicator.stream().unwrap();
        let buffer = communicator.allocate::<u32>(&[64]).unwrap();
        let (one, other) = (buffer.slice(..32).unwrap(), buffer.slice(32..64).unwrap());
        if communicator.rank() == 1 {
            let by_engine = TransferOptions::new().method(Method::CopyEngine);
            let put = stream.with(&by_engine).put_signal(0, one, other, 0);
            put.unwrap();
        } else {
            stream.wait_signal(1, 0).unwrap();
        }
        let shape = GemmShape::new(33, 17, 31);
        let untimed = GemmOptions {
            tune: false,
            ..options(OWN[0])
        };
        let operation = communicator.all_gather_gemm::<bf16>(&shape, &untimed);
        drop(operation.unwrap());
        stream.synchronize().unwrap();
        buffer.free().unwrap();
        assert!(communicator.finalize().unwrap().is_empty());
    });
}
