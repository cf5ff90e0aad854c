//! Elements of reductions: every rank can compute them from their tag, and they make wrong orders or roundings visible.

use super::case::Values;
use crate::covering::Random;
use crate::dtype::Dtype;
use crate::floats::Format;
use crate::pattern::{Tag, elements};

/// Random floating-point elements are between 2^-`SPREAD` and 2^(`SPREAD` + 1), so that most sums are not
/// exact, and hardly any product of eight elements leaves f32's range.
const SPREAD: u64 = 12;

/// Returns the bytes of `count` elements.
pub fn bytes(dtype: Dtype, values: Values, tag: Tag, count: usize) -> Vec<u8> {
    let size = dtype.size();
    let mut bytes: Vec<u8> = elements(tag, count * size);
    let shape = Shape::of(dtype);
    if let (None, Values::Finite | Values::Special) = (&shape, values) {
        return bytes;
    }
    let mut lots = Random(tag.seed ^ tag.rank as u64);
    for element in bytes.chunks_exact_mut(size) {
        let mut word = [0; 8];
        word[..size].copy_from_slice(element);
        let random = u64::from_le_bytes(word);
        let bits = match (&shape, values) {
            (None, _) => small_integer(dtype, random),
            (Some(shape), Values::Finite) => shape.finite(random, SPREAD),
            (Some(shape), Values::Modest) => shape.finite(random, 0),
            (Some(shape), Values::Special) => match shape.special(lots.below(16)) {
                Some(special) => special,
                None => shape.finite(random, SPREAD),
            },
        };
        element.copy_from_slice(&bits.to_le_bytes()[..size]);
    }
    bytes
}

/// Returns an integer from -9 to 9, or from 0 to 18 for unsigned types.
fn small_integer(dtype: Dtype, random: u64) -> u64 {
    let number = (random % 19) as i64;
    match dtype {
        Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 => number as u64,
        _ => (number - 9) as u64,
    }
}

/// Field widths and special values of a floating-point type.
struct Shape {
    exponent: u32,
    mantissa: u32,
    /// Bits of the largest number, of infinity (if the type has it) and of a NaN.
    largest: u64,
    infinity: Option<u64>,
    nan: u64,
}

impl Shape {
    fn of(dtype: Dtype) -> Option<Self> {
        if dtype == Dtype::F64 {
            return Some(Self {
                exponent: 11,
                mantissa: 52,
                largest: f64::MAX.to_bits(),
                infinity: Some(f64::INFINITY.to_bits()),
                nan: f64::NAN.to_bits(),
            });
        }
        if !dtype.is_float() {
            return None;
        }
        let format = Format::of(dtype);
        let after = u64::from(format.largest()) + 1;
        let ones = (1 << (format.exponent + format.mantissa)) - 1;
        Some(Self {
            exponent: format.exponent,
            mantissa: format.mantissa,
            largest: after - 1,
            infinity: (after != ones).then_some(after),
            nan: ones,
        })
    }

    fn sign(&self) -> u64 {
        1 << (self.exponent + self.mantissa)
    }

    /// A normal number of random sign and mantissa, at most a factor of 2^`spread` from 1.
    fn finite(&self, random: u64, spread: u64) -> u64 {
        let bias = (1 << (self.exponent - 1)) - 1;
        let spread = spread.min(bias - 1);
        let lowest = bias - spread;
        // The random exponent bits select the new exponent; sign and mantissa bits are kept.
        let exponent = (random >> self.mantissa) % (2 * spread + 1) + lowest;
        let kept = self.sign() | ((1 << self.mantissa) - 1);
        (random & kept) | (exponent << self.mantissa)
    }

    /// A number that reductions may handle wrongly; `None` for about half of the values of `lot`.
    fn special(&self, lot: usize) -> Option<u64> {
        let subnormal = (1 << self.mantissa) - 1;
        Some(match lot {
            0 => self.nan,
            1 => self.infinity?,
            2 => self.infinity? | self.sign(),
            3 => 0,
            4 => self.sign(),
            5 => 1,
            6 => self.sign() | subnormal,
            7 => self.largest,
            8 => self.sign() | self.largest,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: Tag = Tag {
        seed: 5,
        rank: 1,
        round: Some(0),
    };

    fn halves(values: Values) -> Vec<f32> {
        bytes(Dtype::F16, values, TAG, 4000)
            .chunks_exact(2)
            .map(|bytes| half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f32())
            .collect()
    }

    #[test]
    fn random_numbers_are_finite_of_many_magnitudes_and_modest_ones_are_near_one() {
        let finite = halves(Values::Finite);
        assert!(finite.iter().all(|value| value.is_normal()));
        let size = |low: f32, high: f32| finite.iter().any(|v| (low..high).contains(&v.abs()));
        assert!(size(0.0, 1e-3) && size(1e3, 1e5));
        let modest = halves(Values::Modest);
        assert!(modest.iter().all(|v| (1.0..2.0).contains(&v.abs())));
        assert!(modest.iter().any(|v| *v < 0.0));
        for dtype in [Dtype::F8E4m3, Dtype::F8E5m2] {
            let format = Format::of(dtype);
            for byte in bytes(dtype, Values::Finite, TAG, 4000) {
                assert!(
                    format.decode(byte.into()).is_normal(),
                    "{dtype:?} {byte:#x}"
                );
            }
        }
    }

    #[test]
    fn special_values_are_all_there() {
        let special = halves(Values::Special);
        let has = |what: fn(&f32) -> bool| special.iter().any(what);
        assert!(has(|v| v.is_nan()) && has(|v| *v == f32::INFINITY));
        assert!(has(|v| *v == f32::NEG_INFINITY) && has(|v| *v == -65504.0));
        assert!(has(|v| *v == 0.0 && v.is_sign_negative()));
        assert!(has(|v| *v == 2f32.powi(-24)));
        // E4M3 has no infinity, but a NaN.
        let format = Format::of(Dtype::F8E4m3);
        let bytes = bytes(Dtype::F8E4m3, Values::Special, TAG, 1000);
        assert!(
            bytes
                .iter()
                .any(|&byte| format.decode(byte.into()).is_nan())
        );
        assert!(
            bytes
                .iter()
                .all(|&byte| !format.decode(byte.into()).is_infinite())
        );
    }

    #[test]
    fn the_order_of_accumulation_shows_where_sums_are_not_exact() {
        use super::super::case::Reduction;
        use crate::reference::reduce;
        // Sums of narrower types are mostly exact in f32 before the final rounding.
        for dtype in [Dtype::F32, Dtype::F64] {
            let sources: Vec<Vec<u8>> = (0..3)
                .map(|rank| bytes(dtype, Values::Finite, Tag { rank, ..TAG }, 20_000))
                .collect();
            let forth: Vec<&[u8]> = sources.iter().map(|source| &source[..]).collect();
            let back: Vec<&[u8]> = forth.iter().rev().copied().collect();
            assert_ne!(
                reduce(dtype, Reduction::Sum, &forth),
                reduce(dtype, Reduction::Sum, &back),
                "{dtype:?}"
            );
        }
    }
}
