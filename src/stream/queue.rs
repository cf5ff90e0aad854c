//! Queues and streams.

use crate::backend::Device;
use crate::backend::abi::{RawStream, SignalPlacementCode};
use crate::base::error::{Error, Result};
use crate::base::limits::check_channel;
use crate::rank::sequence::{Admission, Sequence};
use crate::rank::side::ClosingStream;
use crate::rank::streams::KnownStream;
use crate::rank::submit::{Recording, Submit};
use crate::stream::remote::Remote;
use crate::world::world::World;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// An ordered queue of device work: a [`Stream`], or the graph that [`Stream::capture`] records.
///
/// Every method enqueues work and returns without waiting for it; [`Stream::synchronize`] waits. Outside of a
/// capture, methods neither allocate nor lock on the way to the driver, with these exceptions: more than 256 waits
/// for signals in host memory at a time, operations to ranks of other nodes, and an [`crate::Exchange`] of more than 32 sends and
/// receives allocates. Collectives that are compared ([`crate::Configuration::check_calls`]) do both, and block
/// until the other ranks have made the call.
///
/// ```no_run
/// # use symmem::*;
/// # fn f(queue: &Queue, x: &SymmetricBuffer<f32>) -> Result<()> {
/// queue.all_reduce(x, x, ReduceOp::Sum)?; // enqueued, or recorded in a capture
/// queue.barrier()
/// # }
/// ```
pub struct Queue {
    world: Arc<World>,
    raw: RawStream,
    /// Resources that the recorded work uses; `None` outside of a capture.
    recording: Option<Recording>,
    /// The period in which the stream has collectives.
    admission: Admission,
    /// Commands to ranks of other nodes.
    remote: Remote,
}

impl Queue {
    /// Makes a queue that records a stream.
    pub(crate) fn recording(world: Arc<World>, raw: RawStream) -> Self {
        Self {
            world,
            raw,
            recording: Some(Recording::default()),
            admission: Admission::default(),
            remote: Remote::default(),
        }
    }

    /// Takes the resources that the recorded work uses.
    pub(crate) fn take_recording(&mut self) -> Option<Recording> {
        self.recording.take()
    }

    /// Returns the stream's handle in the driver's API: `CUstream`, `hipStream_t`.
    pub fn raw(&self) -> u64 {
        // The program may enqueue work behind that of the network.
        self.remote.expose();
        self.join_or_poison();
        self.raw.0
    }

    /// Returns whether the queue records a graph.
    pub fn is_capturing(&self) -> bool {
        self.recording.is_some()
    }

    pub(crate) fn raw_handle(&self) -> RawStream {
        self.raw
    }

