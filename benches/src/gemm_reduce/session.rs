//! One rank's matrices of one shape.

use super::reference::reference;
use crate::gemm::data::{Content, Table, mix};
use crate::gemm::element::MatrixFloat;
use crate::gemm::library::{Library, layout};
use crate::gemm::samples::{GUARD, POISON, Samples};
use crate::poison::poison;
use crate::report::ag_gemm::MatrixOrder;
use crate::report::gemm_reduce::{GemmCollective, GemmReduceProblem};
use crate::{Result, exchange};
use symmem::backend::abi::GemmLayout;
use symmem::{
    CollectiveOptions, Communicator, GemmReduceOperands, Matrix, Queue, ReduceOp, Stream,
    SymmetricBuffer,
};
use zerocopy::IntoBytes;

pub(super) struct Session<'a, T: MatrixFloat> {
    pub(super) communicator: &'a Communicator,
    pub(super) problem: GemmReduceProblem,
    pub(super) collective: GemmCollective,
    a: SymmetricBuffer<T>,
    b: SymmetricBuffer<T>,
    /// This rank's part of the sum: result of the GEMM alone, and source of the collective alone.
    pub(super) part: SymmetricBuffer<T>,
    pub(super) c: SymmetricBuffer<T>,
    bias: Option<SymmetricBuffer<T>>,
}

impl<'a, T: MatrixFloat> Session<'a, T> {
    /// Allocates the matrices, and fills B and the bias. Collective.
    pub(super) fn new(
        communicator: &'a Communicator,
        (problem, collective): (GemmReduceProblem, GemmCollective),
        table: &Table<T>,
        stream: &Stream,
    ) -> Result<Self> {
        let GemmReduceProblem { m, n, k, .. } = problem;
        let rows = collective.rows(m, communicator.world_size());
        let session = Self {
            a: communicator.allocate(&[m * k])?,
            b: communicator.allocate(&[k * n])?,
            part: communicator.allocate(&[m * n])?,
            c: communicator.allocate(&[rows * n + GUARD])?,
            bias: match problem.bias {
                true => Some(communicator.allocate(&[n])?),
                false => None,
            },
            problem,
            collective,
            communicator,
        };
        let (lines, width) = match problem.b_order {
            MatrixOrder::Rows => (k, n),
            MatrixOrder::Columns => (n, k),
        };
        let b = Content::b(communicator.rank());
        table.fill(b, 0..lines, 0..width, &session.b, stream)?;
        if let Some(bias) = &session.bias {
            // All ranks have the same, which is added once.
            table.fill(Content::bias(0), 0..1, 0..n, bias, stream)?;
        }
        Ok(session)
    }

    /// Rows of this rank's C.
    pub(super) fn rows(&self) -> usize {
        let world = self.communicator.world_size();
        self.collective.rows(self.problem.m, world)
    }

    /// Fills this rank's A for a pass. Blocks.
    pub(super) fn fill(&self, table: &Table<T>, pass: u64, stream: &Stream) -> Result<()> {
        let GemmReduceProblem { m, k, .. } = self.problem;
        let content = Content::own_a(pass, self.communicator.rank());
        table.fill(content, 0..m, 0..k, &self.a, stream)
    }

    /// Returns the expected C of a pass. Blocks.
    pub(super) fn expected(&self, table: &Table<T>, pass: u64) -> Samples {
        let ranks = (self.communicator.rank(), self.communicator.world_size());
        reference(table, (&self.problem, self.collective), pass, ranks)
    }

