//! GEMM + reduce-scatter and GEMM + all-reduce: on the host backend, and on both vendors' backends over the fake runtimes and
//! libraries. Ranks are threads, over a fake runtime those of a child process.

#[path = "gemm/multiply.rs"]
mod multiply;
#[allow(dead_code, reason = "this test uses the fakes only")]
mod support;

use half::{bf16, f16};
use multiply::multiply;
use rstest::rstest;
use std::time::{Duration, Instant};
use support::amount::sampled_out;
use support::vendors::{Vendor, ranks, role};
use symmem::bootstrap::LaunchEnvironment;
use symmem::{
    BackendSource, Communicator, Configuration, ErrorKind, GemmElement, GemmPartials, GemmReduce,
    GemmReduceAlgorithm, GemmReduceOperands, GemmReduceOptions, GemmReduceShape, GemmReduceStep,
    GemmTransport, Matrix, MatrixOrder, Queue, Reduction, RowNorm, Stream, SymmetricBuffer,
};
use zerocopy::IntoBytes;

/// Much longer than any of these tests takes.
const PATIENCE: Duration = Duration::from_secs(50);

/// A number of pseudo-random ones.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        self.0 >> 33
    }

    fn up_to(&mut self, end: usize) -> usize {
        self.next() as usize % end
    }
}

/// An element type, and the relative error of a rounding.
trait Number: GemmElement + std::fmt::Debug {
    const ROUNDING: f64;
    const POISON: Self;
    fn from_number(number: f64) -> Self;
    fn number(self) -> f64;
}

macro_rules! numbers {
    ($($type:ty, $rounding:expr;)*) => {$(
        impl Number for $type {
            const ROUNDING: f64 = $rounding;
            const POISON: Self = <$type>::NAN;
            fn from_number(number: f64) -> Self {
                <$type>::from_f64(number)
            }
            fn number(self) -> f64 {
                self.to_f64()
            }
        }
    )*};
}
numbers! {
    bf16, 1.0 / 256.0;
    f16, 1.0 / 2048.0;
}

/// A call. All is the same on all ranks but the matrices' values.
#[derive(Clone, Copy, Debug)]
struct Case {
    reduction: Reduction,
    algorithm: GemmReduceAlgorithm,
    transport: GemmTransport,
    partials: GemmPartials,
    streams: usize,
    chunks: Option<usize>,
    m: usize,
    n: usize,
    k: usize,
    gap: usize,
    b_order: MatrixOrder,
    bias: bool,
    symmetric: bool,
    captured: bool,
}

impl Case {
    fn any(random: &mut Random, world: usize, index: usize) -> Self {
        use {GemmPartials as P, GemmReduceAlgorithm as A, GemmTransport as T};
        const WAYS: [(A, T, P); 8] = [
            (A::Baseline, T::Automatic, P::Element),
            (A::Pipeline, T::Put, P::Element),
            (A::Pipeline, T::Kernel, P::Element),
            (A::Push, T::Automatic, P::Element),
            (A::Push, T::Automatic, P::F32),
            (A::Packets, T::Automatic, P::Element),
            (A::Packets, T::Automatic, P::F32),
            (A::Automatic, T::Automatic, P::Element),
        ];
        let (algorithm, transport, partials) = WAYS[index % WAYS.len()];
        let reduction = [Reduction::Scatter, Reduction::All][index / WAYS.len() % 2];
        let rows = [1, 3, 16, 33][random.up_to(4)];
        Self {
            reduction,
            algorithm,
            transport,
            partials,
            streams: 1 + random.up_to(3),
            chunks: [None, Some(1), Some(2), Some(5)][random.up_to(4)],
            m: match reduction {
                Reduction::Scatter => rows * world,
                _ => rows * world + random.up_to(world),
            },
            n: [1, 24, 65][random.up_to(3)],
            k: [1, 16, 130][random.up_to(3)],
            gap: [0, 0, 5][random.up_to(3)],
            b_order: [MatrixOrder::Rows, MatrixOrder::Columns][random.up_to(2)],
            bias: random.up_to(2) == 0,
            symmetric: random.up_to(2) == 0,
            captured: random.up_to(3) == 0,
        }
    }

