//! GEMMs by cuBLASLt and hipBLASLt, and copies of rows, through the backends' tables, over the fake runtimes and the
//! fake libraries.

#![cfg(all(feature = "cuda", feature = "hip"))]

mod eight_bits;
mod product;
mod rank;
mod rows;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "this test uses the fakes only")]
mod support;

use product::{Gaps, Product, TIGHT, known_ways, multiply, prepare, random, release, shape, ways};
use rank::{ELEMENT, GUARD, Rank, tables};
use rstest::rstest;
use std::cell::RefCell;
use std::time::Duration;
use support::vendors::{Vendor, role};
use symmem::backend::abi::*;
use symmem::backend::{Device, Gemm, Signals, read_text};

#[track_caller]
fn clean(report: Vec<String>) {
    assert_eq!(report, [""; 0]);
}

#[rstest]
fn a_product_is_the_sum_in_each_type_order_and_stride_by_each_way(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    clean(role(vendor, "values", vendor.libraries(), &[]));
}

#[test]
#[ignore = "run in a child process by the test above"]
fn values() {
    let rank = Rank::open();
    let wide = Gaps { a: 8, b: 16, c: 24 };
    let odd = Gaps { a: 3, b: 1, c: 5 };
    for element in [ElementTypeCode::F16, ElementTypeCode::BF16] {
        for order in [MatrixOrderCode::ROWS, MatrixOrderCode::COLUMNS] {
            for (m, n, k, gaps) in [
                (1, 1, 1, TIGHT),
                (16, 24, 32, TIGHT),
                (16, 24, 32, wide),
                (17, 23, 129, odd),
            ] {
                // Aligned to the widest access, and to one element only.
                for (offset, bias, addend) in
                    [(0, 0, 0), (0, 1, 1), (ELEMENT, 1, 0), (ELEMENT, 0, 1)]
                {
                    let shape = GemmLayout {
                        bias,
                        addend,
                        ..shape(m, n, k, element, order, gaps)
                    };
                    let product = Product::new(&rank, shape, offset);
                    let gemm = prepare(&rank, &shape).unwrap();
                    let ways = ways(&rank, gemm);
                    assert_eq!(ways, known_ways());
                    for way in 0..ways {
                        rank.write(
                            product.operands.c,
                            &vec![GUARD; (m * shape.c_stride) as usize],
                        );
                        multiply(&rank, gemm, way, &product.operands).unwrap();
                        product.check(&rank);
                    }
                    release(&rank, gemm).unwrap();
                }
            }
        }
    }
    rank.close();
}

#[rstest]
fn a_captured_product_multiplies_what_is_there_when_it_is_replayed(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    clean(role(vendor, "replayed", vendor.libraries(), &[]));
}

#[test]
#[ignore = "run in a child process by the test above"]
fn replayed() {
    let rank = Rank::open();
    let shape = GemmLayout {
        bias: 1,
        ..shape(
            8,
            16,
            24,
            ElementTypeCode::BF16,
            MatrixOrderCode::ROWS,
            TIGHT,
        )
    };
    let product = RefCell::new(Product::new(&rank, shape, 0));
    let other = Product::new(&rank, shape, 0);
    let gemm = prepare(&rank, &shape).unwrap();
    let operands = product.borrow().operands;
    // Another call with a different bias between replays must not change the captured bias.
    rank.replay(
        3,
        || multiply(&rank, gemm, 0, &operands).unwrap(),
        |time| {
            if time > 0 {
                product.borrow().check(&rank);
            }
            multiply(&rank, gemm, 0, &other.operands).unwrap();
            let a = random(shape.element, shape.m * shape.a_stride, 10 + time as u32);
            rank.write(operands.a, &a);
            product.borrow_mut().a = a;
        },
    );
    product.borrow().check(&rank);
    other.check(&rank);
    release(&rank, gemm).unwrap();
    rank.close();
}

#[rstest]
fn what_is_no_product_is_refused_by_name(#[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor) {
    clean(role(vendor, "refused", vendor.libraries(), &[]));
    clean(role(
        vendor,
        "no_way",
        vendor.libraries(),
        &[("FAKE_BLASLT_WAYS", "0")],
    ));
    let narrow = ("FAKE_BLASLT_ALIGNMENT", "8");
    clean(role(
        vendor,
        "no_unaligned_way",
        vendor.libraries(),
        &[narrow],
    ));
}

