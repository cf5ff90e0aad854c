//! Symmetric buffers, ranges of them, and raw views.
//!
//! Peers write a buffer's memory at any time, so nothing safe here gives a reference to it: ranges
//! are offset and length, views are pointer and length, and host copies go through the device's own
//! order.

use crate::backend::abi::DeviceAddress;
use crate::base::element::Element;
use crate::base::error::{Error, Result};
use crate::rank::allocation;
use crate::rank::allocation::Allocation;
use crate::rank::context::Shared;
use crate::stream::transfers::Stream;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zerocopy::IntoBytes;

/// The same number of elements on every rank; each rank can address every peer's copy.
///
/// Dropping it gives up this rank's use, without waiting for anybody: the memory goes back when every
/// rank has dropped it or died, and this rank's streams and graphs are done with it.
/// [`SymmetricBuffer::free`] is the collective form, after which the memory is back at once.
pub struct SymmetricBuffer<T: Element> {
    shared: Arc<Shared>,
    allocation: Option<Arc<Allocation>>,
    length: usize,
    shape: Vec<usize>,
    elements: PhantomData<fn() -> T>,
}

/// Elements `offset..offset + length` of a buffer, checked.
#[derive(Clone, Copy)]
pub struct BufferRange<'a, T: Element> {
    buffer: &'a SymmetricBuffer<T>,
    offset: usize,
    length: usize,
}

/// A copy of a buffer on one rank, as this rank's device addresses it. Borrows the buffer.
///
/// Holds no reference to the elements: peers may be writing them.
#[derive(Clone, Copy, Debug)]
pub struct RawView<'a, T: Element> {
    address: DeviceAddress,
    length: usize,
    buffer: PhantomData<&'a SymmetricBuffer<T>>,
}

/// All ranks' copies of a buffer behind one address. Borrows the buffer.
///
/// Only instructions that are made for multicast may use the address: what is loaded is reduced from all
/// copies, what is stored goes to all. A load needs every rank's earlier stores to be visible, by a barrier for
/// example. No other rank may give the buffer up before the last access.
#[derive(Clone, Copy, Debug)]
pub struct MulticastView<'a, T: Element> {
    address: DeviceAddress,
    length: usize,
    buffer: PhantomData<&'a SymmetricBuffer<T>>,
}

impl<T: Element> SymmetricBuffer<T> {
    pub(crate) fn new(
        shared: Arc<Shared>,
        allocation: Allocation,
        length: usize,
        shape: Vec<usize>,
    ) -> Self {
        shared.live_buffers.fetch_add(1, Ordering::AcqRel);
        Self {
            shared,
            allocation: Some(Arc::new(allocation)),
            length,
            shape,
            elements: PhantomData,
        }
    }

    pub(crate) fn allocation(&self) -> &Arc<Allocation> {
        self.allocation
            .as_ref()
            .expect("taken only by `free` and `drop`, which end the value")
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Elements on each rank.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Never: an empty buffer is refused.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The shape it was allocated with.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Elements `offset..offset + length`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn range(&self, offset: usize, length: usize) -> Result<BufferRange<'_, T>> {
        match offset.checked_add(length) {
            Some(end) if end <= self.length => Ok(BufferRange {
                buffer: self,
                offset,
                length,
            }),
            _ => Err(Error::OutOfRange {
                rank: self.shared.rank,
                offset,
                count: length,
                length: self.length,
            }),
        }
    }

    /// All elements.
    pub fn all(&self) -> BufferRange<'_, T> {
        BufferRange {
            buffer: self,
            offset: 0,
            length: self.length,
        }
    }

    /// This rank's copy.
    pub fn local(&self) -> RawView<'_, T> {
        self.view(self.shared.rank)
    }

    /// A peer's copy, or this rank's own.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such rank.
    pub fn peer(&self, rank: usize) -> Result<RawView<'_, T>> {
        check_peer(&self.shared, rank, "peer")?;
        Ok(self.view(rank))
    }

    fn view(&self, rank: usize) -> RawView<'_, T> {
        RawView {
            address: self.allocation().at(rank, 0),
            length: self.length,
            buffer: PhantomData,
        }
    }

    /// All ranks' copies behind one address, for kernels that load and store through multicast: `None` where
    /// [`crate::Communicator::multicast`] has no hardware, where the object had no room left for the buffer,
    /// and for memory of the caller's.
    pub fn multicast(&self) -> Option<MulticastView<'_, T>> {
        let address = self.allocation().at_all(0)?;
        (address != DeviceAddress::NULL).then_some(MulticastView {
            address,
            length: self.length,
            buffer: PhantomData,
        })
    }

    /// Whether collectives reach all ranks' copies by multicast, or as if where it is emulated: not memory of the
    /// caller's, nor what found no room in the object.
    pub fn is_in_multicast(&self) -> bool {
        self.allocation().at_all(0).is_some()
    }

    /// Copies host elements into this rank's copy from element `offset` on, after all earlier work on
    /// `stream`. Blocks until they are there.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::InvalidArgument`] for a stream of another communicator or one
    /// that is being captured; the backend's; what poisoned the communicator.
    pub fn write(&self, stream: &Stream, offset: usize, elements: &[T]) -> Result<()> {
        let range = self.range(offset, elements.len())?;
        stream.check_same(&self.shared, "write")?;
        stream.refuse_capture("write")?;
        let address = self.allocation().at(self.shared.rank, range.byte_offset());
        self.shared
            .write_on(stream.raw_handle(), address, elements.as_bytes())
    }

    /// Copies elements of this rank's copy from element `offset` on to the host, after all earlier
    /// work on `stream`. Blocks until they are there.
    ///
    /// # Errors
    /// As [`SymmetricBuffer::write`].
    pub fn read(&self, stream: &Stream, offset: usize, elements: &mut [T]) -> Result<()> {
        let range = self.range(offset, elements.len())?;
        stream.check_same(&self.shared, "read")?;
        stream.refuse_capture("read")?;
        let address = self.allocation().at(self.shared.rank, range.byte_offset());
        self.shared
            .read_on(stream.raw_handle(), address, elements.as_mut_bytes())
    }

    /// Frees the buffer on all ranks: waits for this rank's work, then for every rank, and the memory
    /// is back when it returns. Collective.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if ranks free different buffers; [`Error::InvalidArgument`] on a rank where
    /// a [`crate::Graph`] uses the buffer and [`Error::PeerFailed`] on the others; as any collective
    /// call. The buffer is then given up as if dropped.
    pub fn free(mut self) -> Result<()> {
        allocation::free(&self.shared, self.allocation())?;
        // Freed: the drop has nothing left to give up.
        self.allocation = None;
        Ok(())
    }
}

