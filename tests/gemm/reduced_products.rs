//! What calls of GEMM + reduce-scatter and GEMM + all-reduce allocate, and what their operations give back.

use crate::counting::ALLOCATIONS;
use crate::world::world;
use half::bf16;
use std::time::Duration;
use symmem::{
    Communicator, GemmReduce, GemmReduceAlgorithm, GemmReduceOperands, GemmReduceOptions,
    GemmReduceShape, GemmTransport, Leaks, Matrix, Reduction, Result, Stream, SymmetricBuffer,
};

const RANKS: u32 = 3;
const SHAPE: GemmReduceShape = GemmReduceShape::new(12, 5, 7);

/// One rank's part of the calls of an operation.
struct Case {
    operation: GemmReduce<bf16>,
    stream: Stream,
    a: SymmetricBuffer<bf16>,
    b: SymmetricBuffer<bf16>,
    c: SymmetricBuffer<bf16>,
}

impl Case {
    fn new(communicator: &Communicator, reduction: Reduction, options: &GemmReduceOptions) -> Self {
        let operation = match reduction {
            Reduction::Scatter => communicator.gemm_reduce_scatter(&SHAPE, options),
            _ => communicator.gemm_all_reduce(&SHAPE, options),
        };
        let rows = match reduction {
            Reduction::Scatter => SHAPE.m / RANKS as usize,
            _ => SHAPE.m,
        };
        let buffer = |lines: usize, width: usize| {
            let buffer = communicator.allocate::<bf16>(&[lines, width]);
            buffer.expect("allocated")
        };
        let case = Self {
            operation: operation.expect("made"),
            stream: communicator.stream().expect("a stream"),
            a: buffer(SHAPE.m, SHAPE.k),
            b: buffer(SHAPE.k, SHAPE.n),
            c: buffer(rows, SHAPE.n),
        };
        for matrix in [&case.a, &case.b] {
            let ones = vec![bf16::ONE; matrix.len()];
            matrix.write(&case.stream, 0, &ones).expect("written");
        }
        case
    }

    fn operands(&self) -> Result<GemmReduceOperands<'_, bf16>> {
        let rows = self.c.len() / SHAPE.n;
        Ok(GemmReduceOperands {
            a: Matrix::of(&self.a, SHAPE.m, SHAPE.k)?,
            b: Matrix::of(&self.b, SHAPE.k, SHAPE.n)?,
            c: Matrix::of(&self.c, rows, SHAPE.n)?,
            bias: None,
        })
    }

    fn check(&self) {
        let mut c = vec![bf16::NAN; self.c.len()];
        self.c.read(&self.stream, 0, &mut c).expect("read");
        let right = bf16::from_f64(SHAPE.k as f64 * f64::from(RANKS));
        assert!(c.iter().all(|&made| made == right), "{c:?}");
    }
}

/// Calls `each` with a case of each reduction, algorithm and transport.
fn each_way(communicator: &Communicator, each: impl Fn(&Case, &str)) {
    use {GemmReduceAlgorithm as A, GemmTransport as T};
    for reduction in [Reduction::Scatter, Reduction::All] {
        for (algorithm, transport) in [
            (A::Baseline, T::Automatic),
            (A::Pipeline, T::Put),
            (A::Pipeline, T::Kernel),
            (A::Push, T::Automatic),
            (A::Packets, T::Automatic),
        ] {
            let options = GemmReduceOptions {
                algorithm,
                transport,
                streams: 2,
                chunks: Some(2),
                symmetric_result: transport == T::Put || algorithm == A::Push,
                ..GemmReduceOptions::default()
            };
            let case = Case::new(communicator, reduction, &options);
            each(&case, &format!("{reduction:?} {algorithm:?} {transport:?}"));
        }
    }
}

#[test]
fn calls_of_reduced_products_allocate_nothing() {
    world(RANKS, |communicator| {
        each_way(&communicator, |case, name| {
            let operands = case.operands().expect("matrices");
            let call = || {
                case.stream
                    .gemm_reduce(&case.operation, &operands)
                    .and_then(|()| case.stream.synchronize())
                    .expect("done");
            };
            // A wait that blocks starts a host stream's thread and creates its queue, so each rank in turn arrives
            // late.
            for round in 0..12 {
                communicator.host_barrier().expect("all are here");
                if round % 3 == communicator.rank() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                call();
            }
            let before = ALLOCATIONS.get();
            for _ in 0..50 {
                call();
            }
            let allocated = ALLOCATIONS.get() - before;
            assert_eq!(allocated, 0, "{name}: allocations in 50 calls");
            case.check();
        });
    });
}

#[test]
fn what_a_reduced_product_kept_is_given_back() {
    let leaks = world(RANKS, |communicator| {
        each_way(&communicator, |case, _| {
            let operands = case.operands().expect("matrices");
            let mut stream = communicator.stream().expect("a stream");
            let graph = stream.capture(|queue| queue.gemm_reduce(&case.operation, &operands));
            let graph = graph.expect("captured");
            case.stream.launch_graph(&graph).expect("launched");
            case.stream.synchronize().expect("done");
            case.check();
            // All ranks must be done with the graph before one of them drops it.
            communicator.host_barrier().expect("all are done");
        });
        communicator.finalize().expect("finalized")
    });
    assert!(leaks.iter().all(Leaks::is_empty), "{leaks:?}");
}
