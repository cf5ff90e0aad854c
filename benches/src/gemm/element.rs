//! The element types of matrices.

use crate::report::ag_gemm::MatrixElement;
use symmem::GemmElement;

/// An element type and its rounding error.
pub(crate) trait MatrixFloat: GemmElement {
    /// Its name.
    const NAME: MatrixElement;
    /// The unit roundoff: half a unit in the last place.
    const ROUNDOFF: f64;
    const ZERO: Self;
    fn from_f32(value: f32) -> Self;
    fn to_f32(self) -> f32;
}

macro_rules! reals {
    ($($type:ty, $name:ident, $bits:literal;)*) => {$(
        impl MatrixFloat for $type {
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

impl MatrixFloat for f32 {
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
