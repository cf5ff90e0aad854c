//! The verbs of collectives.

use crate::backend::abi::{CollectiveOperation, ElementType, ReduceOperation};
use crate::base::element::Element;
use crate::base::error::Result;
use crate::base::names::ReduceOp;
use crate::base::reducible::Reducible;
use crate::buffer::slice::{Slice, UntypedSlice};
use crate::collectives::options::CollectiveOptions;
use crate::collectives::parts::Parts;
use crate::collectives::request::Request;
use crate::rank::operand::Operand;
use crate::stream::call_options::{CallOptions, sealed::Sealed};
use crate::stream::queue::Queue;

/// The verbs of collectives, with options: `queue.with(&options).all_reduce(…)`.
///
/// Every member makes the same calls in the same order on a channel; calls on different channels do not wait for
/// each other. Slices are symmetric: every member passes the same part of the same buffer, except where a verb
/// says otherwise.
#[derive(Clone, Copy)]
pub struct Collectives<'q> {
    pub(crate) queue: &'q Queue,
    pub(crate) options: &'q CollectiveOptions<'q>,
}

impl Sealed for CollectiveOptions<'_> {}

impl CallOptions for CollectiveOptions<'_> {
    type Calls<'q>
        = Collectives<'q>
    where
        Self: 'q;

    fn calls<'q>(&'q self, queue: &'q Queue) -> Collectives<'q> {
        Collectives {
            queue,
            options: self,
        }
    }
}

