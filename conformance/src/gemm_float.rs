//! The element types of GEMMs, and random matrices of them.

use crate::covering::Random;
use symmem::{F8E4M3, GemmElement};

/// An element type of matrices and its rounding error.
pub trait Real: GemmElement {
    /// The largest relative error of one rounding.
    const UNIT: f64;
    /// The least error of a GPU's sums, relative to the sum of the products' magnitudes: more than 0 where matrix instructions
    /// add to fewer bits than those of f32.
    const LEAST_LOSS: f64 = 0.0;
    /// A value that no result of numbers has: NaN.
    const POISON: Self;
    /// Rounds to the nearest element.
    fn from_f64(number: f64) -> Self;
    /// Converts exactly.
    fn to_f64(self) -> f64;
    /// Returns a random number: between -1 and 1, unless the type has so few that each may come.
    fn random(random: &mut Random) -> Self {
        Self::from_f64((random.number() >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
    }
}

/// An element type of `A` and `B`, of whose products `C` is [`Real`], too.
pub trait GemmFloat: Real + GemmElement<Output: Real> {}

impl<T: Real + GemmElement<Output: Real>> GemmFloat for T {}

macro_rules! numbers {
    ($($type:ty: $unit:expr,)*) => {$(
        impl Real for $type {
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

impl Real for F8E4M3 {
    const UNIT: f64 = 1.0 / 16.0;
    /// Hopper's matrix instructions add 32 products at a time, and keep 14 bits below the largest of them (DeepSeek-V3's report,
    /// section 3.5.2). On an H200 elements were off by up to 2^-12 of Σ|ab|.
    const LEAST_LOSS: f64 = 1.0 / 1024.0;
    const POISON: Self = Self(0x7f);
    fn from_f64(number: f64) -> Self {
        Self::from_f32(number as f32)
    }
    fn to_f64(self) -> f64 {
        self.to_f32().into()
    }
    /// Returns any number of the format, with -0 for the two NaNs.
    fn random(random: &mut Random) -> Self {
        match Self((random.number() >> 32) as u8) {
            Self(0x7f | 0xff) => Self(0x80),
            number => number,
        }
    }
}

/// Returns random numbers.
pub fn random<T: Real>(count: usize, seed: u64) -> Vec<T> {
    let mut random = Random(seed);
    (0..count).map(|_| T::random(&mut random)).collect()
}
