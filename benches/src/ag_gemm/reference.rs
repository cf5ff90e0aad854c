//! Expected elements of C, and the comparison with them.
//!
//! The reference R is a sum in f64 of the stored elements. An element is correct if
//! |C − R| ≤ u·|R| + √K·2⁻²²·Σ|a·b|: one rounding to the type of C, plus an allowance for summing in f32 in any
//! order. For a large C, samples are compared: one row in every [`ROWS`] rows of a shard, and its first and last row,
//! so that a stale tile of A with that many rows is found. In each sampled row, all elements are checked for poison,
//! and one in every [`COLUMNS`] columns is compared.

use super::data::{Content, Table, mix};
use super::element::MatrixFloat;
use crate::report::ag_gemm::{GemmProblem, MatrixOrder, Sharding};
use std::ops::Range;

/// One row in this many is compared.
const ROWS: usize = 64;
/// One column in this many is compared.
const COLUMNS: usize = 256;
/// All of C is compared if M·N·K is at most this.
const WHOLE: usize = 1 << 22;

/// Every byte of C before a checked call: NaN in both types, so that unwritten elements are always found.
pub(super) const POISON: u8 = 0xff;

/// Guard elements after C that a call must not change.
pub(super) const GUARD: usize = 1024;

/// Returns a rank's shard of `whole` lines: `ceil(whole / world)`; the last ranks may have fewer or none.
pub(super) fn part(whole: usize, rank: usize, world: usize) -> Range<usize> {
    let shard = whole.div_ceil(world);
    (rank * shard).min(whole)..((rank + 1) * shard).min(whole)
}

/// Samples of the C of one rank.
pub(super) struct Reference {
    pub(super) rows: Vec<usize>,
    columns: Vec<usize>,
    /// Expected value and error bound of each sampled row and column.
    expected: Vec<(f64, f64)>,
}

