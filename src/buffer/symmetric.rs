//! The symmetric buffer.

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

/// A buffer with one copy of the same length on every rank; each rank can address every peer's copy.
///
/// Dropping it gives up this rank's use without waiting. The memory is released once every rank has dropped it
/// or died, and this rank's streams and graphs are done with it. [`SymmetricBuffer::free`] is the collective
/// form: the memory is released when it returns.
///
/// ```
/// # fn main() -> symmem::Result<()> {
/// # let communicator = symmem::init()?;
/// # let stream = communicator.stream()?;
/// let buffer = communicator.allocate::<f32>(&[4, 16])?; // zeroed, on every rank
/// assert_eq!(buffer.len(), 64);
/// buffer.write(&stream, 16, &[1.0; 16])?; // this rank's copy, from element 16 on
/// let mut row = [0.0; 16];
/// buffer.read(&stream, 16, &mut row)?;
/// assert_eq!(row, [1.0; 16]);
/// buffer.free()?;
/// # communicator.finalize().map(drop)
/// # }
/// ```
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

    /// Returns the number of elements on each rank.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns whether the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the shape that the buffer was allocated with.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the slice of the elements in `range`.
    ///
    /// # Errors
    /// [`crate::Error::OutOfRange`] if the range exceeds the buffer.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'_, T>> {
        let part = within(self.world.rank, self.length, range)?;
        Ok(Slice::new(
            &self.world,
            self.allocation(),
            self.length,
            part,
        ))
    }

    /// Returns the slice of all elements. `&buffer` converts to the same slice.
    pub fn all(&self) -> Slice<'_, T> {
        Slice::new(
            &self.world,
            self.allocation(),
            self.length,
            (0, self.length),
        )
    }

    /// Returns a view of this rank's copy.
    pub fn local(&self) -> RawView<'_, T> {
        self.view(self.world.rank)
    }

    /// Returns a view of the copy of `rank`, a peer or this rank.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if there is no such rank; [`crate::Error::Unsupported`] if it is on another node,
    /// where this rank's device cannot address its copy.
    pub fn peer(&self, rank: usize) -> Result<RawView<'_, T>> {
        self.world.check_reach(rank, "peer")?;
        Ok(self.view(rank))
    }

    fn view(&self, rank: usize) -> RawView<'_, T> {
        RawView::new(self.allocation().at(rank, 0), self.length)
    }

    /// Returns the NVLS multicast address of all ranks' copies, for kernels that load and store through
    /// multicast. `None` if [`crate::Communicator::multicast`] reports no hardware, if the multicast object had
    /// no room left for the buffer, and for the caller's memory.
    pub fn multicast(&self) -> Option<MulticastView<'_, T>> {
        let address = self.allocation().at_all(0)?;
        (address != DeviceAddress::NULL).then(|| MulticastView::new(address, self.length))
    }

    /// Returns whether collectives can use multicast, real or emulated, on this buffer. False for the caller's
    /// memory, and for buffers that found no room in the multicast object.
    pub fn is_in_multicast(&self) -> bool {
        self.allocation().at_all(0).is_some()
    }

    /// Frees the buffer on all ranks. Collective. Blocks until this rank's work is done and every rank has made
    /// the call, for at most the setup deadline in each step. The memory is released when it returns, or once other
    /// communicators of the process have no work on this GPU if the driver's free would wait for that work.
    ///
    /// # Errors
    /// [`crate::Error::Mismatch`] if ranks free different buffers; [`crate::Error::InvalidArgument`] on a rank
    /// where a [`crate::Graph`] uses the buffer and [`crate::Error::PeerFailed`] on the others; the errors of
    /// any collective call. After an error, the buffer is given up as if dropped.
    pub fn free(mut self) -> Result<()> {
        context::free(&self.world, self.allocation())?;
        // The allocation is freed; the drop must not give it up again.
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