#[test]
#[ignore = "run in a child process by the test above"]
fn refused() {
    let rank = Rank::open();
    let good = shape(4, 8, 8, ElementTypeCode::F16, MatrixOrderCode::ROWS, TIGHT);
    for (shape, word) in [
        (GemmLayout { n: 0, ..good }, "nothing to multiply"),
        (
            GemmLayout {
                element: ElementTypeCode::F64,
                ..good
            },
            "F64",
        ),
        (
            GemmLayout {
                a_stride: 7,
                ..good
            },
            "A has a stride of 7",
        ),
    ] {
        let failure = prepare(&rank, &shape).unwrap_err();
        assert_eq!(failure.status, Status::INVALID_ARGUMENT, "{failure}");
        assert!(failure.message.contains(word), "{failure}");
    }
    let product = Product::new(&rank, good, 0);
    let gemm = prepare(&rank, &good).unwrap();
    let biased = GemmOperands {
        bias: product.operands.a,
        ..product.operands
    };
    let added = GemmOperands {
        addend: product.operands.a,
        ..product.operands
    };
    let count = known_ways();
    for (way, operands, word) in [
        (count, product.operands, "they are counted from 0"),
        (0, biased, "without bias"),
        (0, added, "without addend"),
    ] {
        let failure = multiply(&rank, gemm, way, &operands).unwrap_err();
        assert_eq!(failure.status, Status::INVALID_ARGUMENT, "{failure}");
        assert!(failure.message.contains(word), "{failure}");
    }
    release(&rank, gemm).unwrap();
    let failure = release(&rank, gemm).unwrap_err();
    assert!(failure.message.contains("given up"), "{failure}");
    rank.close();
}

#[test]
#[ignore = "run in a child process by the test above"]
fn no_way() {
    let rank = Rank::open();
    let shape = shape(4, 8, 8, ElementTypeCode::F16, MatrixOrderCode::ROWS, TIGHT);
    let failure = prepare(&rank, &shape).unwrap_err();
    assert_eq!(failure.status, Status::UNSUPPORTED, "{failure}");
    assert!(
        failure.call.ends_with("MatmulAlgoGetHeuristic"),
        "{failure}"
    );
    rank.close();
}

/// cuBLASLt has kernels for each alignment; hipBLASLt's accept any.
#[test]
#[ignore = "run in a child process by the test above"]
fn no_unaligned_way() {
    let rank = Rank::open();
    let shape = shape(4, 8, 8, ElementTypeCode::F16, MatrixOrderCode::ROWS, TIGHT);
    let product = Product::new(&rank, shape, ELEMENT);
    let gemm = prepare(&rank, &shape).unwrap();
    let called = multiply(&rank, gemm, 0, &product.operands);
    match Vendor::of_role() {
        Vendor::Hip => product.check(&rank),
        Vendor::Cuda => {
            let failure = called.unwrap_err();
            assert_eq!(failure.status, Status::INVALID_ARGUMENT, "{failure}");
            assert!(failure.message.contains("aligned to 16 bytes"), "{failure}");
        }
    }
    release(&rank, gemm).unwrap();
    rank.close();
}

#[rstest]
fn the_library_is_described_by_name_file_and_version(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    clean(role(vendor, "described", vendor.libraries(), &[]));
}

#[test]
#[ignore = "run in a child process by the test above"]
fn described() {
    let rank = Rank::open();
    let description = rank.backend.gemm_library().unwrap();
    let (name, version) = match Vendor::of_role() {
        Vendor::Cuda => ("cuBLASLt", 120_805),
        Vendor::Hip => ("hipBLASLt", 100_000),
    };
    assert_eq!(read_text(&description.name), name);
    assert_eq!(description.version, version);
    let file = read_text(&description.file);
    assert!(
        file.contains("blaslt") || file.contains("fake-hip"),
        "{file}"
    );
    rank.close();
    let told = tables().describe_libraries().unwrap();
    let (label, version) = match Vendor::of_role() {
        Vendor::Cuda => ("libcublasLt.so", "cublaslt_version=12.8.5"),
        Vendor::Hip => ("libhipblaslt.so", "hipblaslt_version=1.0.0"),
    };
    for wanted in [format!("{label}={file}"), version.into()] {
        assert!(told.lines().any(|line| line == wanted), "{told}");
    }
}

