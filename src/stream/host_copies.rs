//! Copies between host memory and buffers. They are methods of [`Stream`], not of [`crate::Queue`], since they
//! cannot be captured.

use crate::backend::RemoteAccess;
use crate::backend::abi::{DeviceAddress, Transfer};
use crate::base::element::Element;
use crate::base::error::Result;
use crate::buffer::slice::{Slice, UntypedSlice};
use crate::buffer::symmetric::SymmetricBuffer;
use crate::memory::sharing::Origin;
use crate::stream::queue::Stream;
use crate::world::communicator::Communicator;
use zerocopy::IntoBytes;

impl Stream {
    /// Copies host elements into this rank's copy of a slice of the same length, after all earlier work of the
    /// stream. Blocks until the elements have arrived, for at most the communicator's deadline in each step.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if lengths differ, for a buffer of another communicator, or while the
    /// driver's API captures the stream; the backend's errors; the error that poisoned the communicator.
    pub fn write<'a, T: Element>(
        &self,
        destination: impl Into<Slice<'a, T>>,
        elements: &[T],
    ) -> Result<()> {
        let destination = destination.into().untyped();
        self.check_copy("write", &destination, elements.len())?;
        if elements.is_empty() {
            return Ok(());
        }
        let submit = self.submit("write");
        let to = submit.address(&destination.memory, submit.rank());
        let staging = &self.world().staging;
        staging.write_on(&submit, to, elements.as_bytes())
    }

    /// Copies this rank's copy of a slice into host elements of the same length, after all earlier work of the
    /// stream. Blocks until the elements have arrived, for at most the communicator's deadline in each step.
    ///
    /// # Errors
    /// As [`Stream::write`].
    pub fn read<'a, T: Element>(
        &self,
        source: impl Into<Slice<'a, T>>,
        elements: &mut [T],
    ) -> Result<()> {
        let source = source.into().untyped();
        self.check_copy("read", &source, elements.len())?;
        if elements.is_empty() {
            return Ok(());
        }
        let submit = self.submit("read");
        let from = submit.address(&source.memory, submit.rank());
        let staging = &self.world().staging;
        staging.read_on(&submit, from, elements.as_mut_bytes())
    }

    fn check_copy(
        &self,
        operation: &'static str,
        slice: &UntypedSlice<'_>,
        elements: usize,
    ) -> Result<()> {
        self.check_same(slice.world, operation)?;
        let found = slice.length;
        if found != elements {
            let message = format!(
                "{elements} elements on the host, but {found} in the slice; pass equal lengths"
            );
            return Err(self.invalid(operation, message));
        }
        self.refuse_capture(operation)
    }
}

impl<T: Element> SymmetricBuffer<T> {
    /// Copies host elements into this rank's copy from element `offset` on, after all earlier work on `stream`.
    /// Blocks until they have arrived, for at most the communicator's deadline in each step.
    ///
    /// # Errors
    /// [`crate::Error::OutOfRange`]; [`crate::Error::InvalidArgument`] for a stream of another communicator or
    /// one that is being captured; the backend's errors; the error that poisoned the communicator.
    pub fn write(&self, stream: &Stream, offset: usize, elements: &[T]) -> Result<()> {
        let range = self.slice(offset..offset.saturating_add(elements.len()))?;
        stream.write(range, elements)
    }

    /// Copies elements of this rank's copy from element `offset` on into host memory, after all earlier work on
    /// `stream`. Blocks until they have arrived, for at most the communicator's deadline in each step.
    ///
    /// # Errors
    /// As [`SymmetricBuffer::write`].
    pub fn read(&self, stream: &Stream, offset: usize, elements: &mut [T]) -> Result<()> {
        let range = self.slice(offset..offset.saturating_add(elements.len()))?;
        stream.read(range, elements)
    }
}

impl Communicator {
    /// Makes a stream of this rank, not ordered with any other.
    ///
    /// # Errors
    /// The backend's errors; the error that poisoned the communicator.
    pub fn stream(&self) -> Result<Stream> {
        Stream::new(self.world.clone())
    }

    /// Wraps a stream that the caller made with the driver's API on this rank's device; 0 is the default
    /// stream. Dropping the value leaves the stream alive.
    ///
    /// # Safety
    /// The stream belongs to this rank's device. It lives until the value was dropped after all its work was
    /// done, or else as long as the communicator and everything made from it: the library queries a stream that
    /// was dropped with work until it is idle. If the caller captures the stream through the driver's API,
    /// buffers and communicator must outlive the last launch of that graph: the library does not know of it.
    pub unsafe fn stream_from_raw(&self, raw: u64) -> Stream {
        // SAFETY: guaranteed by the caller.
        unsafe { Stream::from_raw(self.world.clone(), raw) }
    }

    /// Allocates a symmetric buffer of `shape`, in elements, and enqueues on `stream` a copy of the caller's memory
    /// at `address` into it: for memory that cannot be registered. Collective; blocks as
    /// [`Communicator::allocate`] does. Later changes of the source are not followed.
    ///
    /// # Errors
    /// The errors of [`Communicator::allocate`] and of a copy.
    ///
    /// # Safety
    /// The elements at `address` are allocated, on this device or visible to it, until the stream has
    /// passed this point.
    pub unsafe fn stage<T: Element>(
        &self,
        address: DeviceAddress,
        shape: &[usize],
        stream: &Stream,
    ) -> Result<SymmetricBuffer<T>> {
        let buffer = self.buffer::<T>("stage", shape, Origin::Backend)?;
        stream.check_same(buffer.world(), "stage")?;
        let memory = buffer.all().memory();
        if memory.bytes() > 0 {
            let submit = stream.submit("stage");
            let to = submit.address(&memory, submit.rank());
            let transfer = Transfer::by_engine(to, address, memory.bytes());
            // SAFETY: the caller vouches for the source; the buffer has exactly this size.
            let enqueued = unsafe { submit.backend().transfer(&transfer, submit.stream()) };
            submit.end(enqueued)?;
        }
        Ok(buffer)
    }
}
