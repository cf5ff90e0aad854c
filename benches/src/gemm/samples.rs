//! Samples of C: which elements are compared, what is expected there, and the comparison.
//!
//! One row in every [`ROWS`] rows is sampled, and the first and the last, so that a stale tile of A with that many rows is
//! found. In each sampled row, all elements are checked for poison, and one in every [`COLUMNS`] columns is compared. Of a
//! small GEMM, all of C is compared.

use super::data::{Content, Table, mix};
use super::element::{MatrixFloat, Real};
use crate::report::ag_gemm::MatrixOrder;
use std::ops::Range;

/// One row in this many is compared.
const ROWS: usize = 64;
/// One column in this many is compared.
const COLUMNS: usize = 256;
/// All of C is compared if M·N·K is at most this.
const WHOLE: usize = 1 << 22;

/// Every byte of C before a checked call: NaN in every type, so that unwritten elements are always found.
pub(crate) const POISON: u8 = 0xff;

/// Guard elements after C that a call must not change.
pub(crate) const GUARD: usize = 1024;

/// Samples of the C of one rank.
pub(crate) struct Samples {
    pub(crate) rows: Vec<usize>,
    pub(crate) columns: Vec<usize>,
    /// Expected value and error bound of each sampled row and column.
    expected: Vec<(f64, f64)>,
}

/// The steps between the sampled rows and between the sampled columns of a GEMM of these sizes.
pub(crate) fn steps(m: usize, n: usize, k: usize) -> (usize, usize) {
    match m.saturating_mul(n).saturating_mul(k) <= WHOLE {
        true => (1, 1),
        false => (ROWS, COLUMNS),
    }
}

impl Samples {
    /// Computes the samples, with a thread for each processor that is a rank's. `of_row` writes expected value and error
    /// bound of each column of a row. Blocks.
    pub(crate) fn new(
        rows: Vec<usize>,
        columns: Vec<usize>,
        world: usize,
        of_row: impl Fn(usize, &mut [(f64, f64)]) + Sync,
    ) -> Self {
        let width = columns.len();
        let mut expected = vec![(0.0, 0.0); rows.len() * width];
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (processors / world).max(1);
        let of_thread = rows.len().div_ceil(threads).max(1);
        std::thread::scope(|scope| {
            let work = rows
                .chunks(of_thread)
                .zip(expected.chunks_mut(of_thread * width));
            for (rows, expected) in work {
                let of_row = &of_row;
                scope.spawn(move || {
                    for (&row, expected) in rows.iter().zip(expected.chunks_mut(width)) {
                        of_row(row, expected);
                    }
                });
            }
        });
        Self {
            rows,
            columns,
            expected,
        }
    }

    /// Returns the numbers of wrong and of compared elements in sampled row number `index`.
    pub(crate) fn wrong<T: Real>(&self, index: usize, row: &[T]) -> (u64, u64) {
        let width = self.columns.len();
        let expected = &self.expected[index * width..(index + 1) * width];
        let right = |&(&column, &(value, off)): &(&usize, &(f64, f64))| {
            // False for NaN.
            (f64::from(row[column].to_f32()) - value).abs() <= off
        };
        let pairs = self.columns.iter().zip(expected);
        let wrong = width - pairs.filter(right).count();
        let unwritten = row
            .iter()
            .filter(|element| element.to_f32().is_nan())
            .count();
        (wrong.max(unwritten) as u64, width as u64)
    }
}

/// Appends one random index of every `step`, and the first and the last.
pub(crate) fn sample(range: Range<usize>, step: usize, seed: u64, out: &mut Vec<usize>) {
    let Some(last) = range.clone().last() else {
        return;
    };
    let begun = out.len();
    for first in range.clone().step_by(step) {
        let room = step.min(range.end - first);
        out.push(first + (mix(seed << 32 ^ first as u64) % room as u64) as usize);
    }
    out.extend([range.start, last]);
    out[begun..].sort_unstable();
    let mut known = None;
    let mut kept = out.split_off(begun);
    kept.retain(|&one| known.replace(one) != Some(one));
    out.extend(kept);
}

/// Returns a column of a rank's B, which has `k` rows.
pub(crate) fn b_column<T: MatrixFloat>(
    table: &Table<T>,
    (k, order): (usize, MatrixOrder),
    rank: usize,
    column: usize,
) -> Vec<f32> {
    let content = Content::b(rank);
    match order {
        MatrixOrder::Rows => (0..k)
            .map(|row| table.value(content, row, column))
            .collect(),
        MatrixOrder::Columns => {
            let mut values = vec![0.0; k];
            table.values(content, column, 0, &mut values);
            values
        }
    }
}

/// Returns Σ a·b and Σ |a·b|, in f64.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> (f64, f64) {
    // Several independent sums, so that the compiler can use vector instructions.
    const LANES: usize = 8;
    let (mut sums, mut absolutes) = ([0.0; LANES], [0.0; LANES]);
    let (a_lines, b_lines) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest = a_lines.remainder().iter().zip(b_lines.remainder());
    for (a, b) in rest {
        let product = f64::from(*a) * f64::from(*b);
        sums[0] += product;
        absolutes[0] += product.abs();
    }
    for (a, b) in a_lines.zip(b_lines) {
        for lane in 0..LANES {
            let product = f64::from(a[lane]) * f64::from(b[lane]);
            sums[lane] += product;
            absolutes[lane] += product.abs();
        }
    }
    (sums.iter().sum(), absolutes.iter().sum())
}

/// Returns the factor of Σ|a·b| that allows for summing `k` products of elements `T` in any order: √K·2⁻²² for f32.
pub(crate) fn slack<T: MatrixFloat>(k: usize) -> f64 {
    ((k as f64).sqrt() / f64::from(1 << 22)).max(T::LEAST_SLACK)
}
