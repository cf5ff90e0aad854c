//! One-sided transfers: put and get.

use crate::backend::RemoteAccess;
use crate::backend::abi::{SignalTarget, Transfer};
use crate::base::element::Element;
use crate::base::error::Result;
use crate::base::limits::CHANNELS;
use crate::base::names::Direction;
use crate::base::planner::{TransferOptions, plan};
use crate::buffer::operand::Operand;
use crate::buffer::slice::{Slice, UntypedSlice};
use crate::rank::memory_range::MemoryRange;
use crate::stream::call_options::{CallOptions, sealed::Sealed};
use crate::stream::queue::Queue;

/// One-sided transfers with options: `queue.with(&options).put(…)`.
#[derive(Clone, Copy)]
pub struct Transfers<'q> {
    queue: &'q Queue,
    options: &'q TransferOptions,
}

impl Sealed for TransferOptions {}

impl CallOptions for TransferOptions {
    type Calls<'q> = Transfers<'q>;

    fn calls<'q>(&'q self, queue: &'q Queue) -> Transfers<'q> {
        Transfers {
            queue,
            options: self,
        }
    }
}

impl Transfers<'_> {
    /// Enqueues a copy of `source`, elements of this rank's copy or a [`DeviceSlice`](crate::DeviceSlice), to `destination` in
    /// `peer`'s copy.
    ///
    /// The elements have arrived, and are visible to the peer, once this stream has passed this point. The peer
    /// learns of it by a signal or a barrier. The same holds for a rank of another node, to which the network moves the
    /// bytes: the options then have no effect.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if lengths differ, ranges overlap on one rank, there is no such peer
    /// or the options cannot be met; the backend's errors; the error that poisoned the communicator.
    pub fn put<'a, T: Element>(
        &self,
        peer: usize,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Operand<'a, T>>,
    ) -> Result<()> {
        let slices = (destination.into().untyped(), source.into().untyped());
        self.transfer(("put", Direction::Put), peer, slices, None)
    }

    /// Enqueues a copy of `source`, elements of `peer`'s copy, to `destination` in this rank's copy or in a
    /// [`DeviceSlice`](crate::DeviceSlice).
    ///
    /// # Errors
    /// As [`Transfers::put`].
    pub fn get<'a, T: Element>(
        &self,
        peer: usize,
        destination: impl Into<Operand<'a, T>>,
        source: impl Into<Slice<'a, T>>,
    ) -> Result<()> {
        let slices = (destination.into().untyped(), source.into().untyped());
        self.transfer(("get", Direction::Get), peer, slices, None)
    }

    /// Enqueues [`Transfers::put`] and a signal to `peer` on `channel`. Once the peer's [`Queue::wait_signal`]
    /// has passed, the peer sees the elements. Empty slices send the signal alone.
    ///
    /// Signals to one peer on one channel are counted, so none is lost if the peer waits late. Signals to one
    /// peer on one channel must be ordered among themselves, by one stream or by events.
    ///
    /// # Errors
    /// As [`Transfers::put`]; [`crate::Error::InvalidArgument`] if there is no such channel;
    /// [`crate::Error::Unsupported`] in a capture, if signals live in host memory.
    pub fn put_signal<'a, T: Element>(
        &self,
        peer: usize,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Operand<'a, T>>,
        channel: u32,
    ) -> Result<()> {
        let slices = (destination.into().untyped(), source.into().untyped());
        self.transfer(("put_signal", Direction::Put), peer, slices, Some(channel))
    }

    /// Checks, plans and enqueues a transfer, followed by a signal on `channel` if there is one.
    fn transfer(
        &self,
        (operation, direction): (&'static str, Direction),
        peer: usize,
        (destination, source): (UntypedSlice<'_>, UntypedSlice<'_>),
        channel: Option<u32>,
    ) -> Result<()> {
        let (queue, options) = (self.queue, self.options);
        let world = queue.world();
        if let Some(channel) = channel {
            queue.check_channel(operation, channel, CHANNELS)?;
            if !queue.is_remote(peer) {
                queue.check_placement(operation)?;
            }
        }
        world.health.check()?;
        world.check_peer(peer, operation)?;
        queue.check_same(destination.world, operation)?;
        queue.check_same(source.world, operation)?;
        if destination.length != source.length {
            let (to, from) = (destination.length, source.length);
            let message =
                format!("the destination has {to} elements, the source {from}; pass equal lengths");
            return Err(queue.invalid(operation, message));
        }
        let (to, from) = match direction {
            Direction::Get => (world.rank, peer),
            _ => (peer, world.rank),
        };
        let (destination, source) = (destination.memory, source.memory);
        if channel.is_none() && destination.bytes() == 0 {
            return Ok(());
        }
        if queue.is_remote(peer) {
            let is_get = direction == Direction::Get;
            let ranges = (&destination, &source);
            return queue.transfer_remote(operation, peer, ranges, is_get, channel);
        }
        queue.copy(
            operation,
            (direction, peer),
            (&destination, to),
            (&source, from),
            options,
            channel,
        )
    }
}

