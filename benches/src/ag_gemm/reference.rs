//! Expected elements of C.
//!
//! The reference R is a sum in f64 of the stored elements. An element is correct if
//! |C − R| ≤ u·|R| + √K·2⁻²²·Σ|a·b|: one rounding to the type of C, plus an allowance for summing in f32 in any
//! order, or 2⁻¹⁰·Σ|a·b| for 8-bit floats. For a large C, samples are compared, of each shard ([`crate::gemm::samples`]).

use crate::gemm::data::{Content, Table};
use crate::gemm::element::{MatrixFloat, Real};
use crate::gemm::samples::{Samples, b_column, dot, sample, slack, steps};
use crate::report::ag_gemm::{GemmProblem, Sharding};
use std::ops::Range;

/// Returns a rank's shard of `whole` lines: `ceil(whole / world)`; the last ranks may have fewer or none.
pub(super) fn part(whole: usize, rank: usize, world: usize) -> Range<usize> {
    let shard = whole.div_ceil(world);
    (rank * shard).min(whole)..((rank + 1) * shard).min(whole)
}

/// Computes the samples of the C of `rank` in a pass. Blocks.
pub(super) fn reference<T: MatrixFloat>(
    table: &Table<T>,
    product: &GemmProblem,
    pass: u64,
    (rank, world): (usize, usize),
) -> Samples {
    let GemmProblem { m, n, k, .. } = *product;
    let (row_step, column_step) = steps(m, n, k);
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
            (b_column(table, (k, product.b_order), rank, column), bias)
        })
        .collect();
    let slack = slack::<T>(k);
    Samples::new(rows, columns, world, |row, expected| {
        let mut a = vec![0.0; k];
        table.values(Content::a(pass), row, 0, &mut a);
        for ((b, bias), expected) in lines.iter().zip(expected) {
            let (sum, absolute) = dot(&a, b);
            let bias = f64::from(*bias);
            let value = sum + bias;
            let off = T::Output::ROUNDOFF * value.abs() + slack * (absolute + bias.abs());
            *expected = (value, off);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::ag_gemm::{MatrixElement, MatrixOrder};

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
    ) -> Vec<Vec<T::Output>> {
        let columns: Vec<Vec<f32>> = (0..product.n)
            .map(|column| b_column(table, (product.k, product.b_order), RANK, column))
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
                T::Output::from_f32(sum + bias)
            };
            columns.iter().enumerate().map(element).collect()
        };
        (0..product.m).map(row).collect()
    }

    fn wrong<T: MatrixFloat>(reference: &Samples, c: &[Vec<T>]) -> u64 {
        let rows = reference.rows.iter().enumerate();
        rows.map(|(index, &row)| reference.wrong(index, &c[row]).0)
            .sum()
    }

    fn check<T: MatrixFloat>(product_: GemmProblem) {
        let table = Table::<T>::new();
        let reference = reference(&table, &product_, 1, (RANK, WORLD));
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
            row[130..150].fill(T::Output::from_f32(f32::NAN));
        }
        assert!(wrong(&reference, &c) >= 20);
        // The last row, and the last column.
        let mut c = right.clone();
        c[product_.m - 1][0] = T::Output::from_f32(100.0);
        assert_eq!(wrong(&reference, &c), 1);
        let mut c = right;
        c[0][product_.n - 1] = T::Output::from_f32(100.0);
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
        check::<symmem::F8E4M3>(GemmProblem {
            dtype: MatrixElement::F8E4M3,
            b_order: MatrixOrder::Columns,
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
        let reference = reference(&table, &small, 0, (0, 3));
        assert_eq!(reference.rows, [0, 1, 2, 3, 4]);
        assert_eq!(reference.columns, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn an_element_that_is_off_by_more_than_rounding_is_wrong() {
        let table = Table::<half::f16>::new();
        let reference = reference(&table, &PRODUCT, 1, (RANK, WORLD));
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
