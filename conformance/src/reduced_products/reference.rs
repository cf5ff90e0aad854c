//! What a call must make: sums in f64, with bounds of the errors.
//!
//! Let M be the magnitudes of the bias and of all ranks' parts of an element, added up. A pipeline rounds the sum to the element
//! type once at each rank, and no sum on the way is larger than M. A baseline rounds each rank's part once, which costs no more
//! than one rounding of M for all parts together. Its collective then rounds the sum: symmem's once, NCCL's at every rank but the
//! first. So an element is off by at most as many roundings of M as there are ranks, and by one more with a bias: cuBLASLt has been
//! seen to round a sum before it adds the bias. A fused kernel rounds each part that it sends, and the sum; only the sum if parts
//! are sent in f32. The error of sums in f32 comes on top.

use super::values::Values;
use crate::gemm_float::GemmFloat;

/// A row of the sum.
pub struct Row {
    /// The exact elements, within the error of f64.
    pub sums: Vec<f64>,
    /// How far each may be off.
    pub bounds: Vec<f64>,
    /// `[rank]`: what each rank adds.
    pub parts: Vec<Vec<f64>>,
}

/// The matrices of all ranks in f64.
pub struct Reference {
    a: Vec<Vec<f64>>,
    b: Vec<Vec<f64>>,
    bias: Option<Vec<f64>>,
    n: usize,
    k: usize,
    /// The largest relative error of a rounding.
    unit: f64,
    /// How often an element is rounded, but for the bias.
    roundings: usize,
}

impl Reference {
    /// Converts the matrices. `n` and `k` are the columns of `B` and of `A`.
    /// `roundings` says how often an element is rounded, but for the bias.
    pub fn new<T: GemmFloat>(
        values: &Values<T>,
        has_bias: bool,
        (n, k): (usize, usize),
        roundings: usize,
    ) -> Self {
        let wide = |numbers: &Vec<T>| numbers.iter().map(|it| it.to_f64()).collect();
        Self {
            a: values.a.iter().map(wide).collect(),
            b: values.b.iter().map(wide).collect(),
            bias: has_bias.then(|| wide(&values.bias)),
            n,
            k,
            unit: T::UNIT,
            roundings,
        }
    }

    /// Computes a row.
    pub fn row(&self, row: usize) -> Row {
        let (n, k) = (self.n, self.k);
        let bias = self.bias.clone().unwrap_or_else(|| vec![0.0; n]);
        let mut sums = bias.clone();
        // Of the parts, and of all products in them.
        let mut magnitudes: Vec<f64> = bias.iter().map(|bias| bias.abs()).collect();
        let mut products = magnitudes.clone();
        let mut parts = Vec::new();
        for (a, b) in self.a.iter().zip(&self.b) {
            let mut part = vec![0.0; n];
            for (a, b) in a[row * k..][..k].iter().zip(b.chunks(n)) {
                for (column, b) in b.iter().enumerate() {
                    part[column] += a * b;
                    products[column] += (a * b).abs();
                }
            }
            for (column, part) in part.iter().enumerate() {
                sums[column] += part;
                magnitudes[column] += part.abs();
            }
            parts.push(part);
        }
        let bound = |((magnitude, products), sum)| self.bound(magnitude, products, sum);
        let bounds = magnitudes.into_iter().zip(products).zip(&sums);
        let bounds = bounds.map(bound).collect();
        Row {
            sums,
            bounds,
            parts,
        }
    }

    /// Returns how far an element may be off. `magnitude` is that of all parts together, `products` that of all products, `sum` the
    /// element itself, which is all that a single rounding can round.
    fn bound(&self, magnitude: f64, products: f64, sum: &f64) -> f64 {
        /// Half a step of subnormal f16, which bounds the error of a rounding to them.
        const SUBNORMAL: f64 = 1.0 / (1u64 << 25) as f64;
        let (magnitude, roundings) = match self.roundings {
            1 if self.a.len() > 1 => (sum.abs(), 1.0),
            roundings => (
                magnitude,
                (roundings + usize::from(self.bias.is_some())) as f64,
            ),
        };
        // Sums in f32, which a device may truncate rather than round.
        let sums = (self.k as f64).sqrt() * (-22f64).exp2();
        let in_f32 = sums * (products + roundings * magnitude);
        // What is rounded is itself off by the roundings before.
        let each = (magnitude + in_f32) * self.unit * (1.0 + self.unit).powf(roundings - 1.0);
        in_f32 + roundings * (each + SUBNORMAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    #[test]
    fn a_sum_that_each_rank_rounds_is_within_the_bound_and_one_without_a_part_is_not() {
        // Each sum is halfway between two numbers, and rounds down.
        let world = 4;
        let values = Values::<bf16> {
            a: vec![vec![bf16::ONE]; world],
            b: (0..world)
                .map(|rank| vec![bf16::from_f64(if rank == 0 { 1.0 } else { 1.0 / 256.0 })])
                .collect(),
            bias: vec![bf16::ZERO],
        };
        let row = Reference::new(&values, false, (1, 1), world).row(0);
        let mut sum = bf16::ZERO;
        for part in &row.parts {
            sum = bf16::from_f64(sum.to_f64() + part[0]);
        }
        assert_eq!(sum, bf16::ONE, "every small part was lost");
        assert!((sum.to_f64() - row.sums[0]).abs() <= row.bounds[0]);
        assert!(row.bounds[0] < 4.2 / 256.0, "{:e}", row.bounds[0]);
        assert!(row.parts[0][0] > row.bounds[0], "a missing part is found");
        // Three roundings of parts that are sent in f32 are found.
        let row = Reference::new(&values, false, (1, 1), 1).row(0);
        assert!((sum.to_f64() - row.sums[0]).abs() > row.bounds[0]);
        let rounded = bf16::from_f64(row.sums[0]).to_f64();
        assert!((rounded - row.sums[0]).abs() <= row.bounds[0]);
    }
}
