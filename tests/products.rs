//! Products of matrices by the vendors' libraries, and copies of rows, through the backends' tables: over the
//! fake runtimes with the fake libraries beside them.

#[allow(dead_code, reason = "this test uses the fakes only")]
mod support;

use half::{bf16, f16};
use rstest::rstest;
use std::cell::RefCell;
use std::time::{Duration, Instant};
use support::vendors::{Vendor, role};
use symmem_core::backend::abi::*;
use symmem_core::backend::{
    CallResult, Device, Gemm, PluginBackend, RemoteAccess, Signals, SymmetricMemory, Tables,
    read_text,
};

/// Bytes of an element.
const ELEMENT: u64 = 2;
/// What lies where nobody writes.
const GUARD: u16 = 0x5bad;

/// An open device with a stream and staging memory; what it allocates is given back at the end.
struct Rank {
    backend: PluginBackend,
    stream: RawStream,
    staging: HostMemory,
    allocations: RefCell<Vec<RawAllocation>>,
}

/// The backend's.
fn tables() -> Tables {
    let table = match Vendor::of_role() {
        Vendor::Cuda => &raw const symmem_cuda::TABLE,
        Vendor::Hip => &raw const symmem_hip::TABLE,
    };
    // SAFETY: both tables are statics of this program.
    unsafe { Tables::read(table) }.unwrap()
}

impl Rank {
    fn open() -> Self {
        Self::open_at(0)
    }

    fn open_at(ordinal: u32) -> Self {
        let options = OpenOptions {
            size: size_of::<OpenOptions>() as u32,
            ordinal,
            rank: 0,
            local_world: 1,
            services: std::ptr::null(),
        };
        let backend = tables().open(&options).unwrap();
        let stream = backend.stream_create().unwrap();
        let staging = backend.host_allocate(1 << 20).unwrap();
        Self {
            backend,
            stream,
            staging,
            allocations: RefCell::default(),
        }
    }

    fn kind(&self) -> ShareKind {
        self.backend.capabilities().unwrap().share_kinds[0]
    }

    fn allocate(&self, bytes: u64) -> DeviceAddress {
        let memory = self.backend.allocate(self.kind(), bytes).unwrap();
        self.allocations.borrow_mut().push(memory.handle);
        memory.address
    }

    /// Memory with these numbers, `offset` bytes into an allocation.
    fn place(&self, numbers: &[u16], offset: u64) -> DeviceAddress {
        let address = self.allocate(numbers.len() as u64 * ELEMENT + offset);
        let address = DeviceAddress(address.0 + offset);
        self.write(address, numbers);
        address
    }

    fn write(&self, address: DeviceAddress, numbers: &[u16]) {
        let host = self.staging.host as *mut u16;
        assert!(numbers.len() as u64 * ELEMENT <= self.staging.bytes);
        // SAFETY: host memory of the backend is mapped for its length, and no stream works on it.
        unsafe { host.copy_from_nonoverlapping(numbers.as_ptr(), numbers.len()) };
        self.copy(address, self.staging.device, numbers.len());
    }

    fn read(&self, address: DeviceAddress, count: usize) -> Vec<u16> {
        self.copy(self.staging.device, address, count);
        let mut numbers = vec![0; count];
        let host = self.staging.host as *const u16;
        // SAFETY: as above.
        unsafe { host.copy_to_nonoverlapping(numbers.as_mut_ptr(), count) };
        numbers
    }

    fn copy(&self, to: DeviceAddress, from: DeviceAddress, count: usize) {
        let transfer = Transfer::by_engine(to, from, count as u64 * ELEMENT);
        // SAFETY: both are live until the stream is drained, here.
        unsafe { self.backend.transfer(&transfer, self.stream) }.unwrap();
        self.drain();
    }

