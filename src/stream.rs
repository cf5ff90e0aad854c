//! Streams: put, get, signals and barriers in order.
//!
//! Every method here enqueues and returns; [`Stream::synchronize`] waits. Outside of a capture nothing
//! is allocated and no lock is taken on the way to the driver, but for a wait for a signal in host
//! memory, which the watcher has to know of.

use crate::backend::abi::{
    DeviceAddress, Direction, RawStream, SignalPlacement, SignalTarget, Transfer,
};
use crate::backend::{CallResult, Collectives, Device, RemoteAccess, Signals};
use crate::buffer::{BufferRange, SymmetricBuffer, check_peer};
use crate::communicator::shared::Kept;
use crate::communicator::{BARRIER_CHANNELS, CHANNELS, Shared};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::health::HostWait;
use crate::planner::{TransferOptions, plan};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A queue of work of one rank, done in order; different streams are not ordered with each other.
pub struct Stream {
    shared: Arc<Shared>,
    raw: RawStream,
    /// Made by the library; else a wrapper of the caller's, perhaps of one made by the library.
    owned: bool,
    /// Counts begins and ends of captures: odd while [`crate::Graph::capture`] records this stream.
    captures: AtomicU32,
    /// What the work recorded since the capture began uses.
    captured: Mutex<Vec<Kept>>,
}

impl Stream {
    pub(crate) fn new(shared: Arc<Shared>) -> Result<Self> {
        shared.health.look()?;
        let raw = shared
            .backend
            .stream_create()
            .map_err(|failure| shared.failed("stream_create", failure))?;
        Ok(Self::wrap(shared, raw, true))
    }

    /// # Safety
    /// As [`crate::Communicator::stream_from_raw`].
    pub(crate) unsafe fn from_raw(shared: Arc<Shared>, raw: u64) -> Self {
        Self::wrap(shared, RawStream(raw), false)
    }

    fn wrap(shared: Arc<Shared>, raw: RawStream, owned: bool) -> Self {
        shared.add_stream(raw, owned);
        Self {
            shared,
            raw,
            owned,
            captures: AtomicU32::new(0),
            captured: Mutex::default(),
        }
    }

    /// The handle of the vendor's own API.
    pub fn raw(&self) -> u64 {
        self.raw.0
    }