#[rstest]
fn a_library_that_is_missing_lacks_a_function_or_is_too_old_is_told_with_what_to_do(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    let (prefix, older, told) = match vendor {
        Vendor::Cuda => ("cublasLt", "110000", ""),
        Vendor::Hip => ("hipblasLt", "600", "0.6.0; install 0.7.0 or newer"),
    };
    let function = format!("{prefix}MatmulAlgoGetHeuristic");
    let words = ("PRODUCTS_WORDS", function.as_str());
    clean(role(
        vendor,
        "missing",
        &vendor.without(&function),
        &[words],
    ));
    if !told.is_empty() {
        let old = [("FAKE_BLASLT_VERSION", older), ("PRODUCTS_WORDS", told)];
        clean(role(vendor, "missing", vendor.libraries(), &old));
    }
    // SAFETY: no function of the library is called.
    let installed = unsafe { libloading::Library::new(vendor.products()) }.is_ok();
    if installed || std::env::var_os("VIRTUAL_ENV").is_some() {
        support::skipped(&format!("{} is installed here", vendor.products()));
        return;
    }
    let words = ("PRODUCTS_WORDS", vendor.products());
    clean(role(vendor, "missing", &vendor.runtime(), &[words]));
}

#[test]
#[ignore = "run in a child process by the test above"]
fn missing() {
    let rank = Rank::open();
    let words = std::env::var("PRODUCTS_WORDS").unwrap();
    let shape = shape(4, 8, 8, ElementTypeCode::F16, MatrixOrderCode::ROWS, TIGHT);
    for failure in [
        rank.backend.gemm_library().map(drop).unwrap_err(),
        prepare(&rank, &shape).unwrap_err(),
    ] {
        assert_eq!(failure.status, Status::LIBRARY_MISSING, "{failure}");
        assert!(failure.message.contains(&words), "{failure}");
    }
    rank.close();
}

/// Functions that a GEMM calls, without the vendor's prefix, and how often each is called.
const CALLS: [(&str, u32); 12] = [
    ("Create", 1),
    ("MatmulDescCreate", 1),
    ("MatmulDescSetAttribute", 4),
    ("MatrixLayoutCreate", 3),
    ("MatmulPreferenceCreate", 1),
    ("MatmulPreferenceSetAttribute", 1),
    ("MatmulAlgoGetHeuristic", 1),
    ("MatmulPreferenceDestroy", 1),
    ("Matmul", 1),
    ("MatrixLayoutDestroy", 3),
    ("MatmulDescDestroy", 1),
    ("Destroy", 1),
];

#[rstest]
fn every_failing_call_of_the_library_is_named_and_leaves_nothing(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    let (prefix, aligned) = match vendor {
        Vendor::Cuda => ("cublasLt", true),
        Vendor::Hip => ("hipblasLt", false),
    };
    for (function, times) in CALLS {
        // A backend with separate algorithms for unaligned operands queries the heuristic twice.
        let asked_twice =
            function.starts_with("MatmulPreference") || function.ends_with("Heuristic");
        let more = aligned && asked_twice;
        for number in 1..=times + u32::from(more) {
            let fail = format!("{prefix}{function}:{number}");
            let told = match function {
                // Nobody is told when closing the device fails.
                "Destroy" => String::new(),
                _ => format!("{prefix}{function}"),
            };
            let environment = [
                ("FAKE_BLASLT_FAIL", fail.as_str()),
                ("PRODUCTS_WORDS", &told),
            ];
            clean(role(vendor, "failing", vendor.libraries(), &environment));
        }
    }
}

#[test]
#[ignore = "run in a child process by the test above"]
fn failing() {
    let rank = Rank::open();
    let shape = GemmLayout {
        bias: 1,
        ..shape(
            4,
            8,
            8,
            ElementTypeCode::F16,
            MatrixOrderCode::COLUMNS,
            TIGHT,
        )
    };
    let product = Product::new(&rank, shape, 0);
    let once = || {
        let gemm = prepare(&rank, &shape)?;
        let called = multiply(&rank, gemm, 0, &product.operands);
        rank.drain();
        called.and(release(&rank, gemm))
    };
    let told = std::env::var("PRODUCTS_WORDS").unwrap();
    match once() {
        Ok(()) => assert_eq!(told, "", "the call was not made"),
        Err(failure) => {
            assert_eq!(failure.call, told, "{failure}");
            let code = if Vendor::of_role() == Vendor::Cuda {
                14
            } else {
                6
            };
            assert_eq!(failure.vendor_code, code, "{failure}");
            assert!(failure.message.contains("INTERNAL_ERROR"), "{failure}");
            // The next attempt succeeds.
            once().unwrap();
        }
    }
    product.check(&rank);
    rank.close();
}

#[rstest]
fn a_device_without_memory_for_the_workspace_says_so_and_keeps_nothing(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    let memory = [("FAKE_DEVICE_MEMORY_BYTES", "2097152")];
    clean(role(vendor, "no_memory", vendor.libraries(), &memory));
}

