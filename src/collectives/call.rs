//! The public face: a method of [`Stream`] for each collective.

use crate::backend::abi::{Algorithm, CollectiveOperation, ElementType, ReduceOperation};
use crate::base::element::Element;
use crate::base::error::Result;
use crate::base::reducible::Reducible;
use crate::buffer::symmetric::BufferRange;
use crate::collectives::exchange::Exchange;
use crate::collectives::launch::Call;
use crate::group::membership::Group;
use crate::group::provider::Provider;
use crate::stream::transfers::Stream;
use std::time::Duration;

/// How a collective is done; the default lets the selector choose. Alike on all members.
#[derive(Clone, Copy, Default)]
pub struct CollectiveOptions<'a> {
    /// The algorithm; [`Algorithm::AUTOMATIC`] for the selector's choice. [`Algorithm::MULTICAST`] and
    /// [`Algorithm::MULTICAST_ONE_SHOT`] are refused where there is no multicast
    /// ([`crate::Communicator::multicast`]); where there is, what it cannot do (a group that was split off, memory of the
    /// caller's or without room in the object, a reduction that the switch does not have) is done by the members'
    /// own addresses. Its sums are in an order of the switch's own, and rounded before an average divides them: close
    /// to those of other algorithms, and not always the same. Floats of 8 bits go through it by these names alone,
    /// and only on devices of compute capability 10.0: it sums them in f16, all other algorithms in f32.
    pub algorithm: Algorithm,
    /// Blocks of the grid, so that callers can leave compute units to others; `None` for the
    /// selector's choice.
    pub blocks: Option<u32>,
    /// Threads of a block.
    pub threads: Option<u32>,
    /// Copies under way at once, where an algorithm copies; 0 for as many as there are, `None` for the
    /// selector's choice. By the copy engine, 1 for one after the other; 0 for what the size is worth; 2
    /// or more to copy this rank's own part beside the others and, behind a switch, to cut each copy to a
    /// peer in two; in a mesh, to copy to so many peers at once.
    pub concurrent: Option<u32>,
    /// The channel: collectives that may be under way at once need different ones. Their grids have to
    /// fit on the device together, which no rank checks: ranks that began with different ones would else
    /// wait for each other until the deadline. Give them fewer blocks then. While a capture records
    /// calls by the copy engine on a channel, no other capture may.
    pub channel: u32,
    /// Ours or the vendor's.
    pub provider: Provider,
    /// Bound of its waits; `None` for the communicator's.
    pub deadline: Option<Duration>,
    /// The ranks that take part; `None` for all.
    pub group: Option<&'a Group>,
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
        let call = self.reduction("all_reduce", destination, source, operation)?;
        self.collective(&call, options)
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
        let call = Call {
            operation: CollectiveOperation::REDUCE,
            root,
            ..self.reduction("reduce", destination, source, operation)?
        };
        self.collective(&call, options)
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
        let call = Call {
            operation: CollectiveOperation::REDUCE_SCATTER,
            ..self.reduction("reduce_scatter", destination, source, operation)?
        };
        self.collective(&call, options)
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
        let operation = CollectiveOperation::ALL_GATHER;
        let call = self.movement("all_gather", operation, destination, source)?;
        self.collective(&call, options)
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
        let operation = CollectiveOperation::ALL_GATHER_V;
        let call = Call {
            counts: Some(counts),
            ..self.movement("all_gather_v", operation, destination, source)?
        };
        self.collective(&call, options)
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
        let operation = CollectiveOperation::BROADCAST;
        let call = Call {
            root,
            ..self.movement("broadcast", operation, destination, source)?
        };
        self.collective(&call, options)
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
        let operation = CollectiveOperation::ALL_TO_ALL;
        let call = self.movement("all_to_all", operation, destination, source)?;
        self.collective(&call, options)
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
        let parts = crate::collectives::parts::Parts {
            received,
            received_at,
            sent,
            sent_at,
        };
        self.all_to_all_parts(destination, source, &parts, options)
    }

    /// Puts every rank's `source` into `destination` of rank `root`, in rank order; elsewhere
    /// `destination` stays. It is `world` times as long as `source`; in place if `source` is part `rank`
    /// of `destination` (at all ranks or at none).
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
        let operation = CollectiveOperation::GATHER;
        let call = Call {
            root,
            ..self.movement("gather", operation, destination, source)?
        };
        self.collective(&call, options)
    }

    /// Puts part `r` of `source` of rank `root` into `destination` of rank `r`. `source` is `world`
    /// times as long as `destination`; in place if `destination` is part `rank` of `source` (at all
    /// ranks or at none).
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
        let operation = CollectiveOperation::SCATTER;
        let call = Call {
            root,
            ..self.movement("scatter", operation, destination, source)?
        };
        self.collective(&call, options)
    }

    /// Does sends and receives at once, so that none waits for another: a rank may exchange with
    /// itself, and in a ring. The sends from one rank to another meet its receives in order. Ranges
    /// need not be symmetric, but must not overlap what arrives here in the same exchange, whose bytes are
    /// undefined then. The receiver too keeps the buffer that is sent from until it has received: from
    /// one that it has dropped it gets [`crate::Error::Mismatch`] at its next synchronisation.
    ///
    /// ```no_run
    /// # use symmem::*;
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
        body: impl FnOnce(&mut Exchange<'b>) -> Result<()>,
    ) -> Result<()> {
        let mut exchange = Exchange::new(self.shared(), options)?;
        body(&mut exchange)?;
        self.exchange_all(&exchange, options)
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

    /// Holds the stream until the streams of all members of a group have reached their barrier on this
    /// channel; work before it at any member is visible after it at every member.
    ///
    /// # Errors
    /// As [`Stream::all_reduce`].
    pub fn group_barrier(&self, options: &CollectiveOptions<'_>) -> Result<()> {
        self.barrier_of(options)
    }

    /// A call that reduces; an all-reduce until it is told otherwise.
    fn reduction<'b, T: Reducible>(
        &self,
        name: &'static str,
        destination: BufferRange<'b, T>,
        source: BufferRange<'b, T>,
        reduce: ReduceOperation,
    ) -> Result<Call<'b>> {
        self.check_reduction(name, reduce)?;
        let operation = CollectiveOperation::ALL_REDUCE;
        Ok(Call {
            element: T::TYPE,
            reduce,
            ..self.movement(name, operation, destination, source)?
        })
    }

    /// A call that moves bytes.
    fn movement<'b, T: Element>(
        &self,
        name: &'static str,
        operation: CollectiveOperation,
        destination: BufferRange<'b, T>,
        source: BufferRange<'b, T>,
    ) -> Result<Call<'b>> {
        Ok(Call {
            name,
            operation,
            element: ElementType::U8,
            element_bytes: size_of::<T>() as u64,
            reduce: ReduceOperation::default(),
            root: 0,
            counts: None,
            destination: self.extent(name, destination)?,
            source: self.extent(name, source)?,
        })
    }
}
