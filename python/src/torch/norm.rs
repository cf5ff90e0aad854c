//! The operators `all_reduce_rms_norm`: a sum over ranks, to which a residual is added, and its RMSNorm.

use super::call::Target;
use crate::element;
use crate::failure::{Result, invalid};
use crate::operand::Memory;
use crate::rank::{Rank, Where};
use symmem::{ElementType, F8E4M3, NormElement, RowNorm};

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
    /// Those of 8-bit results.
    pub scales: Option<Scales>,
    /// Elements of all rows.
    pub count: usize,
    pub hidden: usize,
    pub epsilon: f64,
    pub weight_offset: f64,
    pub element: ElementType,
    pub target: Target,
}

/// The scales of 8-bit results.
#[derive(Clone, Copy, Debug)]
pub struct Scales {
    pub address: u64,
    pub count: usize,
    /// 0: one scale, which is read. 1: one for each row. 2: one for each 128 elements.
    pub kind: i64,
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
    let [input, residual, sums] = [asked.input, asked.residual, asked.residual_out]
        .map(|address| memory(address, asked.count));
    let weight = memory(asked.weight, asked.hidden);
    let output = match asked.scales {
        None => asked.element,
        Some(_) => ElementType::F8E4M3,
    };
    let output = Memory::known(asked.output, asked.count, output);
    // SAFETY: guaranteed by the caller.
    unsafe {
        let norm = RowNorm::root_mean_square(weight.operand::<T>(rank)?, asked.epsilon as f32)
            .weight_offset(asked.weight_offset as f32)
            .residual(residual.operand::<T>(rank)?, sums.operand::<T>(rank)?);
        let input = input.operand::<T>(rank)?;
        let Some(scales) = asked.scales else {
            let output = output.operand::<T>(rank)?;
            return rank.enqueue(place, |queue| {
                queue.all_reduce_norm(output, input, asked.hidden, &norm)
            });
        };
        let memory = Memory::known(scales.address, scales.count, ElementType::F32);
        let (output, of_scales) = (
            output.operand::<F8E4M3>(rank)?,
            memory.operand::<f32>(rank)?,
        );
        let of_scales = match scales.kind {
            0 => symmem::Scales::Tensor(of_scales),
            1 => symmem::Scales::Rows(of_scales),
            2 => symmem::Scales::Groups(of_scales),
            kind => {
                return Err(invalid(format!(
                    "there are no scales of kind {kind}; use 0, 1 or 2"
                )));
            }
        };
        rank.enqueue(place, |queue| {
            queue.all_reduce_norm_f8(output, of_scales, input, asked.hidden, &norm)
        })
    }
}
