//! A GEMM on one rank: its matrices, its calls, and the check of their results.

use crate::checker::{Dense, GemmFloat, Real, check};
use std::cell::Cell;
use std::time::Duration;
use symmem::*;
use symmem::{MatrixOrder, Sharding};

/// Every algorithm and transport on the host backend, which has no NCCL.
pub const WAYS: [(GemmAlgorithm, GemmTransport); 6] = [
    (GemmAlgorithm::Baseline, GemmTransport::Automatic),
    (GemmAlgorithm::Pipeline, GemmTransport::Get),
    (GemmAlgorithm::Pipeline, GemmTransport::Put),
    (GemmAlgorithm::Pull, GemmTransport::Automatic),
    (GemmAlgorithm::Push, GemmTransport::Put),
    (GemmAlgorithm::Push, GemmTransport::Kernel),
];

pub fn options((algorithm, transport): (GemmAlgorithm, GemmTransport)) -> GemmOptions {
    GemmOptions {
        algorithm,
        transport,
        ..GemmOptions::default()
    }
}

/// One rank's part of a GEMM.
pub struct Case<'a, T: GemmFloat> {
    pub communicator: &'a Communicator,
    pub stream: Stream,
    pub shape: GemmShape,
    pub operation: AllGatherGemm<T>,
    a: SymmetricBuffer<T>,
    b: SymmetricBuffer<T>,
    c: SymmetricBuffer<T::Output>,
    bias: SymmetricBuffer<T::Output>,
    /// The factor of `A · B`, and its memory.
    scale: Option<(f32, SymmetricBuffer<f32>)>,
    gathered: Option<SymmetricBuffer<T>>,
    right: Dense<T>,
    added: Dense<T::Output>,
    calls: Cell<u64>,
}

impl<'a, T: GemmFloat> Case<'a, T> {
    pub fn new(communicator: &'a Communicator, shape: GemmShape, options: &GemmOptions) -> Self {
        let GemmShape { m, n, k, .. } = shape;
        // Operations of earlier cases, each with its own stream, are no longer in use.
        communicator
            .allow_concurrent_collectives(1)
            .expect("nothing is under way");
        let operation = communicator
            .all_gather_gemm::<T>(&shape, options)
            .expect("made on every rank");
        let buffer = |length| communicator.allocate::<T>(&[length]).expect("memory");
        let output = |length| {
            communicator
                .allocate::<T::Output>(&[length])
                .expect("memory")
        };
        let (b_lines, b_width) = match shape.b_order {
            MatrixOrder::Columns => (n, k),
            _ => (k, n),
        };
        let b_stride = shape.b_stride.unwrap_or(b_width);
        let case = Self {
            communicator,
            stream: communicator.stream().expect("a stream"),
            shape,
            operation,
            a: buffer(shape.shard_elements(communicator.world_size())),
            b: buffer(b_lines * b_stride),
            c: output(m * shape.c_stride.unwrap_or(n)),
            bias: output(n),
            scale: None,
            gathered: options.gathered.then(|| buffer(shape.gathered_elements())),
            right: Dense::random(k, n, 2),
            added: Dense::random(1, n, 3),
            calls: Cell::new(0),
        };
        let mut laid = vec![T::NAN; b_lines * b_stride];
        for row in 0..k {
            for column in 0..n {
                let at = match shape.b_order {
                    MatrixOrder::Columns => column * b_stride + row,
                    _ => row * b_stride + column,
                };
                laid[at] = case.right.at(row, column);
            }
        }
        case.b.write(&case.stream, 0, &laid).expect("written");
        case.bias
            .write(&case.stream, 0, &case.added.elements)
            .expect("written");
        case
    }

    /// Passes a scale in each call. Collective.
    pub fn scaled(mut self, scale: f32) -> Self {
        let buffer = self.communicator.allocate(&[1]).expect("memory");
        buffer.write(&self.stream, 0, &[scale]).expect("written");
        self.scale = Some((scale, buffer));
        self
    }

    pub fn left(&self, round: u64) -> Dense<T> {
        Dense::random(self.shape.m, self.shape.k, 100 + round)
    }

    /// Writes this rank's shard of a round's `A`, and fills C with values that no result can have.
    pub fn prepare(&self, round: u64) {
        let (rank, world) = (self.communicator.rank(), self.communicator.world_size());
        let left = self.left(round);
        let whole = match self.shape.sharding {
            Sharding::Columns => left.columns,
            _ => left.rows,
        };
        let shard = whole.div_ceil(world);
        let part = (rank * shard).min(whole)..((rank + 1) * shard).min(whole);
        let (rows, columns) = match self.shape.sharding {
            Sharding::Columns => (0..left.rows, part),
            _ => (part, 0..left.columns),
        };
        let mut own: Vec<T> = rows
            .flat_map(|row| columns.clone().map(move |column| (row, column)))
            .map(|(row, column)| left.at(row, column))
            .collect();
        own.resize(self.a.len(), T::NAN);
        self.a.write(&self.stream, 0, &own).expect("written");
        self.poison();
    }