impl Collectives<'_> {
    /// Reduces `source` of all ranks, element by element, into `destination` at all ranks.
    ///
    /// Both have the same length; in place if they are the same range.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if lengths differ, ranges overlap otherwise, or options cannot be
    /// met; the backend's; what poisoned the communicator. A peer that does not come within the
    /// deadline, or dies, is an error of [`crate::Stream::synchronize`]. So for all collectives.
    pub fn all_reduce<'a, T: Reducible>(
        &self,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Slice<'a, T>>,
        operator: ReduceOp,
    ) -> Result<()> {
        let request = self.reduction("all_reduce", destination.into(), source.into(), operator)?;
        self.run(&request)
    }

    /// Reduces `source` of all ranks into `destination` at rank `root`; elsewhere `destination` stays.
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`].
    pub fn reduce<'a, T: Reducible>(
        &self,
        root: usize,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Slice<'a, T>>,
        operator: ReduceOp,
    ) -> Result<()> {
        let request = Request {
            operation: CollectiveOperation::REDUCE,
            root,
            ..self.reduction("reduce", destination.into(), source.into(), operator)?
        };
        self.run(&request)
    }

    /// Reduces `source` of all ranks and gives rank `r` part `r` of the result. `source` is `world`
    /// times as long as `destination`; in place if `destination` is part `rank` of `source` (at all
    /// ranks or at none).
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`].
    pub fn reduce_scatter<'a, T: Reducible>(
        &self,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Slice<'a, T>>,
        operator: ReduceOp,
    ) -> Result<()> {
        let request = Request {
            operation: CollectiveOperation::REDUCE_SCATTER,
            ..self.reduction(
                "reduce_scatter",
                destination.into(),
                source.into(),
                operator,
            )?
        };
        self.run(&request)
    }

    /// Puts every rank's `source` into `destination` of all ranks, in rank order. `destination` is
    /// `world` times as long as `source`; in place if `source` is part `rank` of `destination` (at
    /// all ranks or at none).
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`].
    pub fn all_gather<'a, T: Element>(
        &self,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Slice<'a, T>>,
    ) -> Result<()> {
        let operation = CollectiveOperation::ALL_GATHER;
        let request = self.movement("all_gather", operation, destination.into(), source.into())?;
        self.run(&request)
    }

    /// [`Collectives::all_gather`] where rank `r` gives `counts[r]` elements, which may be 0: `source`
    /// starts with them, and `destination` is as long as their sum. `counts` is alike on all ranks.
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`].
    pub fn all_gather_v<'a, T: Element>(
        &self,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Slice<'a, T>>,
        counts: &[usize],
    ) -> Result<()> {
        let operation = CollectiveOperation::ALL_GATHER_V;
        let request = Request {
            counts: Some(counts),
            ..self.movement("all_gather_v", operation, destination.into(), source.into())?
        };
        self.run(&request)
    }

    /// Copies `source` of rank `root` into `destination` of all ranks.
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`].
    pub fn broadcast<'a, T: Element>(
        &self,
        root: usize,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Slice<'a, T>>,
    ) -> Result<()> {
        let operation = CollectiveOperation::BROADCAST;
        let request = Request {
            root,
            ..self.movement("broadcast", operation, destination.into(), source.into())?
        };
        self.run(&request)
    }

    /// Puts part `r` of `source` of rank `s` into part `s` of `destination` of rank `r`, for all pairs.
    /// Both have the same length, a multiple of `world`; in place if they are the same range.
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`].
    pub fn all_to_all<'a, T: Element>(
        &self,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Slice<'a, T>>,
    ) -> Result<()> {
        let operation = CollectiveOperation::ALL_TO_ALL;
        let request = self.movement("all_to_all", operation, destination.into(), source.into())?;
        self.run(&request)
    }

    /// [`Collectives::all_to_all`] with parts of any size: `sent[r]` elements from offset `sent_at[r]` of
    /// `source` go to rank `r`, and `received[s]` elements from rank `s` go to offset
    /// `received_at[s]` of `destination`. `received[s]` here equals `sent[rank]` there; a rank that
    /// expects another count than it is sent gets [`crate::Error::Mismatch`] at its next
    /// synchronisation. Ranges may differ between ranks.
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`].
    #[allow(clippy::too_many_arguments, reason = "MPI's arguments, in two groups")]
    pub fn all_to_all_v<'a, T: Element>(
        &self,
        destination: impl Into<Slice<'a, T>>,
        received: &[usize],
        received_at: &[usize],
        source: impl Into<Slice<'a, T>>,
        sent: &[usize],
        sent_at: &[usize],
    ) -> Result<()> {
        let parts = Parts {
            received,
            received_at,
            sent,
            sent_at,
        };
        let (destination, source) = (destination.into().untyped(), source.into().untyped());
        self.all_to_all_parts(destination, source, &parts, size_of::<T>())
    }

    /// Puts every rank's `source` into `destination` of rank `root`, in rank order; elsewhere
    /// `destination` stays. It is `world` times as long as `source`; in place if `source` is part `rank`
    /// of `destination` (at all ranks or at none).
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`].
    pub fn gather<'a, T: Element>(
        &self,
        root: usize,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Slice<'a, T>>,
    ) -> Result<()> {
        let operation = CollectiveOperation::GATHER;
        let request = Request {
            root,
            ..self.movement("gather", operation, destination.into(), source.into())?
        };
        self.run(&request)
    }

    /// Puts part `r` of `source` of rank `root` into `destination` of rank `r`. `source` is `world`
    /// times as long as `destination`; in place if `destination` is part `rank` of `source` (at all
    /// ranks or at none).
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`].
    pub fn scatter<'a, T: Element>(
        &self,
        root: usize,
        destination: impl Into<Slice<'a, T>>,
        source: impl Into<Slice<'a, T>>,
    ) -> Result<()> {
        let operation = CollectiveOperation::SCATTER;
        let request = Request {
            root,
            ..self.movement("scatter", operation, destination.into(), source.into())?
        };
        self.run(&request)
    }

    /// Sends `source` to `peer`, which receives it. Done, and `source` free again, once the peer has it.
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`].
    pub fn send<'a, T: Element>(&self, peer: usize, source: impl Into<Slice<'a, T>>) -> Result<()> {
        let mut exchange = self.exchange();
        exchange.send(peer, source.into())?;
        exchange.enqueue()
    }

    /// Receives into `destination` what `peer` sends.
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`].
    pub fn recv<'a, T: Element>(
        &self,
        peer: usize,
        destination: impl Into<Slice<'a, T>>,
    ) -> Result<()> {
        let mut exchange = self.exchange();
        exchange.recv(peer, destination.into())?;
        exchange.enqueue()
    }

    /// Holds the stream until the streams of all members of a group have reached their barrier on this
    /// channel; work before it at any member is visible after it at every member.
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`].
    pub fn barrier(&self) -> Result<()> {
        self.queue.barrier_of(self.options)
    }

    fn run(&self, request: &Request<'_>) -> Result<()> {
        self.queue.collective(request, self.options)
    }

    /// A slice of this communicator.
    pub(crate) fn operand<'b>(
        &self,
        name: &'static str,
        slice: UntypedSlice<'b>,
    ) -> Result<Operand<'b>> {
        self.queue.check_same(slice.world, name)?;
        Ok(slice.operand)
    }

    /// A call that reduces; an all-reduce until it is told otherwise.
    fn reduction<'b, T: Reducible>(
        &self,
        name: &'static str,
        destination: Slice<'b, T>,
        source: Slice<'b, T>,
        operator: ReduceOp,
    ) -> Result<Request<'b>> {
        let operation = CollectiveOperation::ALL_REDUCE;
        Ok(Request {
            element: T::TYPE.into(),
            reduce: operator.into(),
            ..self.movement(name, operation, destination, source)?
        })
    }

    /// A call that moves elements.
    fn movement<'b, T: Element>(
        &self,
        name: &'static str,
        operation: CollectiveOperation,
        destination: Slice<'b, T>,
        source: Slice<'b, T>,
    ) -> Result<Request<'b>> {
        let slices = (destination.untyped(), source.untyped());
        self.request(name, operation, slices, size_of::<T>())
    }

    fn request<'b>(
        &self,
        name: &'static str,
        operation: CollectiveOperation,
        (destination, source): (UntypedSlice<'b>, UntypedSlice<'b>),
        element_bytes: usize,
    ) -> Result<Request<'b>> {
        Ok(Request {
            name,
            operation,
            element: ElementType::U8,
            element_bytes: element_bytes.max(1) as u64,
            reduce: ReduceOperation::default(),
            root: 0,
            counts: None,
            destination: self.operand(name, destination)?,
            source: self.operand(name, source)?,
        })
    }
}
