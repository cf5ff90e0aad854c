//! Queues and streams.

use crate::backend::Device;
use crate::backend::abi::{RawStream, SignalPlacement};
use crate::base::error::{Error, Result};
use crate::base::limits::check_channel;
use crate::rank::side::ClosingStream;
use crate::rank::streams::KnownStream;
use crate::rank::submit::{Recording, Submit};
use crate::world::world::World;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// What work is enqueued on, done in order: a [`Stream`], or, in [`Stream::capture`], the graph that is recorded.
///
/// Every method enqueues and returns; [`Stream::synchronize`] waits. Outside of a capture nothing is allocated and
/// no lock is taken on the way to the driver, but for a wait for a signal in host memory, which the watcher has
/// to know of.
pub struct Queue {
    world: Arc<World>,
    raw: RawStream,
    /// What the work recorded so far uses; `None` outside of a capture.
    recording: Option<Recording>,
}

impl Queue {
    /// A queue that records a stream.
    pub(crate) fn recording(world: Arc<World>, raw: RawStream) -> Self {
        Self {
            world,
            raw,
            recording: Some(Recording::default()),
        }
    }

    /// Takes what the recorded work uses.
    pub(crate) fn take_recording(&mut self) -> Option<Recording> {
        self.recording.take()
    }

    /// The handle of the vendor's own API: `CUstream`, `hipStream_t`.
    pub fn raw(&self) -> u64 {
        self.raw.0
    }

    /// Whether it records a graph.
    pub fn is_capturing(&self) -> bool {
        self.recording.is_some()
    }

    pub(crate) fn raw_handle(&self) -> RawStream {
        self.raw
    }

    pub(crate) fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Begins to enqueue the work of `operation`. Every call reaches the device through the returned [`Submit`],
    /// which keeps the memory whose addresses it returns.
    #[inline]
    pub(crate) fn submit(&self, operation: &'static str) -> Submit<'_> {
        Submit::begin(operation, &self.world, self.raw, self.recording.as_ref())
    }

    /// Refuses what belongs to another communicator, whose addresses mean nothing here.
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

    /// Words on the host are compared with values that a capture would freeze.
    pub(crate) fn check_placement(&self, operation: &'static str) -> Result<()> {
        if self.world.pad.placement() == SignalPlacement::DEVICE
            || !self.asked_capturing(operation)?
        {
            return Ok(());
        }
        Err(Error::Unsupported {
            rank: self.world.rank,
            operation,
            message: "signals in host memory cannot be captured, since their values would be \
                      frozen; open the communicator with signals in device memory"
                .into(),
        })
    }

    /// Whether anybody is recording this stream, also by the vendor's own API.
    pub(crate) fn asked_capturing(&self, operation: &'static str) -> Result<bool> {
        // SAFETY: the stream is live.
        unsafe { self.world.backend.stream_capturing(self.raw) }
            .map_err(|failure| self.world.failed(operation, failure))
    }

    /// Refuses what asks the stream how far it is, which would end a capture.
    pub(crate) fn refuse_capture(&self, operation: &'static str) -> Result<()> {
        if self.asked_capturing(operation)? {
            return Err(self.invalid(operation, "the stream is being captured"));
        }
        Ok(())
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

/// A queue of work of one rank; different streams are not ordered with each other. Work is enqueued by the
/// methods of [`Queue`].
pub struct Stream {
    queue: Queue,
    /// Made by the library; else a wrapper of the caller's, perhaps of one made by the library.
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
        });
        let queue = Queue {
            world,
            raw,
            recording: None,
        };
        Self { queue, owned }
    }

    /// Waits on the host until the stream has done all its work, at most the communicator's deadline.
    ///
    /// # Errors
    /// What went wrong on the device or at a peer since the last call: [`Error::Timeout`] of a wait,
    /// [`Error::PeerDied`], the backend's. The communicator is poisoned then.
    pub fn synchronize(&self) -> Result<()> {
        self.synchronize_within(self.world.deadlines.wait)
    }

    /// [`Stream::synchronize`] with a deadline of its own.
    ///
    /// # Errors
    /// As [`Stream::synchronize`]; [`Error::HostTimeout`] at the deadline.
    pub fn synchronize_within(&self, deadline: Duration) -> Result<()> {
        self.refuse_capture("synchronize")?;
        let result = self.world.wait_idle(self.raw, deadline);
        self.world.reclaim();
        result
    }

    /// Whether all work enqueued so far is done. Not blocking.
    ///
    /// # Errors
    /// As [`Stream::synchronize`].
    pub fn is_idle(&self) -> Result<bool> {
        self.world.health.look()?;
        self.refuse_capture("is_idle")?;
        // SAFETY: the stream is live.
        unsafe { self.world.backend.stream_idle(self.raw) }
            .map_err(|failure| self.world.failed("is_idle", failure))
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
