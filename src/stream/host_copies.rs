//! Copies between host memory and buffers. Not on [`crate::Queue`]: nothing here can be captured.

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
    /// stream. Blocks until they are there, at most the communicator's deadline a step.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if lengths differ, for a buffer of another communicator, or while the
    /// vendor's own API captures the stream; the backend's; what poisoned the communicator.
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
        let to = submit.address(&destination.operand, submit.rank());
        let staging = &self.world().staging;
        staging.write_on(&submit, to, elements.as_bytes())
    }

    /// Copies this rank's copy of a slice to host elements, as many, after all earlier work of the stream. Blocks
    /// until they are there, at most the communicator's deadline a step.
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
        let from = submit.address(&source.operand, submit.rank());
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
            let message = format!("{elements} elements on the host, {found} in the slice");
            return Err(self.invalid(operation, message));
        }
        self.refuse_capture(operation)
    }
}

impl<T: Element> SymmetricBuffer<T> {
    /// Copies host elements into this rank's copy from element `offset` on, after all earlier work on
    /// `stream`. Blocks until they are there.
    ///
    /// # Errors
    /// [`crate::Error::OutOfRange`]; [`crate::Error::InvalidArgument`] for a stream of another communicator or one
    /// that is being captured; the backend's; what poisoned the communicator.
    pub fn write(&self, stream: &Stream, offset: usize, elements: &[T]) -> Result<()> {
        let range = self.slice(offset..offset.saturating_add(elements.len()))?;
        stream.write(range, elements)
    }

    /// Copies elements of this rank's copy from element `offset` on to the host, after all earlier
    /// work on `stream`. Blocks until they are there.
    ///
    /// # Errors
    /// As [`SymmetricBuffer::write`].
    pub fn read(&self, stream: &Stream, offset: usize, elements: &mut [T]) -> Result<()> {
        let range = self.slice(offset..offset.saturating_add(elements.len()))?;
        stream.read(range, elements)
    }
}

impl Communicator {
    /// A new stream of this rank, not ordered with any other.
    ///
    /// # Errors
    /// The backend's.
    pub fn stream(&self) -> Result<Stream> {
        Stream::new(self.world.clone())
    }

    /// A stream that the caller made with the vendor's own API, on this rank's
    /// device; 0 is the default stream. Dropping the value leaves the stream alone.
    ///
    /// # Safety
    /// The stream belongs to this rank's device. It lives until the value was dropped with all its
    /// work done, or else as long as the communicator and everything made from it: a stream dropped
    /// with work is asked later whether it is idle. Where the caller captures it by the vendor's own
    /// API, buffers and communicator outlive the last launch of that graph, of which they know
    /// nothing.
    pub unsafe fn stream_from_raw(&self, raw: u64) -> Stream {
        // SAFETY: the caller's word.
        unsafe { Stream::from_raw(self.world.clone(), raw) }
    }

    /// A symmetric copy of memory that the caller owns, for memory that cannot be registered.
    /// Collective. The copy is taken on `stream` now; later changes are not followed.
    ///
    /// # Errors
    /// What [`Communicator::allocate`] and a copy fail with.
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
        let operand = buffer.all().operand();
        if operand.bytes() > 0 {
            let submit = stream.submit("stage");
            let to = submit.address(&operand, submit.rank());
            let transfer = Transfer::by_engine(to, address, operand.bytes());
            // SAFETY: the caller's word for the source; the buffer has exactly this size.
            let enqueued = unsafe { submit.backend().transfer(&transfer, submit.stream()) };
            submit.end(enqueued)?;
        }
        Ok(buffer)
    }
}
