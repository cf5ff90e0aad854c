//! Matrices: their memory and layout.

use crate::backend::abi::DeviceAddress;
use crate::base::element::F8E4M3;
use crate::base::error::{Error, Result};
use crate::base::names::MatrixOrder;
use crate::base::reducible::Reducible;
use crate::buffer::slice::Slice;
use crate::rank::memory_range::MemoryRange;
use crate::rank::submit::Submit;
use crate::world::world::World;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// An element type of GEMMs' `A` and `B`: `half::f16`, `half::bf16`, `f32` and [`F8E4M3`]. Sealed.
///
/// `f32` is multiplied by cuBLASLt or hipBLASLt only, and not before a reduction: no fused kernel of a GPU takes it.
///
/// [`F8E4M3`] is not multiplied before a reduction either, and on GPUs only with a `B` stored by columns, which is how their
/// matrix instructions read it. cuBLASLt and hipBLASLt want sizes and strides that are multiples of 16, and matrices at multiples of
/// 16 bytes. gfx942 and gfx950 also have fused kernels for it, where there are at least two ranks: for an even `k`, even strides
/// and addresses, and, if `A` is sharded by columns, an even number of them in a shard. On every device the bits are OCP E4M3,
/// which gfx942's instructions do not know: its kernel converts them.
pub trait GemmElement: Reducible + sealed::Sealed {
    /// Element type of `C` and of the bias: `half::bf16` for [`F8E4M3`], otherwise the type itself.
    type Output: GemmElement<Output = Self::Output>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! gemm_elements {
    ($($type:ty => $output:ty,)*) => {$(
        impl sealed::Sealed for $type {}
        impl GemmElement for $type {
            type Output = $output;
        }
    )*};
}
gemm_elements! {
    half::f16 => half::f16,
    half::bf16 => half::bf16,
    f32 => f32,
    F8E4M3 => half::bf16,
}

/// A matrix in this rank's memory, with its layout. Sizes and strides are in elements.
#[derive(Clone, Copy)]
pub struct Matrix<'a, T> {
    memory: Memory<'a>,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) stride: usize,
    pub(crate) order: MatrixOrder,
    elements: PhantomData<fn() -> T>,
}

/// The memory of a matrix.
#[derive(Clone, Copy)]
enum Memory<'a> {
    /// In a symmetric buffer of this communicator.
    Symmetric(&'a Arc<World>, MemoryRange<'a>),
    /// At an address that the caller vouches for.
    Raw(DeviceAddress),
}

impl<'a, T: GemmElement> Matrix<'a, T> {
    /// Makes a row-major matrix of `rows` x `columns` elements, without gaps, from the range's start on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the range has fewer elements.
    pub fn of(range: impl Into<Slice<'a, T>>, rows: usize, columns: usize) -> Result<Self> {
        Self::strided(range, rows, columns, columns, MatrixOrder::Rows)
    }

    /// Makes a matrix of `rows` x `columns` elements from the range's start on, with `stride` elements from one
    /// row to the next, or from one column to the next if `order` is [`MatrixOrder::Columns`].
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
                    "a {rows} x {columns} matrix stored by {} needs a stride of at least {width} elements, not \
                     {stride}",
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
        let memory = range.memory();
        Ok(Self {
            rows,
            columns,
            stride,
            order,
            memory: Memory::Symmetric(world, memory),
            elements: PhantomData,
        })
    }

    /// Makes a matrix, as [`Matrix::strided`] does, of memory of this rank's device at `address`, which need not be
    /// in a symmetric buffer. Checks nothing.
    ///
    /// # Safety
    /// The elements are allocated and aligned, and stay so until the streams that use the matrix have passed
    /// that work, and any graph that has captured it is dropped.
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

    /// Returns the addresses from its first byte to its last.
    pub(crate) fn extent(&self) -> Range<u64> {
        let (lines, width) = lines_of(self.rows, self.columns, self.order);
        let elements = elements(lines, width, self.stride).unwrap_or(usize::MAX);
        let bytes = (elements as u64).saturating_mul(size_of::<T>() as u64);
        let start = self.start();
        start..start.saturating_add(bytes)
    }

    /// Returns the address of its first byte at this rank as a number, for checks of alignment and overlap.
    pub(crate) fn start(&self) -> u64 {
        match &self.memory {
            Memory::Symmetric(world, memory) => memory.start(world.rank),
            Memory::Raw(address) => address.0,
        }
    }

    /// Returns the address of its first byte at this rank, for the work that `submit` enqueues.
    pub(crate) fn address(&self, submit: &Submit<'_>) -> DeviceAddress {
        match &self.memory {
            Memory::Symmetric(_, memory) => submit.address(memory, submit.rank()),
            Memory::Raw(address) => *address,
        }
    }

    /// Returns its memory.
    pub(crate) fn memory(&self) -> MemoryRange<'a> {
        match self.memory {
            Memory::Symmetric(_, memory) => memory,
            Memory::Raw(address) => {
                let extent = self.extent();
                MemoryRange::own(address, extent.end - extent.start)
            }
        }
    }

    /// Returns the communicator of its buffer; `None` for the caller's memory.
    pub(crate) fn world(&self) -> Option<&'a Arc<World>> {
        match self.memory {
            Memory::Symmetric(world, _) => Some(world),
            Memory::Raw(_) => None,
        }
    }
}

/// Returns the number of contiguous lines, and the elements of each.
fn lines_of(rows: usize, columns: usize, order: MatrixOrder) -> (usize, usize) {
    match order {
        MatrixOrder::Columns => (columns, rows),
        MatrixOrder::Rows => (rows, columns),
    }
}

/// Returns the number of elements from the first to the last, gaps included.
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
///
/// ```no_run
/// # use symmem::*;
/// # type Buffer = SymmetricBuffer<half::f16>;
/// # fn f(a: &Buffer, b: &Buffer, c: &Buffer) -> Result<()> {
/// let (m, n, k) = (1024, 4096, 8192);
/// let operands = Operands {
///     a: a.all(), // this rank's shard
///     b: Matrix::of(b, k, n)?,
///     c: Matrix::of(c, m, n)?,
///     bias: None,
///     scale: None,
///     gathered: None,
/// };
/// # let _ = operands;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy)]
pub struct Operands<'a, T: GemmElement> {
    /// This rank's shard of `A`, row-major and without gaps. Every rank passes the same range, as long as the
    /// largest shard ([`crate::GemmShape::shard_elements`]); a smaller shard is at its start.
    pub a: Slice<'a, T>,
    /// This rank's `B`, `k` x `n`.
    pub b: Matrix<'a, T>,
    /// This rank's `C`, `m` x `n`, which the call writes.
    pub c: Matrix<'a, T::Output>,
    /// The bias, 1 x `n`, if the shape has one.
    pub bias: Option<Matrix<'a, T::Output>>,
    /// The factor of `A · B`, 1 x 1, before the bias is added: the product of the numbers by which `A` and `B` were divided to fit
    /// [`F8E4M3`]. 1 if it is `None`; other element types take none.
    pub scale: Option<Matrix<'a, f32>>,
    /// The buffer for the gathered `A`, row-major and without gaps ([`crate::GemmShape::gathered_elements`]),
    /// if [`crate::GemmOptions::gathered`] is set. Every rank passes the same range.
    pub gathered: Option<Slice<'a, T>>,
}