    fn shape(&self) -> GemmReduceShape {
        let b_width = match self.b_order {
            MatrixOrder::Columns => self.k,
            MatrixOrder::Rows => self.n,
        };
        GemmReduceShape {
            a_stride: Some(self.k + self.gap),
            b_order: self.b_order,
            b_stride: Some(b_width + self.gap),
            bias: self.bias,
            ..GemmReduceShape::new(self.m, self.n, self.k)
        }
    }

    fn options(&self) -> GemmReduceOptions {
        GemmReduceOptions {
            algorithm: self.algorithm,
            transport: self.transport,
            partials: self.partials,
            streams: self.streams,
            chunks: self.chunks,
            symmetric_result: self.symmetric,
            ..GemmReduceOptions::default()
        }
    }

    fn make<T: GemmElement>(&self, communicator: &Communicator) -> symmem::Result<GemmReduce<T>> {
        match self.reduction {
            Reduction::Scatter => communicator.gemm_reduce_scatter(&self.shape(), &self.options()),
            _ => communicator.gemm_all_reduce(&self.shape(), &self.options()),
        }
    }

    /// Rows of a rank's `C`.
    fn rows(&self, world: usize) -> usize {
        match self.reduction {
            Reduction::Scatter => self.m / world,
            _ => self.m,
        }
    }
}

/// Returns numbers between -1 and 1, with an element of padding behind each line if there is a gap.
fn values<T: Number>(seed: u64, lines: usize, width: usize, gap: usize) -> Vec<T> {
    let mut random = Random(seed);
    let mut all = Vec::new();
    for _ in 0..lines {
        all.extend(
            (0..width).map(|_| T::from_number((random.next() % 2001) as f64 / 1000.0 - 1.0)),
        );
        all.extend((0..gap).map(|_| T::POISON));
    }
    all
}

/// The matrices of all ranks: each can make any rank's.
fn a_of<T: Number>(case: &Case, rank: usize, call: u64) -> Vec<T> {
    values(call * 1000 + rank as u64, case.m, case.k, case.gap)
}

fn b_of<T: Number>(case: &Case, rank: usize) -> Vec<T> {
    let (lines, width) = match case.b_order {
        MatrixOrder::Rows => (case.k, case.n),
        MatrixOrder::Columns => (case.n, case.k),
    };
    values(77 + rank as u64, lines, width, case.gap)
}

/// Returns the whole sum in f64, and for each element the sum of the magnitudes of what is rounded on the way: each rank's
/// part and the sums of the first parts.
fn expected<T: Number>(case: &Case, world: usize, call: u64, bias: &[T]) -> Vec<(f64, f64)> {
    let mut all: Vec<(f64, f64)> = (0..case.m)
        .flat_map(|_| (0..case.n).map(|column| bias.get(column).map_or(0.0, |it| it.number())))
        .map(|bias| (bias, bias.abs()))
        .collect();
    for rank in 0..world {
        let numbers = |elements: Vec<T>| -> Vec<f64> {
            elements
                .into_iter()
                .map(|element| element.number())
                .collect()
        };
        let (a, b) = (numbers(a_of(case, rank, call)), numbers(b_of(case, rank)));
        let shape = case.shape();
        let (a_stride, b_stride) = (shape.a_stride.unwrap(), shape.b_stride.unwrap());
        let b_steps = match case.b_order {
            MatrixOrder::Rows => [b_stride, 1],
            MatrixOrder::Columns => [1, b_stride],
        };
        let absolute = |elements: &[f64]| elements.iter().map(|element| element.abs()).collect();
        let sizes: [Vec<f64>; 2] = [absolute(&a), absolute(&b)];
        let product = |[a, b]: [&[f64]; 2]| {
            let steps = [[a_stride, 1], b_steps];
            multiply([case.m, case.k, case.n], 1.0, [a, b], steps)
        };
        let sums = product([&a, &b]).into_iter();
        let sizes = product([&sizes[0], &sizes[1]]);
        for (element, (sum, size)) in all.iter_mut().zip(sums.zip(sizes)) {
            element.0 += sum;
            element.1 += size;
        }
    }
    all
}

