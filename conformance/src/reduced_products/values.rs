//! The matrices of all ranks in one call: each rank can make every rank's.

use super::case::GemmReduceCase;
use crate::gemm_float::{GemmFloat, random};

/// All ranks' `A` and `B`, row-major without gaps, and the bias.
pub struct Values<T: GemmFloat> {
    /// `[rank]`: `m` x `k`. They change from call to call.
    pub a: Vec<Vec<T>>,
    /// `[rank]`: `k` x `n`.
    pub b: Vec<Vec<T>>,
    /// The same on all ranks.
    pub bias: Vec<T>,
}

impl<T: GemmFloat> Values<T> {
    /// Makes the matrices of call `call` in a group of `world` ranks.
    pub fn new(case: &GemmReduceCase, world: usize, call: u64) -> Self {
        let GemmReduceCase { n, k, seed, .. } = *case;
        let numbers = |count, stream: u64| random(count, seed.wrapping_add(stream));
        let ranks = || 0..world as u64;
        Self {
            a: (ranks().map(|rank| numbers(case.m(world) * k, 1 + (call + 1) * 1000 + rank)))
                .collect(),
            b: ranks().map(|rank| numbers(k * n, 1 + rank)).collect(),
            bias: numbers(n, 0),
        }
    }

    /// Returns a rank's `A` as it is stored: with padding behind each row.
    pub fn stored_a(&self, case: &GemmReduceCase, rank: usize) -> Vec<T> {
        padded(self.a[rank].iter().copied(), case.k, case.a_gap)
    }

    /// Returns a rank's `B` as it is stored: in the case's order, with padding behind each line.
    pub fn stored_b(&self, case: &GemmReduceCase, rank: usize) -> Vec<T> {
        let b = &self.b[rank];
        let (n, k) = (case.n, case.k);
        if !case.b_by_columns {
            return padded(b.iter().copied(), n, case.b_gap);
        }
        let by_columns = (0..n).flat_map(|column| (0..k).map(move |row| b[row * n + column]));
        padded(by_columns, k, case.b_gap)
    }
}

/// Adds `gap` elements of poison behind each `width` elements.
fn padded<T: GemmFloat>(elements: impl Iterator<Item = T>, width: usize, gap: usize) -> Vec<T> {
    let mut all = Vec::new();
    for (index, element) in elements.enumerate() {
        all.push(element);
        if (index + 1).is_multiple_of(width) {
            all.extend(std::iter::repeat_n(T::POISON, gap));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm_float::Real;
    use half::f16;

    #[test]
    fn padding_is_behind_each_line() {
        let [one, two, three, four] = [1.0, 2.0, 3.0, 4.0].map(f16::from_f64);
        let poison = f16::POISON;
        let stored = padded([one, two, three, four].into_iter(), 2, 1);
        let bits = |all: &[f16]| all.iter().map(|it| it.to_bits()).collect::<Vec<_>>();
        let expected = [one, two, poison, three, four, poison];
        assert_eq!(bits(&stored), bits(&expected));
    }
}
