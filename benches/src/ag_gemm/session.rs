//! One rank's matrices of one shape.

use super::reference::part;
use crate::Result;
use crate::gemm::data::{Content, Table};
use crate::gemm::element::{MatrixFloat, Real};
use crate::gemm::library::{Library, layout};
use crate::gemm::samples::{GUARD, POISON, Samples};
use crate::poison::poison;
use crate::report::ag_gemm::{GemmProblem, MatrixOrder, Sharding};
use symmem::backend::abi::{DeviceAddress, GemmLayout};
use symmem::{CollectiveOptions, Communicator, Matrix, Operands, Queue, Stream, SymmetricBuffer};
use zerocopy::IntoBytes;

/// The whole GEMM in the backend's form.
pub(super) fn raw_shape<T: MatrixFloat>(problem: &GemmProblem) -> GemmLayout {
    let GemmProblem { m, n, k, .. } = *problem;
    layout::<T>([m, n, k], problem.b_order, problem.bias)
}

pub(super) struct Session<'a, T: MatrixFloat> {
    pub(super) communicator: &'a Communicator,
    pub(super) problem: GemmProblem,
    /// This rank's shard of A.
    pub(super) a: SymmetricBuffer<T>,
    /// The gathered A: destination of the gather alone, and input of the GEMM alone.
    pub(super) whole: SymmetricBuffer<T>,
    b: SymmetricBuffer<T>,
    c: SymmetricBuffer<T::Output>,
    bias: Option<SymmetricBuffer<T::Output>>,
}

impl<'a, T: MatrixFloat> Session<'a, T> {
    /// Allocates the matrices, and fills B and the bias. Collective.
    pub(super) fn new(
        communicator: &'a Communicator,
        problem: GemmProblem,
        table: &Table<T>,
        stream: &Stream,
    ) -> Result<Self> {
        let GemmProblem { m, n, k, .. } = problem;
        let (rank, world) = (communicator.rank(), communicator.world_size());
        let shard = problem.gemm_shape().shard_elements(world);
        let session = Self {
            a: communicator.allocate(&[shard])?,
            whole: communicator.allocate(&[(shard * world).max(m * k)])?,
            b: communicator.allocate(&[k * n])?,
            c: communicator.allocate(&[m * n + GUARD])?,
            bias: match problem.bias {
                true => Some(communicator.allocate(&[n])?),
                false => None,
            },
            problem,
            communicator,
        };
        let (lines, width) = match problem.b_order {
            MatrixOrder::Rows => (k, n),
            MatrixOrder::Columns => (n, k),
        };
        table.fill(Content::b(rank), 0..lines, 0..width, &session.b, stream)?;
        if let Some(bias) = &session.bias {
            let mut values = vec![0.0; n];
            table.values(Content::bias(rank), 0, 0, &mut values);
            // Exact: every element of A's type is one of C's.
            let elements: Vec<_> = values.into_iter().map(T::Output::from_f32).collect();
            bias.write(stream, 0, &elements)?;
        }
        Ok(session)
    }

    /// Fills this rank's shard of A for a pass. No peer may read it meanwhile. Blocks.
    pub(super) fn fill(&self, table: &Table<T>, pass: u64, stream: &Stream) -> Result<()> {
        let GemmProblem { m, k, sharding, .. } = self.problem;
        let (rank, world) = (self.communicator.rank(), self.communicator.world_size());
        let (rows, columns) = match sharding {
            Sharding::Rows => (part(m, rank, world), 0..k),
            Sharding::Columns => (0..m, part(k, rank, world)),
        };
        table.fill(Content::a(pass), rows, columns, &self.a, stream)
    }

    /// Fills the gathered A for a pass. Blocks.
    pub(super) fn fill_whole(&self, table: &Table<T>, pass: u64, stream: &Stream) -> Result<()> {
        let GemmProblem { m, k, .. } = self.problem;
        table.fill(Content::a(pass), 0..m, 0..k, &self.whole, stream)
    }

