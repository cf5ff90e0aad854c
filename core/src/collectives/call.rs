//! The public face: a method of [`Stream`] for each collective.

use super::{Provider, Reducible};
use crate::backend::abi::{Algorithm, ReduceOperation};
use crate::buffer::BufferRange;
use crate::element::Element;
use crate::error::Result;
use crate::stream::Stream;
use std::time::Duration;

/// How a collective is done; the default lets the selector choose. Alike on all members.
#[derive(Clone, Copy, Default)]
pub struct CollectiveOptions<'a> {
    /// The algorithm; [`Algorithm::AUTOMATIC`] for the selector's choice.
    pub algorithm: Algorithm,
    /// Blocks of the grid, so that callers can leave compute units to others; `None` for the
    /// selector's choice.
    pub blocks: Option<u32>,
    /// Threads of a block.
    pub threads: Option<u32>,
    /// The channel: collectives that may be under way at once need different ones.
    pub channel: u32,
    /// Ours or the vendor's.
    pub provider: Provider,
    /// Bound of its waits; `None` for the communicator's.
    pub deadline: Option<Duration>,
    /// The ranks that take part; `None` for all.
    pub group: Option<&'a super::Group>,
}

impl Stream {
    /// Reduces `source` of all ranks, element by element, into `destination` at all ranks.
    ///
    /// Both have the same length; in place if they are the same range.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if lengths differ, ranges overlap otherwise, or options cannot be
    /// met; the backend's; what poisoned the communicator. A peer that does not come within the
    /// deadline, or dies, is an error of [`Stream::synchronize`]. So for all collectives.
    pub fn all_reduce<T: Reducible>(
        &self,
        destination: BufferRange<'_, T>,
        source: BufferRange<'_, T>,
        operation: ReduceOperation,
    ) -> Result<()> {
        self.all_reduce_with(
            destination,
            source,
            operation,
            &CollectiveOptions::default(),
        )
    }

    /// [`Stream::all_reduce`] with options.
    ///
    /// # Errors
    /// As [`Stream::all_reduce`].
    pub fn all_reduce_with<T: Reducible>(
        &self,
        destination: BufferRange<'_, T>,
        source: BufferRange<'_, T>,
        operation: ReduceOperation,
        options: &CollectiveOptions<'_>,
    ) -> Result<()> {
        let _ = (destination, source, operation, options);
        todo!()
    }

    /// Reduces `source` of all ranks into `destination` at rank `root`; elsewhere `destination` stays.
    ///
    /// # Errors
    /// As [`Stream::all_reduce`].
    pub fn reduce<T: Reducible>(
        &self,
        root: usize,
        destination: BufferRange<'_, T>,
        source: BufferRange<'_, T>,
        operation: ReduceOperation,
        options: &CollectiveOptions<'_>,
    ) -> Result<()> {
        let _ = (root, destination, source, operation, options);
        todo!()
    }

    /// Reduces `source` of all ranks and gives rank `r` part `r` of the result. `source` is `world`
    /// times as long as `destination`; in place if `destination` is part `rank` of `source` (at all
    /// ranks or at none).
    ///
    /// # Errors
    /// As [`Stream::all_reduce`].
    pub fn reduce_scatter<T: Reducible>(
        &self,
        destination: BufferRange<'_, T>,
        source: BufferRange<'_, T>,
        operation: ReduceOperation,
        options: &CollectiveOptions<'_>,
    ) -> Result<()> {
        let _ = (destination, source, operation, options);
        todo!()
    }

    /// Puts every rank's `source` into `destination` of all ranks, in rank order. `destination` is
    /// `world` times as long as `source`; in place if `source` is part `rank` of `destination` (at
    /// all ranks or at none).
    ///
    /// # Errors
    /// As [`Stream::all_reduce`].
    pub fn all_gather<T: Element>(
        &self,
        destination: BufferRange<'_, T>,
        source: BufferRange<'_, T>,
        options: &CollectiveOptions<'_>,
    ) -> Result<()> {
        let _ = (destination, source, options);
        todo!()
    }

    /// [`Stream::all_gather`] where rank `r` gives `counts[r]` elements, which may be 0: `source`
    /// starts with them, and `destination` is as long as their sum. `counts` is alike on all ranks.
    ///
    /// # Errors
    /// As [`Stream::all_reduce`].
    pub fn all_gather_v<T: Element>(
        &self,
        destination: BufferRange<'_, T>,
        source: BufferRange<'_, T>,
        counts: &[usize],
        options: &CollectiveOptions<'_>,
    ) -> Result<()> {
        let _ = (destination, source, counts, options);
        todo!()
    }

