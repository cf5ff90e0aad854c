//! Buffers that a session keeps from case to case.
//!
//! Checks use `dyn Memory`, which takes ranges of elements and data as bytes. This way the checks are compiled once,
//! and only the calls themselves once per element type.

use super::collectives::{Call, enqueue};
use super::dtype::{Dtype, with_element};
use std::any::Any;
use symmem::{
    Collectives, Communicator, Queue, Reducible, Result, Slice, Stream, SymmetricBuffer,
    TransferOptions,
};
use zerocopy::IntoBytes;

/// Destination and source buffer of one element type.
pub(super) struct Buffers<T: Reducible> {
    pub destination: SymmetricBuffer<T>,
    pub source: SymmetricBuffer<T>,
    dtype: Dtype,
}

#[derive(Clone, Copy)]
pub(super) enum Side {
    Destination,
    Source,
}

/// A range of elements of one buffer.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub side: Side,
    pub first: usize,
    pub length: usize,
}

/// [`Buffers`] with the element type erased.
pub(super) trait Memory: Any {
    fn dtype(&self) -> Dtype;
    /// The length of a buffer, in elements.
    fn length(&self, side: Side) -> usize;
    /// Whether a buffer is bound to the multicast object.
    fn is_in_multicast(&self, side: Side) -> bool;
    /// Registers both buffers as symmetric windows of NCCL or RCCL. Collective.
    fn register_with_nccl(&self) -> Result<()>;
    /// Writes this rank's copy from element `first` on. Blocks.
    fn write(&self, stream: &Stream, side: Side, first: usize, bytes: &[u8]) -> Result<()>;
    /// Reads elements of this rank's copy. Blocks.
    fn read(&self, stream: &Stream, part: Part) -> Result<Vec<u8>>;
    /// Enqueues a put, and then a signal if `signal` names a channel.
    fn put(
        &self,
        queue: &Queue,
        peer: usize,
        to: Part,
        from: Part,
        signal: Option<u32>,
        options: &TransferOptions,
    ) -> Result<()>;
    /// Enqueues a get.
    fn get(
        &self,
        queue: &Queue,
        peer: usize,
        to: Part,
        from: Part,
        options: &TransferOptions,
    ) -> Result<()>;
    /// Enqueues a collective with the arguments of its member `rank`. The operands with `true` are memory that only this
    /// rank knows.
    fn collective(
        &self,
        calls: Collectives<'_>,
        call: &Call,
        rank: usize,
        to: (Part, bool),
        from: (Part, bool),
    ) -> Result<()>;
    /// Frees both buffers. Collective.
    fn free(self: Box<Self>) -> Result<()>;
}

/// Allocates buffers of `destination` and `source` elements. Collective.
pub(super) fn allocate(
    communicator: &Communicator,
    dtype: Dtype,
    destination: usize,
    source: usize,
) -> Result<Box<dyn Memory>> {
    with_element!(dtype, T => {
        Ok(Box::new(Buffers::<T> {
            destination: communicator.allocate(&[destination])?,
            source: communicator.allocate(&[source])?,
            dtype,
        }))
    })
}

impl dyn Memory {
    /// Returns the typed buffers.
    ///
    /// # Panics
    /// If the element type is not `T`.
    pub(super) fn of<T: Reducible>(&self) -> &Buffers<T> {
        let any: &dyn Any = self;
        any.downcast_ref()
            .expect("callers name the type by `dtype`, as `allocate` did")
    }

    /// Whether at least one buffer is not bound to the multicast object.
    pub(super) fn is_unbound(&self) -> bool {
        !(self.is_in_multicast(Side::Destination) && self.is_in_multicast(Side::Source))
    }
}

impl<T: Reducible> Buffers<T> {
    fn side(&self, side: Side) -> &SymmetricBuffer<T> {
        match side {
            Side::Destination => &self.destination,
            Side::Source => &self.source,
        }
    }

    fn part(&self, part: Part) -> Result<Slice<'_, T>> {
        self.side(part.side)
            .slice(part.first..part.first + part.length)
    }
}

impl<T: Reducible> Memory for Buffers<T> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn length(&self, side: Side) -> usize {
        self.side(side).len()
    }

    fn is_in_multicast(&self, side: Side) -> bool {
        self.side(side).is_in_multicast()
    }

    fn register_with_nccl(&self) -> Result<()> {
        self.destination.register_with_nccl()?;
        self.source.register_with_nccl()
    }

    fn write(&self, stream: &Stream, side: Side, first: usize, bytes: &[u8]) -> Result<()> {
        let mut elements = vec![T::new_zeroed(); bytes.len() / size_of::<T>()];
        elements
            .as_mut_slice()
            .as_mut_bytes()
            .copy_from_slice(bytes);
        self.side(side).write(stream, first, &elements)
    }

    fn read(&self, stream: &Stream, part: Part) -> Result<Vec<u8>> {
        let mut elements = vec![T::new_zeroed(); part.length];
        stream.read(self.part(part)?, &mut elements)?;
        Ok(elements.as_bytes().to_vec())
    }

    fn put(
        &self,
        queue: &Queue,
        peer: usize,
        to: Part,
        from: Part,
        signal: Option<u32>,
        options: &TransferOptions,
    ) -> Result<()> {
        let (to, from) = (self.part(to)?, self.part(from)?);
        match signal {
            Some(channel) => queue.with(options).put_signal(peer, to, from, channel),
            None => queue.with(options).put(peer, to, from),
        }
    }

    fn get(
        &self,
        queue: &Queue,
        peer: usize,
        to: Part,
        from: Part,
        options: &TransferOptions,
    ) -> Result<()> {
        queue
            .with(options)
            .get(peer, self.part(to)?, self.part(from)?)
    }

    fn collective(
        &self,
        calls: Collectives<'_>,
        call: &Call,
        rank: usize,
        (to, own_to): (Part, bool),
        (from, own_from): (Part, bool),
    ) -> Result<()> {
        let to = (self.part(to)?, own_to);
        enqueue(calls, call, rank, to, (self.part(from)?, own_from))
    }

    fn free(self: Box<Self>) -> Result<()> {
        self.destination.free()?;
        self.source.free()
    }
}