#[test]
#[ignore = "run in a child process by the test above"]
fn no_memory() {
    let rank = Rank::open();
    let shape = shape(4, 8, 8, ElementTypeCode::F16, MatrixOrderCode::ROWS, TIGHT);
    for _ in 0..2 {
        let failure = prepare(&rank, &shape).unwrap_err();
        assert_eq!(failure.status, Status::OUT_OF_MEMORY, "{failure}");
    }
    rank.close();
}

#[rstest]
fn a_product_that_was_not_given_up_goes_with_its_device(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    clean(role(vendor, "left", vendor.libraries(), &[]));
}

#[test]
#[ignore = "run in a child process by the test above"]
fn left() {
    let shape = shape(4, 8, 8, ElementTypeCode::F16, MatrixOrderCode::ROWS, TIGHT);
    // The second device is not the current device when it is closed.
    let rank = Rank::open_at(1);
    prepare(&rank, &shape).unwrap();
    prepare(&rank, &shape).unwrap();
    rank.close();
}

/// Plants faults, and asserts that the fake library reports each.
#[rstest]
fn the_fake_library_reports_a_first_use_while_something_waits_and_a_workspace_used_twice(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    let report = role(vendor, "first_use", vendor.libraries(), &[]);
    assert_eq!(report.len(), 1, "{report:?}");
    assert!(report[0].contains("loads a kernel"), "{report:?}");
    let report = role(vendor, "one_workspace", vendor.libraries(), &[]);
    assert!(
        !report.is_empty(),
        "two streams with one workspace are reported"
    );
    let all_of_it = report.iter().all(|line| line.contains("one workspace"));
    assert!(all_of_it, "{report:?}");
}

#[test]
#[ignore = "run in a child process by the test above"]
fn one_workspace() {
    let rank = Rank::open();
    let shape = shape(
        128,
        128,
        128,
        ElementTypeCode::F16,
        MatrixOrderCode::ROWS,
        TIGHT,
    );
    let product = Product::new(&rank, shape, 0);
    let gemm = prepare(&rank, &shape).unwrap();
    let other = rank.backend.stream_create().unwrap();
    // Enough calls that the two streams overlap.
    for _ in 0..30 {
        multiply(&rank, gemm, 0, &product.operands).unwrap();
        // SAFETY: all memory is live until both streams are drained; sharing the workspace is the planted fault.
        unsafe { rank.backend.gemm(gemm, 0, &product.operands, other) }.unwrap();
    }
    rank.drain();
    // SAFETY: the stream is live until here.
    unsafe {
        while !rank.backend.stream_idle(other).unwrap() {
            std::thread::sleep(Duration::from_micros(100));
        }
        rank.backend.stream_destroy(other).unwrap();
    }
    release(&rank, gemm).unwrap();
    rank.close();
}

#[test]
#[ignore = "run in a child process by the test above"]
fn first_use() {
    let rank = Rank::open();
    let shape = shape(4, 8, 8, ElementTypeCode::F16, MatrixOrderCode::ROWS, TIGHT);
    let product = Product::new(&rank, shape, 0);
    let gemm = prepare(&rank, &shape).unwrap();
    let zero = rank.place(&[0; 64], 0);
    let one = rank.place(&[1; 64], 0);
    let control = rank.backend.host_allocate(4096).unwrap();
    let other = rank.backend.stream_create().unwrap();
    let wait = |stream| {
        let wait = SignalWait {
            word: zero,
            watch: Watch {
                abort: control.device,
                record: DeviceAddress(control.device.0 + 128),
                deadline_ns: 10_000_000_000,
                ..Watch::default()
            },
            value: 1,
            ..SignalWait::default()
        };
        // SAFETY: all memory is live until the stream is drained.
        unsafe {
            rank.backend
                .signal_wait(&wait, SignalPlacementCode::DEVICE, stream)
        }
        .unwrap();
    };
    wait(other);
    // The first call is reported; the second uses the same kernel.
    multiply(&rank, gemm, 0, &product.operands).unwrap();
    multiply(&rank, gemm, 0, &product.operands).unwrap();
    // SAFETY: both words are live until the stream is drained.
    unsafe { rank.backend.gathered_arrive(zero, one, rank.stream) }.unwrap();
    rank.drain();
    // SAFETY: the stream is live, and the other resources are live until here.
    unsafe {
        while !rank.backend.stream_idle(other).unwrap() {
            std::thread::sleep(Duration::from_micros(100));
        }
        rank.backend.stream_destroy(other).unwrap();
        rank.backend.host_free(control).unwrap();
    }
    product.check(&rank);
    release(&rank, gemm).unwrap();
    rank.close();
}
