//! A rank of a communicator, and the streams that its calls were made on.

use crate::failure::{Failure, Result, invalid};
use crate::interrupt;
use pyo3::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
use symmem::backend::abi::{RawEvent, RawStream};
use symmem::backend::{CallResult, Device as _};
use symmem::{Communicator, Error, Queue, Stream};

/// A rank of a communicator.
pub struct Rank {
    pub communicator: Communicator,
    /// Its name for code that holds no object, such as PyTorch's operators.
    pub number: u64,
    streams: Mutex<Streams>,
}

/// A communicator's streams. Calls follow one another on all of them, as PyTorch's and NCCL's do, so that programs may change
/// the current stream between two calls.
#[derive(Default)]
struct Streams {
    /// The stream of calls that name none, over the host backend.
    own: Option<u64>,
    known: HashMap<u64, Known>,
    /// The stream of the last call that was not captured.
    last: Option<u64>,
    event: Option<RawEvent>,
}

/// A stream, and what it needs.
struct Known {
    stream: Arc<Stream>,
    keeper: Option<Keeper>,
    /// What its work on the host may still use.
    operands: Vec<Py<PyAny>>,
}

/// How many operands a stream keeps before it is asked whether its work is done.
const MANY_OPERANDS: usize = 64;

/// What keeps a stream that the rank did not make.
pub enum Keeper {
    /// An object of the program's.
    Object(Py<PyAny>),
    /// The stream of another communicator, whose world it keeps.
    Stream(Arc<Stream>),
}

/// Where a call is enqueued.
pub enum Where {
    /// On a stream of the program's, or of symmem's.
    On(u64, Keeps),
    /// Over the host backend, where nobody has streams: the call returns when it is done. The operands are kept if it fails.
    AtOnce(Vec<Py<PyAny>>),
}

/// What a call keeps.
#[derive(Default)]
pub struct Keeps {
    pub stream: Option<Keeper>,
    /// Arrays of the host's, whose library does not know of the stream. Those of GPUs' are freed in the order of streams.
    pub operands: Vec<Py<PyAny>>,
}

/// Ranks by their numbers.
static RANKS: RwLock<BTreeMap<u64, Arc<Rank>>> = RwLock::new(BTreeMap::new());

impl Rank {
    /// Enters a rank under a number of its own, which is never used again.
    pub fn enter(communicator: Communicator) -> Arc<Self> {
        static NEXT: Mutex<u64> = Mutex::new(0);
        let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
        let rank = Arc::new(Self {
            communicator,
            number: *next,
            streams: Mutex::default(),
        });
        *next += 1;
        let mut ranks = RANKS.write().unwrap_or_else(PoisonError::into_inner);
        ranks.insert(rank.number, Arc::clone(&rank));
        rank
    }

    /// Takes the communicator out, for its end. Its streams are given up before, and it keeps what their work uses.
    ///
    /// # Errors
    /// If another thread is in a call on it; the rank stays as it was then.
    pub fn leave(rank: Arc<Self>) -> std::result::Result<Communicator, Arc<Self>> {
        let mut ranks = RANKS.write().unwrap_or_else(PoisonError::into_inner);
        ranks.remove(&rank.number);
        match Arc::try_unwrap(rank) {
            Ok(rank) => {
                let streams = rank.streams.into_inner();
                let mut streams = streams.unwrap_or_else(PoisonError::into_inner);
                if let Some(event) = streams.event {
                    // SAFETY: made by `follow`, and nothing else knows it. A failure cannot be handled here.
                    let _ = unsafe { rank.communicator.backend().event_destroy(event) };
                }
                for (_, known) in streams.known.drain() {
                    known.give_up(&rank.communicator);
                }
                Ok(rank.communicator)
            }
            Err(rank) => {
                ranks.insert(rank.number, Arc::clone(&rank));
                Err(rank)
            }
        }
    }

