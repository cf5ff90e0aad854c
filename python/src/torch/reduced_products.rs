//! The operators `matmul_reduce_scatter` and `matmul_all_reduce`: products that are added up over the ranks.

use super::call::{self, Target};
use super::products::{Operation, find};
use crate::failure::Result;
use crate::gemm::Request;
use crate::operand::Memory;
use symmem::{ElementType, Reduction};

/// A call of an operator. B has k · n elements; C has m · n, of a reduce-scatter m / world rows of them.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub reduction: Reduction,
    pub c: u64,
    pub a: u64,
    pub b: u64,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Whether B is stored by columns.
    pub b_columns: bool,
    pub element: ElementType,
    /// The number of ranks that C was sized for, if it depends on it.
    pub world: Option<usize>,
    pub target: Target,
}

/// Enqueues a call. The first of a shape is collective and blocks; later ones do on the host backend only. Needs nothing of
/// Python.
///
/// # Errors
/// If communicator, device or shape do not fit; for a first call in a capture; the call's.
///
/// # Safety
/// The addresses are valid until the stream has passed the work.
pub unsafe fn enqueue(asked: &Call) -> Result<()> {
    let (rank, place) = asked.target.find()?;
    call::same_world(&rank, asked.world)?;
    let Call { m, n, k, .. } = *asked;
    if m == 0 || n == 0 {
        return Ok(());
    }
    let request = Request {
        m,
        n,
        k,
        element: asked.element,
        b_columns: asked.b_columns,
        bias: false,
    };
    let operation = find(&rank, Operation::Reduced(request, asked.reduction), &place)?;
    let rows = m / asked.world.unwrap_or(1);
    let a = Memory::known(asked.a, m * k, asked.element);
    let b = Memory::known(asked.b, k * n, asked.element);
    let c = Memory::known(asked.c, rows * n, asked.element);
    // SAFETY: guaranteed by the caller; the matrices have the shape that the operation was prepared for.
    unsafe {
        operation
            .reduced()?
            .enqueue(&rank, place, (&a, &b, &c, None))
    }
}