struct Memory<T: Number> {
    a: SymmetricBuffer<T>,
    b: SymmetricBuffer<T>,
    c: SymmetricBuffer<T>,
    bias: SymmetricBuffer<T>,
}

impl<T: Number> Memory<T> {
    fn new(communicator: &Communicator, case: &Case, stream: &Stream) -> Self {
        let (rank, world) = (communicator.rank(), communicator.world_size());
        let allocate = |length: usize| communicator.allocate::<T>(&[length]).unwrap();
        let b = b_of::<T>(case, rank);
        let bias = values::<T>(5, 1, case.n, 0);
        let memory = Self {
            a: allocate(a_of::<T>(case, rank, 0).len()),
            b: allocate(b.len()),
            c: allocate(case.rows(world) * case.n),
            bias: allocate(case.n),
        };
        memory.b.write(stream, 0, &b).unwrap();
        memory.bias.write(stream, 0, &bias).unwrap();
        memory
    }

    fn operands(&self, case: &Case, world: usize) -> GemmReduceOperands<'_, T> {
        let shape = case.shape();
        let rows = MatrixOrder::Rows;
        let (a_stride, b_stride) = (shape.a_stride.unwrap(), shape.b_stride.unwrap());
        GemmReduceOperands {
            a: Matrix::strided(&self.a, case.m, case.k, a_stride, rows).unwrap(),
            b: Matrix::strided(&self.b, case.k, case.n, b_stride, case.b_order).unwrap(),
            c: Matrix::of(&self.c, case.rows(world), case.n).unwrap(),
            bias: case
                .bias
                .then(|| Matrix::of(&self.bias, 1, case.n).unwrap()),
        }
    }
}

/// Runs a case: two calls with different matrices, compared with sums in f64, and the last again, which must give the same
/// bits. Returns false if this backend has not the kernel of the case.
fn check<T: Number>(communicator: &Communicator, case: &Case) -> bool {
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let stream = communicator.stream().unwrap();
    let operation = match case.make::<T>(communicator) {
        Err(error) if case.algorithm.is_fused() && error.kind() == ErrorKind::Unsupported => {
            return false;
        }
        made => made.unwrap(),
    };
    let memory = Memory::<T>::new(communicator, case, &stream);
    let operands = memory.operands(case, world);
    let enqueue = |queue: &Queue| queue.gemm_reduce(&operation, &operands);
    let graph = case.captured.then(|| {
        let mut stream = communicator.stream().unwrap();
        stream.capture(enqueue).unwrap()
    });
    let call = |number: u64| {
        memory
            .a
            .write(&stream, 0, &a_of::<T>(case, rank, number))
            .unwrap();
        memory
            .c
            .write(&stream, 0, &vec![T::POISON; memory.c.len()])
            .unwrap();
        match &graph {
            Some(graph) => stream.launch_graph(graph).unwrap(),
            None => enqueue(&stream).unwrap(),
        }
        stream.synchronize().unwrap();
        let mut c = vec![T::POISON; memory.c.len()];
        memory.c.read(&stream, 0, &mut c).unwrap();
        c
    };
    let bias = values::<T>(5, 1, case.n, 0);
    let first = match case.reduction {
        Reduction::Scatter => rank * case.rows(world),
        _ => 0,
    };
    let mut last = Vec::new();
    for number in 1..=2 {
        let all = expected(case, world, number, if case.bias { &bias } else { &[] });
        last = call(number);
        for (index, made) in last.iter().enumerate() {
            let (exact, size) = all[first * case.n + index];
            // Each rank's part, or the sum up to it, is rounded once, and none is larger than the sum of magnitudes. Only the
            // sum is, if parts are sent in f32. The steps of subnormal f16 are 2^-24.
            let rounded = |number: f64| number * T::ROUNDING + 2f64.powi(-24);
            let roundings = match case.partials {
                GemmPartials::F32 => rounded(exact.abs()),
                _ => world as f64 * rounded(size),
            };
            let bound = roundings + size * 1e-6;
            let off = (made.number() - exact).abs();
            assert!(
                off <= bound,
                "{case:?}: rank {rank}, call {number}, element {index}: {made:?} for {exact}\n{}",
                operation.explain()
            );
        }
    }
    let again = call(2);
    let bits = |all: &[T]| {
        all.iter()
            .map(|it| it.number().to_bits())
            .collect::<Vec<_>>()
    };
    assert_eq!(bits(&again), bits(&last), "{case:?}: the same call again");
    let all = communicator
        .host_all_gather(last.as_bytes())
        .expect("all ranks are done");
    if case.reduction == Reduction::All {
        assert!(all.iter().all(|one| *one == all[0]), "{case:?}: other bits");
    }
    drop(graph);
    true
}