    pub(super) fn operands(&self) -> Result<GemmReduceOperands<'_, T>> {
        let GemmReduceProblem {
            m, n, k, b_order, ..
        } = self.problem;
        let stride = match b_order {
            MatrixOrder::Rows => n,
            MatrixOrder::Columns => k,
        };
        let bias = self.bias.as_ref();
        Ok(GemmReduceOperands {
            a: Matrix::of(self.a.all(), m, k)?,
            b: Matrix::strided(self.b.all(), k, n, stride, b_order)?,
            c: Matrix::of(self.c.all(), self.rows(), n)?,
            bias: bias.map(|bias| Matrix::of(bias.all(), 1, n)).transpose()?,
        })
    }

    /// The GEMM of this rank's part in the backend's form. Rank 0 adds the bias.
    pub(super) fn layout(&self) -> GemmLayout {
        let GemmReduceProblem { m, n, k, .. } = self.problem;
        let bias = self.problem.bias && self.communicator.rank() == 0;
        layout::<T>([m, n, k], self.problem.b_order, bias)
    }

    /// Enqueues the library's GEMM of this rank's part.
    pub(super) fn multiply(&self, on: &Queue, library: &Library<'_>) -> Result<()> {
        let matrices = [&self.a, &self.b, &self.part].map(|buffer| buffer.local().address());
        let bias = self.bias.as_ref().map(|bias| bias.local().address());
        let bias = bias.filter(|_| self.communicator.rank() == 0);
        // SAFETY: the buffers have the sizes of the shape that the library was prepared for, and live until the streams
        // that use them are idle and the graphs gone.
        unsafe { library.enqueue(matrices, bias, on) }
    }

    /// Enqueues the collective of all ranks' parts.
    pub(super) fn add_up(&self, on: &Queue, options: &CollectiveOptions<'_>) -> Result<()> {
        let c = self.c.slice(..self.rows() * self.problem.n)?;
        let queue = on.with(options);
        match self.collective {
            GemmCollective::ReduceScatter => queue.reduce_scatter(c, &self.part, ReduceOp::Sum)?,
            GemmCollective::AllReduce => queue.all_reduce(c, &self.part, ReduceOp::Sum)?,
        }
        Ok(())
    }

    /// Poisons C and this rank's part, then runs `work`, which enqueues one call. Collective; blocks.
    pub(super) fn run(&self, stream: &Stream, work: impl FnOnce() -> Result<()>) -> Result<()> {
        for buffer in [&self.c, &self.part] {
            poison(self.communicator, buffer, buffer.len(), POISON, stream)?;
        }
        self.communicator.host_barrier()?;
        work()?;
        stream.barrier()?;
        stream.synchronize()?;
        Ok(())
    }

    /// Returns the number of wrong elements of C on this rank, plus changed guard bytes, and the number of compared
    /// elements. With `same_bits`, each sampled row whose bits differ from rank 0's is one more wrong element. Collective;
    /// blocks.
    pub(super) fn wrong(
        &self,
        samples: &Samples,
        same_bits: bool,
        stream: &Stream,
    ) -> Result<(u64, u64)> {
        let n = self.problem.n;
        let first = match self.collective {
            GemmCollective::ReduceScatter => self.communicator.rank() * self.rows(),
            GemmCollective::AllReduce => 0,
        };
        let (mut wrong, mut compared) = (0, 0);
        let mut row = vec![T::ZERO; n];
        let mut digests = Vec::with_capacity(samples.rows.len());
        for (index, &line) in samples.rows.iter().enumerate() {
            self.c.read(stream, (line - first) * n, &mut row)?;
            let (off, of) = samples.wrong(index, &row);
            wrong += off;
            compared += of;
            digests.push(digest(row.as_bytes()));
        }
        let mut guard = vec![T::ZERO; GUARD];
        self.c.read(stream, self.rows() * n, &mut guard)?;
        let touched = (guard.as_bytes().iter())
            .filter(|byte| **byte != POISON)
            .count();
        wrong += touched as u64;
        if same_bits {
            let all = exchange::all_gather(self.communicator, &digests)?;
            let rank_0 = all.first().into_iter().flatten();
            let differing = digests.iter().zip(rank_0).filter(|(a, b)| a != b);
            wrong += differing.count() as u64;
        }
        Ok((wrong, compared))
    }

    /// Frees the buffers. No graph may use them any more. Collective.
    pub(super) fn finish(self) -> Result<()> {
        self.a.free()?;
        self.b.free()?;
        self.part.free()?;
        self.c.free()?;
        if let Some(bias) = self.bias {
            bias.free()?;
        }
        Ok(())
    }
}

/// Returns a number that depends on every byte and its place.
fn digest(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    words.fold(0, |so_far, word| mix(so_far ^ word))
}
