//! The operators `all_reduce_rms_norm`: a sum over ranks, to which a residual is added, and its RMSNorm.

use super::call::Target;
use crate::element;
use crate::failure::{Result, invalid};
use crate::operand::Memory;
use crate::rank::{Rank, Where};
use symmem::{ElementType, NormElement, RowNorm};

/// A call of an operator, on rows of `hidden` elements.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Where the norm goes, which may be `input`.
    pub output: u64,
    pub input: u64,
    pub residual: u64,
    /// Where the sum with the residual goes, which may be `residual`.
    pub residual_out: u64,
    pub weight: u64,
    /// Elements of all rows.
    pub count: usize,
    pub hidden: usize,
    pub epsilon: f64,
    pub weight_offset: f64,
    pub element: ElementType,
    pub target: Target,
}

/// Enqueues a call. Blocks on the host backend only. Needs nothing of Python.
///
/// # Errors
/// If communicator, device or element type do not fit; the call's.
///
/// # Safety
/// The addresses are valid until the stream has passed the work.
pub unsafe fn enqueue(asked: &Call) -> Result<()> {
    let (rank, place) = asked.target.find()?;
    // SAFETY: guaranteed by the caller.
    unsafe {
        match asked.element {
            ElementType::F16 => of_type::<half::f16>(&rank, place, asked),
            ElementType::Bf16 => of_type::<half::bf16>(&rank, place, asked),
            ElementType::F32 => of_type::<f32>(&rank, place, asked),
            other => Err(invalid(format!(
                "rows of {} cannot be normalised; use bfloat16, float16 or float32",
                element::name_of(other)
            ))),
        }
    }
}

/// # Safety
/// As [`enqueue`].
unsafe fn of_type<T: NormElement>(rank: &Rank, place: Where, asked: &Call) -> Result<()> {
    let memory = |address, count| Memory::known(address, count, asked.element);
    let [output, input, residual, sums] = [
        asked.output,
        asked.input,
        asked.residual,
        asked.residual_out,
    ]
    .map(|address| memory(address, asked.count));
    let weight = memory(asked.weight, asked.hidden);
    // SAFETY: guaranteed by the caller.
    unsafe {
        let norm = RowNorm::root_mean_square(weight.operand::<T>(rank)?, asked.epsilon as f32)
            .weight_offset(asked.weight_offset as f32)
            .residual(residual.operand::<T>(rank)?, sums.operand::<T>(rank)?);
        let (output, input) = (output.operand::<T>(rank)?, input.operand::<T>(rank)?);
        rank.enqueue(place, |queue| {
            queue.all_reduce_norm(output, input, asked.hidden, &norm)
        })
    }
}
