//! What a call must give, computed in f64 for sampled rows.

use super::element::{Content, RowFloat};
use crate::report::norms::{NormOutput, NormPoint};

/// Added to the mean of squares.
pub(super) const EPSILON: f32 = 1e-5;
/// The scale of [`NormOutput::Tensor`].
pub(super) const TENSOR_SCALE: f32 = 1.0 / 64.0;
/// The largest number of E4M3, and half of its smallest step.
const LARGEST: f64 = 448.0;
const HALF_STEP: f64 = 1.0 / 1024.0;
/// The relative error of a rounding to f32.
const UNIT: f64 = 1.0 / 16_777_216.0;
/// The most rows of a point that are compared.
const SAMPLES: usize = 16;

/// Returns the rows that are compared: the first, the last, and others at equal distances.
pub(super) fn sampled(rows: usize) -> Vec<usize> {
    let count = rows.min(SAMPLES);
    (0..count)
        .map(|sample| sample * (rows - 1) / (count - 1).max(1))
        .collect()
}

/// What a row must have.
pub(super) struct Row {
    /// The sums with the residual, rounded once.
    sums: Vec<f32>,
    /// The norm before it is rounded to its type, and the error of its steps in f32.
    results: Vec<(f64, f64)>,
    rounding: f64,
    output: NormOutput,
}

impl Row {
    pub(super) fn new<T: RowFloat>(point: &NormPoint, row: usize, world: usize) -> Self {
        let hidden = point.hidden;
        let sum = |index: usize| {
            let at = row * hidden + index;
            let sum: f32 = (0..world)
                .map(|rank| Content::Source(rank).number(at))
                .sum();
            let residual = if point.residual {
                Content::Residual.number(at)
            } else {
                0.0
            };
            T::from_number(sum + residual).number()
        };
        let sums: Vec<f32> = (0..hidden).map(sum).collect();
        let squares: f64 = sums.iter().map(|sum| f64::from(*sum).powi(2)).sum();
        let factor = 1.0 / (squares / hidden as f64 + f64::from(EPSILON)).sqrt();
        // A sum over the row may be in any order; its relative error grows as the root of its length.
        let loss = ((hidden as f64).sqrt() + 16.0) * UNIT;
        let results = sums.iter().enumerate().map(|(index, sum)| {
            let result = f64::from(*sum) * factor * f64::from(Content::Weight.number(index));
            (result, result.abs() * loss)
        });
        Self {
            results: results.collect(),
            sums,
            rounding: T::ROUNDING,
            output: point.output,
        }
    }

    /// Counts the sums that differ.
    pub(super) fn wrong_sums<T: RowFloat>(&self, seen: &[T]) -> u64 {
        let pairs = seen.iter().zip(&self.sums);
        pairs.filter(|(seen, sum)| seen.number() != **sum).count() as u64
    }

    /// Counts the results of the rows' type that are wrong.
    pub(super) fn wrong_results<T: RowFloat>(&self, seen: &[T]) -> u64 {
        let is_wrong = |seen: f64, (value, bound): (f64, f64)| {
            let within = (seen - value).abs() <= bound + value.abs() * self.rounding + 1e-7;
            !within
        };
        let pairs = seen.iter().zip(&self.results);
        pairs
            .filter(|(seen, result)| is_wrong(seen.number().into(), **result))
            .count() as u64
    }

    /// Counts the results of 8 bits, as numbers, and the scales that are wrong.
    pub(super) fn wrong_bytes(&self, seen: &[f32], scales: &[f32]) -> u64 {
        let width = seen.len() / scales.len();
        let mut wrong = 0;
        for ((seen, results), scale) in seen
            .chunks(width)
            .zip(self.results.chunks(width))
            .zip(scales)
        {
            let scale = f64::from(*scale);
            if self.output != NormOutput::Tensor {
                let largest = results
                    .iter()
                    .fold(1e-10, |most: f64, one| most.max(one.0.abs()));
                let bound = results.iter().fold(0.0, |most: f64, one| most.max(one.1));
                let error = (scale * LARGEST - largest).abs();
                let within = error <= bound + 4.0 * UNIT * largest;
                wrong += u64::from(!within);
            }
            let most = LARGEST * scale;
            for (seen, (value, bound)) in seen.iter().zip(results) {
                let bound = bound + 4.0 * UNIT * value.abs();
                let rounding = ((value.abs() + bound).min(most) / 16.0).max(HALF_STEP * scale);
                let error = (f64::from(*seen) * scale - value.clamp(-most, most)).abs();
                let within = error <= bound + rounding;
                wrong += u64::from(!within);
            }
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::norms::RowElement;
    use half::bf16;

    #[test]
    fn the_first_and_the_last_row_are_sampled_and_none_twice() {
        assert_eq!(sampled(1), [0]);
        assert_eq!(sampled(3), [0, 1, 2]);
        let many = sampled(1000);
        assert_eq!((many[0], many[15], many.len()), (0, 999, 16));
        assert!(many.windows(2).all(|two| two[0] < two[1]));
    }

    #[test]
    fn a_wrong_sum_result_scale_or_byte_is_counted() {
        let point = NormPoint {
            rows: 2,
            hidden: 256,
            element: RowElement::Bf16,
            output: NormOutput::Group,
            residual: true,
            sharded: false,
            entries: Vec::new(),
            rounds: 0,
        };
        let row = Row::new::<bf16>(&point, 1, 2);
        let mut sums: Vec<bf16> = row.sums.iter().map(|sum| bf16::from_f32(*sum)).collect();
        assert_eq!(row.wrong_sums(&sums), 0);
        sums[7] = bf16::NAN;
        assert_eq!(row.wrong_sums(&sums), 1);
        let exact: Vec<f64> = row.results.iter().map(|one| one.0).collect();
        let mut results: Vec<bf16> = exact.iter().map(|one| bf16::from_f64(*one)).collect();
        assert_eq!(row.wrong_results(&results), 0);
        results[0] = bf16::from_f64(exact[0] * 1.02 + 0.01);
        results[1] = bf16::NAN;
        assert_eq!(row.wrong_results(&results), 2);
        let largest = |group: &[f64]| group.iter().fold(0.0, |most: f64, one| most.max(one.abs()));
        let mut scales: Vec<f32> = exact
            .chunks(128)
            .map(|group| (largest(group) / LARGEST) as f32)
            .collect();
        let scaled = |scales: &[f32]| -> Vec<f32> {
            let scale = |at: usize| scales[at / 128];
            let narrow = |(at, one): (usize, &f64)| {
                symmem::F8E4M3::from_f32(*one as f32 / scale(at)).to_f32()
            };
            exact.iter().enumerate().map(narrow).collect()
        };
        let mut bytes = scaled(&scales);
        assert_eq!(row.wrong_bytes(&bytes, &scales), 0);
        bytes[200] += 64.0;
        assert_eq!(row.wrong_bytes(&bytes, &scales), 1);
        scales[0] *= 1.01;
        assert_eq!(row.wrong_bytes(&scaled(&scales), &scales), 1);
    }
}
