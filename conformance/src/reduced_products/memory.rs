//! A rank's memory of a case, and the operation.

use super::case::GemmReduceCase;
use super::seen::Seen;
use super::values::Values;
use crate::gemm_float::GemmFloat;
use crate::region::Region;
use std::time::Duration;
use symmem::{
    Communicator, GemmReduce, GemmReduceOperands, GemmReduceOptions, GemmReduceShape, Matrix,
    MatrixOrder, Reduction, Result, Stream,
};

/// The operation, and its matrices between guards.
pub struct Memory<T: GemmFloat> {
    pub operation: GemmReduce<T>,
    pub a: Region<T>,
    pub b: Region<T>,
    pub c: Region<T>,
    pub bias: Region<T>,
}

/// Makes an operation. Collective.
pub fn operation<T: GemmFloat>(
    communicator: &Communicator,
    reduction: Reduction,
    shape: &GemmReduceShape,
    options: &GemmReduceOptions,
) -> Result<GemmReduce<T>> {
    match reduction {
        Reduction::Scatter => communicator.gemm_reduce_scatter(shape, options),
        _ => communicator.gemm_all_reduce(shape, options),
    }
}

impl<T: GemmFloat> Memory<T> {
    /// Makes the operation and allocates the matrices. Collective.
    pub fn new(
        communicator: &Communicator,
        case: &GemmReduceCase,
        deadline: Duration,
    ) -> Result<Self> {
        let (rank, world) = (communicator.rank(), communicator.world_size());
        let (shape, options) = (case.shape(world), case.options(deadline));
        let matrix =
            |lines: usize, width: usize| Region::new(communicator, 0, lines * width, T::POISON);
        let (b_lines, b_width) = case.b_lines();
        Ok(Self {
            // Made first, since it fails if the device has no GEMM library.
            operation: operation(communicator, case.reduction.named(), &shape, &options)?,
            a: matrix(case.m(world), case.k + case.a_gap)?,
            b: matrix(b_lines, b_width + case.b_gap)?,
            c: matrix(case.rows_of(rank, world).1, case.n)?,
            bias: matrix(1, case.n)?,
        })
    }

    pub fn operands(&self, case: &GemmReduceCase) -> Result<GemmReduceOperands<'_, T>> {
        let (shape, by_rows) = (self.operation.shape(), MatrixOrder::Rows);
        let (m, n, k) = (shape.m, shape.n, shape.k);
        let (a_stride, b_stride) = (case.k + case.a_gap, case.b_lines().1 + case.b_gap);
        let c = self.c.slice()?;
        let rows = c.len() / n;
        let c = match case.symmetric {
            true => Matrix::of(c, rows, n)?,
            // SAFETY: the memory lives until `free`, before which all calls are done and graphs dropped.
            false => unsafe { Matrix::from_raw(self.c.address(), rows, n, n, by_rows) },
        };
        let bias = Matrix::of(self.bias.slice()?, 1, n)?;
        Ok(GemmReduceOperands {
            a: Matrix::strided(self.a.slice()?, m, k, a_stride, by_rows)?,
            b: Matrix::strided(self.b.slice()?, k, n, b_stride, shape.b_order)?,
            c,
            bias: case.bias.then_some(bias),
        })
    }

    /// Writes what a call of rank `rank` reads, and poison to what it writes. Blocks.
    pub fn write(
        &self,
        stream: &Stream,
        case: &GemmReduceCase,
        values: &Values<T>,
        rank: usize,
    ) -> Result<()> {
        self.a.write(stream, &values.stored_a(case, rank))?;
        self.b.write(stream, &values.stored_b(case, rank))?;
        self.bias.write(stream, &values.bias)?;
        self.c.poison(stream)
    }

    /// Reads what a call has left. Blocks.
    pub fn read(
        &self,
        stream: &Stream,
        case: &GemmReduceCase,
        values: &Values<T>,
        rank: usize,
    ) -> Result<Seen<T>> {
        Ok(Seen {
            c: self.c.read(stream)?,
            inputs: vec![
                ("A", self.a.read(stream)?, values.stored_a(case, rank)),
                ("B", self.b.read(stream)?, values.stored_b(case, rank)),
                ("bias", self.bias.read(stream)?, values.bias.clone()),
            ],
        })
    }

    /// Frees the operation and the matrices. Collective.
    pub fn free(self) -> Result<()> {
        drop(self.operation);
        [self.a, self.b, self.c, self.bias]
            .into_iter()
            .try_for_each(Region::free)
    }
}
