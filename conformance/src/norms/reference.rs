//! What a call must give: sums in f32, exactly, and norms in f64, within the error of their steps in f32.
//!
//! The bounds follow from what [`symmem::Collectives::all_reduce_norm`] promises. `u` is 2^-24, the relative error of a rounding
//! to f32, and `n` the elements of a row:
//!
//! - the sum with the residual is in f32, in the order of the ranks, and is rounded once. It has no error;
//! - a sum over a row may be in any order. Its rounding errors are random, and its relative error grows as `u·√n`; 16 `u` more
//!   are for the root, the division and the products. This `loss` counts for each term of a result, and for the mean with the
//!   factor by which an error of the mean grows;
//! - a result in the rows' type is rounded once: half a unit in the last place, or of the smallest step;
//! - a result of 8 bits has 3 digits after the first: a rounding loses at most a 16th of the number, or half of the smallest
//!   step, 2^-9.

use super::case::{NormCase, NormName, NormOutput, ResidualUse};
use super::values::{EPSILON, Values};
use crate::dtype::Dtype;
use crate::floats::Format;

/// The relative error of a rounding to f32.
const UNIT: f64 = 1.0 / (1u64 << 24) as f64;
/// The relative error of a division: two units in the last place, as on devices that approximate it.
const DIVISION: f64 = 4.0 * UNIT;
/// The largest number of E4M3, and half of its smallest step.
const LARGEST: f64 = 448.0;
const HALF_STEP: f64 = 1.0 / 1024.0;
/// The smallest of the largest magnitudes of a row or group that has a scale.
const SMALLEST_MAXIMUM: f64 = 1e-10;

/// A number that must be found within a bound.
#[derive(Clone, Copy, Debug)]
pub struct Near {
    pub value: f64,
    pub bound: f64,
}

impl Near {
    /// Whether a number is within the bound.
    pub fn accepts(self, seen: f64) -> bool {
        (seen - self.value).abs() <= self.bound
    }
}

/// What a call must give.
pub struct Expected {
    /// The sums with the residual, as bits.
    pub sums: Vec<u32>,
    /// The results before they are rounded to their type.
    results: Vec<Near>,
    /// Half a unit in the last place of a result in the rows' type, relative, and of its smallest step.
    rounding: (f64, f64),
    output: NormOutput,
    width: usize,
}

impl Expected {
    /// Computes what a call must give.
    pub fn new(case: &NormCase, values: &Values) -> Self {
        let format = Format::of(case.dtype);
        let sums = sums(format, values, case.residual != ResidualUse::Absent);
        let results = match case.norm {
            NormName::None => {
                let exact = |sum: &u32| Near {
                    value: format.decode(*sum).into(),
                    bound: 0.0,
                };
                sums.iter().map(exact).collect()
            }
            _ => sums
                .chunks(case.hidden)
                .flat_map(|row| normalised(case, values, row))
                .collect(),
        };
        let half_step = match case.dtype {
            Dtype::F16 => 0.5f64.powi(25),
            // The smallest normal number: smaller ones may become 0.
            _ => f64::from(f32::MIN_POSITIVE),
        };
        let half_unit = match case.norm {
            // The sum is rounded already.
            NormName::None => 0.0,
            _ => 0.5f64.powi(format.mantissa as i32 + 1),
        };
        Self {
            sums,
            results,
            rounding: (half_unit, half_step),
            output: case.output,
            width: case.output.width(case.rows, case.hidden),
        }
    }

    /// Returns result number `index`. If it has 8 bits, `scale` is the scale that it was found with.
    pub fn result(&self, index: usize, scale: f64) -> Near {
        let Near { value, bound } = self.results[index];
        if self.output == NormOutput::Same {
            let (half_unit, half_step) = self.rounding;
            let rounding = (value.abs() + bound) * half_unit;
            let rounding = if half_unit > 0.0 {
                rounding.max(half_step)
            } else {
                0.0
            };
            return Near {
                value,
                bound: bound + rounding,
            };
        }
        // The quotient is the product with an inverse.
        let bound = bound + (DIVISION + UNIT) * value.abs();
        let most = LARGEST * scale;
        let rounding = ((value.abs() + bound).min(most) / 16.0).max(HALF_STEP * scale);
        Near {
            value: value.clamp(-most, most),
            bound: bound + rounding,
        }
    }

    /// Returns scale number `index` of those that the call computes.
    pub fn scale(&self, index: usize) -> Near {
        let part = &self.results[index * self.width..][..self.width];
        let most = |of: fn(&Near) -> f64| part.iter().map(of).fold(0.0, f64::max);
        let largest = most(|result| result.value.abs());
        let value = largest.max(SMALLEST_MAXIMUM) / LARGEST;
        Near {
            value,
            bound: most(|result| result.bound) / LARGEST + DIVISION * value,
        }
    }

    /// Returns the number of elements that share a scale.
    pub fn width(&self) -> usize {
        self.width
    }
}

/// Returns the sums of all ranks' rows and of the residual.
fn sums(format: Format, values: &Values, has_residual: bool) -> Vec<u32> {
    let (first, others) = (values.sources.split_first()).expect("a world has a rank");
    let sum = |index: usize| {
        let parts = others.iter().map(|source| source[index]);
        let residual = has_residual.then(|| values.residual[index]);
        let sum = parts
            .chain(residual)
            .fold(format.decode(first[index]), |sum, part| {
                sum + format.decode(part)
            });
        format.encode(sum)
    };
    (0..first.len()).map(sum).collect()
}

/// Returns the norm of a row.
fn normalised(case: &NormCase, values: &Values, row: &[u32]) -> Vec<Near> {
    let format = Format::of(case.dtype);
    let number = |bits: u32| f64::from(format.decode(bits));
    let row: Vec<f64> = row.iter().map(|bits| number(*bits)).collect();
    let count = row.len() as f64;
    let is_layer = case.norm == NormName::Layer;
    let (mut mean, mut size) = (0.0, 0.0);
    if is_layer {
        mean = row.iter().sum::<f64>() / count;
        size = row.iter().map(|number| number.abs()).sum::<f64>() / count;
    }
    let squares: f64 = row.iter().map(|number| (number - mean).powi(2)).sum();
    let factor = 1.0 / (squares / count + f64::from(EPSILON)).sqrt();
    let loss = (count.sqrt() + 16.0) * UNIT;
    let weight_offset = if case.from_one { 1.0 } else { 0.0 };
    let results = row.iter().enumerate().map(|(at, element)| {
        let weight = number(values.weight[at]) + weight_offset;
        let bias = match is_layer {
            true => number(values.bias[at]),
            false => 0.0,
        };
        let scaled = (element - mean) * factor * weight;
        // The sum of a weight and the offset is rounded, relative to the larger of both.
        let weights = weight.abs().max(weight_offset);
        let terms = (element - mean).abs() * factor * weights + size * factor * weights;
        Near {
            value: scaled + bias,
            bound: loss * (terms + bias.abs()),
        }
    });
    results.collect()
}
