//! The element types of GEMMs, and random matrices of them.

use crate::covering::Random;
use symmem::GemmElement;

/// An element type and its rounding error.
pub trait GemmFloat: GemmElement {
    /// The largest relative error of one rounding.
    const UNIT: f64;
    /// A value that no result has: NaN.
    const POISON: Self;
    /// Rounds to the nearest element.
    fn from_f64(number: f64) -> Self;
    /// Converts exactly.
    fn to_f64(self) -> f64;
}

macro_rules! numbers {
    ($($type:ty: $unit:expr,)*) => {$(
        impl GemmFloat for $type {
            const UNIT: f64 = $unit;
            const POISON: Self = <$type>::NAN;
            fn from_f64(number: f64) -> Self {
                <$type>::from_f64(number)
            }
            fn to_f64(self) -> f64 {
                <$type>::to_f64(self)
            }
        }
    )*};
}
numbers! {
    half::f16: 1.0 / 2048.0,
    half::bf16: 1.0 / 256.0,
}

/// Returns random numbers between -1 and 1.
pub fn random<T: GemmFloat>(count: usize, seed: u64) -> Vec<T> {
    let mut random = Random(seed);
    let number = |_| T::from_f64((random.number() >> 11) as f64 / (1u64 << 52) as f64 - 1.0);
    (0..count).map(number).collect()
}
