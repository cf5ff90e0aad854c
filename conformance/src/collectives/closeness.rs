//! Decides whether a result is correct: bit by bit for symmem's peer-to-peer kernels, within an error bound for NCCL,
//! RCCL and multicast.

use super::case::{CollectiveCase, Reduction};
use crate::dtype::Dtype;
use crate::floats::Format;

/// Compares elements of one case.
pub struct Closeness {
    dtype: Dtype,
    /// Whether elements were computed in floating point, so that all NaNs count as equal.
    computed: bool,
    /// Largest absolute error, and largest error relative to the expected value.
    bounds: (f64, f64),
}

impl Closeness {
    /// Returns the comparison for a case in a group of `world` members.
    ///
    /// NCCL, RCCL or a switch may add in any order and round after each step. The elements have magnitudes from 1
    /// to 2 ([`super::Values::Modest`]), so each of the `world` roundings has an error of at most half a unit in
    /// the last place of the largest sum, which is below `2 * world`, or of the product.
    pub fn of(case: &CollectiveCase, world: usize) -> Self {
        let computed = case.variant.operation.reduces() && case.dtype.is_float();
        let mut bounds = (0.0, 0.0);
        if computed && case.variant.algorithm.is_close() {
            let mantissa = match case.dtype {
                Dtype::F64 => 52,
                dtype => Format::of(dtype).mantissa,
            };
            let world = world as f64;
            let unit = world * 0.5f64.powi(mantissa as i32);
            bounds = match case.reduction {
                Reduction::Sum => (2.0 * world * unit, 0.0),
                Reduction::Average => (2.0 * unit, 0.0),
                Reduction::Product => (0.0, unit),
                Reduction::Minimum | Reduction::Maximum => (0.0, 0.0),
            };
        }
        Self {
            dtype: case.dtype,
            computed,
            bounds,
        }
    }

    /// Whether `seen` is a correct result if the reference is `expected`.
    pub fn accepts(&self, seen: &[u8], expected: &[u8]) -> bool {
        if seen == expected {
            return true;
        }
        if !self.computed {
            return false;
        }
        let (seen, expected) = (value(self.dtype, seen), value(self.dtype, expected));
        if seen.is_nan() || expected.is_nan() {
            return seen.is_nan() && expected.is_nan();
        }
        let (absolute, relative) = self.bounds;
        let bound = absolute.max(relative * expected.abs());
        bound > 0.0 && (seen - expected).abs() <= bound
    }
}

/// Decodes a floating-point element.
fn value(dtype: Dtype, bytes: &[u8]) -> f64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(word);
    match dtype {
        Dtype::F64 => f64::from_bits(bits),
        dtype => Format::of(dtype).decode(bits as u32).into(),
    }
}