/// Runs cases of all kinds. Returns how many were of a fused kernel that this backend has.
fn check_all(communicator: &Communicator, cases: usize) -> usize {
    let mut random = Random(3);
    let mut fused = 0;
    for index in 0..cases {
        let case = Case::any(&mut random, communicator.world_size(), index);
        let ran = match index % 3 {
            0 => check::<f16>(communicator, &case),
            _ => check::<bf16>(communicator, &case),
        };
        fused += usize::from(ran && case.algorithm.is_fused());
    }
    fused
}

/// Runs `rank` as each rank of a world on the host backend.
fn host(world: u32, debug: bool, rank: impl Fn(Communicator) + Sync) {
    let job = format!("gemm-reduce-{}-{:?}", std::process::id(), Instant::now());
    std::thread::scope(|scope| {
        for number in 0..world {
            let (job, rank) = (&job, &rank);
            scope.spawn(move || {
                let launch = LaunchEnvironment::local(number, world, job).unwrap();
                let mut configuration = Configuration::new(launch);
                configuration.deadline = PATIENCE;
                configuration.setup_deadline = PATIENCE;
                configuration.check_calls = debug;
                rank(Communicator::open(&BackendSource::Host, configuration).unwrap());
            });
        }
    });
}

#[rstest]
fn every_rank_gets_the_sum_of_all_products(#[values(1, 2, 3, 4)] world: u32) {
    host(world, false, |communicator| {
        let fused = check_all(&communicator, 64);
        assert!(fused >= 28, "{fused} of 32: but a few have too many rows");
    });
}

#[rstest]
fn so_it_does_by_both_vendors_backends(#[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor) {
    if sampled_out(2) {
        return;
    }
    let report = role(vendor, "every_way", vendor.libraries(), &[]);
    assert_eq!(report, [""; 0]);
}

#[test]
#[ignore = "run in a child process by the test above"]
fn every_way() {
    for world in [1, 2, 3, 4] {
        ranks(world, |communicator| {
            check_all(&communicator, 32);
        });
    }
}

/// The kernels of NVIDIA's devices, whose tensor copies need aligned rows, and both element types, orders of B and types of parts.
#[test]
fn the_fused_kernels_of_cuda_give_every_rank_the_sum() {
    let report = role(Vendor::Cuda, "every_kernel", Vendor::Cuda.libraries(), &[]);
    assert_eq!(report, [""; 0]);
}

