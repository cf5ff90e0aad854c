//! The open device of one rank: its backend, its streams, and the errors of its calls.

use crate::backend::abi::{Capabilities, DeviceDescription, RawStream, Status};
use crate::backend::{Backend, CallResult, Device, Failure};
use crate::base::error::{Error, Result};
use crate::base::limits::DRAIN;
use crate::health::watcher::Health;
use crate::rank::streams::{KnownStream, Streams};
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use symmem_core::host::Sleeper;

/// Work of this rank that the host does beside the streams. A host thread that waits for a stream, which waits for this work,
/// sleeps until there is more of it to do.
pub trait Assistant: Sleeper + Send + Sync {
    /// Advances it, for a host thread that waits. Returns whether anything happened. Does not block.
    fn help(&self) -> bool;
    /// Returns whether nothing is left that uses memory of this rank.
    fn is_idle(&self) -> bool;
}

/// Time that the device's own report on a wait has to arrive before the host's, which cannot name the peer. A busy machine
/// starts a kernel late by some tenths of a second.
const VERDICT_GRACE: Duration = Duration::from_secs(1);

/// A rank's device, and the health of its communicator.
pub struct Driver {
    pub rank: usize,
    pub world: usize,
    pub capabilities: Capabilities,
    pub description: DeviceDescription,
    pub health: Arc<Health>,
    /// The streams that may use its memory.
    pub streams: Arc<Streams>,
    /// Closed by its last holder, which may be a rebuilt communicator. Dropped by hand, since something may
    /// still use it.
    pub backend: ManuallyDrop<Arc<Backend>>,
    /// The error of the first call to the device that failed.
    fault: OnceLock<Error>,
    /// The network, in a world of several nodes.
    assistant: OnceLock<Arc<dyn Assistant>>,
    /// Whether the ranks of this machine are more than its processors.
    pub crowded: bool,
}

/// Time without an event up to which a wait spins, and up to which it yields. It sleeps from then on. In a world of several
/// nodes whose ranks share processors it sleeps at once, on its stream's word or on the network: yields before that made calls
/// over two hosts no faster (`benches/NOTES.md`, "Two hosts on 2 cores, again"), and kept threads of the network and of the
/// watcher waiting. Within a node a yield is the shortest way to the rank that is waited for.
const EAGER: Duration = Duration::from_micros(200);
/// The same on a device in such a world, whose streams wake nobody: a yield costs less there than a sleep.
const EAGER_AMONG_MANY: Duration = Duration::from_micros(20);
const PATIENT: Duration = Duration::from_millis(5);
/// Longest sleep on the word of a stream, which the next signal ends early. The communicator's health is checked after it.
const LOOK: Duration = Duration::from_millis(1);
/// Sleep between two polls of a stream that wakes nobody.
const NAP: Duration = Duration::from_micros(50);

/// How a wait for a stream ended.
enum Outcome {
    Idle,
    /// The time that was waited.
    Late(Duration),
}

/// The host's wait for work on the device.
struct WaitBudget {
    start: Instant,
    limit: Duration,
    /// Time of the last event that the caller took part in.
    moved: Instant,
    /// Time without an event up to which it spins, and up to which it yields.
    eager: Duration,
    patient: Duration,
    /// Time at which the communicator was found poisoned; kernels leave from then on.
    lost: Option<Instant>,
}

impl WaitBudget {
    fn new(limit: Duration, (eager, patient): (Duration, Duration)) -> Self {
        let start = Instant::now();
        Self {
            start,
            limit,
            moved: start,
            eager,
            patient,
            lost: None,
        }
    }

    /// Checks that the wait may go on. Returns the time waited as the error once the limit has passed.
    fn check(&mut self, health: &Health) -> std::result::Result<(), Duration> {
        let waited = self.start.elapsed();
        if waited > self.limit {
            return Err(waited);
        }
        if health.check().is_err() {
            let lost = *self.lost.get_or_insert_with(Instant::now);
            if lost.elapsed() > DRAIN {
                return Err(waited);
            }
        }
        if !self.is_eager() {
            health.watch_if_late();
        }
        Ok(())
    }

    /// Returns whether an event is probably near.
    fn is_eager(&self) -> bool {
        self.moved.elapsed() < self.eager
    }

