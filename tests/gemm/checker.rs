//! Reference matrices, and the bound on the error of a GEMM.

#[path = "multiply.rs"]
mod multiply;

use multiply::multiply;
use symmem::{F8E4M3, GemmElement};

/// A matrix element, with its format's rounding error.
pub trait Real: GemmElement {
    /// The largest relative error of one rounding.
    const UNIT: f64;
    const NAN: Self;
    fn from_f64(number: f64) -> Self;
    fn to_f64(self) -> f64;
}

/// An element of `A` and `B`, whose products are [`Real`], too.
pub trait GemmFloat: Real + GemmElement<Output: Real> {}

impl<T: Real + GemmElement<Output: Real>> GemmFloat for T {}

macro_rules! numbers {
    ($($type:ty: $unit:expr,)*) => {$(
        impl Real for $type {
            const UNIT: f64 = $unit;
            const NAN: Self = <$type>::NAN;
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

impl Real for f32 {
    const UNIT: f64 = 1.0 / (1 << 24) as f64;
    const NAN: Self = Self::NAN;
    fn from_f64(number: f64) -> Self {
        number as Self
    }
    fn to_f64(self) -> f64 {
        self.into()
    }
}

impl Real for F8E4M3 {
    const UNIT: f64 = 1.0 / 16.0;
    const NAN: Self = Self(0x7f);
    fn from_f64(number: f64) -> Self {
        Self::from_f32(number as f32)
    }
    fn to_f64(self) -> f64 {
        self.to_f32().into()
    }
}

/// A row-major matrix without gaps.
pub struct Dense<T> {
    pub rows: usize,
    pub columns: usize,
    pub elements: Vec<T>,
}

impl<T: Real> Dense<T> {
    /// Returns numbers between -1 and 1 that depend only on `seed`.
    pub fn random(rows: usize, columns: usize, seed: u64) -> Self {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let elements = (0..rows * columns).map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            T::from_f64((state >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
        });
        Self {
            rows,
            columns,
            elements: elements.collect(),
        }
    }

    pub fn at(&self, row: usize, column: usize) -> T {
        self.elements[row * self.columns + column]
    }
}

/// Compares `c`, whose rows are `stride` apart, with the product in f64 times the scale, plus the bias. An element may be
/// off by one rounding of its format plus the error of an f32 sum of `k` terms.
pub fn check<T: GemmFloat>(
    (a, b): (&Dense<T>, &Dense<T>),
    scale: f32,
    bias: Option<&Dense<T::Output>>,
    c: &[T::Output],
    stride: usize,
) -> Result<(), String> {
    let scale = f64::from(scale);
    let loss = (a.columns as f64).sqrt() * (-22f64).exp2();
    let wide = |matrix: &Dense<T>| -> Vec<f64> {
        let elements = matrix.elements.iter();
        elements.map(|element| element.to_f64()).collect()
    };
    let absolute = |elements: &[f64]| elements.iter().map(|element| element.abs()).collect();
    let (left, right) = (wide(a), wide(b));
    let sizes: [Vec<f64>; 2] = [absolute(&left), absolute(&right)];
    let shape = [a.rows, a.columns, b.columns];
    let steps = [[a.columns, 1], [b.columns, 1]];
    let exact = multiply(shape, scale, [&left, &right], steps);
    let size = multiply(shape, scale.abs(), [&sizes[0], &sizes[1]], steps);
    for row in 0..a.rows {
        for column in 0..b.columns {
            let at = row * b.columns + column;
            let added = bias.map_or(0.0, |bias| bias.at(0, column).to_f64());
            let (exact, size) = (exact[at] + added, size[at] + added.abs());
            let made = c[row * stride + column].to_f64();
            let bound = T::Output::UNIT * exact.abs() + loss * size;
            let off = (made - exact).abs();
            if off.is_nan() || off > bound {
                return Err(format!(
                    "C[{row}, {column}] is {made}, not {exact} within {bound:e}"
                ));
            }
        }
    }
    Ok(())
}
