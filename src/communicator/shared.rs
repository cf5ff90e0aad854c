//! What a communicator, its buffers, streams and graphs share.

use super::agreement::Agreement;
use super::allocation::Allocation;
use super::multicast::Multicast;
use super::pad::SignalPad;
use super::staging::Staging;
use super::teardown::DRAIN;
use crate::abandon::{Abandoned, run_within};
use crate::backend::abi::{
    Capabilities, DeviceDescription, HostMemory, RawEvent, RawGraphExec, RawModule, RawStream,
    ShareKind, Status,
};
use crate::backend::{Backend, CallResult, Device, Failure};
use crate::bootstrap::Bootstrap;
use crate::collectives;
use crate::error::{Error, Result};
use crate::gemm::Workspace;
use crate::health::Health;
use std::any::Any;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Deadlines and placements that every rank agreed on.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bound of every wait on a peer's signal, counted from the kernel's start.
    pub deadline: Duration,
    /// Bound of every step in which ranks set something up together.
    pub setup_deadline: Duration,
}

/// A stream that the communicator knows of.
#[derive(Clone, Copy)]
pub struct KnownStream {
    pub raw: RawStream,
    /// Made here, so destroyed here.
    pub owned: bool,
    /// The event of a side stream, destroyed with it.
    pub event: Option<RawEvent>,
    /// Its handle was dropped; it goes once it is idle.
    pub closing: bool,
}

/// When teardown itself is abandoned: a driver's call has not returned.
const TEARDOWN: Duration = Duration::from_secs(7);
/// The device's own verdict on a wait names the peer, so it goes before the host's.
const VERDICT_GRACE: Duration = Duration::from_millis(100);

/// Shared by everything that belongs to one communicator; torn down when the last of it goes.
pub struct Shared {
    inner: ManuallyDrop<Inner>,
    /// Dropped after the rest and on the thread that drops this, since a rank that is panicking has
    /// not left in good order.
    _bootstrap: Arc<Bootstrap>,
}

/// What a communicator is made of.
pub struct Inner {
    pub rank: usize,
    pub world: usize,
    pub options: Options,
    pub capabilities: Capabilities,
    pub description: DeviceDescription,
    pub health: Arc<Health>,
    pub agreement: Agreement,
    /// The strategy that the signal pad proved; later allocations use it.
    pub kind: OnceLock<ShareKind>,
    pub pad: OnceLock<SignalPad>,
    /// What became of multicast.
    pub multicast: OnceLock<Multicast>,
    /// The slots of all ranks, and what else collectives need.
    pub collectives: OnceLock<collectives::State>,
    /// Peers in this very process.
    pub same_process: Vec<bool>,
    pub live_buffers: AtomicUsize,
    /// The first call of the device that failed.
    pub(super) fault: OnceLock<Error>,
    pub(super) finalized: AtomicBool,
    /// Torn down, from here on.
    pub(super) leaving: AtomicBool,
    /// A rank that still has its communicator did not come within the setup deadline: teardown does not wait
    /// for it once more.
    pub(super) waited_enough: AtomicBool,
    pub(super) words: HostMemory,
    pub(super) staging: Mutex<Staging>,
    pub(super) streams: Mutex<Vec<KnownStream>>,
    pub(super) graphs: Mutex<Vec<GivenUpGraph>>,
    pub(super) dropped: Mutex<Vec<Arc<Allocation>>>,
    /// Modules whose handles were dropped.
    pub(super) modules: Mutex<Vec<Arc<Loaded>>>,
    /// What products kept whose handles were dropped.
    pub(super) workspaces: Mutex<Vec<Arc<Workspace>>>,
    /// What a graph may use that does not know of it.
    pub(super) kept: Mutex<Vec<Kept>>,
    /// Streams, graphs, modules and allocations that were given up and are still there.
    pub(super) given_up: AtomicUsize,
    pub(super) watcher: Mutex<Option<JoinHandle<()>>>,
    /// Closed by the last that holds it, which may be a rebuilt communicator. Dropped by hand: not
    /// while anything may still use it.
    pub backend: ManuallyDrop<Arc<Backend>>,
}

/// What recorded work uses, an [`Allocation`] or a [`Loaded`]: it stays while a graph holds it.
pub type Kept = Arc<dyn Any + Send + Sync>;

/// A graph whose handle was dropped, with what it uses.
pub struct GivenUpGraph {
    pub(super) exec: RawGraphExec,
    pub(super) _uses: Vec<Kept>,
}

/// A user's device code on the device. Unloaded by [`Inner::reclaim`], not when dropped.
pub struct Loaded(pub RawModule);

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

impl Shared {
    pub(super) fn new(inner: Inner) -> Self {
        Self {
            _bootstrap: inner.agreement.bootstrap().clone(),
            inner: ManuallyDrop::new(inner),
        }
    }
}

impl Deref for Shared {
    type Target = Inner;

    #[inline]
    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl Drop for Shared {
    /// Gives everything back, on a thread that is abandoned if a call of the driver never returns.
    /// Bounded: [`TEARDOWN`], and the farewell to the other ranks.
    fn drop(&mut self) {
        let rank = self.rank;
        // SAFETY: taken once, here, where `self` ends.
        let inner = unsafe { ManuallyDrop::take(&mut self.inner) };
        // Without a thread the work is dropped undone, which drops `inner` here.
        if let Err(error @ Abandoned::Late(_)) =
            run_within("symmem-teardown", TEARDOWN, move || drop(inner))
        {
            tracing::error!(rank, %error, "teardown is abandoned");
        }
    }
}

impl Inner {
    /// The signal pad.
    pub fn pad(&self) -> &SignalPad {
        self.pad
            .get()
            .expect("set before a communicator is handed out")
    }

    /// What became of multicast.
    pub fn multicast(&self) -> &Multicast {
        self.multicast
            .get()
            .expect("set before a communicator is handed out")
    }

    /// What collectives need.
    pub fn collectives(&self) -> &collectives::State {
        self.collectives
            .get()
            .expect("set before a communicator is handed out")
    }

    /// Allocations that are there as long as the communicator.
    pub(super) fn permanent(&self) -> impl Iterator<Item = &Allocation> {
        let pad = self.pad.get().map(SignalPad::allocation);
        let slots = self.collectives.get().map(collectives::State::allocation);
        pad.into_iter().chain(slots)
    }

    /// Whether a peer is a thread of this process.
    pub fn is_same_process(&self, peer: usize) -> bool {
        self.same_process[peer]
    }

    /// A failed call to the backend as this rank's error: what the communicator was poisoned with, where that came
    /// first. The watcher ends calls that are under way by then, and why it does says more than that they ended.
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
    pub(super) fn is_idle(&self, stream: RawStream) -> CallResult<bool> {
        // SAFETY: known streams are live while their list is locked, as it is here.
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
    pub(super) fn idle_now(&self) -> CallResult<bool> {
        for stream in lock(&self.streams).iter() {
            if !self.is_idle(stream.raw)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether no stream of this rank has work.
    pub fn all_idle(&self) -> bool {
        self.idle_now().unwrap_or(false)
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

    /// Starts the thread that watches over peers.
    pub(super) fn start_watcher(&self) -> std::io::Result<()> {
        *lock(&self.watcher) = Some(self.health.start_watcher()?);
        Ok(())
    }
}