    /// Spins, yields or sleeps once before the next poll.
    fn nap(&self) {
        if self.is_eager() {
            std::hint::spin_loop();
        } else if self.moved.elapsed() < self.patient {
            std::thread::yield_now();
        } else {
            // A long wait must not occupy a core.
            std::thread::sleep(NAP);
        }
    }

    /// Checks that the wait may go on, and waits a little.
    fn wait(&mut self, health: &Health) -> std::result::Result<(), Duration> {
        self.check(health)?;
        self.nap();
        Ok(())
    }
}

impl Driver {
    /// Takes a device that was just opened. `neighbors` is the number of ranks on this machine.
    pub fn new(
        (rank, world, neighbors): (usize, usize, usize),
        backend: Arc<Backend>,
        capabilities: Capabilities,
        description: DeviceDescription,
        health: Arc<Health>,
    ) -> Self {
        Self {
            rank,
            world,
            capabilities,
            description,
            health,
            streams: Streams::new(&description),
            backend: ManuallyDrop::new(backend),
            fault: OnceLock::new(),
            assistant: OnceLock::new(),
            crowded: std::thread::available_parallelism().is_ok_and(|here| neighbors > here.get()),
        }
    }

    /// Sets what host threads that wait advance. Called once.
    pub fn assist(&self, assistant: Arc<dyn Assistant>) {
        let _ = self.assistant.set(assistant);
    }

    /// Advances the network, if there is one. Returns whether anything happened. Does not block.
    pub fn help(&self) -> bool {
        self.assistant
            .get()
            .is_some_and(|assistant| assistant.help())
    }

    /// Makes an error about an argument of `operation`.
    pub fn invalid(&self, operation: &'static str, message: impl Into<String>) -> Error {
        Error::InvalidArgument {
            rank: self.rank,
            operation,
            message: message.into(),
        }
    }

    /// Checks that there is such a rank.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is none.
    pub fn check_peer(&self, peer: usize, operation: &'static str) -> Result<()> {
        if peer < self.world {
            return Ok(());
        }
        let world = self.world;
        Err(self.invalid(
            operation,
            format!("there is no rank {peer} in a world of {world}"),
        ))
    }

    /// Turns a failed call to the backend into this rank's error, or returns the error that poisoned the
    /// communicator if that came first: the watcher ends calls that are under way by then, and its reason is
    /// more precise than theirs.
    #[cold]
    pub fn failed(&self, operation: &'static str, failure: Failure) -> Error {
        if failure.status == Status::CALL_FAILED
            && let Err(cause) = self.health.check()
        {
            return cause;
        }
        // A mistake of the caller's does not make the device suspect.
        let mistake = matches!(
            failure.status,
            Status::INVALID_ARGUMENT | Status::UNSUPPORTED
        );
        let error = Error::backend(self.rank, operation, failure);
        if !mistake {
            // Only the first is kept.
            let _ = self.fault.set(error.clone());
        }
        error
    }

    /// Returns the error of the first call to the device that failed.
    pub fn fault(&self) -> Option<&Error> {
        self.fault.get()
    }

    /// Registers a stream, so that nothing it may use is released while it has work. A caller's stream may be
    /// registered more than once.
    pub fn add_stream(&self, stream: KnownStream) {
        // In a fork a thread that is not there may hold the lock.
        if !self.health.is_fork() {
            self.streams.known().push(stream);
        }
    }

    /// Removes one entry of a stream, if it has no work. A stream made here may also be registered as the
    /// caller's: `owned` selects the entry.
    pub fn forget_idle_stream(&self, raw: RawStream, owned: bool) -> Option<KnownStream> {
        let mut streams = self.streams.known();
        let index = streams
            .iter()
            .position(|known| known.raw == raw && known.owned == owned)?;
        matches!(self.is_idle(&self.streams, raw), Ok(true)).then(|| streams.swap_remove(index))
    }

    /// Takes the streams that are left, to be destroyed: from here on nobody asks them for work.
    pub fn take_streams(&self) -> Vec<KnownStream> {
        std::mem::take(&mut *self.streams.known())
    }

    /// Makes a call on a stream that a capture forbids, or that a capture would record, unless the stream is being
    /// captured: then the call is not made, and the result is `None`. This communicator begins no capture meanwhile.
    ///
    /// # Errors
    /// The failure of the call.
    pub fn outside_captures<R>(
        &self,
        stream: RawStream,
        call: impl FnOnce() -> CallResult<R>,
    ) -> CallResult<Option<R>> {
        self.outside_captures_of(&self.streams, stream, call)
    }