    /// Returns whether it runs on the host backend.
    pub fn is_host(&self) -> bool {
        // Only the host has no architecture.
        self.communicator.device().architecture == 0
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        // Each change of it is one assignment or insertion.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enqueues a call, behind those that were enqueued before on any stream. Does not block, except for [`Where::AtOnce`] and
    /// for calls that are compared, with the streams locked. So the thread must not hold the GIL.
    ///
    /// # Errors
    /// The call's.
    ///
    /// # Safety
    /// The stream is one of this rank's device.
    pub unsafe fn enqueue(
        &self,
        place: Where,
        call: impl FnOnce(&Queue) -> symmem::Result<()>,
    ) -> Result<()> {
        let mut streams = self.streams();
        match place {
            Where::On(raw, keeps) => {
                // SAFETY: guaranteed by the caller.
                let known = unsafe { self.follow(&mut streams, raw, keeps.stream) }?;
                if known.operands.len() >= MANY_OPERANDS && known.stream.is_idle()? {
                    known.operands.clear();
                }
                known.operands.extend(keeps.operands);
                Ok(call(&known.stream)?)
            }
            Where::AtOnce(operands) => {
                let raw = match streams.own {
                    Some(raw) => raw,
                    None => {
                        let raw = streams.keep(self.communicator.stream()?, None);
                        *streams.own.insert(raw)
                    }
                };
                // SAFETY: a stream of this rank's.
                let stream = Arc::clone(&unsafe { self.follow(&mut streams, raw, None) }?.stream);
                let enqueued = call(&stream);
                // Other threads may have to enqueue what this call's peers wait for.
                drop(streams);
                let done = match enqueued {
                    Ok(()) => self.wait(&stream, None),
                    Err(error) => Err(error.into()),
                };
                if done.is_err() {
                    // A thread of the backend may not have noticed yet.
                    self.communicator.keep_until_idle(operands);
                }
                done
            }
        }
    }

    /// Makes a stream, which lives until [`Rank::forget`].
    ///
    /// # Errors
    /// The backend's.
    pub fn make_stream(&self) -> Result<u64> {
        let stream = self.communicator.stream()?;
        Ok(self.streams().keep(stream, None))
    }

    /// Gives up a stream that [`Rank::make_stream`] made. Its work goes on.
    pub fn forget(&self, raw: u64) {
        let mut streams = self.streams();
        if streams.last == Some(raw) {
            streams.last = None;
        }
        let known = streams.known.remove(&raw);
        drop(streams);
        if let Some(known) = known {
            known.give_up(&self.communicator);
        }
    }

    /// Returns the stream of this number that a call was made on, or that [`Rank::make_stream`] made.
    pub fn stream(&self, raw: u64) -> Option<Arc<Stream>> {
        let streams = self.streams();
        Some(Arc::clone(&streams.known.get(&raw)?.stream))
    }

    /// Blocks until a stream's work is done, for at most `timeout` or the communicator's deadline. What a handler of Ctrl-C
    /// raises aborts the communicator.
    ///
    /// # Errors
    /// The library's, and what a handler raises.
    fn wait(&self, stream: &Stream, timeout: Option<Duration>) -> Result<()> {
        let start = Instant::now();
        let timeout = timeout.unwrap_or_else(|| self.communicator.deadline());
        loop {
            let left = timeout.saturating_sub(start.elapsed());
            match stream.idle_within(interrupt::SLICE.min(left)) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                // Ctrl-C reaches all ranks, so that its failure may come first.
                Err(error) => return interrupt::run_handlers().and(Err(error.into())),
            }
            if left.is_zero() {
                // A wait on the stream has its own deadline, and tells more.
                return stream
                    .synchronize_within(Duration::ZERO)
                    .map_err(|error| match error {
                        Error::HostTimeout {
                            rank, operation, ..
                        } => Failure::Library(Error::HostTimeout {
                            rank,
                            operation,
                            waited: start.elapsed(),
                        }),
                        error => error.into(),
                    });
            }
            if let Err(raised) = interrupt::run_handlers() {
                self.communicator.abort();
                return Err(raised);
            }
        }
    }

