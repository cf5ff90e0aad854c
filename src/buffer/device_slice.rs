//! Slices of memory that only this rank knows.

use crate::backend::Device;
use crate::backend::abi::{DeviceAddress, Status};
use crate::base::element::Element;
use crate::base::error::Result;
use crate::buffer::slice::{Slice, UntypedSlice, within};
use crate::rank::memory_range::MemoryRange;
use crate::world::communicator::Communicator;
use crate::world::world::World;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

/// A range of consecutive elements in this rank's memory, such as a tensor that a framework allocated: no peer needs to
/// know where it is, and nothing is registered or mapped. Collectives take it in place of a [`Slice`] of a symmetric
/// buffer.
///
/// Made by [`Communicator::device_slice`], or of a symmetric buffer's [`Slice`] by `into`: then only this rank's part of
/// the buffer counts.
///
/// A collective with a `DeviceSlice` as source, destination or both sends its data through inboxes: in LL or Lamport
/// packets or in pieces, or by NCCL. Every member must make it with a `DeviceSlice`, but each may have any memory, symmetric or not,
/// at any address, in place or not. In sends, receives and [`Collectives::all_to_all_v`](crate::Collectives::all_to_all_v),
/// each member chooses for itself.
pub struct DeviceSlice<'a, T: Element> {
    world: &'a Arc<World>,
    memory: MemoryRange<'a>,
    length: usize,
    elements: PhantomData<fn() -> T>,
}

impl<T: Element> Clone for DeviceSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Element> Copy for DeviceSlice<'_, T> {}

impl<T: Element> DeviceSlice<'_, T> {
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
    /// [`crate::Error::OutOfRange`] if the range exceeds this slice.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let (offset, length) = within(self.world.rank, self.length, range)?;
        let size = size_of::<T>();
        let memory = self
            .memory
            .part((offset * size) as u64, (length * size) as u64);
        Ok(Self {
            memory,
            length,
            ..*self
        })
    }
}

impl<'a, T: Element> From<Slice<'a, T>> for DeviceSlice<'a, T> {
    fn from(slice: Slice<'a, T>) -> Self {
        let world = slice.world();
        Self {
            world,
            memory: slice.memory().only_at(world.rank),
            length: slice.len(),
            elements: PhantomData,
        }
    }
}

impl<'a, T: Element> DeviceSlice<'a, T> {
    pub(crate) fn untyped(&self) -> UntypedSlice<'a> {
        UntypedSlice {
            world: self.world,
            memory: self.memory,
            length: self.length,
        }
    }
}

impl<T: Element> std::fmt::Debug for DeviceSlice<'_, T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("DeviceSlice")
            .field(
                "address",
                &DeviceAddress(self.memory.start(self.world.rank)),
            )
            .field("length", &self.length)
            .field("element", &std::any::type_name::<T>())
            .finish_non_exhaustive()
    }
}

/// The operation that errors name.
const NAME: &str = "device_slice";

impl Communicator {
    /// Returns the `length` elements at `address` on this rank's device as an operand of collectives. The address may be
    /// any, and need not be aligned to the element, except for reductions by NCCL; collectives are fastest at multiples of 16. Not collective, does not
    /// block, and allocates nothing.
    ///
    /// ```no_run
    /// # use symmem::*;
    /// # fn f(communicator: &Communicator, stream: &Stream, tensor: DeviceAddress) -> Result<()> {
    /// // SAFETY: the framework allocated the tensor on this device, and frees it after it has synchronized the stream.
    /// let tensor = unsafe { communicator.device_slice::<f32>(tensor, 4096) }?;
    /// stream.all_reduce(tensor, tensor, ReduceOp::Sum)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] for a null address, elements that would reach past the end of all addresses, and memory
    /// that begins or ends on the host or on another device, as far as the driver knows; the driver's failures.
    ///
    /// # Safety
    /// The elements are allocated on this rank's device, or on the host for the host backend, and stay so until the
    /// streams that use the slice have passed that work, and every graph that has captured it is dropped. Until then,
    /// nothing else writes them, and nothing on the host refers to them, except ordered by those streams.
    pub unsafe fn device_slice<T: Element>(
        &self,
        address: DeviceAddress,
        length: usize,
    ) -> Result<DeviceSlice<'_, T>> {
        // SAFETY: guaranteed by the caller.
        let slice = unsafe { self.known_slice(address, length) }?;
        let world = self.world();
        let bytes = slice.memory.bytes();
        match world.backend.check_memory(address, bytes) {
            Err(failure) if failure.status == Status::INVALID_ARGUMENT => {
                Err(world.invalid(NAME, failure.message))
            }
            // A plugin of an older build has no such entry.
            Err(failure) if failure.status != Status::UNSUPPORTED => {
                Err(world.failed(NAME, failure))
            }
            _ => Ok(slice),
        }
    }

    /// [`Communicator::device_slice`] of memory that is known to be on this rank's device, as an array library tells of its
    /// tensors: the driver is not asked, which saves as much of the host's time as a tenth of a call.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] for a null address, and elements that would reach past the end of all addresses.
    ///
    /// # Safety
    /// As [`Communicator::device_slice`].
    pub unsafe fn known_slice<T: Element>(
        &self,
        address: DeviceAddress,
        length: usize,
    ) -> Result<DeviceSlice<'_, T>> {
        let world = self.world();
        let bytes = (length as u64).checked_mul(size_of::<T>() as u64);
        let end = bytes.and_then(|bytes| address.0.checked_add(bytes));
        let (Some(bytes), Some(_), true) = (bytes, end, address.0 != 0 || length == 0) else {
            let message = format!(
                "{length} elements of {} bytes at {:#x}: there is no such memory",
                size_of::<T>(),
                address.0
            );
            return Err(world.invalid(NAME, message));
        };
        Ok(DeviceSlice {
            world,
            memory: MemoryRange::own(address, bytes),
            length,
            elements: PhantomData,
        })
    }
}
