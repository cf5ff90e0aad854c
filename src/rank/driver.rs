//! The open device of one rank: its backend, its streams, and what its calls fail with.

use crate::backend::abi::{Capabilities, DeviceDescription, RawStream, Status};
use crate::backend::{Backend, CallResult, Device, Failure};
use crate::base::error::{Error, Result};
use crate::base::limits::DRAIN;
use crate::health::watcher::Health;
use crate::rank::streams::{KnownStream, Streams};
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The device's own verdict on a wait names the peer, so it goes before the host's.
const VERDICT_GRACE: Duration = Duration::from_millis(100);

/// A rank's device and who watches over its waits.
pub struct Driver {
    pub rank: usize,
    pub world: usize,
    pub capabilities: Capabilities,
    pub description: DeviceDescription,
    pub health: Arc<Health>,
    /// The streams that may use its memory.
    pub streams: Arc<Streams>,
    /// Closed by the last that holds it, which may be a rebuilt communicator. Dropped by hand: not
    /// while anything may still use it.
    pub backend: ManuallyDrop<Arc<Backend>>,
    /// The first call of the device that failed.
    fault: OnceLock<Error>,
}

/// The host's patience with work on the device.
struct Patience {
    start: Instant,
    limit: Duration,
    /// Since when all is lost, and kernels have to leave.
    lost: Option<Instant>,
}

impl Patience {
    fn new(limit: Duration) -> Self {
        Self {
            start: Instant::now(),
            limit,
            lost: None,
        }
    }

    /// Waits a little; the time waited once there is no patience left.
    fn wait(&mut self, health: &Health) -> std::result::Result<(), Duration> {
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
        // A wait that will be long is not worth a core.
        match waited.as_micros() {
            0..200 => std::hint::spin_loop(),
            200..5_000 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
        Ok(())
    }
}

impl Driver {
    /// A device that was just opened.
    pub fn new(
        (rank, world): (usize, usize),
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
        }
    }

    /// An error about an argument of `operation`.
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
    /// [`Error::InvalidArgument`].
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

    /// A failed call to the backend as this rank's error: what the communicator was poisoned with, where that came
    /// first. The watcher ends calls that are under way by then, and why it does says more than that they ended.
    #[cold]
    pub fn failed(&self, operation: &'static str, failure: Failure) -> Error {
        if failure.status == Status::CALL_FAILED
            && let Err(cause) = self.health.check()
        {
            return cause;
        }
        // What the caller got wrong is no reason to mistrust the device.
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

    /// The first call of the device that failed.
    pub fn fault(&self) -> Option<&Error> {
        self.fault.get()
    }

    /// Remembers a stream, so that nothing it may use is released while it has work. A caller's stream may be
    /// wrapped more than once.
    pub fn add_stream(&self, stream: KnownStream) {
        self.streams.known().push(stream);
    }

    /// Forgets one entry of a stream, if it has no work. A stream made here may have been wrapped as the
    /// caller's too: `owned` says which of the two ends.
    pub fn forget_idle_stream(&self, raw: RawStream, owned: bool) -> Option<KnownStream> {
        let mut streams = self.streams.known();
        let index = streams
            .iter()
            .position(|known| known.raw == raw && known.owned == owned)?;
        matches!(self.is_idle(raw), Ok(true)).then(|| streams.swap_remove(index))
    }

    /// Takes the streams that are left, to be destroyed: from here on nobody asks them for work.
    pub fn take_streams(&self) -> Vec<KnownStream> {
        std::mem::take(&mut *self.streams.known())
    }

    /// Waits until a stream is idle, the deadline passes or the communicator is poisoned (then until
    /// the stream has drained, since waiting kernels leave by the abort word).
    pub fn wait_idle(&self, stream: RawStream, deadline: Duration) -> Result<()> {
        let mut patience = Patience::new(deadline.saturating_add(VERDICT_GRACE));
        loop {
            // SAFETY: every stream that reaches this is live.
            match unsafe { self.backend.stream_idle(stream) } {
                Ok(false) => {}
                Ok(true) => return self.health.look(),
                Err(failure) => {
                    let lost = failure.status == Status::CONTEXT_LOST;
                    self.health.poison(self.failed("synchronize", failure));
                    // The question failed; the work it asked about may still run, and whoever waits
                    // here may be about to release what it uses. All is lost, so it leaves soon.
                    if lost {
                        return self.health.check();
                    }
                }
            }
            if let Err(waited) = patience.wait(&self.health) {
                // A wait of this stream may have passed its own deadline: that says more.
                self.health.watch_once();
                self.health.poison(Error::HostTimeout {
                    rank: self.rank,
                    operation: "synchronize",
                    waited,
                });
                return self.health.check();
            }
        }
    }

    /// Whether a stream has no work. Asking a stream that is being captured would end the capture.
    pub fn is_idle(&self, stream: RawStream) -> CallResult<bool> {
        // SAFETY: known streams are live while their list is locked, as it is by the callers.
        unsafe {
            if self.backend.stream_capturing(stream)? {
                return Err(Failure::new(
                    Status::UNSUPPORTED,
                    "stream_idle",
                    "a stream is being captured; end the capture first",
                ));
            }
            self.backend.stream_idle(stream)
        }
    }

    /// Whether no stream of this rank has work; an error if work failed or is being captured.
    pub fn idle_now(&self) -> CallResult<bool> {
        for stream in self.streams.known().iter() {
            if !self.is_idle(stream.raw)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether nothing of this rank is enqueued or being enqueued.
    pub fn is_quiet(&self) -> bool {
        self.streams.tickets.none_out() && self.idle_now().unwrap_or(false)
    }

    /// Whether the other communicators of this process have nothing enqueued on this device.
    pub fn neighbors_are_quiet(&self) -> bool {
        self.streams.neighbors().iter().all(|other| {
            // A stream of the same device can be asked by any backend that has opened it.
            other.tickets.none_out()
                && (other.known().iter()).all(|stream| self.is_idle(stream.raw).unwrap_or(false))
        })
    }

    /// Waits until no stream of this rank has work.
    pub fn wait_all_idle(&self, deadline: Duration) -> Result<()> {
        let mut patience = Patience::new(deadline);
        while !self
            .idle_now()
            .map_err(|failure| self.failed("drain streams", failure))?
        {
            if let Err(waited) = patience.wait(&self.health) {
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

    /// Waits until no call of another thread is between finding memory and having enqueued its work, and no
    /// stream has work.
    ///
    /// # Errors
    /// As [`Driver::wait_all_idle`].
    pub fn wait_quiet(&self, deadline: Duration) -> Result<()> {
        let mut patience = Patience::new(deadline);
        loop {
            self.wait_all_idle(deadline)?;
            if self.is_quiet() {
                return Ok(());
            }
            if let Err(waited) = patience.wait(&self.health) {
                self.health.look()?;
                return Err(Error::HostTimeout {
                    rank: self.rank,
                    operation: "drain streams",
                    waited,
                });
            }
        }
    }

    /// Waits until nothing of this rank runs on the device any more, whatever it fails with; says whether that
    /// is so.
    pub fn drain(&self, limit: Duration) -> bool {
        let start = Instant::now();
        loop {
            match self.idle_now() {
                Ok(true) => return true,
                // With the context everything that ran in it is gone.
                Err(failure) if failure.status == Status::CONTEXT_LOST => return true,
                Ok(false) | Err(_) if start.elapsed() > limit => return false,
                Ok(false) | Err(_) => std::thread::sleep(Duration::from_micros(200)),
            }
        }
    }
}
