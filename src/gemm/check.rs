//! Checks of a call's matrices against the shape that an operation was made for.

use crate::base::error::Result;
use crate::base::names::MatrixOrder;
use crate::gemm::matrix::{GemmElement, Matrix};
use crate::stream::queue::Queue;

/// The distance from one line of a matrix to the next for which an operation was made.
#[derive(Clone, Copy)]
pub(crate) enum Stride {
    /// As many as the line has.
    WithoutGaps,
    /// This many.
    Elements(usize),
    /// The matrix has one line, so the distance is ignored.
    OfOneLine,
}

impl From<Option<usize>> for Stride {
    fn from(stride: Option<usize>) -> Self {
        stride.map_or(Self::WithoutGaps, Self::Elements)
    }
}

/// Checks that a call of `name` passes a matrix exactly if the operation was made for one, and one of its rows, columns, stride
/// and order.
///
/// # Errors
/// [`crate::Error::InvalidArgument`], which names what differs.
pub(crate) fn check_matrix<T: GemmElement>(
    (queue, name): (&Queue, &'static str),
    what: &str,
    matrix: Option<&Matrix<'_, T>>,
    expected: Option<(usize, usize, Stride, MatrixOrder)>,
) -> Result<()> {
    let invalid = |message: String| Err(queue.invalid(name, message));
    let (matrix, (rows, columns, stride, order)) = match (matrix, expected) {
        (Some(matrix), Some(expected)) => (matrix, expected),
        (None, None) => return Ok(()),
        (Some(_), None) => {
            return invalid(format!(
                "{what} was passed, but the operation was made without it; leave it out, or make the operation with it"
            ));
        }
        (None, Some(_)) => {
            return invalid(format!(
                "{what} is missing, but the operation was made with it; pass it, or make the operation without it"
            ));
        }
    };
    if let Some(world) = matrix.world() {
        queue.check_same(world, name)?;
    }
    let width = match order {
        MatrixOrder::Columns => rows,
        _ => columns,
    };
    let expected_stride = match stride {
        Stride::Elements(elements) => elements,
        Stride::WithoutGaps | Stride::OfOneLine => width,
    };
    // The stride of a single line is ignored. A bias in column order has as many lines as elements.
    let single = matrix.order == MatrixOrder::Rows || matrix.stride == 1 || columns == 1;
    let alike = (matrix.rows, matrix.columns) == (rows, columns)
        && match stride {
            Stride::OfOneLine => single,
            _ => (matrix.order, matrix.stride) == (order, expected_stride),
        };
    if !alike {
        return invalid(format!(
            "{what} is {matrix:?}; the operation was made for {rows} x {columns}, {}, stride {expected_stride}",
            order.name()
        ));
    }
    let (start, element) = (matrix.start(), size_of::<T>());
    if !start.is_multiple_of(element as u64) {
        return invalid(format!(
            "{what} starts at {start:#x}, which is no multiple of its element size, {element} bytes; align it"
        ));
    }
    Ok(())
}