    /// Makes a call as [`Driver::outside_captures`] does, on a stream of the communicator that has `owner`.
    fn outside_captures_of<R>(
        &self,
        owner: &Streams,
        stream: RawStream,
        call: impl FnOnce() -> CallResult<R>,
    ) -> CallResult<Option<R>> {
        let _held = owner.hold_captures();
        // SAFETY: every stream that reaches this is live.
        let captured = || unsafe { self.backend.stream_capturing(stream) };
        if captured()? {
            return Ok(None);
        }
        match call() {
            // A capture through the driver's own API may have begun between the two calls.
            Err(_) if matches!(captured(), Ok(true)) => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    /// Makes the error of `operation` on a stream that is being captured.
    pub fn captured(&self, operation: &'static str) -> Error {
        self.invalid(
            operation,
            "the stream is being captured; end the capture first",
        )
    }

    /// Waits until a stream is idle, the deadline passes or the communicator is poisoned. Once it is poisoned,
    /// waits until the stream has drained, since waiting kernels leave by the abort word.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] once another thread captures the stream, whose earlier work may still run: that
    /// poisons nothing. [`Error::HostTimeout`], and the error that poisoned the communicator.
    pub fn wait_idle(&self, stream: RawStream, deadline: Duration) -> Result<()> {
        self.wait(stream, deadline, false)
    }

    /// Waits as [`Driver::wait_idle`] does, and also while another thread captures the stream: for callers that must
    /// not return before their work is done.
    ///
    /// # Errors
    /// As [`Driver::wait_idle`], except for a capture.
    pub fn wait_through_captures(&self, stream: RawStream, deadline: Duration) -> Result<()> {
        self.wait(stream, deadline, true)
    }

    /// Waits as [`Driver::wait_idle`] does, for `limit` at most, and returns whether the stream is idle: that it is not
    /// poisons nothing.
    ///
    /// # Errors
    /// As [`Driver::wait_idle`], but for the deadline.
    pub fn is_idle_within(&self, stream: RawStream, limit: Duration) -> Result<bool> {
        match self.outlast(stream, limit, false)? {
            Outcome::Idle => Ok(true),
            Outcome::Late(_) => self.health.check().map(|()| false),
        }
    }

    fn wait(&self, stream: RawStream, deadline: Duration, through_captures: bool) -> Result<()> {
        let limit = deadline.saturating_add(VERDICT_GRACE);
        match self.outlast(stream, limit, through_captures)? {
            Outcome::Idle => Ok(()),
            Outcome::Late(waited) => {
                // A wait of this stream may have passed its own deadline; its record is more precise.
                self.health.watch_once();
                self.health.poison(Error::HostTimeout {
                    rank: self.rank,
                    operation: "synchronize",
                    waited,
                });
                self.health.check()
            }
        }
    }

    fn outlast(
        &self,
        stream: RawStream,
        limit: Duration,
        through_captures: bool,
    ) -> Result<Outcome> {
        self.health.check_process()?;
        let mut budget = self.budget(limit);
        loop {
            // SAFETY: every stream that reaches this is live.
            let idle = || unsafe { self.backend.stream_idle(stream) };
            match self.outside_captures(stream, idle) {
                Ok(Some(false)) => {}
                Ok(Some(true)) => return self.health.look().map(|()| Outcome::Idle),
                Ok(None) if through_captures => {}
                Ok(None) => return Err(self.captured("synchronize")),
                Err(failure) => {
                    let lost = failure.status == Status::CONTEXT_LOST;
                    self.health.poison(self.failed("synchronize", failure));
                    // The query failed, but the work may still run, and the caller may be about to release what
                    // it uses. The communicator is poisoned, so the work leaves soon.
                    if lost {
                        return self.health.check().map(|()| Outcome::Idle);
                    }
                }
            }
            if let Err(waited) = budget.check(&self.health) {
                return Ok(Outcome::Late(waited));
            }
            // After a long quiet, the network's own thread sees the next message sooner than this one, unless this one is woken
            // by its stream.
            let helps =
                budget.moved.elapsed() < PATIENT || matches!(**self.backend, Backend::Host(_));
            if helps && self.help() {
                budget.moved = Instant::now();
            } else {
                self.rest(stream, &budget);
            }
        }
    }

    /// Waits a little for a stream.
    fn rest(&self, stream: RawStream, budget: &WaitBudget) {
        if budget.is_eager() {
            return budget.nap();
        }
        if let (Some(assistant), Backend::Host(host)) = (self.assistant.get(), &**self.backend) {
            if !self.crowded {
                // There is a processor for the assistant's own thread, beside the work that this one may find.
                assistant.leave();
            }
            let sleeper: &dyn Sleeper = &**assistant;
            // SAFETY: every stream that reaches this is live.
            if unsafe { host.stream_pause(stream, LOOK, Some(sleeper)) }.is_ok() {
                return;
            }
        }
        budget.nap();
    }

    fn budget(&self, limit: Duration) -> WaitBudget {
        let among_many = self.crowded && self.assistant.get().is_some();
        let eager = match (among_many, &**self.backend) {
            (true, Backend::Host(_)) => (Duration::ZERO, Duration::ZERO),
            (true, Backend::Plugin(_)) => (EAGER_AMONG_MANY, PATIENT),
            (false, _) => (EAGER, PATIENT),
        };
        WaitBudget::new(limit, eager)
    }

    /// Returns whether a stream of the communicator that has `owner` is without work. A query during a capture would
    /// invalidate the capture, so it is an error.
    fn is_idle(&self, owner: &Streams, stream: RawStream) -> CallResult<bool> {
        // SAFETY: known streams are live while their list is locked, as it is by the callers.
        let idle = || unsafe { self.backend.stream_idle(stream) };
        let asked = self.outside_captures_of(owner, stream, idle);
        asked?.ok_or_else(|| {
            Failure::new(
                Status::UNSUPPORTED,
                "stream_idle",
                "a stream is being captured; end the capture first",
            )
        })
    }

    /// Returns whether no stream of this rank has work; an error if work failed or is being captured.
    pub fn idle_now(&self) -> CallResult<bool> {
        if let Some(assistant) = self.assistant.get()
            && !assistant.is_idle()
        {
            assistant.help();
            return Ok(false);
        }
        for stream in self.streams.known().iter() {
            if !self.is_idle(&self.streams, stream.raw)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether nothing of this rank is enqueued or being enqueued.
    pub fn is_quiet(&self) -> bool {
        self.streams.tickets.none_out() && self.idle_now().unwrap_or(false)
    }

    /// Returns whether the other communicators of this process have nothing enqueued on this device.
    pub fn neighbors_are_quiet(&self) -> bool {
        self.streams.neighbors().iter().all(|other| {
            // A stream of the same device can be asked by any backend that has opened it.
            other.tickets.none_out()
                && (other.known().iter())
                    .all(|stream| self.is_idle(other, stream.raw).unwrap_or(false))
        })
    }

    /// Waits until no stream of this rank has work.
    pub fn wait_all_idle(&self, deadline: Duration) -> Result<()> {
        self.health.check_process()?;
        let mut budget = self.budget(deadline);
        while !self
            .idle_now()
            .map_err(|failure| self.failed("drain streams", failure))?
        {
            if let Err(waited) = budget.wait(&self.health) {
                self.health.look()?;
                return Err(Error::HostTimeout {
                    rank: self.rank,
                    operation: "drain streams",
                    waited,
                });
            }
        }
        self.health.look()
    }

    /// Waits until no call of another thread is between looking up memory and enqueueing its work, and no
    /// stream has work.
    ///
    /// # Errors
    /// As [`Driver::wait_all_idle`].
    pub fn wait_quiet(&self, deadline: Duration) -> Result<()> {
        let mut budget = self.budget(deadline);
        loop {
            self.wait_all_idle(deadline)?;
            if self.is_quiet() {
                return Ok(());
            }
            if let Err(waited) = budget.wait(&self.health) {
                self.health.look()?;
                return Err(Error::HostTimeout {
                    rank: self.rank,
                    operation: "drain streams",
                    waited,
                });
            }
        }
    }

    /// Waits until nothing of this rank runs on the device any more, and ignores errors. Returns whether that
    /// is so.
    pub fn drain(&self, limit: Duration) -> bool {
        let start = Instant::now();
        loop {
            match self.idle_now() {
                Ok(true) => return true,
                // With a lost context, everything that ran in it has ended.
                Err(failure) if failure.status == Status::CONTEXT_LOST => return true,
                Ok(false) | Err(_) if start.elapsed() > limit => return false,
                Ok(false) | Err(_) => std::thread::sleep(Duration::from_micros(200)),
            }
        }
    }
}