    pub(crate) fn raw_handle(&self) -> RawStream {
        self.raw
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Refuses a buffer or graph of another communicator, whose addresses mean nothing here.
    pub(crate) fn check_same(&self, other: &Arc<Shared>, operation: &'static str) -> Result<()> {
        if Arc::ptr_eq(&self.shared, other) {
            return Ok(());
        }
        Err(self.invalid(
            operation,
            "buffer and stream belong to different communicators",
        ))
    }

    pub(crate) fn invalid(&self, operation: &'static str, message: impl Into<String>) -> Error {
        Error::InvalidArgument {
            rank: self.shared.rank,
            operation,
            message: message.into(),
        }
    }

    /// Stores `source`, elements of this rank's copy, into `destination` of `peer`'s copy.
    ///
    /// Complete, and visible to the peer, once this stream has passed this point; the peer knows by a
    /// signal or a barrier.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if lengths differ, ranges overlap on one rank or there is no such
    /// peer; the backend's; what poisoned the communicator.
    pub fn put<T: Element>(
        &self,
        peer: usize,
        destination: BufferRange<'_, T>,
        source: BufferRange<'_, T>,
    ) -> Result<()> {
        self.put_with(peer, destination, source, &TransferOptions::default())
    }

    /// [`Stream::put`] with a method and geometry of the caller's choice.
    ///
    /// # Errors
    /// Also [`Error::InvalidArgument`] if the options cannot be met.
    pub fn put_with<T: Element>(
        &self,
        peer: usize,
        destination: BufferRange<'_, T>,
        source: BufferRange<'_, T>,
        options: &TransferOptions,
    ) -> Result<()> {
        let transfer = self.plan("put", Direction::PUT, peer, destination, source, options)?;
        let uses = [destination.buffer(), source.buffer()];
        self.transfer("put", Some(peer), &transfer, uses)
    }

    /// Loads `source` of `peer`'s copy into `destination`, elements of this rank's copy.
    ///
    /// # Errors
    /// As [`Stream::put`].
    pub fn get<T: Element>(
        &self,
        peer: usize,
        destination: BufferRange<'_, T>,
        source: BufferRange<'_, T>,
    ) -> Result<()> {
        self.get_with(peer, destination, source, &TransferOptions::default())
    }

    /// [`Stream::get`] with a method and geometry of the caller's choice.
    ///
    /// # Errors
    /// As [`Stream::put_with`].
    pub fn get_with<T: Element>(
        &self,
        peer: usize,
        destination: BufferRange<'_, T>,
        source: BufferRange<'_, T>,
        options: &TransferOptions,
    ) -> Result<()> {
        let transfer = self.plan("get", Direction::GET, peer, destination, source, options)?;
        let uses = [destination.buffer(), source.buffer()];
        self.transfer("get", Some(peer), &transfer, uses)
    }

    /// [`Stream::put`], then a signal to `peer` on `channel`: once its [`Stream::wait_signal`] has
    /// passed, the peer sees the elements.
    ///
    /// Signals to one peer on one channel are counted, so none is lost if the peer is late; they must
    /// be ordered among themselves, by one stream or by events.
    ///
    /// # Errors
    /// As [`Stream::put`]; [`Error::InvalidArgument`] if there is no such channel.
    pub fn put_signal<T: Element>(
        &self,
        peer: usize,
        destination: BufferRange<'_, T>,
        source: BufferRange<'_, T>,
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

    /// [`Stream::put_signal`] with a method and geometry of the caller's choice.
    ///
    /// # Errors
    /// As [`Stream::put_signal`] and [`Stream::put_with`].
    pub fn put_signal_with<T: Element>(
        &self,
        peer: usize,
        destination: BufferRange<'_, T>,
        source: BufferRange<'_, T>,
        channel: u32,
        options: &TransferOptions,
    ) -> Result<()> {
        self.check_channel("put_signal", channel, CHANNELS)?;
        self.check_placement("put_signal")?;
        // Planned before the signal is counted: a refused call must not leave a gap in the count.
        let mut transfer = self.plan(
            "put_signal",
            Direction::PUT,
            peer,
            destination,
            source,
            options,
        )?;
        let pad = self.shared.pad();
        transfer.signal = pad.target(channel, peer);
        let uses = [destination.buffer(), source.buffer()];
        self.transfer("put_signal", Some(peer), &transfer, uses)
            .inspect_err(|_| pad.untarget(channel, peer, &transfer.signal))
    }

    /// Holds the stream until `peer`'s next signal on `channel`; later work of this stream sees what
    /// the peer had put before it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], the backend's, what poisoned the communicator. A peer that does
    /// not signal within the deadline, or dies, is an error of [`Stream::synchronize`].
    pub fn wait_signal(&self, peer: usize, channel: u32) -> Result<()> {
        self.wait_signal_within(peer, channel, self.shared.options.deadline)
    }

    /// [`Stream::wait_signal`] with a deadline of its own, counted from when the wait starts.
    ///
    /// # Errors
    /// As [`Stream::wait_signal`].
    pub fn wait_signal_within(&self, peer: usize, channel: u32, deadline: Duration) -> Result<()> {
        let shared = &self.shared;
        shared.health.check()?;
        check_peer(shared, peer, "wait_signal")?;
        self.check_channel("wait_signal", channel, CHANNELS)?;
        self.check_placement("wait_signal")?;
        let pad = shared.pad();
        let (wait, word) = pad.wait(channel, peer, shared.health.watch(deadline));
        // SAFETY: the pad, the abort word and the record live as long as `shared`, which this stream
        // holds and which drains its streams before it lets them go.
        unsafe { shared.backend.signal_wait(&wait, pad.placement(), self.raw) }.map_err(
            |failure| {
                pad.unwait(channel, peer, &wait);
                shared.failed("wait_signal", failure).about(Some(peer), 0)
            },
        )?;
        if let Some(word) = word {
            shared.health.guard(HostWait {
                word,
                value: wait.value,
                peer,
                channel,
                since: Instant::now(),
                limit: deadline,
            });
        }
        Ok(())
    }

    /// Holds the stream until every rank's stream has reached its barrier on this channel; work
    /// before it at any rank is visible after it at every rank. Collective on the device: barriers
    /// on one channel must be ordered among themselves at each rank.
    ///
    /// # Errors
    /// As [`Stream::wait_signal`].
    pub fn barrier(&self) -> Result<()> {
        self.barrier_within(0, self.shared.options.deadline)
    }

    /// [`Stream::barrier`] on one of [`BARRIER_CHANNELS`] channels, with a deadline of its own.
    ///
    /// # Errors
    /// As [`Stream::wait_signal`].
    pub fn barrier_within(&self, channel: u32, deadline: Duration) -> Result<()> {
        let shared = &self.shared;
        shared.health.check()?;
        self.check_channel("barrier", channel, BARRIER_CHANNELS)?;
        let barrier = shared.pad().barrier(channel, shared.health.watch(deadline));
        // SAFETY: as in `wait_signal_within`.
        unsafe { shared.backend.barrier(&barrier, self.raw) }
            .map_err(|failure| shared.failed("barrier", failure))
    }

    /// Waits on the host until the stream has done all its work, at most the communicator's deadline.
    ///
    /// # Errors
    /// What went wrong on the device or at a peer since the last call: [`Error::Timeout`] of a wait,
    /// [`Error::PeerDied`], the backend's. The communicator is poisoned then.
    pub fn synchronize(&self) -> Result<()> {
        self.synchronize_within(self.shared.options.deadline)
    }

    /// [`Stream::synchronize`] with a deadline of its own.
    ///
    /// # Errors
    /// As [`Stream::synchronize`]; [`Error::HostTimeout`] at the deadline.
    pub fn synchronize_within(&self, deadline: Duration) -> Result<()> {
        self.refuse_capture("synchronize")?;
        let result = self.shared.wait_idle(self.raw, deadline);
        self.shared.reclaim();
        result
    }

    /// Whether all work enqueued so far is done. Not blocking.
    ///
    /// # Errors
    /// As [`Stream::synchronize`].
    pub fn is_idle(&self) -> Result<bool> {
        self.shared.health.look()?;
        self.refuse_capture("is_idle")?;
        // SAFETY: the stream is live.
        unsafe { self.shared.backend.stream_idle(self.raw) }
            .map_err(|failure| self.shared.failed("is_idle", failure))
    }

    /// Copies elements at a device address into all of a buffer's local copy.
    ///
    /// # Safety
    /// The source holds as many elements as the buffer until the stream has passed this point.
    pub(crate) unsafe fn copy_in<T: Element>(
        &self,
        buffer: &SymmetricBuffer<T>,
        source: DeviceAddress,
    ) -> Result<()> {
        self.check_same(buffer.shared(), "stage")?;
        let bytes = buffer.all().bytes();
        let destination = buffer.local().address();
        let transfer = Transfer::by_engine(destination, source, bytes);
        // The caller's word for the source.
        self.transfer("stage", None, &transfer, [buffer, buffer])
    }

    pub(crate) fn check_channel(
        &self,
        operation: &'static str,
        channel: u32,
        channels: u32,
    ) -> Result<()> {
        if channel < channels {
            return Ok(());
        }
        Err(self.invalid(
            operation,
            format!("channel {channel}; there are {channels}, from 0"),
        ))
    }

    /// Words on the host are compared with values that a capture would freeze.
    fn check_placement(&self, operation: &'static str) -> Result<()> {
        if self.shared.pad().placement() == SignalPlacement::DEVICE
            || !self.asked_capturing(operation)?
        {
            return Ok(());
        }
        Err(Error::Unsupported {
            rank: self.shared.rank,
            operation,
            message: "signals in host memory cannot be captured, since their values would be \
                      frozen; open the communicator with signals in device memory"
                .into(),
        })
    }

    /// Whether anybody is recording this stream, also by the vendor's own API.
    fn asked_capturing(&self, operation: &'static str) -> Result<bool> {
        // SAFETY: the stream is live.
        unsafe { self.shared.backend.stream_capturing(self.raw) }
            .map_err(|failure| self.shared.failed(operation, failure))
    }

    /// Refuses what asks the stream how far it is, which would end a capture.
    pub(crate) fn refuse_capture(&self, operation: &'static str) -> Result<()> {
        if self.asked_capturing(operation)? {
            return Err(self.invalid(operation, "the stream is being captured"));
        }
        Ok(())
    }

    fn plan<T: Element>(
        &self,
        operation: &'static str,
        direction: Direction,
        peer: usize,
        destination: BufferRange<'_, T>,
        source: BufferRange<'_, T>,
        options: &TransferOptions,
    ) -> Result<Transfer> {
        let shared = &self.shared;
        shared.health.check()?;
        check_peer(shared, peer, operation)?;
        self.check_same(destination.buffer().shared(), operation)?;
        self.check_same(source.buffer().shared(), operation)?;
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
        let to_itself = peer == shared.rank;
        let (to, from) = match direction {
            Direction::GET => (shared.rank, peer),
            _ => (peer, shared.rank),
        };
        let bytes = destination.bytes();
        let to = destination
            .buffer()
            .allocation()
            .at(to, destination.byte_offset());
        let from = source.buffer().allocation().at(from, source.byte_offset());
        if to.0 < from.0 + bytes && from.0 < to.0 + bytes {
            return Err(self.invalid(operation, "destination and source overlap"));
        }
        let skew = to.0.wrapping_sub(from.0);
        let row = plan(&shared.capabilities, direction, bytes, skew, options)
            .map_err(|message| self.invalid(operation, message))?;
        Ok(Transfer {
            destination: to,
            source: from,
            bytes,
            signal: SignalTarget::default(),
            direction: match to_itself {
                true => Direction::LOCAL,
                false => direction,
            },
            row,
        })
    }

    /// Enqueues a transfer between live ranges that do not overlap, of `uses` or of the caller's.
    fn transfer<T: Element>(
        &self,
        operation: &'static str,
        peer: Option<usize>,
        transfer: &Transfer,
        uses: [&SymmetricBuffer<T>; 2],
    ) -> Result<()> {
        if transfer.bytes == 0 && transfer.signal.word == DeviceAddress::NULL {
            return Ok(());
        }
        let uses = || {
            uses.map(|buffer| buffer.allocation().clone() as Kept)
                .into()
        };
        // SAFETY: the ranges are live and do not overlap, by `plan` or by the caller's word. Those of
        // this communicator are released only once its streams are idle and no graph keeps them.
        self.enqueue(uses, || unsafe {
            self.shared.backend.transfer(transfer, self.raw)
        })
        .map_err(|failure| {
            self.shared
                .failed(operation, failure)
                .about(peer, transfer.bytes)
        })
    }

    /// Enqueues `work`; what it uses, asked for in captures only, stays as long as the graph.
    pub(crate) fn enqueue(
        &self,
        uses: impl Fn() -> Vec<Kept>,
        work: impl FnOnce() -> CallResult<()>,
    ) -> CallResult<()> {
        let before = self.captures.load(Ordering::Acquire);
        if is_odd(before) {
            // First kept, then recorded: the capture may end right after.
            self.keep(uses());
        }
        let enqueued = work();
        if self.captures.load(Ordering::Acquire) != before {
            // Another thread began or ended a capture meanwhile, so a graph may have it that does not
            // know: it stays as long as the communicator.
            self.shared.keep(uses());
        }
        enqueued
    }

    /// Remembers what recorded work uses.
    fn keep(&self, uses: Vec<Kept>) {
        let mut captured = self.captured.lock().unwrap_or_else(PoisonError::into_inner);
        for kept in uses {
            if !captured.iter().any(|known| Arc::ptr_eq(known, &kept)) {
                captured.push(kept);
            }
        }
    }

    /// Whether [`crate::Graph::capture`] is recording this stream.
    pub fn is_capturing(&self) -> bool {
        is_odd(self.captures.load(Ordering::Acquire))
    }

    /// From here on what work uses is kept. Before the capture begins.
    pub(crate) fn begin_keeping(&self) -> Result<()> {
        let begin = |count| (!is_odd(count)).then(|| count.wrapping_add(1));
        self.captures
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, begin)
            .map(drop)
            .map_err(|_| self.invalid("capture", "the stream is being captured already"))
    }

    /// What the recorded work uses. After the capture has ended.
    pub(crate) fn end_keeping(&self) -> Vec<Kept> {
        self.captures.fetch_add(1, Ordering::AcqRel);
        std::mem::take(&mut *self.captured.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn is_odd(count: u32) -> bool {
    count % 2 == 1
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.close_stream(self.raw, self.owned);
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Stream")
            .field("raw", &self.raw.0)
            .finish_non_exhaustive()
    }
}
