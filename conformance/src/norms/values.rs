//! The data of a case: every rank can compute every rank's.

use super::case::NormCase;
use crate::covering::Random;
use crate::floats::Format;

/// Added to squares, as models do.
pub const EPSILON: f32 = 1e-5;

/// What a call reads, as bits of the rows' type.
pub struct Values {
    /// Each rank's rows.
    pub sources: Vec<Vec<u32>>,
    pub residual: Vec<u32>,
    pub weight: Vec<u32>,
    pub bias: Vec<u32>,
    /// The scale of [`super::case::NormOutput::Tensor`].
    pub scale: f32,
}

impl Values {
    /// Returns the data of call number `round` in a group of `world` ranks.
    pub fn new(case: &NormCase, world: usize, round: u64) -> Self {
        let format = Format::of(case.dtype);
        let mut random = Random(case.seed ^ (round + 1).wrapping_mul(0x9e37_79b9));
        // One of 16 is a zero of either sign, which packets carry too.
        let mut number = move || {
            let bits = random.number();
            match bits & 0xf {
                0 => format.encode(if bits & 0x10 == 0 { 0.0 } else { -0.0 }),
                // Of different exponents, so that the order of a sum in f32 shows.
                _ => {
                    let number = (bits >> 40) as f32 / (1 << 22) as f32 - 2.0;
                    format.encode(number / (1 << (bits >> 5 & 7)) as f32)
                }
            }
        };
        let mut numbers = |count: usize| -> Vec<u32> { (0..count).map(|_| number()).collect() };
        let mut sources: Vec<Vec<u32>> = (0..world).map(|_| numbers(case.elements())).collect();
        let mut residual = numbers(case.elements());
        if case.rows > 1 {
            // A row of zeros, whose scale and whose root of the mean of squares have lower limits.
            let last = case.elements() - case.hidden..;
            let matrices = sources.iter_mut().chain([&mut residual]);
            matrices.for_each(|matrix| matrix[last.clone()].fill(0));
        }
        Self {
            sources,
            residual,
            weight: numbers(case.hidden),
            bias: numbers(case.hidden),
            // With the first, many results are too large for 8 bits.
            scale: [1.0 / 256.0, 1.0 / 50.0][case.seed as usize % 2],
        }
    }

    /// Returns the same data with the ranks in reverse order.
    pub fn reversed(&self) -> Self {
        Self {
            sources: self.sources.iter().rev().cloned().collect(),
            residual: self.residual.clone(),
            weight: self.weight.clone(),
            bias: self.bias.clone(),
            scale: self.scale,
        }
    }
}
