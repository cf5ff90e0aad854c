//! GEMM + reduce-scatter and GEMM + all-reduce.

use crate::element;
use crate::failure::{Result, invalid};
use crate::gemm::{Request, matrix};
use crate::operand::Memory;
use crate::rank::{Rank, Where};
use std::sync::Arc;
use symmem::{
    Communicator, ElementType, GemmElement, GemmReduceOperands, GemmReduceOptions, GemmReduceShape,
    MatrixOrder, Queue, Reduction,
};

/// The operation, by its element type.
pub enum GemmReduce {
    F16(symmem::GemmReduce<half::f16>),
    Bf16(symmem::GemmReduce<half::bf16>),
}

/// Memory of A, B and C.
pub type Matrices<'a> = [&'a Memory; 3];

impl GemmReduce {
    /// Prepares an operation. Collective; blocks.
    ///
    /// # Errors
    /// The library's.
    pub fn prepare(rank: &Arc<Rank>, asked: &Request, reduction: Reduction) -> Result<Self> {
        let shape = GemmReduceShape {
            b_order: asked.b_order(),
            bias: asked.bias,
            ..GemmReduceShape::new(asked.m, asked.n, asked.k)
        };
        let communicator = &rank.communicator;
        Ok(match asked.element {
            ElementType::F16 => Self::F16(make(communicator, &shape, reduction)?),
            ElementType::Bf16 => Self::Bf16(make(communicator, &shape, reduction)?),
            other => {
                let name = element::name_of(other);
                return Err(invalid(format!(
                    "a product that is added up over the ranks takes float16 and bfloat16, not {name}"
                )));
            }
        })
    }

    /// Enqueues the operation.
    ///
    /// # Errors
    /// What is wrong with the matrices, or failed.
    ///
    /// # Safety
    /// The matrices have the operation's shape and are on the rank's device, until the stream has passed the work; the stream is
    /// one of the device.
    pub unsafe fn enqueue(&self, rank: &Rank, place: Where, matrices: Matrices<'_>) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self {
                Self::F16(gemm) => rank.enqueue(place, call(rank, gemm, matrices)?),
                Self::Bf16(gemm) => rank.enqueue(place, call(rank, gemm, matrices)?),
            }
        }
    }
}

fn make<T: GemmElement>(
    communicator: &Communicator,
    shape: &GemmReduceShape,
    reduction: Reduction,
) -> symmem::Result<symmem::GemmReduce<T>> {
    let options = GemmReduceOptions::default();
    match reduction {
        Reduction::Scatter => communicator.gemm_reduce_scatter(shape, &options),
        Reduction::All => communicator.gemm_all_reduce(shape, &options),
    }
}

/// Returns what enqueues a call on these matrices.
///
/// # Safety
/// The matrices are on the rank's device, until the stream has passed the work.
unsafe fn call<'a, T: GemmElement>(
    rank: &Rank,
    gemm: &'a symmem::GemmReduce<T>,
    [a, b, c]: Matrices<'a>,
) -> Result<impl FnOnce(&Queue) -> symmem::Result<()> + 'a> {
    let shape = gemm.shape();
    let (m, n, k) = (shape.m, shape.n, shape.k);
    let rows = match gemm.reduction() {
        Reduction::Scatter => m / rank.communicator.world_size(),
        Reduction::All => m,
    };
    // SAFETY: guaranteed by the caller.
    let operands = unsafe {
        GemmReduceOperands {
            a: matrix(a, "a", m, k, MatrixOrder::Rows)?,
            b: matrix(b, "b", k, n, shape.b_order)?,
            c: matrix(c, "c", rows, n, MatrixOrder::Rows)?,
            bias: None,
        }
    };
    Ok(move |queue: &Queue| queue.gemm_reduce(gemm, &operands))
}
