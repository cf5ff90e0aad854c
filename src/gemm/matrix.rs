//! Where a matrix lies.

use crate::backend::abi::DeviceAddress;
use crate::base::error::{Error, Result};
use crate::base::names::MatrixOrder;
use crate::base::reducible::Reducible;
use crate::buffer::slice::Slice;
use crate::rank::operand::Operand;
use crate::rank::submit::Submit;
use crate::world::world::World;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// What matrices are made of: `half::f16` and `half::bf16`.
pub trait GemmElement: Reducible + sealed::Sealed {}

impl GemmElement for half::f16 {}
impl GemmElement for half::bf16 {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for half::f16 {}
    impl Sealed for half::bf16 {}
}

/// A matrix of this rank, in device memory.
#[derive(Clone, Copy)]
pub struct Matrix<'a, T> {
    memory: Memory<'a>,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) stride: usize,
    pub(super) order: MatrixOrder,
    elements: PhantomData<fn() -> T>,
}

/// Where a matrix's elements are.
#[derive(Clone, Copy)]
enum Memory<'a> {
    /// In a symmetric buffer of this communicator.
    Symmetric(&'a Arc<World>, Operand<'a>),
    /// At an address that the caller vouches for.
    Raw(DeviceAddress),
}

impl<'a, T: GemmElement> Matrix<'a, T> {
    /// `rows` x `columns` elements, row-major and without gaps, from the range's start on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the range has fewer.
    pub fn of(range: impl Into<Slice<'a, T>>, rows: usize, columns: usize) -> Result<Self> {
        Self::strided(range, rows, columns, columns, MatrixOrder::Rows)
    }

    /// `rows` x `columns` elements from the range's start on, with `stride` elements from one row to the
    /// next, or column, as `order` says.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the range ends before the last element; [`Error::InvalidArgument`] if the
    /// stride is too short.
    pub fn strided(
        range: impl Into<Slice<'a, T>>,
        rows: usize,
        columns: usize,
        stride: usize,
        order: MatrixOrder,
    ) -> Result<Self> {
        let range = range.into();
        let world = range.world();
        let rank = world.rank;
        let (lines, width) = lines_of(rows, columns, order);
        if stride < width {
            return Err(Error::InvalidArgument {
                rank,
                operation: "matrix",
                message: format!(
                    "{} with stride {stride} is no way for {rows} x {columns} elements to lie",
                    order.name()
                ),
            });
        }
        let needed = elements(lines, width, stride);
        if needed.is_none_or(|needed| needed > range.len()) {
            return Err(Error::OutOfRange {
                rank,
                offset: range.offset(),
                count: needed.unwrap_or(usize::MAX),
                length: range.whole(),
            });
        }
        let operand = range.operand();
        Ok(Self {
            rows,
            columns,
            stride,
            order,
            memory: Memory::Symmetric(world, operand),
            elements: PhantomData,
        })
    }

    /// The same of memory that is no symmetric buffer, at an address of this rank's device.
    ///
    /// # Safety
    /// The elements are there, aligned, and stay until the streams that use the matrix have passed that
    /// work, and any graph that has captured it is gone.
    pub unsafe fn from_raw(
        address: DeviceAddress,
        rows: usize,
        columns: usize,
        stride: usize,
        order: MatrixOrder,
    ) -> Self {
        Self {
            rows,
            columns,
            stride,
            order,
            memory: Memory::Raw(address),
            elements: PhantomData,
        }
    }

    /// The addresses from its first byte to its last.
    pub(super) fn extent(&self) -> Range<u64> {
        let (lines, width) = lines_of(self.rows, self.columns, self.order);
        let elements = elements(lines, width, self.stride).unwrap_or(usize::MAX);
        let bytes = (elements as u64).saturating_mul(size_of::<T>() as u64);
        let start = self.start();
        start..start.saturating_add(bytes)
    }

    /// Returns the number of its first byte's address at this rank, for checks of alignment and overlap.
    pub(super) fn start(&self) -> u64 {
        match &self.memory {
            Memory::Symmetric(world, operand) => operand.start(world.rank),
            Memory::Raw(address) => address.0,
        }
    }

    /// Returns its first byte's address at this rank, for the work that `submit` enqueues.
    pub(super) fn address(&self, submit: &Submit<'_>) -> DeviceAddress {
        match &self.memory {
            Memory::Symmetric(_, operand) => submit.address(operand, submit.rank()),
            Memory::Raw(address) => *address,
        }
    }

    /// Returns the communicator that its buffer belongs to; `None` for memory of the caller's.
    pub(super) fn world(&self) -> Option<&'a Arc<World>> {
        match self.memory {
            Memory::Symmetric(world, _) => Some(world),
            Memory::Raw(_) => None,
        }
    }
}

/// Lines that are contiguous, and elements of each.
fn lines_of(rows: usize, columns: usize, order: MatrixOrder) -> (usize, usize) {
    match order {
        MatrixOrder::Columns => (columns, rows),
        MatrixOrder::Rows => (rows, columns),
    }
}

/// Elements from the first to the last.
fn elements(lines: usize, width: usize, stride: usize) -> Option<usize> {
    if lines == 0 || width == 0 {
        return Some(0);
    }
    (lines - 1).checked_mul(stride)?.checked_add(width)
}

impl<T> std::fmt::Debug for Matrix<'_, T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Matrix")
            .field("rows", &self.rows)
            .field("columns", &self.columns)
            .field("stride", &self.stride)
            .field("order", &self.order.name())
            .finish_non_exhaustive()
    }
}

/// The matrices of one call.
#[derive(Clone, Copy)]
pub struct Operands<'a, T: GemmElement> {
    /// This rank's shard of `A`, row-major and without gaps. The same range on all ranks, as long as the
    /// largest shard ([`crate::GemmShape::shard_elements`]); ranks with less have it at its start.
    pub a: Slice<'a, T>,
    /// `B`, whole.
    pub b: Matrix<'a, T>,
    /// `C`, whole, written.
    pub c: Matrix<'a, T>,
    /// The bias, 1 x `n`, where the shape has one.
    pub bias: Option<Matrix<'a, T>>,
    /// Where `A` is gathered and stays, row-major and without gaps
    /// ([`crate::GemmShape::gathered_elements`]), where the options say that there is such a buffer. The same
    /// range on all ranks.
    pub gathered: Option<Slice<'a, T>>,
}
