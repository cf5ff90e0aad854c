//! The element types of matrices.

use crate::report::ag_gemm::MatrixElement;
use symmem::{F8E4M3, GemmElement};

/// An element type of matrices and its rounding error.
pub(crate) trait Real: GemmElement {
    /// Its name.
    const NAME: MatrixElement;
    /// The unit roundoff: half a unit in the last place.
    const ROUNDOFF: f64;
    /// The least factor of Σ|a·b| that allows for the errors of a sum: more than 0 where matrix instructions add to fewer bits
    /// than those of f32.
    const LEAST_SLACK: f64 = 0.0;
    const ZERO: Self;
    fn from_f32(value: f32) -> Self;
    fn to_f32(self) -> f32;
}

/// An element type of A and B, of whose products C is [`Real`], too.
pub(crate) trait MatrixFloat: Real + GemmElement<Output: Real> {}

impl<T: Real + GemmElement<Output: Real>> MatrixFloat for T {}

macro_rules! reals {
    ($($type:ty, $name:ident, $bits:literal;)*) => {$(
        impl Real for $type {
            const NAME: MatrixElement = MatrixElement::$name;
            const ROUNDOFF: f64 = 1.0 / (1_u32 << $bits) as f64;
            const ZERO: Self = <$type>::ZERO;
            fn from_f32(value: f32) -> Self {
                <$type>::from_f32(value)
            }
            fn to_f32(self) -> f32 {
                <$type>::to_f32(self)
            }
        }
    )*};
}

reals! {
    half::f16, F16, 11;
    half::bf16, Bf16, 8;
}

impl Real for f32 {
    const NAME: MatrixElement = MatrixElement::F32;
    const ROUNDOFF: f64 = 1.0 / (1_u32 << 24) as f64;
    const ZERO: Self = 0.0;
    fn from_f32(value: f32) -> Self {
        value
    }
    fn to_f32(self) -> f32 {
        self
    }
}

impl Real for F8E4M3 {
    const NAME: MatrixElement = MatrixElement::F8E4M3;
    const ROUNDOFF: f64 = 1.0 / 16.0;
    /// Hopper's matrix instructions add 32 products at a time, and keep 14 bits below the largest of them (DeepSeek-V3's report,
    /// section 3.5.2). On an H200 elements were off by up to 2^-12 of Σ|ab|.
    const LEAST_SLACK: f64 = 1.0 / 1024.0;
    const ZERO: Self = Self(0);
    fn from_f32(value: f32) -> Self {
        Self::from_f32(value)
    }
    fn to_f32(self) -> f32 {
        self.to_f32()
    }
}
