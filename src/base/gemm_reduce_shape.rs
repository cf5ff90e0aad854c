//! The shape of a GEMM whose results are added up over the ranks, and the division of its rows.

use crate::backend::abi::GemmLayout;
use crate::base::gemm_shape::check_sizes;
use crate::base::names::{ElementType, MatrixOrder};

/// The shape of `C[m, n] = Σ A[m, k] · B[k, n]` over the ranks, plus an optional `bias[n]` added to each row of the sum.
/// Must be the same on all ranks.
///
/// Each rank has its own `A` and `B`: in a layer whose weights are sharded by rows, its columns of the activations and its rows
/// of the weights. `A` and `C` are row-major. Sizes and strides are in elements.
///
/// ```
/// use symmem::GemmReduceShape;
/// // A down projection with 28672 inputs, over 8 ranks, for 16 tokens.
/// let shape = GemmReduceShape::new(16, 8192, 28672 / 8);
/// assert_eq!(shape.rows_of_a_rank(8), 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmReduceShape {
    /// Rows of `A` and of the sum.
    pub m: usize,
    /// Columns of `B` and of the sum.
    pub n: usize,
    /// Columns of this rank's `A`, rows of its `B`.
    pub k: usize,
    /// Elements from one row of `A` to the next; `None` for no gaps.
    pub a_stride: Option<usize>,
    /// Storage order of `B`.
    pub b_order: MatrixOrder,
    /// Elements from one row of `B` to the next (column, if `b_order` is columns); `None` for no gaps.
    pub b_stride: Option<usize>,
    /// Whether there is a bias. It is added once, not once per rank.
    pub bias: bool,
}

impl GemmReduceShape {
    /// Returns a shape with `B` row-major, no gaps and no bias.
    pub const fn new(m: usize, n: usize, k: usize) -> Self {
        Self {
            m,
            n,
            k,
            a_stride: None,
            b_order: MatrixOrder::Rows,
            b_stride: None,
            bias: false,
        }
    }

    /// Returns the rows of the sum that a rank gets in a reduce-scatter.
    pub fn rows_of_a_rank(&self, world: usize) -> usize {
        self.m.div_ceil(world)
    }

    pub(crate) fn a_stride(&self) -> usize {
        self.a_stride.unwrap_or(self.k)
    }

    pub(crate) fn b_stride(&self) -> usize {
        self.b_stride.unwrap_or(match self.b_order {
            MatrixOrder::Rows => self.n,
            MatrixOrder::Columns => self.k,
        })
    }

    /// Checks sizes and strides. Returns the first violation as text.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { m, n, k, .. } = *self;
        let (b_lines, b_length) = match self.b_order {
            MatrixOrder::Rows => (k, n),
            MatrixOrder::Columns => (n, k),
        };
        check_sizes(
            [m, n, k],
            [
                ("A", self.a_stride(), k, m),
                ("B", self.b_stride(), b_length, b_lines),
                ("C", n, n, m),
            ],
        )
    }

    /// Returns the shape of a GEMM of `rows` rows as a backend takes it.
    pub(crate) fn layout(
        &self,
        element: ElementType,
        rows: u64,
        (bias, addend): (bool, bool),
    ) -> GemmLayout {
        GemmLayout {
            m: rows,
            n: self.n as u64,
            k: self.k as u64,
            a_stride: self.a_stride() as u64,
            b_stride: self.b_stride() as u64,
            c_stride: self.n as u64,
            element: element.into(),
            b_order: self.b_order.into(),
            bias: bias.into(),
            addend: addend.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_that_is_none_is_refused_with_what_is_wrong() {
        let good = GemmReduceShape::new(3, 4, 5);
        assert_eq!(good.check(), Ok(()));
        for (shape, word) in [
            (GemmReduceShape { k: 0, ..good }, "no elements"),
            (
                GemmReduceShape {
                    a_stride: Some(4),
                    ..good
                },
                "the stride of A is 4",
            ),
            (
                GemmReduceShape {
                    b_order: MatrixOrder::Columns,
                    b_stride: Some(4),
                    ..good
                },
                "the stride of B is 4",
            ),
            (
                GemmReduceShape {
                    m: usize::MAX / 4,
                    ..good
                },
                "A exceeds",
            ),
        ] {
            let message = shape.check().unwrap_err();
            assert!(message.contains(word), "{message}");
        }
    }
}