    pub fn poison(&self) {
        let poison = vec![T::Output::NAN; self.c.len()];
        self.c.write(&self.stream, 0, &poison).expect("written");
        if let Some(gathered) = &self.gathered {
            let poison = vec![T::NAN; gathered.len()];
            gathered.write(&self.stream, 0, &poison).expect("written");
        }
    }

    pub fn operands(&self) -> Operands<'_, T> {
        let GemmShape { m, n, k, .. } = self.shape;
        let b_stride = self.shape.b_stride.unwrap_or(match self.shape.b_order {
            MatrixOrder::Columns => k,
            _ => n,
        });
        let c_stride = self.shape.c_stride.unwrap_or(n);
        let b = Matrix::strided(self.b.all(), k, n, b_stride, self.shape.b_order);
        let c = Matrix::strided(self.c.all(), m, n, c_stride, MatrixOrder::Rows);
        let bias = Matrix::of(self.bias.all(), 1, n).expect("as long");
        let scale = self.scale.as_ref();
        let scale = scale.map(|(_, buffer)| Matrix::of(buffer, 1, 1).expect("one element"));
        Operands {
            a: self.a.all(),
            b: b.expect("B"),
            c: c.expect("C"),
            bias: self.shape.bias.then_some(bias),
            scale,
            gathered: self.gathered.as_ref().map(SymmetricBuffer::all),
        }
    }

    pub fn enqueue(&self) -> Result<()> {
        self.enqueue_on(&self.stream)
    }

    pub fn enqueue_on(&self, queue: &Queue) -> Result<()> {
        queue.all_gather_gemm(&self.operation, &self.operands())
    }

    /// Captures a call as a graph, on its own stream.
    pub fn capture(&self) -> Result<Graph> {
        let mut stream = self.communicator.stream()?;
        stream.capture(|queue| self.enqueue_on(queue))
    }

    pub fn result(&self) -> Vec<T::Output> {
        let mut c = vec![T::Output::NAN; self.c.len()];
        self.c.read(&self.stream, 0, &mut c).expect("read");
        c
    }

    /// Checks the result of a round's call.
    pub fn check(&self, round: u64) -> std::result::Result<(), String> {
        let left = self.left(round);
        let c = self.result();
        let stride = self.shape.c_stride.unwrap_or(self.shape.n);
        for row in c.chunks(stride) {
            let between = row.get(self.shape.n..).unwrap_or_default();
            if !between.iter().all(|element| element.to_f64().is_nan()) {
                return Err("something was written between the rows of C".into());
            }
        }
        let bias = self.shape.bias.then_some(&self.added);
        let scale = self.scale.as_ref().map_or(1.0, |(scale, _)| *scale);
        check((&left, &self.right), scale, bias, &c, stride)?;
        if let Some(gathered) = &self.gathered {
            let mut whole = vec![T::NAN; gathered.len()];
            gathered.read(&self.stream, 0, &mut whole).expect("read");
            let alike = whole.iter().zip(&left.elements);
            if !alike
                .clone()
                .all(|(made, left)| made.to_f64() == left.to_f64())
            {
                return Err("the gathered A is not A".into());
            }
        }
        Ok(())
    }

    /// Returns the bits of the result of a round's call.
    pub fn bits(&self, round: u64) -> Vec<u64> {
        self.prepare(round);
        // Ranks arrive in another order each time.
        let rank = self.communicator.rank() as u64;
        let world = self.communicator.world_size() as u64;
        std::thread::sleep(Duration::from_millis(
            2 * ((rank + self.calls.get()) % world),
        ));
        self.calls.set(self.calls.get() + 1);
        self.enqueue().expect("enqueued");
        self.stream.synchronize().expect("done");
        // Includes the gaps between rows. The conversion to f64 is exact, so equal bits mean equal elements.
        self.result()
            .iter()
            .map(|element| element.to_f64().to_bits())
            .collect()
    }

    /// Makes calls, each with another `A`, and checks them.
    pub fn run(&self, rounds: u64) {
        for round in 0..rounds {
            self.prepare(round);
            self.enqueue().expect("enqueued");
            self.stream.synchronize().expect("done");
            if let Err(why) = self.check(round) {
                let steps = self.operation.explain();
                panic!(
                    "rank {}, round {round}: {why}\n{steps}",
                    self.communicator.rank()
                );
            }
        }
    }
}