#[test]
#[ignore = "run in a child process by the test above"]
fn every_kernel() {
    use {GemmPartials as P, GemmReduceAlgorithm as A, MatrixOrder as O, Reduction as R};
    for world in [2, 3, 4] {
        ranks(world, |communicator| {
            let world = world as usize;
            for (index, algorithm) in KERNELS.into_iter().enumerate() {
                for (number, (reduction, b_order, partials)) in [
                    (R::Scatter, O::Rows, P::Element),
                    (R::All, O::Columns, P::F32),
                    (R::All, O::Rows, P::Element),
                    (R::Scatter, O::Columns, P::F32),
                ]
                .into_iter()
                .enumerate()
                {
                    // Of an all-reduce, rows that no division fits; and fewer than ranks.
                    let m = match (algorithm, reduction) {
                        (_, R::Scatter) => 8 * world,
                        (A::Packets, _) => 1 + 16 * (number / 2),
                        (_, _) => 1 + 200 * (number / 2),
                    };
                    let case = Case {
                        m,
                        n: 264,
                        k: 72,
                        b_order,
                        partials,
                        bias: number % 2 == 0,
                        symmetric: number < 2,
                        captured: number == 1,
                        ..small(reduction, algorithm)
                    };
                    let ran = match (number + index) % 2 {
                        0 => check::<f16>(&communicator, &case),
                        _ => check::<bf16>(&communicator, &case),
                    };
                    assert!(ran, "{case:?}: no kernel");
                }
            }
        });
    }
}

/// Algorithms that are one kernel.
const KERNELS: [GemmReduceAlgorithm; 2] = [GemmReduceAlgorithm::Push, GemmReduceAlgorithm::Packets];

fn small(reduction: Reduction, algorithm: GemmReduceAlgorithm) -> Case {
    Case {
        reduction,
        algorithm,
        transport: GemmTransport::Automatic,
        partials: GemmPartials::Element,
        streams: 2,
        chunks: Some(2),
        m: 8,
        n: 8,
        k: 8,
        gap: 0,
        b_order: MatrixOrder::Rows,
        bias: false,
        symmetric: true,
        captured: false,
    }
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_enqueued() {
    host(2, false, |communicator| {
        let stream = communicator.stream().unwrap();
        let case = small(Reduction::Scatter, GemmReduceAlgorithm::Pipeline);
        let refused = |what: &str, case: Case| {
            let error = case.make::<bf16>(&communicator).expect_err(what);
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{what}: {error}");
        };
        refused("rows that cannot be divided", Case { m: 7, ..case });
        refused("no columns", Case { n: 0, ..case });
        refused("no streams", Case { streams: 0, ..case });
        let no_chunks = Case {
            chunks: Some(0),
            ..case
        };
        refused("no chunks", no_chunks);
        let nccl = Case {
            transport: GemmTransport::Nccl,
            ..case
        };
        refused("an unknown transport", nccl);
        let operation = case.make::<bf16>(&communicator).unwrap();
        let memory = Memory::<bf16>::new(&communicator, &case, &stream);
        let good = memory.operands(&case, 2);
        let refused = |what: &str, operands: GemmReduceOperands<'_, bf16>| {
            let error = stream.gemm_reduce(&operation, &operands).expect_err(what);
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{what}: {error}");
        };
        let short = Matrix::of(memory.a.slice(..56).unwrap(), 7, 8).unwrap();
        refused("a short A", GemmReduceOperands { a: short, ..good });
        let long = Matrix::of(&memory.a, 8, 8).unwrap();
        refused("a long C", GemmReduceOperands { c: long, ..good });
        let onto = Matrix::of(memory.a.slice(..32).unwrap(), 4, 8).unwrap();
        refused("a C in A", GemmReduceOperands { c: onto, ..good });
        let bias = Some(Matrix::of(&memory.bias, 1, 8).unwrap());
        refused("a bias", GemmReduceOperands { bias, ..good });
        // SAFETY: refused, so not used.
        let own =
            unsafe { Matrix::from_raw(symmem::DeviceAddress(64), 4, 8, 8, MatrixOrder::Rows) };
        refused("a C of its own", GemmReduceOperands { c: own, ..good });
        // The communicator lives.
        stream.gemm_reduce(&operation, &good).unwrap();
        stream.synchronize().unwrap();
    });
}