    /// Copies `source` of rank `root` into `destination` of all ranks.
    ///
    /// # Errors
    /// As [`Stream::all_reduce`].
    pub fn broadcast<T: Element>(
        &self,
        root: usize,
        destination: BufferRange<'_, T>,
        source: BufferRange<'_, T>,
        options: &CollectiveOptions<'_>,
    ) -> Result<()> {
        let _ = (root, destination, source, options);
        todo!()
    }

    /// Puts part `r` of `source` of rank `s` into part `s` of `destination` of rank `r`, for all pairs.
    /// Both have the same length, a multiple of `world`; in place if they are the same range.
    ///
    /// # Errors
    /// As [`Stream::all_reduce`].
    pub fn all_to_all<T: Element>(
        &self,
        destination: BufferRange<'_, T>,
        source: BufferRange<'_, T>,
        options: &CollectiveOptions<'_>,
    ) -> Result<()> {
        let _ = (destination, source, options);
        todo!()
    }

    /// [`Stream::all_to_all`] with parts of any size: `sent[r]` elements from offset `sent_at[r]` of
    /// `source` go to rank `r`, and `received[s]` elements from rank `s` go to offset
    /// `received_at[s]` of `destination`. `received[s]` here equals `sent[rank]` there; a rank that
    /// expects another count than it is sent gets [`crate::Error::Mismatch`] at its next
    /// synchronisation. Ranges may differ between ranks.
    ///
    /// # Errors
    /// As [`Stream::all_reduce`].
    #[allow(clippy::too_many_arguments, reason = "MPI's arguments, in two groups")]
    pub fn all_to_all_v<T: Element>(
        &self,
        destination: BufferRange<'_, T>,
        received: &[usize],
        received_at: &[usize],
        source: BufferRange<'_, T>,
        sent: &[usize],
        sent_at: &[usize],
        options: &CollectiveOptions<'_>,
    ) -> Result<()> {
        let _ = (
            destination,
            received,
            received_at,
            source,
            sent,
            sent_at,
            options,
        );
        todo!()
    }

    /// Puts every rank's `source` into `destination` of rank `root`, in rank order; elsewhere
    /// `destination` stays. It is `world` times as long as `source`.
    ///
    /// # Errors
    /// As [`Stream::all_reduce`].
    pub fn gather<T: Element>(
        &self,
        root: usize,
        destination: BufferRange<'_, T>,
        source: BufferRange<'_, T>,
        options: &CollectiveOptions<'_>,
    ) -> Result<()> {
        let _ = (root, destination, source, options);
        todo!()
    }

    /// Puts part `r` of `source` of rank `root` into `destination` of rank `r`. `source` is `world`
    /// times as long as `destination`.
    ///
    /// # Errors
    /// As [`Stream::all_reduce`].
    pub fn scatter<T: Element>(
        &self,
        root: usize,
        destination: BufferRange<'_, T>,
        source: BufferRange<'_, T>,
        options: &CollectiveOptions<'_>,
    ) -> Result<()> {
        let _ = (root, destination, source, options);
        todo!()
    }

    /// Does sends and receives at once, so that none waits for another: a rank may exchange with
    /// itself, and in a ring. The sends from one rank to another meet its receives in order. Ranges
    /// need not be symmetric.
    ///
    /// ```no_run
    /// # use symmem_core::*;
    /// # fn f(stream: &Stream, right: usize, left: usize, out: &SymmetricBuffer<f32>, inbox: &SymmetricBuffer<f32>) -> Result<()> {
    /// stream.exchange(&CollectiveOptions::default(), |exchange| {
    ///     exchange.send(right, out.all())?;
    ///     exchange.receive(left, inbox.all())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Stream::all_reduce`], and what `body` returns; then nothing is done.
    pub fn exchange<'b>(
        &self,
        options: &CollectiveOptions<'_>,
        body: impl FnOnce(&mut super::Exchange<'b>) -> Result<()>,
    ) -> Result<()> {
        let _ = (options, body);
        todo!()
    }

    /// Sends `source` to `peer`, which receives it. Done, and `source` free again, once the peer has it.
    ///
    /// # Errors
    /// As [`Stream::all_reduce`].
    pub fn send<T: Element>(
        &self,
        peer: usize,
        source: BufferRange<'_, T>,
        options: &CollectiveOptions<'_>,
    ) -> Result<()> {
        self.exchange(options, |exchange| exchange.send(peer, source))
    }

    /// Receives into `destination` what `peer` sends.
    ///
    /// # Errors
    /// As [`Stream::all_reduce`].
    pub fn receive<T: Element>(
        &self,
        peer: usize,
        destination: BufferRange<'_, T>,
        options: &CollectiveOptions<'_>,
    ) -> Result<()> {
        self.exchange(options, |exchange| exchange.receive(peer, destination))
    }
}