    fn drain(&self) {
        let start = Instant::now();
        // SAFETY: the stream is live.
        while unsafe { self.backend.stream_idle(self.stream) }.unwrap() == 0 {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "the stream does not end"
            );
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Captures what is done on the stream, runs it so often, and forgets it.
    fn replay(&self, times: usize, work: impl FnOnce(), mut between: impl FnMut(usize)) {
        let backend = &self.backend;
        // SAFETY: stream and graph are live until they have been used.
        unsafe {
            backend.capture_begin(self.stream).unwrap();
            work();
            let graph = backend.capture_end(self.stream).unwrap();
            let graph = backend.graph_instantiate(graph).unwrap();
            for time in 0..times {
                between(time);
                backend.graph_launch(graph, self.stream).unwrap();
                self.drain();
            }
            backend.graph_destroy(graph).unwrap();
        }
    }

    /// Gives all back but the device, which goes at last.
    fn close(self) {
        self.drain();
        // SAFETY: nothing is used any more.
        unsafe {
            for allocation in self.allocations.take() {
                self.backend.free(allocation).unwrap();
            }
            self.backend.host_free(self.staging).unwrap();
            self.backend.stream_destroy(self.stream).unwrap();
        }
    }
}

/// A product with its matrices, in numbers and on a device.
struct Product {
    shape: GemmShape,
    a: Vec<u16>,
    b: Vec<u16>,
    bias: Vec<u16>,
    operands: GemmOperands,
}

/// How much a stride is wider than its matrix.
#[derive(Clone, Copy)]
struct Gaps {
    a: u64,
    b: u64,
    c: u64,
}

const TIGHT: Gaps = Gaps { a: 0, b: 0, c: 0 };

fn shape(
    m: u64,
    n: u64,
    k: u64,
    element: ElementType,
    order: MatrixOrder,
    gaps: Gaps,
) -> GemmShape {
    let b_width = if order == MatrixOrder::ROWS { n } else { k };
    GemmShape {
        m,
        n,
        k,
        a_stride: k + gaps.a,
        b_stride: b_width + gaps.b,
        c_stride: n + gaps.c,
        element,
        b_order: order,
        bias: 0,
        reserved: 0,
    }
}

fn widen(element: ElementType, bits: u16) -> f64 {
    match element {
        ElementType::F16 => f16::from_bits(bits).to_f64(),
        _ => bf16::from_bits(bits).to_f64(),
    }
}

fn narrow(element: ElementType, number: f32) -> u16 {
    match element {
        ElementType::F16 => f16::from_f32(number).to_bits(),
        _ => bf16::from_f32(number).to_bits(),
    }
}

/// Numbers of both signs, of no pattern, from a linear congruence.
fn random(element: ElementType, count: u64, seed: u32) -> Vec<u16> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from((state >> 16) as i16) / 16_384.0
    };
    (0..count).map(|_| narrow(element, next())).collect()
}

impl Product {
    /// With random matrices, each `offset` bytes into an allocation.
    fn new(rank: &Rank, shape: GemmShape, offset: u64) -> Self {
        let element = shape.element;
        let b_length = if shape.b_order == MatrixOrder::ROWS {
            shape.k
        } else {
            shape.n
        };
        let a = random(element, shape.m * shape.a_stride, 1);
        let b = random(element, b_length * shape.b_stride, 2);
        let bias = random(element, shape.n * u64::from(shape.bias), 3);
        let c = vec![GUARD; (shape.m * shape.c_stride) as usize];
        let operands = GemmOperands {
            a: rank.place(&a, offset),
            b: rank.place(&b, offset),
            c: rank.place(&c, offset),
            bias: match shape.bias {
                0 => DeviceAddress::NULL,
                _ => rank.place(&bias, offset),
            },
        };
        Self {
            shape,
            a,
            b,
            bias,
            operands,
        }
    }

    /// Compares what is there with the sums in f64, element by element: one rounding to the element's type,
    /// and those of the sum in f32. Between rows nothing is written.
    fn check(&self, rank: &Rank) {
        let &GemmShape {
            m, n, k, element, ..
        } = &self.shape;
        let c = rank.read(self.operands.c, (m * self.shape.c_stride) as usize);
        let unit = if element == ElementType::F16 {
            2_f64.powi(-11)
        } else {
            2_f64.powi(-8)
        };
        for (place, &seen) in c.iter().enumerate() {
            let (row, column) = (
                place as u64 / self.shape.c_stride,
                place as u64 % self.shape.c_stride,
            );
            if column >= n {
                assert_eq!(seen, GUARD, "between rows, behind row {row}");
                continue;
            }
            let bias = self.bias.get(column as usize);
            let mut sum = bias.map_or(0.0, |&bias| widen(element, bias));
            let mut size = sum.abs();
            for index in 0..k {
                let (down, across) = match self.shape.b_order {
                    MatrixOrder::ROWS => (index, column),
                    _ => (column, index),
                };
                let a = widen(
                    element,
                    self.a[(row * self.shape.a_stride + index) as usize],
                );
                let b = widen(
                    element,
                    self.b[(down * self.shape.b_stride + across) as usize],
                );
                sum += a * b;
                size += (a * b).abs();
            }
            let bound = unit * sum.abs() + (k as f64).sqrt() * 2_f64.powi(-22) * size;
            let off = (widen(element, seen) - sum).abs();
            assert!(
                off <= bound,
                "{:?}: row {row}, column {column}: {off} off {sum}, {bound} may be",
                self.shape
            );
        }
    }
}

