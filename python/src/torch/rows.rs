//! The operators `all_reduce_rms_norm`: their tensors.

use super::arguments::{Outcome, alike, pair, same_device, target_of};
use super::error::CallError;
use super::norm;
use super::symbols::Symbols;
use super::tensor::{Layout, Tensor};
use symmem::ElementType;

/// Sums and normalises rows into new tensors: the norm, and the sum with the residual.
pub fn all_reduce_rms_norm(symbols: &'static Symbols, stack: &mut [u64; 6]) -> Outcome {
    // SAFETY: the schema's first three arguments are tensors.
    let rows = unsafe { Rows::from_stack(symbols, [stack[0], stack[1], stack[2]])? };
    let output = rows.input.empty_like(rows.input.sizes()?)?;
    let sums = rows.residual.empty_like(rows.input.sizes()?)?;
    rows.submit(
        symbols,
        (&output, None),
        &sums,
        [stack[3], stack[4], stack[5]],
    )?;
    stack[0] = output.into_stack();
    stack[1] = sums.into_stack();
    Ok(())
}

/// Sums and normalises rows in place.
pub fn all_reduce_rms_norm_in_place(symbols: &'static Symbols, stack: &mut [u64; 6]) -> Outcome {
    // SAFETY: the schema's first three arguments are tensors.
    let rows = unsafe { Rows::from_stack(symbols, [stack[0], stack[1], stack[2]])? };
    rows.submit(
        symbols,
        (&rows.input, None),
        &rows.residual,
        [stack[3], stack[4], stack[5]],
    )
}

/// Sums rows in place of the residual, and normalises them into 8-bit numbers with scales.
pub fn all_reduce_rms_norm_f8(symbols: &'static Symbols, stack: &mut [u64; 9]) -> Outcome {
    // SAFETY: the schema's first five arguments are tensors, all of which are owned before any can fail.
    let (rows, others) = unsafe {
        let rows = Rows::from_stack(symbols, [stack[0], stack[1], stack[2]]);
        (rows, pair(symbols, stack[3], stack[4]))
    };
    let (rows, (output, scales)) = (rows?, others?);
    let (of_output, of_scales) = (output.layout("output")?, scales.layout("scales")?);
    if (of_output.element, of_output.count) != (ElementType::F8E4M3, rows.layout.count) {
        return Err(CallError::Argument(format!(
            "output has {} elements of {:?}; it must have {} of F8E4M3",
            of_output.count, of_output.element, rows.layout.count
        )));
    }
    if of_scales.element != ElementType::F32 {
        let message = format!("scales are {:?}; they must be F32", of_scales.element);
        return Err(CallError::ElementType(message));
    }
    same_device(("input", rows.layout), ("output", of_output))?;
    same_device(("input", rows.layout), ("scales", of_scales))?;
    let scales = norm::Scales {
        address: scales.destination()?,
        count: of_scales.count,
        kind: stack[5] as i64,
    };
    rows.submit(
        symbols,
        (&output, Some(scales)),
        &rows.residual,
        [stack[6], stack[7], stack[8]],
    )
}

/// Rows to sum and normalise.
struct Rows {
    input: Tensor,
    residual: Tensor,
    weight: Tensor,
    layout: Layout,
    /// Elements of a row.
    hidden: usize,
}

impl Rows {
    /// Takes the tensors over, and checks that they fit together.
    ///
    /// # Safety
    ///
    /// As for [`Tensor::from_stack`].
    unsafe fn from_stack(symbols: &'static Symbols, stack: [u64; 3]) -> Result<Self, CallError> {
        // SAFETY: the caller vouches for all three, which are owned before any can fail.
        let (both, weight) = unsafe {
            let both = pair(symbols, stack[0], stack[1]);
            (both, Tensor::from_stack(stack[2], symbols))
        };
        let ((input, residual), weight) = (both?, weight?);
        let layout = input.layout("input")?;
        let (of_residual, of_weight) = (residual.layout("residual")?, weight.layout("weight")?);
        alike(("input", layout), ("residual", of_residual))?;
        alike(("input", layout), ("weight", of_weight))?;
        let (sizes, others) = (input.sizes()?, residual.sizes()?);
        if sizes != others {
            return Err(CallError::Argument(format!(
                "input is {sizes:?} and residual {others:?}; pass tensors of the same sizes"
            )));
        }
        let hidden = of_weight.count;
        if sizes.last() != Some(&(hidden as i64)) || hidden == 0 {
            return Err(CallError::Argument(format!(
                "input is {sizes:?} and weight has {hidden} elements; its rows must have as many"
            )));
        }
        Ok(Self {
            input,
            residual,
            weight,
            layout,
            hidden,
        })
    }

    /// Hands the call over.
    fn submit(
        &self,
        symbols: &Symbols,
        (output, scales): (&Tensor, Option<norm::Scales>),
        sums: &Tensor,
        [epsilon, weight_offset, communicator]: [u64; 3],
    ) -> Outcome {
        let layout = self.layout;
        // First the addresses to write: that may give a lazily cloned tensor new memory.
        let (output, sums) = (output.destination()?, sums.destination()?);
        let call = norm::Call {
            output,
            input: self.input.source()?,
            residual: self.residual.source()?,
            residual_out: sums,
            weight: self.weight.source()?,
            count: layout.count,
            hidden: self.hidden,
            scales,
            epsilon: f64::from_bits(epsilon),
            weight_offset: f64::from_bits(weight_offset),
            element: layout.element,
            target: target_of(symbols, layout, communicator)?,
        };
        // SAFETY: the tensors live during the call, and their memory as PyTorch's does.
        unsafe { norm::enqueue(&call) }.map_err(CallError::Enqueue)
    }
}
