//! The shape of an all-gather + GEMM, and the division of `A` among ranks.

use crate::backend::abi;
use crate::base::names::{ElementType, MatrixOrder, Sharding};
use std::ops::Range;

/// The shape of `C[m, n] = A[m, k] · B[k, n]`, plus an optional `bias[n]` added to each row. Must be the same
/// on all ranks.
///
/// `A` and `C` are row-major. Each rank has a shard of `A` and its own `B` and bias, whose values may differ between
/// ranks, and computes its own `C` from all of `A`. Sizes and strides are in elements.
///
/// ```
/// use symmem::{GemmShape, Sharding};
/// let shape = GemmShape {
///     sharding: Sharding::Columns,
///     ..GemmShape::new(1024, 4096, 8192) // m, n, k
/// };
/// assert_eq!(shape.shard_elements(8), 1024 * 1024); // of `A`, on each of 8 ranks
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmShape {
    /// Rows of `A` and `C`.
    pub m: usize,
    /// Columns of `B` and `C` on each rank.
    pub n: usize,
    /// Columns of `A`, rows of `B`.
    pub k: usize,
    /// Division of `A`: with [`Sharding::Rows`] rank `r` has the rows from `r * ceil(m / world)`, with
    /// [`Sharding::Columns`] the columns from `r * ceil(k / world)`; the last ranks have fewer, or none.
    pub sharding: Sharding,
    /// Storage order of `B`.
    pub b_order: MatrixOrder,
    /// Elements from one row of `B` to the next (column, if `b_order` is columns); `None` for no gaps.
    pub b_stride: Option<usize>,
    /// Elements from one row of `C` to the next; `None` for no gaps.
    pub c_stride: Option<usize>,
    /// Whether there is a bias.
    pub bias: bool,
}

impl GemmShape {
    /// Returns a shape with `A` sharded by rows, `B` row-major, no gaps and no bias.
    pub const fn new(m: usize, n: usize, k: usize) -> Self {
        Self {
            m,
            n,
            k,
            sharding: Sharding::Rows,
            b_order: MatrixOrder::Rows,
            b_stride: None,
            c_stride: None,
            bias: false,
        }
    }

    /// Returns the elements of the largest shard. Every rank's buffer for its shard has this length.
    pub fn shard_elements(&self, world: usize) -> usize {
        let division = Division::new(self, world);
        (division.rows(0) * division.columns(0)) as usize
    }

    /// Returns the elements of `A`: the length of a buffer for the gathered `A`.
    pub fn gathered_elements(&self) -> usize {
        self.m * self.k
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
                ("B", self.b_stride.unwrap_or(b_length), b_length, b_lines),
                ("C", self.c_stride.unwrap_or(n), n, m),
                ("A", k, k, m),
            ],
        )
    }

    /// Returns the shape as a backend takes it, for `rows` rows of `A`, which are `a_stride` elements apart.
    pub(crate) fn raw(&self, element: ElementType, rows: u64, a_stride: u64) -> abi::GemmLayout {
        let b_least = match self.b_order {
            MatrixOrder::Columns => self.k,
            MatrixOrder::Rows => self.n,
        };
        abi::GemmLayout {
            m: rows,
            n: self.n as u64,
            k: self.k as u64,
            a_stride,
            b_stride: self.b_stride.unwrap_or(b_least) as u64,
            c_stride: self.c_stride.unwrap_or(self.n) as u64,
            element: element.into(),
            b_order: self.b_order.into(),
            bias: self.bias.into(),
            addend: 0,
        }
    }
}

/// Checks the sizes `[m, n, k]` of a GEMM, and of each matrix the stride, the length of a line and the number of lines, all in
/// elements. Returns the first violation as text.
pub(crate) fn check_sizes(
    [m, n, k]: [usize; 3],
    matrices: [(&str, usize, usize, usize); 3],
) -> Result<(), String> {
    if m == 0 || n == 0 || k == 0 {
        return Err(format!(
            "a GEMM of {m} x {k} by {k} x {n} has no elements; all sizes must be at least 1"
        ));
    }
    for (what, stride, length, lines) in matrices {
        if stride < length {
            return Err(format!(
                "the stride of {what} is {stride} elements; it must be at least {length}"
            ));
        }
        let elements = stride.checked_mul(lines);
        if elements.is_none_or(|elements| elements >= usize::MAX / 8) {
            return Err(format!("{what} exceeds the address space"));
        }
    }
    Ok(())
}