    /// Blocks until a stream's work is done, for at most `timeout` or the communicator's deadline.
    ///
    /// # Errors
    /// The library's.
    ///
    /// # Safety
    /// As [`Rank::enqueue`].
    pub unsafe fn synchronize(&self, raw: u64, timeout: Option<Duration>) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        let stream = unsafe { self.followed(raw) }?;
        self.wait(&stream, timeout)?;
        if let Some(known) = self.streams().known.get_mut(&raw)
            && known.stream.is_idle()?
        {
            known.operands.clear();
        }
        Ok(())
    }

    /// Does what needs a stream rather than a queue, and may block: copies from and to the host.
    ///
    /// # Errors
    /// The call's.
    ///
    /// # Safety
    /// As [`Rank::enqueue`].
    pub unsafe fn with_stream<T>(
        &self,
        raw: u64,
        call: impl FnOnce(&Stream) -> symmem::Result<T>,
    ) -> Result<T> {
        // SAFETY: guaranteed by the caller.
        let stream = unsafe { self.followed(raw) }?;
        // A copy waits for the stream, but not for Ctrl-C.
        self.wait(&stream, None)?;
        Ok(call(&stream)?)
    }

    /// Returns a stream, behind the last call.
    ///
    /// # Safety
    /// As [`Rank::enqueue`].
    unsafe fn followed(&self, raw: u64) -> Result<Arc<Stream>> {
        let mut streams = self.streams();
        // SAFETY: guaranteed by the caller.
        let known = unsafe { self.follow(&mut streams, raw, None) }?;
        Ok(Arc::clone(&known.stream))
    }

    /// Makes a stream known, and what is enqueued next on it wait for the last call. In a capture the program orders its
    /// streams: an event of outside would invalidate it.
    ///
    /// # Safety
    /// As [`Rank::enqueue`].
    unsafe fn follow<'s>(
        &self,
        streams: &'s mut Streams,
        raw: u64,
        keeper: Option<Keeper>,
    ) -> Result<&'s mut Known> {
        if !streams.known.contains_key(&raw) {
            // SAFETY: guaranteed by the caller.
            let stream = unsafe { self.communicator.stream_from_raw(raw) };
            streams.keep(stream, keeper);
        }
        if streams.last != Some(raw) {
            // SAFETY: the streams are known, so they live; nothing of the communicator's is destroyed here.
            let ordered = unsafe { self.order(streams, raw) };
            ordered
                .map_err(|failure| invalid(format!("ordering two streams: {}", failure.message)))?;
        }
        let known = streams.known.get_mut(&raw);
        known.ok_or_else(|| invalid("the stream is gone"))
    }

    /// Makes a stream wait for the last call, if neither stream is captured.
    ///
    /// # Safety
    /// Both streams live.
    unsafe fn order(&self, streams: &mut Streams, raw: u64) -> CallResult<()> {
        // SAFETY: guaranteed by the caller; the event is made and used here only.
        unsafe {
            let backend = self.communicator.backend();
            if backend.stream_capturing(RawStream(raw))? {
                return Ok(());
            }
            let Some(last) = streams.last.replace(raw).map(RawStream) else {
                return Ok(());
            };
            // The driver does not tell it of the default stream while another stream captures.
            if !backend
                .stream_capturing(last)
                .is_ok_and(|captures| !captures)
            {
                return Ok(());
            }
            let event = match streams.event {
                Some(event) => event,
                None => *streams.event.insert(backend.event_create()?),
            };
            backend.event_record(event, last)?;
            backend.stream_wait_event(RawStream(raw), event)
        }
    }
}

impl Streams {
    /// Makes a stream known, and returns its number.
    fn keep(&mut self, stream: Stream, keeper: Option<Keeper>) -> u64 {
        let raw = stream.raw();
        let known = Known {
            stream: Arc::new(stream),
            keeper,
            operands: Vec::new(),
        };
        self.known.insert(raw, known);
        raw
    }
}

impl Known {
    /// Gives the stream up. Its work goes on, and keeps what it uses.
    fn give_up(self, communicator: &Communicator) {
        drop(self.stream);
        if self.keeper.is_some() || !self.operands.is_empty() {
            communicator.keep_until_idle((self.keeper, self.operands));
        }
    }
}

/// Returns the rank of this number.
pub fn find(number: u64) -> Option<Arc<Rank>> {
    let ranks = RANKS.read().unwrap_or_else(PoisonError::into_inner);
    ranks.get(&number).cloned()
}

/// Returns the live ranks.
pub fn all() -> Vec<Arc<Rank>> {
    let ranks = RANKS.read().unwrap_or_else(PoisonError::into_inner);
    ranks.values().cloned().collect()
}