    pub(crate) fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Begins to enqueue the work of `operation`. Every call reaches the device through the returned
    /// [`Submit`], which keeps alive the memory whose addresses it returns.
    ///
    /// The work waits for the queue's operations to ranks of other nodes.
    #[inline]
    pub(crate) fn submit(&self, operation: &'static str) -> Submit<'_> {
        if self.world.network.is_some() {
            self.join_or_poison();
        }
        self.submit_chained(operation)
    }

    #[cold]
    fn join_or_poison(&self) {
        let joined = match self.remote.is_overlapping() {
            true => self.unchain_network(),
            false => self.join_network(),
        };
        if let Err(error) = joined {
            // Work that does not wait would run too early.
            self.world.health.poison(error);
        }
    }

    pub(crate) fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Begins to enqueue a wait, as [`Queue::submit`] does for work: operations to ranks of other nodes go on meanwhile.
    #[inline]
    pub(crate) fn submit_wait(&self, operation: &'static str) -> Result<Submit<'_>> {
        if self.world.network.is_some() {
            self.unchain_network()?;
        }
        Ok(self.submit_chained(operation))
    }

    /// Begins to enqueue an operation to a rank of another node, which follows earlier ones without a wait of the stream.
    #[inline]
    pub(crate) fn submit_chained(&self, operation: &'static str) -> Submit<'_> {
        Submit::begin(operation, &self.world, self.raw, self.recording.as_ref())
    }

    /// Admits a collective of `sequence` to run beside those of other streams. In a capture nothing runs; the
    /// launch of the graph is admitted instead.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if more collectives could be under way at once than the ranks have agreed on.
    #[inline]
    pub(crate) fn admit(&self, operation: &'static str, sequence: &Arc<Sequence>) -> Result<()> {
        if self.recording.is_some() {
            return Ok(());
        }
        let residency = self.world.collectives.selector.residency();
        residency
            .admit(&self.world, sequence, (&self.admission, self.raw))
            .map_err(|message| self.invalid(operation, message))
    }

    /// Refuses a resource of another communicator: its addresses are not valid here.
    pub(crate) fn check_same(&self, other: &Arc<World>, operation: &'static str) -> Result<()> {
        if Arc::ptr_eq(&self.world, other) {
            return Ok(());
        }
        Err(self.invalid(
            operation,
            "buffer and stream belong to different communicators",
        ))
    }

    pub(crate) fn invalid(&self, operation: &'static str, message: impl Into<String>) -> Error {
        self.world.invalid(operation, message)
    }

    pub(crate) fn check_channel(
        &self,
        operation: &'static str,
        channel: u32,
        channels: u32,
    ) -> Result<()> {
        check_channel(channel, channels).map_err(|message| self.invalid(operation, message))
    }

    /// Refuses signals in host memory during a capture: the graph would wait for the recorded value at every
    /// replay.
    pub(crate) fn check_placement(&self, operation: &'static str) -> Result<()> {
        if self.world.pad.placement() == SignalPlacementCode::DEVICE
            || !self.query_capturing(operation)?
        {
            return Ok(());
        }
        Err(Error::Unsupported {
            rank: self.world.rank,
            operation,
            message: "signals in host memory cannot be captured, since a graph would freeze their values; open the \
                communicator with `SignalPlacement::Device`"
                .into(),
        })
    }

    /// Asks the driver whether the stream is being captured, by this library or directly through the driver's
    /// API.
    pub(crate) fn query_capturing(&self, operation: &'static str) -> Result<bool> {
        self.world.health.check_process()?;
        // SAFETY: the stream is live.
        unsafe { self.world.backend.stream_capturing(self.raw) }
            .map_err(|failure| self.world.failed(operation, failure))
    }

    /// Refuses queries of the stream's progress during a capture: a query would invalidate the capture.
    pub(crate) fn refuse_capture(&self, operation: &'static str) -> Result<()> {
        match self.query_capturing(operation)? {
            true => Err(self.world.captured(operation)),
            false => Ok(()),
        }
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Queue")
            .field("raw", &self.raw.0)
            .field("capturing", &self.is_capturing())
            .finish_non_exhaustive()
    }
}

/// An ordered queue of one rank's device work. The methods of [`Queue`] enqueue on it. Different streams are
/// not ordered with each other.
///
/// ```
/// # fn main() -> symmem::Result<()> {
/// # let communicator = symmem::init()?;
/// let stream = communicator.stream()?;
/// stream.barrier()?; // enqueued, by `Queue::barrier`
/// stream.synchronize()?; // the host waits
/// assert!(stream.is_idle()?);
/// # communicator.finalize().map(drop)
/// # }
/// ```
pub struct Stream {
    queue: Queue,
    /// Whether the library made the stream. Otherwise the value wraps a stream of the caller's, which may
    /// itself be one that the library made.
    owned: bool,
}

impl Stream {
    pub(crate) fn new(world: Arc<World>) -> Result<Self> {
        world.health.look()?;
        let raw = world
            .backend
            .stream_create()
            .map_err(|failure| world.failed("stream_create", failure))?;
        Ok(Self::wrap(world, raw, true))
    }

    /// # Safety
    /// As [`crate::Communicator::stream_from_raw`].
    pub(crate) unsafe fn from_raw(world: Arc<World>, raw: u64) -> Self {
        Self::wrap(world, RawStream(raw), false)
    }

    fn wrap(world: Arc<World>, raw: RawStream, owned: bool) -> Self {
        world.add_stream(KnownStream {
            raw,
            owned,
            event: None,
            admitted: 0,
        });
        let queue = Queue {
            world,
            raw,
            recording: None,
            admission: Admission::default(),
            remote: Remote::default(),
        };
        if !owned {
            queue.remote.expose();
        }
        Self { queue, owned }
    }

    /// Blocks until the stream has done all its work, for at most the communicator's deadline.
    ///
    /// # Errors
    /// Failures on the device or at a peer since the last call: [`Error::Timeout`] of a wait,
    /// [`Error::PeerDied`], the backend's errors; these poison the communicator. [`Error::HostTimeout`] at the
    /// deadline. [`Error::InvalidArgument`] while the stream is being captured, or once another thread begins to
    /// capture it: the communicator can still be used.
    pub fn synchronize(&self) -> Result<()> {
        self.synchronize_within(self.world.deadlines.wait)
    }

    /// [`Stream::synchronize`] with its own deadline.
    ///
    /// # Errors
    /// As [`Stream::synchronize`].
    pub fn synchronize_within(&self, deadline: Duration) -> Result<()> {
        self.refuse_capture("synchronize")?;
        self.join_network()?;
        let result = self.world.wait_idle(self.raw, deadline);
        self.world.reclaim();
        result
    }

    /// Blocks until the stream has done all its work, and returns true, or until `limit` has passed, and returns false:
    /// unlike after [`Stream::synchronize_within`] the communicator can still be used.
    ///
    /// # Errors
    /// As [`Stream::synchronize`], but for the deadline.
    pub fn idle_within(&self, limit: Duration) -> Result<bool> {
        self.refuse_capture("idle_within")?;
        self.join_network()?;
        let result = self.world.is_idle_within(self.raw, limit);
        self.world.reclaim();
        result
    }

    /// Returns whether all work enqueued so far is done. Does not block.
    ///
    /// # Errors
    /// As [`Stream::synchronize`].
    pub fn is_idle(&self) -> Result<bool> {
        const NAME: &str = "is_idle";
        let world = &self.world;
        world.health.look()?;
        if world.network.is_some() {
            self.refuse_capture(NAME)?;
            self.join_network()?;
            world.help();
        }
        // SAFETY: the stream is live.
        let idle = || unsafe { world.backend.stream_idle(self.raw) };
        world
            .outside_captures(self.raw, idle)
            .map_err(|failure| world.failed(NAME, failure))?
            .ok_or_else(|| world.captured(NAME))
    }
}

impl Deref for Stream {
    type Target = Queue;

    #[inline]
    fn deref(&self) -> &Queue {
        &self.queue
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.queue.leave_network();
        let closing = ClosingStream::held(self.queue.raw, self.owned);
        self.queue.world.give_up(closing);
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Stream")
            .field("raw", &self.queue.raw.0)
            .finish_non_exhaustive()
    }
}