fn prepare(rank: &Rank, shape: &GemmShape) -> CallResult<RawGemm> {
    rank.backend.gemm_prepare(shape)
}

/// Enqueues it.
fn multiply(rank: &Rank, gemm: RawGemm, way: u32, operands: &GemmOperands) -> CallResult<()> {
    // SAFETY: all is live until the stream is drained.
    unsafe { rank.backend.gemm(gemm, way, operands, rank.stream) }
}

fn release(rank: &Rank, gemm: RawGemm) -> CallResult<()> {
    // SAFETY: the stream was drained, and it is not used again.
    unsafe { rank.backend.gemm_release(gemm) }
}

fn ways(rank: &Rank, gemm: RawGemm) -> u32 {
    // SAFETY: it is live.
    unsafe { rank.backend.gemm_candidates(gemm) }.unwrap()
}

/// The fake's, and on CUDA one for operands that are not aligned.
fn known_ways() -> u32 {
    match Vendor::of_role() {
        Vendor::Cuda => 4,
        Vendor::Hip => 3,
    }
}

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
#[ignore = "a role of the test above"]
fn values() {
    let rank = Rank::open();
    let wide = Gaps { a: 8, b: 16, c: 24 };
    let odd = Gaps { a: 3, b: 1, c: 5 };
    for element in [ElementType::F16, ElementType::BF16] {
        for order in [MatrixOrder::ROWS, MatrixOrder::COLUMNS] {
            for (m, n, k, gaps) in [
                (1, 1, 1, TIGHT),
                (16, 24, 32, TIGHT),
                (16, 24, 32, wide),
                (17, 23, 129, odd),
            ] {
                for bias in [0, 1] {
                    let shape = GemmShape {
                        bias,
                        ..shape(m, n, k, element, order, gaps)
                    };
                    // Aligned to the widest access, and to an element only.
                    for offset in [0, ELEMENT] {
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
#[ignore = "a role of the test above"]
fn replayed() {
    let rank = Rank::open();
    let shape = GemmShape {
        bias: 1,
        ..shape(8, 16, 24, ElementType::BF16, MatrixOrder::ROWS, TIGHT)
    };
    let product = RefCell::new(Product::new(&rank, shape, 0));
    let other = Product::new(&rank, shape, 0);
    let gemm = prepare(&rank, &shape).unwrap();
    let operands = product.borrow().operands;
    // Between them another bias is said: what was captured keeps its own.
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
#[ignore = "a role of the test above"]
fn refused() {
    let rank = Rank::open();
    let good = shape(4, 8, 8, ElementType::F16, MatrixOrder::ROWS, TIGHT);
    for (shape, word) in [
        (GemmShape { n: 0, ..good }, "nothing to multiply"),
        (
            GemmShape {
                element: ElementType::F32,
                ..good
            },
            "F32",
        ),
        (
            GemmShape {
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
    let count = known_ways();
    for (way, operands, word) in [
        (count, product.operands, "they are counted from 0"),
        (0, biased, "without a bias"),
    ] {
        let failure = multiply(&rank, gemm, way, &operands).unwrap_err();
        assert_eq!(failure.status, Status::INVALID_ARGUMENT, "{failure}");
        assert!(failure.message.contains(word), "{failure}");
    }
    release(&rank, gemm).unwrap();
    let failure = release(&rank, gemm).unwrap_err();
    assert!(failure.message.contains("given up"), "{failure}");

    let limits = rank.backend.gathered_gemm_limits(&good, Sharding::ROWS, 2);
    assert_eq!(limits.unwrap().blocks, 0, "no kernel for this one");
    rank.close();
}

#[test]
#[ignore = "a role of the test above"]
fn no_way() {
    let rank = Rank::open();
    let shape = shape(4, 8, 8, ElementType::F16, MatrixOrder::ROWS, TIGHT);
    let failure = prepare(&rank, &shape).unwrap_err();
    assert_eq!(failure.status, Status::UNSUPPORTED, "{failure}");
    assert!(
        failure.call.ends_with("MatmulAlgoGetHeuristic"),
        "{failure}"
    );
    rank.close();
}

/// cuBLASLt has kernels for an alignment; hipBLASLt's take any.
#[test]
#[ignore = "a role of the test above"]
fn no_unaligned_way() {
    let rank = Rank::open();
    let shape = shape(4, 8, 8, ElementType::F16, MatrixOrder::ROWS, TIGHT);
    let product = Product::new(&rank, shape, ELEMENT);
    let gemm = prepare(&rank, &shape).unwrap();
    let called = multiply(&rank, gemm, 0, &product.operands);
    match Vendor::of_role() {
        Vendor::Hip => product.check(&rank),
        Vendor::Cuda => {
            let failure = called.unwrap_err();
            assert_eq!(failure.status, Status::INVALID_ARGUMENT, "{failure}");
            assert!(failure.message.contains("multiples of 16"), "{failure}");
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
#[ignore = "a role of the test above"]
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
        Vendor::Hip => ("hipblasLt", "600", "0.6.0; 0.7.0 or newer"),
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
    // SAFETY: nobody calls anything of it.
    let installed = unsafe { libloading::Library::new(vendor.products()) }.is_ok();
    if installed || std::env::var_os("VIRTUAL_ENV").is_some() {
        support::skipped(&format!("{} is installed here", vendor.products()));
        return;
    }
    let words = ("PRODUCTS_WORDS", vendor.products());
    clean(role(vendor, "missing", &vendor.runtime(), &[words]));
}

#[test]
#[ignore = "a role of the test above"]
fn missing() {
    let rank = Rank::open();
    let words = std::env::var("PRODUCTS_WORDS").unwrap();
    let shape = shape(4, 8, 8, ElementType::F16, MatrixOrder::ROWS, TIGHT);
    for failure in [
        rank.backend.gemm_library().map(drop).unwrap_err(),
        prepare(&rank, &shape).unwrap_err(),
    ] {
        assert_eq!(failure.status, Status::LIBRARY_MISSING, "{failure}");
        assert!(failure.message.contains(&words), "{failure}");
    }
    rank.close();
}

/// Functions that a product calls, and how often before its end; behind the vendor's prefix.
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
        // Once more each, where unaligned operands have a way of their own.
        let asked_twice =
            function.starts_with("MatmulPreference") || function.ends_with("Heuristic");
        let more = aligned && asked_twice;
        for number in 1..=times + u32::from(more) {
            let fail = format!("{prefix}{function}:{number}");
            let told = match function {
                // Of the end of a device nobody is told.
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
#[ignore = "a role of the test above"]
fn failing() {
    let rank = Rank::open();
    let shape = GemmShape {
        bias: 1,
        ..shape(4, 8, 8, ElementType::F16, MatrixOrder::COLUMNS, TIGHT)
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
            // Nothing is the worse for it.
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
#[ignore = "a role of the test above"]
fn no_memory() {
    let rank = Rank::open();
    let shape = shape(4, 8, 8, ElementType::F16, MatrixOrder::ROWS, TIGHT);
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
#[ignore = "a role of the test above"]
fn left() {
    let shape = shape(4, 8, 8, ElementType::F16, MatrixOrder::ROWS, TIGHT);
    // On the second device, which is not the current one when it is closed.
    let rank = Rank::open_at(1);
    prepare(&rank, &shape).unwrap();
    prepare(&rank, &shape).unwrap();
    rank.close();
}

/// The fake's own checks, each seen to find something.
#[rstest]
fn the_fake_library_reports_a_first_use_while_something_waits_and_a_workspace_used_twice(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    let report = role(vendor, "first_use", vendor.libraries(), &[]);
    assert_eq!(report.len(), 1, "{report:?}");
    assert!(report[0].contains("loads a kernel"), "{report:?}");
    let report = role(vendor, "one_workspace", vendor.libraries(), &[]);
    assert!(!report.is_empty(), "two streams at a time");
    let all_of_it = report.iter().all(|line| line.contains("one workspace"));
    assert!(all_of_it, "{report:?}");
}

#[test]
#[ignore = "a role of the test above"]
fn one_workspace() {
    let rank = Rank::open();
    let shape = shape(128, 128, 128, ElementType::F16, MatrixOrder::ROWS, TIGHT);
    let product = Product::new(&rank, shape, 0);
    let gemm = prepare(&rank, &shape).unwrap();
    let other = rank.backend.stream_create().unwrap();
    // So many that they meet.
    for _ in 0..30 {
        multiply(&rank, gemm, 0, &product.operands).unwrap();
        // SAFETY: all is live until both streams are drained; that they share a workspace is the point.
        unsafe { rank.backend.gemm(gemm, 0, &product.operands, other) }.unwrap();
    }
    rank.drain();
    // SAFETY: the stream is live until here.
    unsafe {
        while rank.backend.stream_idle(other).unwrap() == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
        rank.backend.stream_destroy(other).unwrap();
    }
    release(&rank, gemm).unwrap();
    rank.close();
}

#[test]
#[ignore = "a role of the test above"]
fn first_use() {
    let rank = Rank::open();
    let shape = shape(4, 8, 8, ElementType::F16, MatrixOrder::ROWS, TIGHT);
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
        // SAFETY: all is live until the stream is drained.
        unsafe {
            rank.backend
                .signal_wait(&wait, SignalPlacement::DEVICE, stream)
        }
        .unwrap();
    };
    wait(other);
    // The first is reported; the second is the same kernel.
    multiply(&rank, gemm, 0, &product.operands).unwrap();
    multiply(&rank, gemm, 0, &product.operands).unwrap();
    // SAFETY: both words are live until the stream is drained.
    unsafe { rank.backend.gathered_arrive(zero, one, rank.stream) }.unwrap();
    rank.drain();
    // SAFETY: the stream is live, and so are the others until here.
    unsafe {
        while rank.backend.stream_idle(other).unwrap() == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
        rank.backend.stream_destroy(other).unwrap();
        rank.backend.host_free(control).unwrap();
    }
    product.check(&rank);
    release(&rank, gemm).unwrap();
    rank.close();
}

#[rstest]
fn rows_are_copied_between_strides_and_replayed(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    clean(role(vendor, "rows", vendor.libraries(), &[]));
    let call = match vendor {
        Vendor::Cuda => "cuMemcpy2DAsync_v2",
        Vendor::Hip => "hipMemcpy2DAsync",
    };
    let environment = [("FAKE_DEVICE_FAIL", call), ("PRODUCTS_WORDS", call)];
    clean(role(
        vendor,
        "failing_rows",
        vendor.libraries(),
        &environment,
    ));
}

const ROWS: u64 = 5;
const WIDTH: u64 = 7;

/// `ROWS` of `WIDTH` elements, 9 apart, to where they are 12 apart.
fn some_rows(rank: &Rank) -> (RowsCopy, Vec<u16>) {
    let numbers: Vec<u16> = (0..9 * ROWS as u16).collect();
    let copy = RowsCopy {
        destination: rank.place(&vec![GUARD; 12 * ROWS as usize], 0),
        destination_stride: 12 * ELEMENT,
        source: rank.place(&numbers, 0),
        source_stride: 9 * ELEMENT,
        bytes: WIDTH * ELEMENT,
        rows: ROWS,
        direction: Direction::LOCAL,
        reserved: 0,
    };
    (copy, numbers)
}

fn check_rows(rank: &Rank, copy: &RowsCopy, numbers: &[u16]) {
    let seen = rank.read(copy.destination, 12 * ROWS as usize);
    for (place, seen) in seen.into_iter().enumerate() {
        let (row, column) = (place / 12, place % 12);
        let expected = match column < WIDTH as usize {
            true => numbers[row * 9 + column],
            false => GUARD,
        };
        assert_eq!(seen, expected, "row {row}, column {column}");
    }
}

#[test]
#[ignore = "a role of the test above"]
fn rows() {
    let rank = Rank::open();
    let (copy, mut numbers) = some_rows(&rank);
    let enqueue = |copy: &RowsCopy| {
        // SAFETY: both are live until the stream is drained.
        unsafe { rank.backend.transfer_rows(copy, rank.stream) }
    };
    for none in [RowsCopy { rows: 0, ..copy }, RowsCopy { bytes: 0, ..copy }] {
        enqueue(&none).unwrap();
        let seen = rank.read(copy.destination, 12);
        assert_eq!(seen, [GUARD; 12], "nothing to copy");
    }
    enqueue(&copy).unwrap();
    check_rows(&rank, &copy, &numbers);
    rank.replay(
        2,
        || enqueue(&copy).unwrap(),
        |time| {
            numbers
                .iter_mut()
                .for_each(|number| *number += 100 * time as u16);
            rank.write(copy.source, &numbers);
        },
    );
    check_rows(&rank, &copy, &numbers);
    rank.close();
}

#[test]
#[ignore = "a role of the test above"]
fn failing_rows() {
    let rank = Rank::open();
    let (copy, numbers) = some_rows(&rank);
    // SAFETY: both are live until the stream is drained.
    let enqueue = || unsafe { rank.backend.transfer_rows(&copy, rank.stream) };
    let failure = enqueue().unwrap_err();
    assert_eq!(failure.call, std::env::var("PRODUCTS_WORDS").unwrap());
    enqueue().unwrap();
    check_rows(&rank, &copy, &numbers);
    rank.close();
}
