//! A rank's two buffers. Only this module and `element` are compiled once per element type.
//!
//! Everything else uses `dyn Memory` and elements as bytes, which adds one virtual call to each enqueued call.

use super::call::Call;
use super::element::{Sample, SampleType, with_element};
use super::shape::ROOT;
use crate::Result;
use crate::poison::poison;
use crate::report::{Collective, Placement};
use std::ops::Range;
use symmem::{Communicator, DeviceSlice, Operand, Queue, ReduceOp, Stream, SymmetricBuffer};
use zerocopy::IntoBytes;

/// A source and a destination of equal length and element type.
pub(super) trait Memory {
    fn element(&self) -> SampleType;
    /// Length of the source, in elements.
    fn length(&self) -> usize;
    /// Whether multicast, real or emulated, reaches both buffers.
    fn is_in_multicast(&self) -> bool;
    /// Registers the buffers as symmetric windows of NCCL or RCCL. Collective.
    fn register(&self) -> symmem::Result<()>;
    /// Enqueues the call.
    fn enqueue(&self, queue: &Queue, rank: usize, call: &Call) -> Result<()>;
    /// Enqueues a copy from this rank's source to its destination; both ranges have the same length.
    fn copy(
        &self,
        stream: &Stream,
        rank: usize,
        to: Range<usize>,
        from: Range<usize>,
    ) -> Result<()>;
    /// Writes the source from element `place` on. Blocks.
    fn write_source(&self, stream: &Stream, place: usize, bytes: &[u8]) -> Result<()>;
    /// Reads the destination from element `place` on. Blocks.
    fn read_destination(&self, stream: &Stream, place: usize, bytes: &mut [u8]) -> Result<()>;
    /// Sets every byte of the destination's first elements. Blocks.
    fn poison_destination(
        &self,
        communicator: &Communicator,
        elements: usize,
        byte: u8,
        stream: &Stream,
    ) -> Result<()>;
    /// Frees the buffers. Collective.
    fn free(self: Box<Self>) -> Result<()>;
}

/// Allocates buffers of `bytes` plus `guard` elements of the type that nccl-tests calls `element`; `None` if the type
/// is not supported. Collective.
pub(super) fn allocate(
    communicator: &Communicator,
    element: &str,
    bytes: u64,
    guard: usize,
) -> Result<Option<Box<dyn Memory>>> {
    with_element!(element, T => {
        let elements = (bytes as usize).div_ceil(size_of::<T>()) + guard;
        Ok(Some(Box::new(Typed::<T> {
            source: communicator.allocate::<T>(&[elements])?,
            destination: communicator.allocate::<T>(&[elements])?,
        })))
    }, else Ok(None))
}

struct Typed<T: Sample> {
    source: SymmetricBuffer<T>,
    destination: SymmetricBuffer<T>,
}

impl<T: Sample> Typed<T> {
    /// Returns destination and source of a call.
    fn ranges(&self, rank: usize, call: &Call) -> Result<(Operand<'_, T>, Operand<'_, T>)> {
        let to = call.shape.output(rank, call.placement);
        let from = call.shape.input(rank, call.placement);
        let source = match call.placement {
            Placement::OutOfPlace => &self.source,
            Placement::InPlace => &self.destination,
        };
        let (to, from) = (self.destination.slice(to)?, source.slice(from)?);
        Ok(match call.how.own_memory {
            true => (DeviceSlice::from(to).into(), DeviceSlice::from(from).into()),
            false => (to.into(), from.into()),
        })
    }
}

impl<T: Sample> Memory for Typed<T> {
    fn element(&self) -> SampleType {
        T::ELEMENT
    }

    fn length(&self) -> usize {
        self.source.len()
    }

    fn is_in_multicast(&self) -> bool {
        self.source.is_in_multicast() && self.destination.is_in_multicast()
    }

    fn register(&self) -> symmem::Result<()> {
        self.source.register_with_nccl()?;
        self.destination.register_with_nccl()
    }

    fn enqueue(&self, queue: &Queue, rank: usize, call: &Call) -> Result<()> {
        let (to, from) = self.ranges(rank, call)?;
        let on = queue.with(&call.options);
        let sum = ReduceOp::Sum;
        match call.shape.collective {
            Collective::AllReduce => on.all_reduce(to, from, sum)?,
            Collective::AllGather => on.all_gather(to, from)?,
            Collective::ReduceScatter => on.reduce_scatter(to, from, sum)?,
            Collective::AllToAll => on.all_to_all(to, from)?,
            Collective::Broadcast => on.broadcast(ROOT, to, from)?,
            Collective::Reduce => on.reduce(ROOT, to, from, sum)?,
            Collective::Gather => on.gather(ROOT, to, from)?,
            Collective::Scatter => on.scatter(ROOT, to, from)?,
        }
        Ok(())
    }

    fn copy(
        &self,
        stream: &Stream,
        rank: usize,
        to: Range<usize>,
        from: Range<usize>,
    ) -> Result<()> {
        let (to, from) = (self.destination.slice(to)?, self.source.slice(from)?);
        Ok(stream.put(rank, to, from)?)
    }

    fn write_source(&self, stream: &Stream, place: usize, bytes: &[u8]) -> Result<()> {
        // Copied, since the bytes may not be aligned for elements.
        let mut elements = vec![T::new_zeroed(); bytes.len() / size_of::<T>()];
        elements.as_mut_bytes().copy_from_slice(bytes);
        Ok(self.source.write(stream, place, &elements)?)
    }

    fn read_destination(&self, stream: &Stream, place: usize, bytes: &mut [u8]) -> Result<()> {
        let mut elements = vec![T::new_zeroed(); bytes.len() / size_of::<T>()];
        self.destination.read(stream, place, &mut elements)?;
        bytes.copy_from_slice(elements.as_bytes());
        Ok(())
    }

    fn poison_destination(
        &self,
        communicator: &Communicator,
        elements: usize,
        byte: u8,
        stream: &Stream,
    ) -> Result<()> {
        poison(communicator, &self.destination, elements, byte, stream)
    }

    fn free(self: Box<Self>) -> Result<()> {
        self.source.free()?;
        self.destination.free()?;
        Ok(())
    }
}