impl<T: Element> Drop for SymmetricBuffer<T> {
    fn drop(&mut self) {
        self.shared.live_buffers.fetch_sub(1, Ordering::AcqRel);
        if let Some(allocation) = self.allocation.take() {
            self.shared.give_up(allocation);
        }
    }
}

impl<T: Element> std::fmt::Debug for SymmetricBuffer<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SymmetricBuffer")
            .field("shape", &self.shape)
            .field("element", &std::any::type_name::<T>())
            .finish_non_exhaustive()
    }
}

impl<'a, T: Element> BufferRange<'a, T> {
    /// First element.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no element.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The buffer.
    pub fn buffer(&self) -> &'a SymmetricBuffer<T> {
        self.buffer
    }

    pub(crate) fn byte_offset(&self) -> u64 {
        (self.offset * size_of::<T>()) as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.length * size_of::<T>()) as u64
    }
}

impl<T: Element> RawView<'_, T> {
    /// Its first byte, as kernels on this rank's device address it.
    pub fn address(&self) -> DeviceAddress {
        self.address
    }

    /// The same as a pointer. It can be dereferenced on the host only with the host backend, and only
    /// by volatile or atomic access while peers may write.
    pub fn as_ptr(&self) -> *mut T {
        self.address.0 as *mut T
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no element.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The elements as a slice.
    ///
    /// # Safety
    /// The memory is the host's (host backend), and for as long as the slice lives no rank writes any
    /// of these elements: every peer has passed a barrier after its last put, and none puts before
    /// the next one.
    pub unsafe fn as_slice(&self) -> &[T] {
        // SAFETY: the caller's word for the condition above; address and length are an allocation's.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.length) }
    }
}

impl<T: Element> MulticastView<'_, T> {
    /// The first element's address.
    pub fn address(&self) -> DeviceAddress {
        self.address
    }

    /// The address of an element; `None` past the last one.
    pub fn at(&self, element: usize) -> Option<DeviceAddress> {
        let inside = element < self.length;
        inside.then(|| DeviceAddress(self.address.0 + (element * size_of::<T>()) as u64))
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Never: an empty buffer is refused.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// Checks that there is such a rank.
pub(crate) fn check_peer(shared: &Shared, peer: usize, operation: &'static str) -> Result<()> {
    if peer < shared.world {
        return Ok(());
    }
    Err(Error::InvalidArgument {
        rank: shared.rank,
        operation,
        message: format!("there is no rank {peer} in a world of {}", shared.world),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    /// Run under Miri, which sees a reference to memory that another thread writes.
    #[test]
    fn a_view_can_be_held_and_read_while_a_peer_writes() {
        let memory: Vec<AtomicU32> = (0..8).map(AtomicU32::new).collect();
        let view = RawView::<u32> {
            address: DeviceAddress(memory.as_ptr().expose_provenance() as u64),
            length: memory.len(),
            buffer: PhantomData,
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                memory
                    .iter()
                    .for_each(|word| word.store(7, Ordering::Release))
            });
            let copy = view;
            for index in 0..copy.len() {
                // SAFETY: inside the memory, which outlives the view and is only accessed atomically.
                let word = unsafe { AtomicU32::from_ptr(copy.as_ptr().add(index)) };
                let seen = word.load(Ordering::Acquire);
                assert!(seen == 7 || seen == index as u32);
            }
        });
        // SAFETY: the only writer has ended.
        let settled = unsafe { view.as_slice() };
        assert_eq!(settled, [7; 8]);
    }

    #[test]
    fn a_multicast_view_has_an_address_for_each_element_and_for_no_other() {
        let view = MulticastView::<u64> {
            address: DeviceAddress(0x1000),
            length: 3,
            buffer: PhantomData,
        };
        assert_eq!((view.len(), view.is_empty()), (3, false));
        assert_eq!(view.at(0), Some(view.address()));
        assert_eq!(view.at(2), Some(DeviceAddress(0x1010)));
        assert_eq!(view.at(3), None);
        // Its bytes would be more than can be counted.
        assert_eq!(view.at(usize::MAX), None);
    }

    #[test]
    fn a_view_itself_touches_no_memory() {
        let view = RawView::<u64> {
            address: DeviceAddress(0x1000),
            length: 3,
            buffer: PhantomData,
        };
        assert_eq!(
            (view.address().0, view.len(), view.is_empty()),
            (0x1000, 3, false)
        );
        assert_eq!(view.as_ptr() as u64, 0x1000);
        assert!(format!("{view:?}").contains("4096"));
    }
}
