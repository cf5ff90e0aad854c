//! One-sided transfers: put and get.

use crate::backend::RemoteAccess;
use crate::backend::abi::{Direction, SignalTarget, Transfer};
use crate::base::element::Element;
use crate::base::error::Result;
use crate::base::limits::CHANNELS;
use crate::base::planner::{TransferOptions, plan};
use crate::buffer::slice::Slice;
use crate::rank::operand::Operand;
use crate::stream::queue::Queue;

impl Queue {
    /// Stores `source`, elements of this rank's copy, into `destination` of `peer`'s copy.
    ///
    /// Complete, and visible to the peer, once this stream has passed this point; the peer knows by a
    /// signal or a barrier.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if lengths differ, ranges overlap on one rank or there is no such
    /// peer; the backend's; what poisoned the communicator.
    pub fn put<'a, T: Element>(
        &self,
        peer: usize,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Slice<'a, T>>,
    ) -> Result<()> {
        self.put_with(peer, destination, source, &TransferOptions::default())
    }

    /// [`Queue::put`] with a method and geometry of the caller's choice.
    ///
    /// # Errors
    /// Also [`crate::Error::InvalidArgument`] if the options cannot be met.
    pub fn put_with<'a, T: Element>(
        &self,
        peer: usize,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Slice<'a, T>>,
        options: &TransferOptions,
    ) -> Result<()> {
        self.transfer(
            "put",
            Direction::PUT,
            peer,
            (destination.into(), source.into()),
            options,
            None,
        )
    }

    /// Loads `source` of `peer`'s copy into `destination`, elements of this rank's copy.
    ///
    /// # Errors
    /// As [`Queue::put`].
    pub fn get<'a, T: Element>(
        &self,
        peer: usize,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Slice<'a, T>>,
    ) -> Result<()> {
        self.get_with(peer, destination, source, &TransferOptions::default())
    }

    /// [`Queue::get`] with a method and geometry of the caller's choice.
    ///
    /// # Errors
    /// As [`Queue::put_with`].
    pub fn get_with<'a, T: Element>(
        &self,
        peer: usize,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Slice<'a, T>>,
        options: &TransferOptions,
    ) -> Result<()> {
        self.transfer(
            "get",
            Direction::GET,
            peer,
            (destination.into(), source.into()),
            options,
            None,
        )
    }

    /// [`Queue::put`], then a signal to `peer` on `channel`: once its [`Queue::wait_signal`] has
    /// passed, the peer sees the elements.
    ///
    /// Signals to one peer on one channel are counted, so none is lost if the peer is late; they must
    /// be ordered among themselves, by one stream or by events.
    ///
    /// # Errors
    /// As [`Queue::put`]; [`crate::Error::InvalidArgument`] if there is no such channel.
    pub fn put_signal<'a, T: Element>(
        &self,
        peer: usize,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Slice<'a, T>>,
        channel: u32,
    ) -> Result<()> {
        self.put_signal_with(
            peer,
            destination,
            source,
            channel,
            &TransferOptions::default(),
        )
    }

    /// [`Queue::put_signal`] with a method and geometry of the caller's choice.
    ///
    /// # Errors
    /// As [`Queue::put_signal`] and [`Queue::put_with`].
    pub fn put_signal_with<'a, T: Element>(
        &self,
        peer: usize,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Slice<'a, T>>,
        channel: u32,
        options: &TransferOptions,
    ) -> Result<()> {
        self.check_channel("put_signal", channel, CHANNELS)?;
        self.check_placement("put_signal")?;
        let ranges = (destination.into(), source.into());
        self.transfer(
            "put_signal",
            Direction::PUT,
            peer,
            ranges,
            options,
            Some(channel),
        )
    }

    /// Checks, plans and enqueues a transfer, with a signal on `channel` behind it.
    fn transfer<T: Element>(
        &self,
        operation: &'static str,
        direction: Direction,
        peer: usize,
        (destination, source): (Slice<'_, T>, Slice<'_, T>),
        options: &TransferOptions,
        channel: Option<u32>,
    ) -> Result<()> {
        let world = self.world();
        world.health.check()?;
        world.check_peer(peer, operation)?;
        self.check_same(destination.world(), operation)?;
        self.check_same(source.world(), operation)?;
        if destination.len() != source.len() {
            return Err(self.invalid(
                operation,
                format!(
                    "the destination has {} elements, the source {}",
                    destination.len(),
                    source.len()
                ),
            ));
        }
        let (to, from) = match direction {
            Direction::GET => (world.rank, peer),
            _ => (peer, world.rank),
        };
        let (destination, source) = (destination.operand(), source.operand());
        if channel.is_none() && destination.bytes() == 0 {
            return Ok(());
        }
        self.copy(
            operation,
            (direction, peer),
            (&destination, to),
            (&source, from),
            options,
            channel,
        )
    }

    /// Enqueues a copy between two ranks' parts of symmetric memory.
    pub(crate) fn copy(
        &self,
        operation: &'static str,
        (direction, peer): (Direction, usize),
        (destination, to): (&Operand<'_>, usize),
        (source, from): (&Operand<'_>, usize),
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
            return Err(self.invalid(operation, "destination and source overlap"));
        }
        let skew = to.0.wrapping_sub(from.0);
        let row = plan(&world.capabilities, direction, bytes, skew, options)
            .map_err(|message| self.invalid(operation, message))?;
        let pad = &world.pad;
        let transfer = Transfer {
            destination: to,
            source: from,
            bytes,
            // Counted once nothing can refuse it: a refused call must not leave a gap in the count.
            signal: match channel {
                Some(channel) => pad.target(channel, peer),
                None => SignalTarget::default(),
            },
            direction: match peer == world.rank {
                true => Direction::LOCAL,
                false => direction,
            },
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