    pub(super) fn operands(&self) -> Result<Operands<'_, T>> {
        let GemmProblem { m, n, k, .. } = self.problem;
        let stride = match self.problem.b_order {
            MatrixOrder::Rows => n,
            MatrixOrder::Columns => k,
        };
        let bias = self.bias.as_ref();
        Ok(Operands {
            a: self.a.all(),
            b: Matrix::strided(self.b.all(), k, n, stride, self.problem.b_order)?,
            c: Matrix::of(self.c.all(), m, n)?,
            bias: bias.map(|bias| Matrix::of(bias.all(), 1, n)).transpose()?,
            scale: None,
            gathered: None,
        })
    }

    /// Enqueues the gather alone.
    pub(super) fn gather(&self, on: &Queue, options: &CollectiveOptions<'_>) -> Result<()> {
        let shard = self.a.len();
        let to = self.whole.slice(..shard * self.communicator.world_size())?;
        Ok(on.with(options).all_gather(to, &self.a)?)
    }

    /// Enqueues the library's GEMM of the gathered A.
    pub(super) fn multiply(&self, on: &Queue, library: &Library<'_>) -> Result<()> {
        let (matrices, bias) = self.addresses();
        // SAFETY: the buffers have the sizes of the shape that the library was prepared for, and live until the streams
        // that use them are idle and the graphs gone.
        unsafe { library.enqueue(matrices, bias, on) }
    }

    /// Returns the addresses of the gathered A, of B and C, and of the bias.
    pub(super) fn addresses(&self) -> ([DeviceAddress; 3], Option<DeviceAddress>) {
        let [whole, b] = [&self.whole, &self.b].map(|buffer| buffer.local().address());
        let matrices = [whole, b, self.c.local().address()];
        let bias = self.bias.as_ref().map(|bias| bias.local().address());
        (matrices, bias)
    }

    /// Overwrites the gathered A with poison. No peer may write it meanwhile. Blocks.
    pub(super) fn poison_whole(&self, stream: &Stream) -> Result<()> {
        self.poison(&self.whole, stream)
    }

    /// Overwrites this rank's copy of a buffer with poison. No peer may write it meanwhile. Blocks.
    fn poison<U: Real>(&self, buffer: &SymmetricBuffer<U>, stream: &Stream) -> Result<()> {
        poison(self.communicator, buffer, buffer.len(), POISON, stream)
    }

    /// Poisons C, then runs `work`, which enqueues one call. Collective; blocks.
    pub(super) fn run(&self, stream: &Stream, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.poison(&self.c, stream)?;
        self.communicator.host_barrier()?;
        work()?;
        stream.barrier()?;
        stream.synchronize()?;
        Ok(())
    }

    /// Returns the number of wrong elements of C on this rank, plus changed guard bytes, and the number of compared
    /// elements. Blocks.
    pub(super) fn wrong(&self, reference: &Samples, stream: &Stream) -> Result<(u64, u64)> {
        let GemmProblem { m, n, .. } = self.problem;
        let (mut wrong, mut compared) = (0, 0);
        let mut row = vec![T::Output::ZERO; n];
        for (index, &line) in reference.rows.iter().enumerate() {
            self.c.read(stream, line * n, &mut row)?;
            let (off, of) = reference.wrong(index, &row);
            wrong += off;
            compared += of;
        }
        let mut guard = vec![T::Output::ZERO; GUARD];
        self.c.read(stream, m * n, &mut guard)?;
        let touched = guard
            .as_bytes()
            .iter()
            .filter(|byte| **byte != POISON)
            .count();
        Ok((wrong + touched as u64, compared))
    }

    /// Frees the buffers. No graph may use them any more. Collective.
    pub(super) fn finish(self) -> Result<()> {
        self.a.free()?;
        self.whole.free()?;
        self.b.free()?;
        self.c.free()?;
        if let Some(bias) = self.bias {
            bias.free()?;
        }
        Ok(())
    }
}