impl Reference {
    /// Computes the samples for `rank` in a pass, with `threads` threads. Blocks.
    pub(super) fn new<T: MatrixFloat>(
        table: &Table<T>,
        product: &GemmProblem,
        pass: u64,
        (rank, world): (usize, usize),
        threads: usize,
    ) -> Self {
        let GemmProblem { m, n, k, .. } = *product;
        let whole = m.saturating_mul(n).saturating_mul(k) <= WHOLE;
        let (row_step, column_step) = if whole { (1, 1) } else { (ROWS, COLUMNS) };
        let mut rows = Vec::new();
        match product.sharding {
            Sharding::Rows => {
                for shard in 0..world {
                    sample(part(m, shard, world), row_step, pass, &mut rows);
                }
            }
            Sharding::Columns => sample(0..m, row_step, pass, &mut rows),
        }
        let mut columns = Vec::new();
        sample(0..n, column_step, pass + 1, &mut columns);
        let lines: Vec<(Vec<f32>, f32)> = (columns.iter())
            .map(|&column| {
                let bias = match product.bias {
                    true => table.value(Content::bias(rank), 0, column),
                    false => 0.0,
                };
                (b_column(table, product, rank, column), bias)
            })
            .collect();
        let slack = (k as f64).sqrt() / f64::from(1 << 22);
        let mut expected = vec![(0.0, 0.0); rows.len() * columns.len()];
        let of_thread = rows.len().div_ceil(threads.max(1)).max(1);
        std::thread::scope(|scope| {
            let work = rows
                .chunks(of_thread)
                .zip(expected.chunks_mut(of_thread * columns.len()));
            for (rows, expected) in work {
                let lines = &lines;
                scope.spawn(move || {
                    let mut a = vec![0.0; k];
                    for (&row, expected) in rows.iter().zip(expected.chunks_mut(lines.len())) {
                        table.values(Content::a(pass), row, 0, &mut a);
                        for ((b, bias), expected) in lines.iter().zip(expected) {
                            let (sum, absolute) = dot(&a, b);
                            let bias = f64::from(*bias);
                            let value = sum + bias;
                            let off = T::ROUNDOFF * value.abs() + slack * (absolute + bias.abs());
                            *expected = (value, off);
                        }
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
    pub(super) fn wrong<T: MatrixFloat>(&self, index: usize, row: &[T]) -> (u64, u64) {
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
fn sample(range: Range<usize>, step: usize, seed: u64, out: &mut Vec<usize>) {
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

/// Returns a column of a rank's B.
fn b_column<T: MatrixFloat>(
    table: &Table<T>,
    product: &GemmProblem,
    rank: usize,
    column: usize,
) -> Vec<f32> {
    let content = Content::b(rank);
    match product.b_order {
        MatrixOrder::Rows => (0..product.k)
            .map(|row| table.value(content, row, column))
            .collect(),
        MatrixOrder::Columns => {
            let mut values = vec![0.0; product.k];
            table.values(content, column, 0, &mut values);
            values
        }
    }
}

/// Returns Σ a·b and Σ |a·b|, in f64.
fn dot(a: &[f32], b: &[f32]) -> (f64, f64) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::ag_gemm::MatrixElement;

    const PRODUCT: GemmProblem = GemmProblem {
        m: 300,
        n: 280,
        k: 96,
        dtype: MatrixElement::Bf16,
        sharding: Sharding::Rows,
        b_order: MatrixOrder::Rows,
        bias: true,
    };
    const RANK: usize = 1;
    const WORLD: usize = 2;

    /// C as a device would compute it; `stale` gives the tile of A that still has the previous pass.
    fn product<T: MatrixFloat>(
        table: &Table<T>,
        product: &GemmProblem,
        pass: u64,
        stale: Option<(Range<usize>, Range<usize>)>,
    ) -> Vec<Vec<T>> {
        let columns: Vec<Vec<f32>> = (0..product.n)
            .map(|column| b_column(table, product, RANK, column))
            .collect();
        let row = |row: usize| {
            let mut a = vec![0.0; product.k];
            table.values(Content::a(pass), row, 0, &mut a);
            if let Some((rows, places)) = &stale
                && rows.contains(&row)
            {
                let out = &mut a[places.clone()];
                table.values(Content::a(pass - 1), row, places.start, out);
            }
            let element = |(column, b): (usize, &Vec<f32>)| {
                let bias = table.value(Content::bias(RANK), 0, column);
                let bias = if product.bias { bias } else { 0.0 };
                let sum: f32 = a.iter().zip(b).map(|(a, b)| a * b).sum();
                T::from_f32(sum + bias)
            };
            columns.iter().enumerate().map(element).collect()
        };
        (0..product.m).map(row).collect()
    }

    fn wrong<T: MatrixFloat>(reference: &Reference, c: &[Vec<T>]) -> u64 {
        let rows = reference.rows.iter().enumerate();
        rows.map(|(index, &row)| reference.wrong(index, &c[row]).0)
            .sum()
    }

    fn check<T: MatrixFloat>(product_: GemmProblem) {
        let table = Table::<T>::new();
        let reference = Reference::new(&table, &product_, 1, (RANK, WORLD), 2);
        assert!(reference.rows.len() < product_.m, "samples, not the whole");
        let right = product(&table, &product_, 1, None);
        assert_eq!(wrong(&reference, &right), 0, "{product_:?}");

        // A stale tile of A: 64 rows of a shard, 16 columns.
        for first in [0, 64, 150, 214] {
            let stale = Some((first..first + 64, 80..96));
            let c = product(&table, &product_, 1, stale);
            assert!(wrong(&reference, &c) > 0, "rows from {first} on");
        }
        // An unwritten tile of C.
        let mut c = right.clone();
        for row in &mut c[64..128] {
            row[130..150].fill(T::from_f32(f32::NAN));
        }
        assert!(wrong(&reference, &c) >= 20);
        // The last row, and the last column.
        let mut c = right.clone();
        c[product_.m - 1][0] = T::from_f32(100.0);
        assert_eq!(wrong(&reference, &c), 1);
        let mut c = right;
        c[0][product_.n - 1] = T::from_f32(100.0);
        assert_eq!(wrong(&reference, &c), 1);
    }

    #[test]
    fn a_product_is_right_and_a_stale_tile_of_it_is_not() {
        check::<half::bf16>(PRODUCT);
        check::<half::f16>(GemmProblem {
            dtype: MatrixElement::F16,
            b_order: MatrixOrder::Columns,
            bias: false,
            ..PRODUCT
        });
    }

    #[test]
    fn of_a_small_product_all_is_compared() {
        let small = GemmProblem {
            m: 5,
            n: 6,
            k: 7,
            ..PRODUCT
        };
        let table = Table::<half::f16>::new();
        let reference = Reference::new(&table, &small, 0, (0, 3), 1);
        assert_eq!(reference.rows, [0, 1, 2, 3, 4]);
        assert_eq!(reference.columns, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn an_element_that_is_off_by_more_than_rounding_is_wrong() {
        let table = Table::<half::f16>::new();
        let reference = Reference::new(&table, &PRODUCT, 1, (RANK, WORLD), 1);
        let mut c = product(&table, &PRODUCT, 1, None);
        let (row, column) = (reference.rows[3], reference.columns[1]);
        let value = c[row][column].to_f32();
        // Some units in the last place, far less than the error of a wrong tile.
        c[row][column] = half::f16::from_f32(value * (1.0 + 6.0 / 2048.0) + 0.001);
        assert_eq!(wrong(&reference, &c), 1);
    }

    #[test]
    fn parts_cover_the_whole() {
        assert_eq!(part(10, 0, 4), 0..3);
        assert_eq!(part(10, 3, 4), 9..10);
        assert_eq!(part(2, 3, 4), 2..2);
    }
}
