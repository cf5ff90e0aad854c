//! Slices of buffers.

use crate::base::element::Element;
use crate::base::error::{Error, Result};
use crate::rank::allocation::Allocation;
use crate::rank::memory_range::MemoryRange;
use crate::world::world::World;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// A checked range of consecutive elements of a [`crate::SymmetricBuffer`]. Borrows the buffer. Names the same
/// elements at every rank.
///
/// Made by [`crate::SymmetricBuffer::slice`]. Where a method takes a slice, `&buffer` stands for all of its
/// elements.
///
/// ```
/// # fn main() -> symmem::Result<()> {
/// # let communicator = symmem::init()?;
/// let buffer = communicator.allocate::<u32>(&[100])?;
/// let half = buffer.slice(50..)?;
/// let part = half.slice(..10)?; // counted from the start of `half`
/// assert_eq!((part.offset(), part.len()), (50, 10));
/// assert!(buffer.slice(90..110).is_err());
/// # communicator.finalize().map(drop)
/// # }
/// ```
pub struct Slice<'a, T: Element> {
    world: &'a Arc<World>,
    allocation: &'a Arc<Allocation>,
    offset: usize,
    length: usize,
    /// Length of the whole buffer, in elements.
    whole: usize,
    elements: PhantomData<fn() -> T>,
}

impl<T: Element> Clone for Slice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Element> Copy for Slice<'_, T> {}

impl<'a, T: Element> Slice<'a, T> {
    pub(crate) fn new(
        world: &'a Arc<World>,
        allocation: &'a Arc<Allocation>,
        whole: usize,
        (offset, length): (usize, usize),
    ) -> Self {
        Self {
            world,
            allocation,
            offset,
            length,
            whole,
            elements: PhantomData,
        }
    }

    /// Returns the index of the first element in the buffer.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the length, in elements.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns whether the slice is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the subslice `range`, counted from this slice's first element.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the range exceeds this slice.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let (offset, length) = within(self.world.rank, self.length, range)?;
        Ok(Self {
            offset: self.offset + offset,
            length,
            ..*self
        })
    }

    /// Returns the same bytes as elements of another type.
    ///
    /// ```
    /// # fn main() -> symmem::Result<()> {
    /// # let communicator = symmem::init()?;
    /// let bytes = communicator.allocate::<u8>(&[64])?;
    /// let numbers = bytes.slice(16..32)?.cast::<f32>()?;
    /// assert_eq!((numbers.offset(), numbers.len()), (4, 4));
    /// assert!(bytes.slice(1..5)?.cast::<f32>().is_err());
    /// # communicator.finalize().map(drop)
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the bytes do not start, or do not end, at a whole element of the other type, counted
    /// from the start of the buffer.
    pub fn cast<U: Element>(&self) -> Result<Slice<'a, U>> {
        let (size, other) = (size_of::<T>(), size_of::<U>());
        let (first, bytes) = (self.offset * size, self.length * size);
        if other == 0 || !first.is_multiple_of(other) || !bytes.is_multiple_of(other) {
            return Err(Error::InvalidArgument {
                rank: self.world.rank,
                operation: "cast",
                message: format!(
                    "{bytes} bytes from byte {first} on are not whole elements of {other} bytes; slice at multiples of \
                     their size"
                ),
            });
        }
        Ok(Slice {
            world: self.world,
            allocation: self.allocation,
            offset: first / other,
            length: bytes / other,
            whole: self.whole * size / other,
            elements: PhantomData,
        })
    }

    /// Returns the length of the whole buffer, in elements.
    pub(crate) fn whole(&self) -> usize {
        self.whole
    }

    pub(crate) fn world(&self) -> &'a Arc<World> {
        self.world
    }

    /// Returns the number of the buffer, the same on all ranks.
    pub(crate) fn number(&self) -> u64 {
        self.allocation.number
    }

    pub(crate) fn memory(&self) -> MemoryRange<'a> {
        let size = size_of::<T>();
        MemoryRange::new(
            self.allocation,
            (self.offset * size) as u64,
            (self.length * size) as u64,
        )
    }

    pub(crate) fn untyped(&self) -> UntypedSlice<'a> {
        UntypedSlice {
            world: self.world,
            memory: self.memory(),
            length: self.length,
        }
    }
}

/// A slice without its element type. Functions that take it are compiled once, not once per element type.
#[derive(Clone, Copy)]
pub(crate) struct UntypedSlice<'a> {
    pub(crate) world: &'a Arc<World>,
    pub(crate) memory: MemoryRange<'a>,
    /// Length, in elements.
    pub(crate) length: usize,
}

impl<T: Element> std::fmt::Debug for Slice<'_, T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Slice")
            .field("elements", &(self.offset..self.offset + self.length))
            .field("element", &std::any::type_name::<T>())
            .finish_non_exhaustive()
    }
}

/// Returns offset and length of `range` within `length` elements.
///
/// # Errors
/// [`Error::OutOfRange`] if the range exceeds them.
pub(crate) fn within(
    rank: usize,
    length: usize,
    range: impl RangeBounds<usize>,
) -> Result<(usize, usize)> {
    let start = match range.start_bound() {
        Bound::Included(&start) => Some(start),
        Bound::Excluded(&before) => before.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.checked_add(1),
        Bound::Excluded(&end) => Some(end),
        Bound::Unbounded => Some(length),
    };
    match (start, end) {
        (Some(start), Some(end)) if start <= end && end <= length => Ok((start, end - start)),
        _ => {
            let start = start.unwrap_or(usize::MAX);
            Err(Error::OutOfRange {
                rank,
                offset: start,
                count: end.unwrap_or(usize::MAX).saturating_sub(start),
                length,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_any_form_is_offset_and_length() {
        assert_eq!(within(0, 8, ..).unwrap(), (0, 8));
        assert_eq!(within(0, 8, 2..).unwrap(), (2, 6));
        assert_eq!(within(0, 8, ..=3).unwrap(), (0, 4));
        assert_eq!(within(0, 8, 8..8).unwrap(), (8, 0));
        assert_eq!(within(0, 0, ..).unwrap(), (0, 0));
    }

    #[test]
    fn a_range_that_is_not_there_is_an_error() {
        assert!(within(0, 8, 2..9).is_err());
        assert!(within(0, 8, ..=usize::MAX).is_err());
        #[allow(clippy::reversed_empty_ranges, reason = "that is what is refused")]
        let reversed = within(0, 8, 5..2);
        assert!(reversed.is_err());
        assert!(within(0, 8, (Bound::Excluded(usize::MAX), Bound::Unbounded)).is_err());
    }
}
