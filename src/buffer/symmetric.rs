//! Symmetric buffers.

use crate::backend::abi::DeviceAddress;
use crate::base::element::Element;
use crate::base::error::Result;
use crate::buffer::slice::{Slice, within};
use crate::buffer::views::{MulticastView, RawView};
use crate::rank::allocation::Allocation;
use crate::rank::context;
use crate::world::world::World;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The same number of elements on every rank; each rank can address every peer's copy.
///
/// Dropping it gives up this rank's use, without waiting for anybody: the memory goes back when every
/// rank has dropped it or died, and this rank's streams and graphs are done with it.
/// [`SymmetricBuffer::free`] is the collective form, after which the memory is back at once.
pub struct SymmetricBuffer<T: Element> {
    world: Arc<World>,
    allocation: Option<Arc<Allocation>>,
    length: usize,
    shape: Vec<usize>,
    elements: PhantomData<fn() -> T>,
}

impl<T: Element> SymmetricBuffer<T> {
    pub(crate) fn new(
        world: Arc<World>,
        allocation: Arc<Allocation>,
        length: usize,
        shape: Vec<usize>,
    ) -> Self {
        world.live_buffers.fetch_add(1, Ordering::AcqRel);
        Self {
            world,
            allocation: Some(allocation),
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

    pub(crate) fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Elements on each rank.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no element.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The shape it was allocated with.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Elements `range`.
    ///
    /// # Errors
    /// [`crate::Error::OutOfRange`](crate::Error::OutOfRange).
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'_, T>> {
        let part = within(self.world.rank, self.length, range)?;
        Ok(Slice::new(
            &self.world,
            self.allocation(),
            self.length,
            part,
        ))
    }

    /// All elements; `&buffer` is the same where a slice is taken.
    pub fn all(&self) -> Slice<'_, T> {
        Slice::new(
            &self.world,
            self.allocation(),
            self.length,
            (0, self.length),
        )
    }

    /// This rank's copy.
    pub fn local(&self) -> RawView<'_, T> {
        self.view(self.world.rank)
    }

    /// A peer's copy, or this rank's own.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if there is no such rank.
    pub fn peer(&self, rank: usize) -> Result<RawView<'_, T>> {
        self.world.check_peer(rank, "peer")?;
        Ok(self.view(rank))
    }

    fn view(&self, rank: usize) -> RawView<'_, T> {
        RawView::new(self.allocation().at(rank, 0), self.length)
    }

    /// All ranks' copies behind one address, for kernels that load and store through multicast: `None` where
    /// [`crate::Communicator::multicast`] has no hardware, where the object had no room left for the buffer,
    /// and for memory of the caller's.
    pub fn multicast(&self) -> Option<MulticastView<'_, T>> {
        let address = self.allocation().at_all(0)?;
        (address != DeviceAddress::NULL).then(|| MulticastView::new(address, self.length))
    }

    /// Whether collectives reach all ranks' copies by multicast, or as if where it is emulated: not memory of the
    /// caller's, nor what found no room in the object.
    pub fn is_in_multicast(&self) -> bool {
        self.allocation().at_all(0).is_some()
    }

    /// Frees the buffer on all ranks: waits for this rank's work, then for every rank, and the memory
    /// is back when it returns. Collective.
    ///
    /// # Errors
    /// [`crate::Error::Mismatch`] if ranks free different buffers; [`crate::Error::InvalidArgument`] on a rank where
    /// a [`crate::Graph`] uses the buffer and [`crate::Error::PeerFailed`] on the others; as any collective
    /// call. The buffer is then given up as if dropped.
    pub fn free(mut self) -> Result<()> {
        context::free(&self.world, self.allocation())?;
        // Freed: the drop has nothing left to give up.
        self.allocation = None;
        Ok(())
    }
}

impl<T: Element> Drop for SymmetricBuffer<T> {
    fn drop(&mut self) {
        self.world.live_buffers.fetch_sub(1, Ordering::AcqRel);
        if let Some(allocation) = self.allocation.take() {
            self.world.give_up(allocation);
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

impl<'a, T: Element> From<&'a SymmetricBuffer<T>> for Slice<'a, T> {
    fn from(buffer: &'a SymmetricBuffer<T>) -> Self {
        buffer.all()
    }
}
