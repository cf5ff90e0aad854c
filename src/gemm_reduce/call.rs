//! A call, and the checks of its matrices.

use crate::base::error::{Error, Result};
use crate::base::names::MatrixOrder;
use crate::collectives::options::CollectiveOptions;
use crate::gemm::check::{Stride, check_matrix};
use crate::gemm::matrix::{GemmElement, Matrix};
use crate::gemm_reduce::operation::GemmReduce;
use crate::gemm_reduce::plan::Reduction;
use crate::rank::memory_range::MemoryRange;
use crate::rank::submit::Submit;
use crate::stream::queue::Queue;

/// The matrices of one call of a GEMM + reduce-scatter or GEMM + all-reduce.
///
/// ```no_run
/// # use symmem::*;
/// # type Buffer = SymmetricBuffer<half::f16>;
/// # fn f(a: &Buffer, b: &Buffer, c: &Buffer, world: usize) -> Result<()> {
/// let (m, n, k) = (1024, 4096, 2048);
/// let operands = GemmReduceOperands {
///     a: Matrix::of(a, m, k)?,
///     b: Matrix::of(b, k, n)?,
///     c: Matrix::of(c, m / world, n)?, // of a reduce-scatter; an all-reduce has m rows
///     bias: None,
/// };
/// # let _ = operands;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy)]
pub struct GemmReduceOperands<'a, T: GemmElement> {
    /// This rank's `A`, `m` x `k`.
    pub a: Matrix<'a, T>,
    /// This rank's `B`, `k` x `n`.
    pub b: Matrix<'a, T>,
    /// This rank's part of the sum, which the call writes: `m / world` x `n` of a reduce-scatter, `m` x `n` of an all-reduce,
    /// row-major without gaps. In a symmetric buffer, at the same place at all ranks, if
    /// [`crate::GemmReduceOptions::symmetric_result`] is set.
    pub c: Matrix<'a, T>,
    /// The bias, 1 x `n`, if the shape has one. All ranks pass the same values; it is added once.
    pub bias: Option<Matrix<'a, T>>,
}

/// A call of an operation.
pub(super) struct Call<'a, T: GemmElement> {
    pub(super) queue: &'a Queue,
    pub(super) operation: &'a GemmReduce<T>,
    pub(super) operands: &'a GemmReduceOperands<'a, T>,
    /// `C`: the symmetric range if the operation was made for one, else this rank's own memory.
    pub(super) c: MemoryRange<'a>,
}

impl<'a, T: GemmElement> Call<'a, T> {
    /// Bytes per element.
    pub(super) const ELEMENT: u64 = size_of::<T>() as u64;

    /// Checks the matrices of a call. In debug mode also compares the call with those of the other ranks; if
    /// this rank's matrices are refused, the others learn it that way.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], which names what differs from the operation's shape; in debug mode
    /// [`Error::Mismatch`] if ranks differ.
    pub(super) fn new(
        queue: &'a Queue,
        operation: &'a GemmReduce<T>,
        operands: &'a GemmReduceOperands<'a, T>,
    ) -> Result<Self> {
        let validated = Self::validate(queue, operation, operands);
        if operation.problem.world == 1 || !queue.world().collectives.check_calls {
            return validated;
        }
        let compared = compare(queue, operation, operands, validated.as_ref().err());
        // This rank's own error is more precise than the comparison's.
        let call = validated?;
        compared.map(|()| call)
    }

    fn validate(
        queue: &'a Queue,
        operation: &'a GemmReduce<T>,
        operands: &'a GemmReduceOperands<'a, T>,
    ) -> Result<Self> {
        let (shape, name) = (&operation.shape, operation.problem.reduction.name());
        let rows = match operation.problem.reduction {
            Reduction::Scatter => shape.m / operation.problem.world,
            Reduction::All | Reduction::Norm => shape.m,
        };
        let by_rows = MatrixOrder::Rows;
        for (what, matrix, expected) in [
            (
                "A",
                Some(&operands.a),
                Some((shape.m, shape.k, shape.a_stride.into(), by_rows)),
            ),
            (
                "B",
                Some(&operands.b),
                Some((shape.k, shape.n, shape.b_stride.into(), shape.b_order)),
            ),
            (
                "C",
                Some(&operands.c),
                Some((rows, shape.n, Stride::WithoutGaps, by_rows)),
            ),
            (
                "the bias",
                operands.bias.as_ref(),
                shape
                    .bias
                    .then_some((1, shape.n, Stride::OfOneLine, by_rows)),
            ),
        ] {
            check_matrix((queue, name), what, matrix, expected)?;
        }
        let memory = operands.c.memory();
        let memory = memory.part(0, (rows * shape.n) as u64 * Self::ELEMENT);
        let c = match operation.problem.in_place {
            true if memory.is_own() => {
                let message = "C is in this rank's own memory, but the operation was made for a symmetric buffer \
                               (`GemmReduceOptions::symmetric_result`)";
                return Err(queue.invalid(name, message));
            }
            true => memory,
            false => memory.only_at(operation.problem.rank),
        };
        check_overlap(queue, name, operands)?;
        check_alignment(queue, operation, operands, c)?;
        Ok(Self {
            queue,
            operation,
            operands,
            c,
        })
    }

