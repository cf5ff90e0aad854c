//! Expected elements of C.
//!
//! The reference R is a sum over the ranks of their parts P = A·B, each a sum in f64 of the stored elements. Algorithms round
//! parts and sums of parts to the element type, at most once per rank, and none of these is larger than Σ|P|. GEMM libraries
//! may round once more before they add a bias. An element is correct if |C − R| ≤ roundings·u·Σ|P| + √K·2⁻²²·Σ|a·b|, where u is
//! the unit roundoff and the second term an allowance for summing in f32 in any order.

use crate::gemm::data::{Content, Table};
use crate::gemm::element::MatrixFloat;
use crate::gemm::samples::{Samples, b_column, dot, sample, slack, steps};
use crate::report::gemm_reduce::{GemmCollective, GemmReduceProblem};

/// The smallest subnormal f16: no rounding of a subnormal is off by more. Those of bf16 are far smaller.
const LEAST: f64 = 1.0 / (1_u32 << 24) as f64;

/// Computes the samples of the C of `rank` in a pass. Their rows are those of the sum. Blocks.
pub(super) fn reference<T: MatrixFloat>(
    table: &Table<T>,
    (problem, collective): (&GemmReduceProblem, GemmCollective),
    pass: u64,
    (rank, world): (usize, usize),
) -> Samples {
    let GemmReduceProblem { m, n, k, .. } = *problem;
    let (row_step, column_step) = steps(m, n, k);
    let (mut rows, mut columns) = (Vec::new(), Vec::new());
    let own = collective.rows(m, world);
    let first = match collective {
        GemmCollective::ReduceScatter => rank * own,
        GemmCollective::AllReduce => 0,
    };
    sample(first..first + own, row_step, pass, &mut rows);
    sample(0..n, column_step, pass + 1, &mut columns);
    // The sampled columns of every rank's B.
    let lines: Vec<Vec<Vec<f32>>> = (0..world)
        .map(|rank| {
            let column = |&column| b_column(table, (k, problem.b_order), rank, column);
            columns.iter().map(column).collect()
        })
        .collect();
    let bias: Vec<f64> = (columns.iter())
        .map(|&column| match problem.bias {
            true => f64::from(table.value(Content::bias(0), 0, column)),
            false => 0.0,
        })
        .collect();
    let roundings = (world + usize::from(problem.bias)) as f64;
    let roundoff = roundings * T::ROUNDOFF;
    // The sums that are rounded have errors of earlier roundings in them.
    let roundoff = roundoff * (1.0 + roundoff);
    let slack = slack::<T>(k);
    Samples::new(rows, columns, world, |row, expected| {
        let mut a = vec![0.0; k];
        let mut sums: Vec<Sum> = bias.iter().map(|&bias| Sum::of(bias)).collect();
        for (rank, lines) in lines.iter().enumerate() {
            table.values(Content::own_a(pass, rank), row, 0, &mut a);
            for (sum, b) in sums.iter_mut().zip(lines) {
                sum.add(dot(&a, b));
            }
        }
        for (expected, sum) in expected.iter_mut().zip(sums) {
            let off = roundoff * sum.parts + slack * sum.products + roundings * LEAST;
            *expected = (sum.value, off);
        }
    })
}

/// The sum of the ranks' parts of an element.
struct Sum {
    value: f64,
    /// Σ|P|.
    parts: f64,
    /// Σ|a·b|.
    products: f64,
}

impl Sum {
    fn of(bias: f64) -> Self {
        Self {
            value: bias,
            parts: bias.abs(),
            products: bias.abs(),
        }
    }

    /// Adds a rank's part: its value, and the sum of the magnitudes of its products.
    fn add(&mut self, (part, products): (f64, f64)) {
        self.value += part;
        self.parts += part.abs();
        self.products += products;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::ag_gemm::{MatrixElement, MatrixOrder};

    const WORLD: usize = 3;

    fn problem<T: MatrixFloat>() -> GemmReduceProblem {
        GemmReduceProblem {
            m: 384,
            n: 300,
            k: 96,
            dtype: T::NAME,
            b_order: MatrixOrder::Rows,
            bias: true,
        }
    }

    /// An element of a rank's part, in f32.
    fn part<T: MatrixFloat>(
        table: &Table<T>,
        pass: u64,
        rank: usize,
        row: usize,
        b: &[f32],
    ) -> f32 {
        let mut a = vec![0.0; b.len()];
        table.values(Content::own_a(pass, rank), row, 0, &mut a);
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    /// A sampled row of C as the ranks would compute it, each rounding its part and the sum.
    fn row<T: MatrixFloat>(table: &Table<T>, row: usize, pass_of: impl Fn(usize) -> u64) -> Vec<T> {
        let problem = problem::<T>();
        let column = |column: usize| {
            let mut sum = T::from_f32(table.value(Content::bias(0), 0, column));
            for rank in 0..WORLD {
                let b = b_column(table, (problem.k, problem.b_order), rank, column);
                let part = part(table, pass_of(rank), rank, row, &b);
                sum = T::from_f32(sum.to_f32() + T::from_f32(part).to_f32());
            }
            sum
        };
        (0..problem.n).map(column).collect()
    }

    fn check<T: MatrixFloat>(collective: GemmCollective) {
        let table = Table::<T>::new();
        let problem = problem::<T>();
        let samples = reference(&table, (&problem, collective), 1, (1, WORLD));
        let (mut wrong, mut stale) = (0, 0);
        for (index, &line) in samples.rows.iter().enumerate().take(4) {
            wrong += samples.wrong(index, &row(&table, line, |_| 1)).0;
            // The part of the last rank is that of the pass before.
            let old = row(&table, line, |rank| if rank == 2 { 0 } else { 1 });
            stale += samples.wrong(index, &old).0;
        }
        assert_eq!(wrong, 0, "{collective:?}");
        assert!(stale > 0, "{collective:?}");
    }

    #[test]
    fn a_sum_is_right_and_a_stale_part_of_it_is_not() {
        check::<half::bf16>(GemmCollective::ReduceScatter);
        check::<half::f16>(GemmCollective::AllReduce);
    }

    #[test]
    fn of_a_reduce_scatter_only_own_rows_are_compared() {
        let table = Table::<half::bf16>::new();
        let problem = problem::<half::bf16>();
        let of = |collective, rank| {
            let samples = reference(&table, (&problem, collective), 1, (rank, WORLD));
            let (first, last) = (samples.rows[0], samples.rows[samples.rows.len() - 1]);
            (first, last, samples.rows.len() < 384)
        };
        assert_eq!(of(GemmCollective::ReduceScatter, 1), (128, 255, true));
        assert_eq!(of(GemmCollective::AllReduce, 1), (0, 383, true));
    }

    #[test]
    fn an_element_that_is_off_by_more_than_its_roundings_is_wrong() {
        let table = Table::<half::f16>::new();
        let problem = problem::<half::f16>();
        let pair = (&problem, GemmCollective::AllReduce);
        let samples = reference(&table, pair, 1, (0, WORLD));
        let mut c = row(&table, samples.rows[0], |_| 1);
        assert_eq!(samples.wrong(0, &c).0, 0);
        let column = samples.columns[1];
        c[column] = half::f16::from_f32(c[column].to_f32() + 0.1);
        assert_eq!(samples.wrong(0, &c).0, 1);
        assert_eq!(problem.dtype, MatrixElement::F16);
    }
}
