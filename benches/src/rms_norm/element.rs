//! The types of rows, and the random numbers in them.

use symmem::NormElement;

/// A type of rows.
pub(super) trait RowFloat: NormElement {
    /// The largest relative error of a rounding.
    const ROUNDING: f64;
    const ZERO: Self;
    /// Rounds to the nearest number.
    fn from_number(number: f32) -> Self;
    /// Converts exactly.
    fn number(self) -> f32;
}

macro_rules! floats {
    ($($type:ty: $rounding:expr, $zero:expr, $from:expr, $to:expr;)*) => {$(
        impl RowFloat for $type {
            const ROUNDING: f64 = $rounding;
            const ZERO: Self = $zero;
            fn from_number(number: f32) -> Self {
                $from(number)
            }
            fn number(self) -> f32 {
                $to(self)
            }
        }
    )*};
}
floats! {
    half::bf16: 1.0 / 256.0, half::bf16::ZERO, half::bf16::from_f32, half::bf16::to_f32;
    half::f16: 1.0 / 2048.0, half::f16::ZERO, half::f16::from_f32, half::f16::to_f32;
    f32: 1.0 / 16_777_216.0, 0.0, std::convert::identity, std::convert::identity;
}

/// A matrix of a call.
#[derive(Clone, Copy)]
pub(super) enum Content {
    /// The rows of a rank.
    Source(usize),
    Residual,
    Weight,
}

impl Content {
    /// Returns element `index`: a multiple of 1/64 between -2 and 2, which every type has, and which f32 adds exactly.
    pub(super) fn number(self, index: usize) -> f32 {
        let matrix = match self {
            Self::Residual => 1,
            Self::Weight => 2,
            Self::Source(rank) => 3 + rank as u64,
        };
        // SplitMix64's mixing (Steele, Lea, Flood, 2014).
        let mut mixed = (index as u64 ^ matrix << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed >> 40) % 255) as f32 / 64.0 - 127.0 / 64.0
    }

    /// Returns the first `count` elements.
    pub(super) fn elements<T: RowFloat>(self, count: usize) -> Vec<T> {
        (0..count)
            .map(|index| T::from_number(self.number(index)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_the_numbers_and_matrices_differ() {
        for index in 0..4000 {
            let number = Content::Source(1).number(index);
            assert!(number.abs() < 2.0);
            assert_eq!(half::bf16::from_number(number).number(), number);
            assert_eq!(half::f16::from_number(number).number(), number);
        }
        let all = |content: Content| -> Vec<f32> { content.elements(100) };
        assert_ne!(all(Content::Source(0)), all(Content::Source(1)));
        assert_ne!(all(Content::Residual), all(Content::Weight));
    }
}