    /// Makes the recorded graph, if there is one, hold the resources of the call.
    pub(super) fn hold(&self, submit: &Submit<'_>) {
        submit.hold(self.operation.workspace());
        let GemmReduceOperands { a, b, bias, .. } = self.operands;
        for matrix in [Some(a), Some(b), bias.as_ref()].into_iter().flatten() {
            matrix.address(submit);
        }
        submit.address(&self.c, submit.rank());
    }
}

/// Refuses a `C` that overlaps another matrix.
fn check_overlap<T: GemmElement>(
    queue: &Queue,
    name: &'static str,
    operands: &GemmReduceOperands<'_, T>,
) -> Result<()> {
    let c = operands.c.extent();
    for (what, matrix) in [
        ("A", Some(&operands.a)),
        ("B", Some(&operands.b)),
        ("the bias", operands.bias.as_ref()),
    ] {
        let Some(other) = matrix.map(Matrix::extent) else {
            continue;
        };
        if c.start < other.end && other.start < c.end {
            let message = format!("C, which is written, overlaps {what}; pass disjoint ranges");
            return Err(queue.invalid(name, message));
        }
    }
    Ok(())
}

/// Refuses matrices that start where the fused kernel cannot load them, and a `C` in which peers cannot store, before this rank has
/// begun the call.
fn check_alignment<T: GemmElement>(
    queue: &Queue,
    operation: &GemmReduce<T>,
    operands: &GemmReduceOperands<'_, T>,
    c: MemoryRange<'_>,
) -> Result<()> {
    let Some(kernel) = &operation.kernel else {
        return Ok(());
    };
    let problem = &operation.problem;
    let stores = problem.reduction == Reduction::All && problem.in_place;
    let alignment = u64::from(kernel.limits.alignment).max(1);
    for (what, start) in [
        ("A", Some(operands.a.start())),
        ("B", Some(operands.b.start())),
        ("C", stores.then(|| c.start(problem.rank))),
    ] {
        let Some(start) = start else {
            continue;
        };
        if !start.is_multiple_of(alignment) {
            let message = format!(
                "{what} starts at {start:#x}; the fused kernel needs it at a multiple of {alignment} bytes: move it, or make the \
                 operation with `Baseline`"
            );
            return Err(queue.invalid(problem.reduction.name(), message));
        }
    }
    Ok(())
}

/// Returns the options of a call's comparison and collective.
pub(super) fn collective_options<T: GemmElement>(
    operation: &GemmReduce<T>,
) -> CollectiveOptions<'static> {
    CollectiveOptions {
        channel: operation.options.channel,
        deadline: operation.options.deadline,
        ..CollectiveOptions::default()
    }
}

/// Compares a call with those of the other ranks. `refusal` is the error in this rank's matrices, if there is
/// one; no rank goes on then.
fn compare<T: GemmElement>(
    queue: &Queue,
    operation: &GemmReduce<T>,
    operands: &GemmReduceOperands<'_, T>,
    refusal: Option<&Error>,
) -> Result<()> {
    let memory = operands.c.memory();
    let c = match memory.number().filter(|_| operation.problem.in_place) {
        Some(number) => format!("byte {} of buffer {number}", memory.offset()),
        None => "this rank's own memory".into(),
    };
    queue.compare_call(
        operation.problem.reduction.name(),
        &collective_options(operation),
        &[
            (
                "the matrices",
                refusal.map_or_else(|| "valid".into(), Error::to_string),
            ),
            ("the shape", format!("{:?}", operation.shape)),
            (
                "the algorithm",
                format!("{:?}", operation.problem.algorithm),
            ),
            ("C", c),
        ],
    )
}
