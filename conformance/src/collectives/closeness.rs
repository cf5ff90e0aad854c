//! When a result is right: bit by bit for ours, within a bound for the vendor's library and for a switch.

use super::case::{CollectiveCase, Reduction};
use crate::dtype::Dtype;
use crate::floats::Format;

/// Judges elements of one case.
pub struct Closeness {
    dtype: Dtype,
    /// Whether elements were computed: a NaN is then as good as any other.
    computed: bool,
    /// Most that an element may be off, absolutely and relative to what it should be.
    bounds: (f64, f64),
}

impl Closeness {
    /// The judge of a case in a group of `world`.
    ///
    /// A library, or a switch, may add in any order and round after each step. The elements it is given are of
    /// magnitude 1 to 2 ([`super::Values::Modest`]), so that each of its `world` roundings is off by
    /// at most half a unit of the largest sum, which is below `2 * world`, or of the product.
    pub fn of(case: &CollectiveCase, world: usize) -> Self {
        let computed = case.way.operation.reduces() && case.dtype.is_float();
        let mut bounds = (0.0, 0.0);
        if computed && case.way.algorithm.is_close() {
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

    /// Whether an element is as it should be.
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

/// What a floating-point element is.
fn value(dtype: Dtype, bytes: &[u8]) -> f64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(word);
    match dtype {
        Dtype::F64 => f64::from_bits(bits),
        dtype => Format::of(dtype).decode(bits as u32).into(),
    }
}