#[test]
fn a_kernel_that_the_ranks_have_not_is_refused_with_what_to_do_and_the_selector_does_without() {
    host(2, false, |communicator| {
        // The host backend has packets up to 128 rows.
        let case = Case {
            m: 256,
            ..small(Reduction::All, GemmReduceAlgorithm::Packets)
        };
        let error = case.make::<bf16>(&communicator).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let text = error.to_string();
        assert!(
            text.contains("Packets") && text.contains("use `Pipeline` or `Baseline`"),
            "{text}"
        );
        let automatic = |m, partials| {
            let case = Case {
                m,
                partials,
                chunks: None,
                ..small(Reduction::All, GemmReduceAlgorithm::Automatic)
            };
            case.make::<bf16>(&communicator).unwrap().algorithm()
        };
        let element = GemmPartials::Element;
        assert_eq!(automatic(256, element), GemmReduceAlgorithm::Push);
        assert_eq!(automatic(64, element), GemmReduceAlgorithm::Packets);
        assert_eq!(automatic(256, GemmPartials::F32), GemmReduceAlgorithm::Push);
    });
}

#[test]
fn parts_in_f32_are_not_rounded() {
    // Each rank's part is halfway between two numbers of the element type, and rounds to the even one below; their sum is not.
    for algorithm in [GemmReduceAlgorithm::Push, GemmReduceAlgorithm::Packets] {
        host(3, false, |communicator| {
            let half = bf16::from_f64(1.0 / 256.0);
            for (partials, exact) in [(GemmPartials::F32, true), (GemmPartials::Element, false)] {
                let case = Case {
                    partials,
                    m: 1,
                    n: 1,
                    k: 2,
                    ..small(Reduction::All, algorithm)
                };
                let stream = communicator.stream().unwrap();
                let operation = case.make::<bf16>(&communicator).unwrap();
                assert_eq!(operation.partials(), partials);
                let memory = Memory::<bf16>::new(&communicator, &case, &stream);
                memory.a.write(&stream, 0, &[bf16::ONE, half]).unwrap();
                memory.b.write(&stream, 0, &[bf16::ONE; 2]).unwrap();
                stream
                    .gemm_reduce(&operation, &memory.operands(&case, 3))
                    .unwrap();
                let mut c = [bf16::NAN];
                memory.c.read(&stream, 0, &mut c).unwrap();
                let right = bf16::from_f64(3.0 * (1.0 + 1.0 / 256.0));
                assert_eq!(c[0] == right, exact, "{algorithm:?} {partials:?}: {c:?}");
            }
        });
    }
}

#[test]
fn ranks_whose_operations_differ_are_told() {
    host(2, false, |communicator| {
        let mut case = small(Reduction::All, GemmReduceAlgorithm::Pipeline);
        case.n += communicator.rank();
        let error = case.make::<bf16>(&communicator).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch);
        assert!(error.to_string().contains("shape"), "{error}");
    });
}

#[test]
fn ranks_whose_calls_differ_are_told_in_debug_mode() {
    host(2, true, |communicator| {
        let stream = communicator.stream().unwrap();
        let case = small(Reduction::All, GemmReduceAlgorithm::Pipeline);
        let operation = case.make::<bf16>(&communicator).unwrap();
        let memory = Memory::<bf16>::new(&communicator, &case, &stream);
        let other = communicator.allocate::<bf16>(&[64]).unwrap();
        let mut operands = memory.operands(&case, 2);
        if communicator.rank() == 1 {
            operands.c = Matrix::of(&other, 8, 8).unwrap();
        }
        let error = stream.gemm_reduce(&operation, &operands).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch);
    });
}