impl Queue {
    /// [`Transfers::put`] with default options.
    ///
    /// ```no_run
    /// # use symmem::*;
    /// # fn f(stream: &Stream, peer: usize, x: &SymmetricBuffer<f32>, y: &SymmetricBuffer<f32>) -> Result<()> {
    /// stream.put(peer, y, x)?; // this rank's `x` to `y` of the peer
    /// stream.barrier()?; // later work of every rank sees it
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Transfers::put`].
    pub fn put<'a, T: Element>(
        &self,
        peer: usize,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Operand<'a, T>>,
    ) -> Result<()> {
        self.with(&TransferOptions::default())
            .put(peer, destination, source)
    }

    /// [`Transfers::get`] with default options.
    ///
    /// ```no_run
    /// # use symmem::*;
    /// # fn f(stream: &Stream, peer: usize, x: &SymmetricBuffer<f32>, y: &SymmetricBuffer<f32>) -> Result<()> {
    /// stream.barrier()?; // every rank's `x` is complete
    /// stream.get(peer, y, x)?; // the peer's `x` to `y` of this rank
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Transfers::get`].
    pub fn get<'a, T: Element>(
        &self,
        peer: usize,
        destination: impl Into<Operand<'a, T>>,
        source: impl Into<Slice<'a, T>>,
    ) -> Result<()> {
        self.with(&TransferOptions::default())
            .get(peer, destination, source)
    }

    /// [`Transfers::put_signal`] with default options.
    ///
    /// ```no_run
    /// # use symmem::*;
    /// # fn f(stream: &Stream, peer: usize, x: &SymmetricBuffer<f32>, y: &SymmetricBuffer<f32>) -> Result<()> {
    /// // Two ranks exchange: the peer makes the same calls.
    /// stream.put_signal(peer, y, x, 0)?; // channel 0
    /// stream.wait_signal(peer, 0)?; // later work of this stream sees what the peer has put
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Transfers::put_signal`].
    pub fn put_signal<'a, T: Element>(
        &self,
        peer: usize,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Operand<'a, T>>,
        channel: u32,
    ) -> Result<()> {
        self.with(&TransferOptions::default())
            .put_signal(peer, destination, source, channel)
    }

    /// Enqueues a copy between two ranks' memory.
    pub(crate) fn copy(
        &self,
        operation: &'static str,
        (direction, peer): (Direction, usize),
        (destination, to): (&MemoryRange<'_>, usize),
        (source, from): (&MemoryRange<'_>, usize),
        options: &TransferOptions,
        channel: Option<u32>,
    ) -> Result<()> {
        let world = self.world();
        let bytes = destination.bytes();
        let submit = self.submit(operation);
        let (to, from) = (
            submit.address(destination, to),
            submit.address(source, from),
        );
        if to.0 < from.0 + bytes && from.0 < to.0 + bytes {
            return Err(self.invalid(
                operation,
                "source and destination overlap; pass disjoint ranges",
            ));
        }
        let skew = to.0.wrapping_sub(from.0);
        let row = plan(&world.capabilities, direction, bytes, skew, options)
            .map_err(|message| self.invalid(operation, message))?;
        let pad = &world.pad;
        let transfer = Transfer {
            destination: to,
            source: from,
            bytes,
            // Counted after all checks: a refused call must not leave a gap in the count.
            signal: match channel {
                Some(channel) => pad.target(channel, peer),
                None => SignalTarget::default(),
            },
            direction: match peer == world.rank {
                true => Direction::Local,
                false => direction,
            }
            .into(),
            row,
        };
        // SAFETY: the ranges are inside live allocations, which `submit` keeps, and do not overlap.
        let enqueued = unsafe { submit.backend().transfer(&transfer, submit.stream()) };
        submit.end(enqueued).map_err(|error| {
            if let Some(channel) = channel {
                pad.untarget(channel, peer, &transfer.signal);
            }
            error.about(Some(peer), bytes)
        })
    }
}
