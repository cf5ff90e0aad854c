//! The collective verbs.

use crate::backend::abi::{CollectiveOperationCode, ElementTypeCode, ReduceOpCode};
use crate::base::element::Element;
use crate::base::error::Result;
use crate::base::names::ReduceOp;
use crate::base::reducible::Reducible;
use crate::buffer::operand::Operand;
use crate::buffer::slice::UntypedSlice;
use crate::collectives::options::CollectiveOptions;
use crate::collectives::parts::AllToAllParts;
use crate::collectives::request::Request;
use crate::rank::memory_range::MemoryRange;
use crate::stream::call_options::{CallOptions, sealed::Sealed};
use crate::stream::queue::Queue;

/// The collective verbs with options: `queue.with(&options).all_reduce(…)`.
///
/// Every verb enqueues its work and returns; [`crate::Stream::synchronize`] waits. Every member makes the same
/// calls in the same order on a channel; calls on different channels do not wait for each other. Slices are
/// symmetric: every member passes the same part of the same buffer, unless a verb says otherwise. If one operand is a
/// [`DeviceSlice`](crate::DeviceSlice), every member passes one, and each may pass any memory. `world` is
/// the number of members, `rank` this rank's number among them.
///
/// A call that has ended here has done this rank's part: its own destination is complete. Read another rank's destination
/// only after a barrier or a signal from that rank.
///
/// ```no_run
/// # use symmem::*;
/// # fn f(stream: &Stream, x: &SymmetricBuffer<f32>, y: &SymmetricBuffer<f32>) -> Result<()> {
/// let options = CollectiveOptions::new().algorithm(Algorithm::TwoShot).channel(1);
/// stream.with(&options).all_reduce(y, x, ReduceOp::Sum)?;
/// # Ok(()) }
/// ```
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
    /// Both have the same length. The call is in place if they are the same range.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if lengths do not match, ranges overlap without being in place, or
    /// options cannot be met; [`crate::Error::Unsupported`] for windows of NCCL with ranges that do not start
    /// at multiples of 16 bytes; [`crate::Error::Mismatch`] if calls are compared
    /// ([`crate::Configuration::check_calls`]) and differ; the backend's errors; the error that poisoned the
    /// communicator. If a peer dies or does not come within the deadline, [`crate::Stream::synchronize`]
    /// returns the error.
    pub fn all_reduce<'a, T: Reducible>(
        &self,
        destination: impl Into<Operand<'a, T>>,
        source: impl Into<Operand<'a, T>>,
        operator: ReduceOp,
    ) -> Result<()> {
        let request = self.reduction("all_reduce", destination.into(), source.into(), operator)?;
        self.run(&request)
    }

    /// Reduces `source` of all ranks, element by element, into `destination` at rank `root`. On other ranks
    /// `destination` is unchanged. Both have the same length.
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`].
    pub fn reduce<'a, T: Reducible>(
        &self,
        root: usize,
        destination: impl Into<Operand<'a, T>>,
        source: impl Into<Operand<'a, T>>,
        operator: ReduceOp,
    ) -> Result<()> {
        let request = Request {
            operation: CollectiveOperationCode::REDUCE,
            root,
            ..self.reduction("reduce", destination.into(), source.into(), operator)?
        };
        self.run(&request)
    }

    /// Reduces `source` of all ranks, element by element, and stores part `r` of the result in `destination` of
    /// rank `r`. `source` is `world` times as long as `destination`. The call is in place if `destination` is
    /// part `rank` of `source`, at all ranks or at none.
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`].
    pub fn reduce_scatter<'a, T: Reducible>(
        &self,
        destination: impl Into<Operand<'a, T>>,
        source: impl Into<Operand<'a, T>>,
        operator: ReduceOp,
    ) -> Result<()> {
        let request = Request {
            operation: CollectiveOperationCode::REDUCE_SCATTER,
            ..self.reduction(
                "reduce_scatter",
                destination.into(),
                source.into(),
                operator,
            )?
        };
        self.run(&request)
    }

    /// Copies every rank's `source` into `destination` of all ranks, in rank order. `destination` is `world`
    /// times as long as `source`. The call is in place if `source` is part `rank` of `destination`, at all
    /// ranks or at none.
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`].
    pub fn all_gather<'a, T: Element>(
        &self,
        destination: impl Into<Operand<'a, T>>,
        source: impl Into<Operand<'a, T>>,
    ) -> Result<()> {
        let operation = CollectiveOperationCode::ALL_GATHER;
        let request = self.movement("all_gather", operation, destination.into(), source.into())?;
        self.run(&request)
    }

    /// [`Collectives::all_gather`] with `counts[r]` elements, possibly 0, from rank `r`: `source` starts with
    /// them, and `destination` is as long as the sum of `counts`. `counts` must be the same on all ranks.
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`].
    pub fn all_gather_v<'a, T: Element>(
        &self,
        destination: impl Into<Operand<'a, T>>,
        source: impl Into<Operand<'a, T>>,
        counts: &[usize],
    ) -> Result<()> {
        let operation = CollectiveOperationCode::ALL_GATHER_V;
        let request = Request {
            counts: Some(counts),
            ..self.movement("all_gather_v", operation, destination.into(), source.into())?
        };
        self.run(&request)
    }

    /// Copies `source` of rank `root` into `destination` of all ranks. Both have the same length.
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`].
    pub fn broadcast<'a, T: Element>(
        &self,
        root: usize,
        destination: impl Into<Operand<'a, T>>,
        source: impl Into<Operand<'a, T>>,
    ) -> Result<()> {
        let operation = CollectiveOperationCode::BROADCAST;
        let request = Request {
            root,
            ..self.movement("broadcast", operation, destination.into(), source.into())?
        };
        self.run(&request)
    }

    /// Copies part `r` of `source` of rank `s` into part `s` of `destination` of rank `r`, for all pairs. Both
    /// have the same length, a multiple of `world`. The call is in place if they are the same range.
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`].
    pub fn all_to_all<'a, T: Element>(
        &self,
        destination: impl Into<Operand<'a, T>>,
        source: impl Into<Operand<'a, T>>,
    ) -> Result<()> {
        let operation = CollectiveOperationCode::ALL_TO_ALL;
        let request = self.movement("all_to_all", operation, destination.into(), source.into())?;
        self.run(&request)
    }

    /// [`Collectives::all_to_all`] with parts of any size, in elements. `sent[r]` elements from offset
    /// `sent_at[r]` of `source` go to rank `r`; `received[s]` elements from rank `s` go to offset
    /// `received_at[s]` of `destination`. `received[s]` here must equal `sent[rank]` at rank `s`: a rank that
    /// expects a different count gets [`crate::Error::Mismatch`] at its next synchronization. Ranges may differ
    /// between ranks.
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`].
    #[allow(clippy::too_many_arguments, reason = "MPI's arguments, in two groups")]
    pub fn all_to_all_v<'a, T: Element>(
        &self,
        destination: impl Into<Operand<'a, T>>,
        received: &[usize],
        received_at: &[usize],
        source: impl Into<Operand<'a, T>>,
        sent: &[usize],
        sent_at: &[usize],
    ) -> Result<()> {
        let parts = AllToAllParts {
            received,
            received_at,
            sent,
            sent_at,
        };
        let (destination, source) = (destination.into().untyped(), source.into().untyped());
        self.all_to_all_parts(destination, source, &parts, size_of::<T>())
    }

    /// Copies every rank's `source` into `destination` of rank `root`, in rank order. On other ranks
    /// `destination` is unchanged. `destination` is `world` times as long as `source`. The call is in place if
    /// `source` is part `rank` of `destination`, at all ranks or at none.
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`].
    pub fn gather<'a, T: Element>(
        &self,
        root: usize,
        destination: impl Into<Operand<'a, T>>,
        source: impl Into<Operand<'a, T>>,
    ) -> Result<()> {
        let operation = CollectiveOperationCode::GATHER;
        let request = Request {
            root,
            ..self.movement("gather", operation, destination.into(), source.into())?
        };
        self.run(&request)
    }

    /// Copies part `r` of `source` of rank `root` into `destination` of rank `r`. `source` is `world` times as
    /// long as `destination`. The call is in place if `destination` is part `rank` of `source`, at all ranks or
    /// at none.
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`].
    pub fn scatter<'a, T: Element>(
        &self,
        root: usize,
        destination: impl Into<Operand<'a, T>>,
        source: impl Into<Operand<'a, T>>,
    ) -> Result<()> {
        let operation = CollectiveOperationCode::SCATTER;
        let request = Request {
            root,
            ..self.movement("scatter", operation, destination.into(), source.into())?
        };
        self.run(&request)
    }

    /// Sends `source` to `peer`, which must receive it. `source` may be overwritten once this stream has passed
    /// this point: the peer has received it by then.
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`].
    pub fn send<'a, T: Element>(
        &self,
        peer: usize,
        source: impl Into<Operand<'a, T>>,
    ) -> Result<()> {
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
        destination: impl Into<Operand<'a, T>>,
    ) -> Result<()> {
        let mut exchange = self.exchange();
        exchange.recv(peer, destination.into())?;
        exchange.enqueue()
    }

    /// Enqueues a barrier of the group on the options' channel: later work of this stream starts once the
    /// streams of all members have reached it. Work before it at any member is visible after it at every
    /// member.
    ///
    /// # Errors
    /// As [`Collectives::all_reduce`].
    pub fn barrier(&self) -> Result<()> {
        self.queue.barrier_of(self.options)
    }

    fn run(&self, request: &Request<'_>) -> Result<()> {
        self.queue.collective(request, self.options)
    }

    /// Checks that a slice is this communicator's.
    pub(crate) fn memory<'b>(
        &self,
        name: &'static str,
        slice: UntypedSlice<'b>,
    ) -> Result<MemoryRange<'b>> {
        self.queue.check_same(slice.world, name)?;
        Ok(slice.memory)
    }

    /// Makes the request of a reduction, an all-reduce by default.
    fn reduction<'b, T: Reducible>(
        &self,
        name: &'static str,
        destination: Operand<'b, T>,
        source: Operand<'b, T>,
        operator: ReduceOp,
    ) -> Result<Request<'b>> {
        let operation = CollectiveOperationCode::ALL_REDUCE;
        Ok(Request {
            element: T::TYPE.into(),
            reduce: operator.into(),
            ..self.movement(name, operation, destination, source)?
        })
    }

    /// Makes the request of an operation that moves elements.
    fn movement<'b, T: Element>(
        &self,
        name: &'static str,
        operation: CollectiveOperationCode,
        destination: Operand<'b, T>,
        source: Operand<'b, T>,
    ) -> Result<Request<'b>> {
        let slices = (destination.untyped(), source.untyped());
        self.request(name, operation, slices, size_of::<T>())
    }

    fn request<'b>(
        &self,
        name: &'static str,
        operation: CollectiveOperationCode,
        (destination, source): (UntypedSlice<'b>, UntypedSlice<'b>),
        element_bytes: usize,
    ) -> Result<Request<'b>> {
        Ok(Request {
            name,
            operation,
            element: ElementTypeCode::U8,
            element_bytes: element_bytes.max(1) as u64,
            reduce: ReduceOpCode::default(),
            root: 0,
            counts: None,
            stride: None,
            destination: self.memory(name, destination)?,
            source: self.memory(name, source)?,
        })
    }
}
