//! Reductions of the model, in rank order.

use crate::program::{Element, Reduce};
use half::{bf16, f16};

/// Reduces sources of equal length, one per member. Narrow types accumulate in 32 bits and round once; integers wrap.
pub fn reduce(element: Element, how: Reduce, sources: &[&[u8]]) -> Vec<u8> {
    if let [alone] = sources {
        return alone.to_vec();
    }
    match element {
        Element::U8 => fold(how, sources, |[byte]| u32::from(byte), |wide| [wide as u8]),
        Element::U16 => fold(
            how,
            sources,
            |bytes| u32::from(u16::from_le_bytes(bytes)),
            |wide| (wide as u16).to_le_bytes(),
        ),
        Element::U32 => fold(how, sources, u32::from_le_bytes, u32::to_le_bytes),
        Element::U64 => fold(how, sources, u64::from_le_bytes, u64::to_le_bytes),
        Element::F32 => fold(how, sources, f32::from_le_bytes, f32::to_le_bytes),
        Element::F64 => fold(how, sources, f64::from_le_bytes, f64::to_le_bytes),
        Element::F16 => fold(
            how,
            sources,
            |bytes| f16::from_le_bytes(bytes).to_f32(),
            |wide| f16::from_f32(wide).to_le_bytes(),
        ),
        Element::Bf16 => fold(
            how,
            sources,
            |bytes| bf16::from_le_bytes(bytes).to_f32(),
            |wide| bf16::from_f32(wide).to_le_bytes(),
        ),
    }
}

/// Whether two sequences of elements are the same. All NaN of a type count as one: their payload is not specified.
pub fn same(element: Element, one: &[u8], other: &[u8]) -> Option<usize> {
    let size = element.size();
    let is_nan = |bytes: &[u8]| match element {
        Element::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).is_nan(),
        Element::F64 => bytes
            .try_into()
            .is_ok_and(|bytes| f64::from_le_bytes(bytes).is_nan()),
        Element::F16 => f16::from_le_bytes([bytes[0], bytes[1]]).is_nan(),
        Element::Bf16 => bf16::from_le_bytes([bytes[0], bytes[1]]).is_nan(),
        _ => false,
    };
    let mut pairs = one.chunks(size).zip(other.chunks(size));
    pairs.position(|(one, other)| one != other && !(is_nan(one) && is_nan(other)))
}

trait Number: Copy {
    fn combine(self, other: Self, how: Reduce) -> Self;
    fn divide(self, by: usize) -> Self;
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Number for $type {
            fn combine(self, other: Self, how: Reduce) -> Self {
                match how {
                    Reduce::Sum | Reduce::Average => self.wrapping_add(other),
                    Reduce::Minimum => self.min(other),
                    Reduce::Maximum => self.max(other),
                    Reduce::Product => self.wrapping_mul(other),
                }
            }
            fn divide(self, by: usize) -> Self {
                self / by as Self
            }
        }
    )*};
}
integers!(u32 u64);

macro_rules! floats {
    ($($type:ty)*) => {$(
        impl Number for $type {
            // NaN wins, and -0 is less than +0.
            fn combine(self, other: Self, how: Reduce) -> Self {
                let first = match how {
                    Reduce::Sum | Reduce::Average => return self + other,
                    Reduce::Product => return self * other,
                    Reduce::Minimum => self < other || (self == other && self.is_sign_negative()),
                    Reduce::Maximum => self > other || (self == other && self.is_sign_positive()),
                };
                if self.is_nan() || first { self } else { other }
            }
            fn divide(self, by: usize) -> Self {
                self / by as Self
            }
        }
    )*};
}
floats!(f32 f64);

fn fold<N: Number, const BYTES: usize>(
    how: Reduce,
    sources: &[&[u8]],
    load: impl Fn([u8; BYTES]) -> N,
    store: impl Fn(N) -> [u8; BYTES],
) -> Vec<u8> {
    let element = |source: &[u8], at: usize| {
        let mut bytes = [0; BYTES];
        bytes.copy_from_slice(&source[at..at + BYTES]);
        load(bytes)
    };
    let mut result = Vec::with_capacity(sources[0].len());
    for at in (0..sources[0].len()).step_by(BYTES) {
        let first = element(sources[0], at);
        let rest = sources[1..].iter();
        let mut sum = rest.fold(first, |sum, source| sum.combine(element(source, at), how));
        if how == Reduce::Average {
            sum = sum.divide(sources.len());
        }
        result.extend_from_slice(&store(sum));
    }
    result
}