/// Division of `A`'s rows or columns among the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    pub(crate) sharding: Sharding,
    pub(crate) m: u64,
    pub(crate) k: u64,
    /// Rows, or columns, of a full shard; the last shards may be smaller.
    pub(crate) shard: u64,
}

impl Division {
    pub(crate) fn new(shape: &GemmShape, world: usize) -> Self {
        let (m, k) = (shape.m as u64, shape.k as u64);
        let whole = if shape.sharding == Sharding::Columns {
            k
        } else {
            m
        };
        Self {
            sharding: shape.sharding,
            m,
            k,
            shard: whole.div_ceil(world as u64),
        }
    }

    pub(crate) fn by_columns(&self) -> bool {
        self.sharding == Sharding::Columns
    }

    /// Returns a rank's range of the divided dimension.
    fn part(&self, rank: usize) -> Range<u64> {
        let whole = if self.by_columns() { self.k } else { self.m };
        let first = (rank as u64 * self.shard).min(whole);
        first..(first + self.shard).min(whole)
    }

    /// Returns a shard's first row in `A`.
    pub(crate) fn row(&self, rank: usize) -> u64 {
        if self.by_columns() {
            0
        } else {
            self.part(rank).start
        }
    }

    /// Returns the rows of a shard.
    pub(crate) fn rows(&self, rank: usize) -> u64 {
        if self.by_columns() {
            return self.m;
        }
        let part = self.part(rank);
        part.end - part.start
    }

    /// Returns a shard's first column in `A`.
    pub(crate) fn column(&self, rank: usize) -> u64 {
        if self.by_columns() {
            self.part(rank).start
        } else {
            0
        }
    }

    /// Returns the columns of a shard.
    pub(crate) fn columns(&self, rank: usize) -> u64 {
        if !self.by_columns() {
            return self.k;
        }
        let part = self.part(rank);
        part.end - part.start
    }

    /// Returns whether a rank's shard is empty.
    pub(crate) fn is_empty(&self, rank: usize) -> bool {
        self.part(rank).is_empty()
    }

    /// Returns the elements of a shard.
    pub(crate) fn elements(&self, rank: usize) -> u64 {
        self.rows(rank) * self.columns(rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_cover_the_matrix_and_the_last_have_fewer_or_none() {
        for sharding in [Sharding::Rows, Sharding::Columns] {
            for (m, k) in [(1, 1), (5, 9), (16, 16), (3, 100), (100, 3)] {
                for world in 1..=9 {
                    let shape = GemmShape {
                        sharding,
                        ..GemmShape::new(m, 1, k)
                    };
                    let division = Division::new(&shape, world);
                    let all: u64 = (0..world).map(|rank| division.elements(rank)).sum();
                    assert_eq!(all, (m * k) as u64);
                    let first = division.elements(0);
                    assert_eq!(first, shape.shard_elements(world) as u64);
                    let mut next = 0;
                    for rank in 0..world {
                        assert!(division.elements(rank) <= first);
                        assert_eq!(division.is_empty(rank), division.elements(rank) == 0);
                        let part = division.part(rank);
                        assert_eq!(part.start, next);
                        next = part.end;
                    }
                }
            }
        }
    }

    #[test]
    fn shapes_without_elements_and_strides_too_short_are_refused() {
        let good = GemmShape::new(4, 5, 6);
        assert_eq!(good.check(), Ok(()));
        for bad in [
            GemmShape { m: 0, ..good },
            GemmShape { n: 0, ..good },
            GemmShape { k: 0, ..good },
            GemmShape {
                m: usize::MAX / 8,
                ..good
            },
            GemmShape {
                b_stride: Some(4),
                ..good
            },
            GemmShape {
                c_stride: Some(4),
                ..good
            },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        let by_columns = GemmShape {
            b_order: MatrixOrder::Columns,
            b_stride: Some(6),
            ..good
        };
        assert_eq!(by_columns.check(), Ok(()));
        assert_eq!(by_columns.raw(ElementType::F16, 4, 6).b_stride, 6);
    }
}