/// The rank that does not come is named, with the call, within the deadline.
#[rstest]
fn a_rank_that_does_not_come_is_named(
    #[values(Reduction::Scatter, Reduction::All)] reduction: Reduction,
    #[values(
        GemmReduceAlgorithm::Baseline,
        GemmReduceAlgorithm::Pipeline,
        GemmReduceAlgorithm::Push,
        GemmReduceAlgorithm::Packets
    )]
    algorithm: GemmReduceAlgorithm,
) {
    host(2, false, |communicator| {
        let stream = communicator.stream().unwrap();
        let case = small(reduction, algorithm);
        let options = GemmReduceOptions {
            deadline: Some(Duration::from_millis(300)),
            ..case.options()
        };
        let operation = match reduction {
            Reduction::Scatter => communicator.gemm_reduce_scatter(&case.shape(), &options),
            _ => communicator.gemm_all_reduce(&case.shape(), &options),
        };
        let operation = operation.unwrap();
        let memory = Memory::<bf16>::new(&communicator, &case, &stream);
        if communicator.rank() == 0 {
            let operands = memory.operands(&case, 2);
            stream.gemm_reduce(&operation, &operands).unwrap();
            let error = stream.synchronize().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
            assert_eq!(error.peer(), Some(1), "{error}");
            let name = match (algorithm, reduction) {
                (GemmReduceAlgorithm::Baseline, Reduction::Scatter) => "reduce_scatter",
                (GemmReduceAlgorithm::Baseline, _) => "all_reduce",
                (_, Reduction::Scatter) => "gemm_reduce_scatter",
                (_, _) => "gemm_all_reduce",
            };
            assert!(error.to_string().starts_with(name), "{error}");
        } else {
            // Rank 0's error ends this rank's communicator, too.
            while communicator.check().is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
}

/// A product of whole numbers is exact, so the norm must have the bits that the all-reduce of the products with a norm has.
fn check_norm(communicator: &Communicator) {
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let stream = communicator.stream().unwrap();
    let whole = |seed: usize, count: usize| -> Vec<bf16> {
        (0..count)
            .map(|at| bf16::from_f32(((seed * 31 + at * 7 + at / 5) % 5) as f32 - 2.0))
            .collect()
    };
    for (m, n, k, captured) in [(1, 64, 8, false), (5, 24, 3, true), (7, 1024, 16, false)] {
        let allocate = |length: usize| communicator.allocate::<bf16>(&[length]).unwrap();
        let [a, b, c, expected] = [m * k, k * n, m * n, m * n].map(allocate);
        let [product, residual, sum, weight] = [m * n, m * n, m * n, n].map(allocate);
        let (a_numbers, b_numbers) = (whole(rank, m * k), whole(rank + 9, k * n));
        let of = |row: usize, column: usize| -> f32 {
            let terms = (0..k)
                .map(|at| a_numbers[row * k + at].to_f32() * b_numbers[at * n + column].to_f32());
            terms.sum()
        };
        let products = (0..m * n).map(|at| bf16::from_f32(of(at / n, at % n)));
        product
            .write(&stream, 0, &products.collect::<Vec<_>>())
            .unwrap();
        a.write(&stream, 0, &a_numbers).unwrap();
        b.write(&stream, 0, &b_numbers).unwrap();
        residual.write(&stream, 0, &whole(50, m * n)).unwrap();
        weight.write(&stream, 0, &whole(60, n)).unwrap();
        let shape = GemmReduceShape::new(m, n, k);
        let options = GemmReduceOptions::default();
        let operation = communicator
            .gemm_all_reduce_norm::<bf16>(&shape, &options)
            .unwrap();
        let norm = RowNorm::root_mean_square(&weight, 1e-5).residual(&residual, &sum);
        let operands = GemmReduceOperands {
            a: Matrix::of(&a, m, k).unwrap(),
            b: Matrix::of(&b, k, n).unwrap(),
            c: Matrix::of(&c, m, n).unwrap(),
            bias: None,
        };
        let call = |queue: &Queue| queue.gemm_reduce_norm(&operation, &operands, &norm);
        match captured {
            true => {
                let graph = communicator.stream().unwrap().capture(call).unwrap();
                stream.launch_graph(&graph).unwrap();
                stream.synchronize().unwrap();
            }
            false => call(&stream).unwrap(),
        }
        let bits = |buffer: &SymmetricBuffer<bf16>| {
            let mut numbers = vec![bf16::ZERO; buffer.len()];
            buffer.read(&stream, 0, &mut numbers).unwrap();
            numbers.iter().map(|it| it.to_bits()).collect::<Vec<_>>()
        };
        let (made, made_sum) = (bits(&c), bits(&sum));
        let norm = RowNorm::root_mean_square(&weight, 1e-5).residual(&residual, &sum);
        stream
            .all_reduce_norm(&expected, &product, n, &norm)
            .unwrap();
        assert_eq!(made, bits(&expected), "{m} x {n} x {k} between {world}");
        assert_eq!(made_sum, bits(&sum), "{m} x {n} x {k} between {world}");
        let refused = stream.gemm_reduce(&operation, &operands).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    }
    let options = GemmReduceOptions {
        algorithm: GemmReduceAlgorithm::Pipeline,
        ..GemmReduceOptions::default()
    };
    let shape = GemmReduceShape::new(8, 8, 8);
    let refused = communicator.gemm_all_reduce_norm::<bf16>(&shape, &options);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    let case = small(Reduction::All, GemmReduceAlgorithm::Baseline);
    let plain = case.make::<bf16>(communicator).unwrap();
    let memory = Memory::<bf16>::new(communicator, &case, &stream);
    let operands = memory.operands(&case, world);
    let refused = stream.gemm_reduce_norm(&plain, &operands, &RowNorm::none());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[rstest]
fn a_product_is_added_up_and_normalised(#[values(1, 2, 3)] world: u32) {
    host(world, false, |communicator| check_norm(&communicator));
}

#[rstest]
fn so_it_is_by_both_vendors_backends(#[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor) {
    if sampled_out(2) {
        return;
    }
    let report = role(vendor, "norms", vendor.libraries(), &[]);
    assert_eq!(report, [""; 0]);
}

#[test]
#[ignore = "run in a child process by the test above"]
fn norms() {
    for world in [1, 2, 3] {
        ranks(world, |communicator| check_norm(&communicator));
    }
}

#[test]
fn an_operation_says_what_it_does() {
    host(2, false, |communicator| {
        let case = small(Reduction::All, GemmReduceAlgorithm::Pipeline);
        let operation = case.make::<bf16>(&communicator).unwrap();
        let text = operation.explain();
        assert!(text.contains("gemm_all_reduce"), "{text}");
        assert!(text.contains("add what arrived"), "{text}");
        let sends = |step: &&GemmReduceStep| matches!(step, GemmReduceStep::PutBlock { .. });
        assert_eq!(operation.steps().iter().filter(sends).count(), 2);
        assert_eq!(operation.chunks(), 2);
        let case = small(Reduction::All, GemmReduceAlgorithm::Push);
        let text = case.make::<bf16>(&communicator).unwrap().explain();
        assert!(
            text.contains("Push: one kernel") && text.contains("parts in bf16"),
            "{text}"
        );
    });
}

#[test]
#[ignore = "run by hand on a machine with GPUs: VENDOR_BACKEND=cuda, GEMM_RANKS=2"]
fn on_this_machine() {
    let world = std::env::var("GEMM_RANKS").map_or(2, |ranks| ranks.parse().unwrap());
    ranks(world, |communicator| {
        check_all(&communicator, 48);
        check_norm(&communicator);
    });
}
