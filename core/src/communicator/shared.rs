//! What a communicator, its buffers, streams and graphs share.

use super::agreement::Agreement;
use super::allocation::{self, Allocation};
use super::pad::SignalPad;
use super::staging::Staging;
use crate::abandon::{Abandoned, run_within};
use crate::backend::abi::{
    Capabilities, DeviceDescription, HostMemory, RawEvent, RawGraphExec, RawModule, RawStream,
    ShareKind, Status,
};
use crate::backend::{Backend, CallResult, Device, Failure};
use crate::bootstrap::Bootstrap;
use crate::collectives;
use crate::control::RankState;
use crate::error::{Error, Result};
use crate::health::Health;
use std::any::Any;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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

/// How long teardown waits in good order for work that is under way, and for peers.
const GOOD_ORDER: Duration = Duration::from_secs(3);
/// How long waiting kernels and streams have to leave once all is lost.
const DRAIN: Duration = Duration::from_secs(2);
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
    /// The slots of all ranks, and what else collectives need.
    pub collectives: OnceLock<collectives::State>,
    /// Peers in this very process.
    pub same_process: Vec<bool>,
    pub live_buffers: AtomicUsize,
    /// The first call of the device that failed.
    pub(super) fault: OnceLock<Error>,
    pub(super) finalized: AtomicBool,
    pub(super) words: HostMemory,
    pub(super) staging: Mutex<Staging>,
    pub(super) streams: Mutex<Vec<KnownStream>>,
    pub(super) graphs: Mutex<Vec<GivenUpGraph>>,
    pub(super) dropped: Mutex<Vec<Arc<Allocation>>>,
    /// Modules whose handles were dropped.
    pub(super) modules: Mutex<Vec<Arc<Loaded>>>,
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
    exec: RawGraphExec,
    _uses: Vec<Kept>,
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

    /// What collectives need.
    pub fn collectives(&self) -> &collectives::State {
        self.collectives
            .get()
            .expect("set before a communicator is handed out")
    }

    /// Allocations that are there as long as the communicator.
    fn permanent(&self) -> impl Iterator<Item = &Allocation> {
        let pad = self.pad.get().map(SignalPad::allocation);
        let slots = self.collectives.get().map(collectives::State::allocation);
        pad.into_iter().chain(slots)
    }

    /// Whether a peer is a thread of this process.
    pub fn is_same_process(&self, peer: usize) -> bool {
        self.same_process[peer]
    }

    /// A failed call to the backend as this rank's error.
    pub fn failed(&self, operation: &'static str, failure: Failure) -> Error {
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
                Ok(0) => {}
                Ok(_) => return self.health.look(),
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
    fn is_idle(&self, stream: RawStream) -> CallResult<bool> {
        // SAFETY: known streams are live while their list is locked, as it is here.
        unsafe {
            if self.backend.stream_capturing(stream)? != 0 {
                return Err(Failure::new(
                    Status::UNSUPPORTED,
                    "stream_idle",
                    "a stream is being captured; end the capture first",
                ));
            }
            Ok(self.backend.stream_idle(stream)? != 0)
        }
    }

    /// Whether no stream of this rank has work; an error if work failed or is being captured.
    fn idle_now(&self) -> CallResult<bool> {
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

    /// Remembers a stream, so that nothing it may use is released while it has work.
    pub fn add_stream(&self, raw: RawStream, owned: bool) {
        let mut streams = lock(&self.streams);
        // A caller's stream may be wrapped more than once.
        streams.push(KnownStream {
            raw,
            owned,
            event: None,
            closing: false,
        });
    }

    /// Forgets a stream; one made here is destroyed as soon as it is idle. A stream made here may have
    /// been wrapped as the caller's too, and must outlive that wrapper: so `owned` says which of the two
    /// is dropped.
    pub fn close_stream(&self, raw: RawStream, owned: bool) {
        {
            let mut streams = lock(&self.streams);
            if let Some(stream) = streams
                .iter_mut()
                .find(|stream| stream.raw == raw && stream.owned == owned && !stream.closing)
            {
                stream.closing = true;
                self.given_up.fetch_add(1, Ordering::AcqRel);
            }
        }
        self.reclaim();
    }

    /// Takes a dropped graph; it is destroyed once this rank's streams are idle.
    pub fn give_up_graph(&self, exec: RawGraphExec, uses: Vec<Kept>) {
        lock(&self.graphs).push(GivenUpGraph { exec, _uses: uses });
        self.given_up.fetch_add(1, Ordering::AcqRel);
        self.reclaim();
    }

    /// Takes a dropped buffer's allocation; it is released when every rank has dropped its own.
    pub fn give_up(&self, allocation: Arc<Allocation>) {
        lock(&self.dropped).push(allocation);
        self.given_up.fetch_add(1, Ordering::AcqRel);
        self.reclaim();
    }

    /// Takes a module whose handles were dropped; it is unloaded once no graph holds it and this
    /// rank's streams are idle.
    pub fn give_up_module(&self, module: Arc<Loaded>) {
        lock(&self.modules).push(module);
        self.given_up.fetch_add(1, Ordering::AcqRel);
        self.reclaim();
    }

    /// Keeps what a graph may use as long as the communicator.
    #[cold]
    pub fn keep(&self, uses: Vec<Kept>) {
        lock(&self.kept).extend(uses);
    }

    /// Releases what was given up and is no longer used. A load where nothing was.
    pub fn reclaim(&self) {
        if self.given_up.load(Ordering::Acquire) == 0 {
            return;
        }
        self.close_idle_streams();
        self.destroy_graphs();
        self.unload_modules();
        let mut dropped = lock(&self.dropped);
        let before = dropped.len();
        allocation::reclaim(self, &mut dropped);
        self.released(before - dropped.len());
    }

    fn released(&self, count: usize) {
        self.given_up.fetch_sub(count, Ordering::AcqRel);
    }

    fn close_idle_streams(&self) {
        lock(&self.streams).retain(|stream| {
            if !stream.closing || !matches!(self.is_idle(stream.raw), Ok(true)) {
                return true;
            }
            if stream.owned {
                // SAFETY: live, idle, and no handle is left.
                let destroyed = unsafe { self.backend.stream_destroy(stream.raw) };
                if let Err(failure) = destroyed {
                    tracing::warn!(rank = self.rank, %failure, "stream_destroy");
                }
            }
            if let Some(event) = stream.event {
                // SAFETY: made with the stream, and used by its forks and joins only.
                if let Err(failure) = unsafe { self.backend.event_destroy(event) } {
                    tracing::warn!(rank = self.rank, %failure, "event_destroy");
                }
            }
            self.released(1);
            false
        });
    }

    /// Gives up the streams that are left when all handles are gone: side streams.
    fn close_remaining_streams(&self) {
        let mut streams = lock(&self.streams);
        for stream in streams.iter_mut().filter(|stream| !stream.closing) {
            stream.closing = true;
            self.given_up.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn destroy_graphs(&self) {
        let mut graphs = lock(&self.graphs);
        if graphs.is_empty() || !self.all_idle() {
            return;
        }
        for graph in graphs.drain(..) {
            // SAFETY: live, and no stream runs it or can any more: its handle is gone.
            if let Err(failure) = unsafe { self.backend.graph_destroy(graph.exec) } {
                tracing::warn!(rank = self.rank, %failure, "graph_destroy");
            }
            self.released(1);
        }
    }

    /// Unloads what no graph holds. An unload may wait for the device, which may wait for a peer that
    /// needs this rank: so only once nothing runs.
    fn unload_modules(&self) {
        let mut modules = lock(&self.modules);
        if modules.is_empty() || !self.all_idle() {
            return;
        }
        modules.retain(|module| {
            if Arc::strong_count(module) > 1 {
                return true;
            }
            // SAFETY: live, and no stream runs a kernel of it or can any more: its handles and the
            // graphs that had it are gone.
            if let Err(failure) = unsafe { self.backend.module_unload(module.0) } {
                tracing::warn!(rank = self.rank, %failure, "module_unload");
            }
            self.released(1);
            false
        });
    }

    /// Dropped allocations that some rank still uses.
    pub fn unreclaimed(&self) -> usize {
        lock(&self.dropped).len()
    }

    /// Starts the thread that watches over peers.
    pub(super) fn start_watcher(&self) -> std::io::Result<()> {
        *lock(&self.watcher) = Some(self.health.start_watcher()?);
        Ok(())
    }

    /// Waits until nothing of this rank runs on the device any more; says whether that is so.
    fn drain(&self, limit: Duration) -> bool {
        let start = Instant::now();
        let staging = lock(&self.staging).stream;
        loop {
            let idle = self
                .idle_now()
                .and_then(|idle| Ok(idle && self.is_idle(staging)?));
            match idle {
                Ok(true) => return true,
                // With the context everything that ran in it is gone.
                Err(failure) if failure.status == Status::CONTEXT_LOST => return true,
                Ok(false) | Err(_) if start.elapsed() > limit => return false,
                Ok(false) | Err(_) => std::thread::sleep(Duration::from_micros(200)),
            }
        }
    }

    /// Waits, for seconds at most, until waiting kernels and streams have left a poisoned communicator.
    ///
    /// # Errors
    /// [`Error::HostTimeout`] if some have not: they may write to peers' memory yet.
    pub(super) fn drain_after_poison(&self) -> Result<()> {
        // The vendor's library takes longer than our own kernels, and there is no hurry.
        let limit = GOOD_ORDER + DRAIN;
        if self.drain(limit) {
            return Ok(());
        }
        Err(Error::HostTimeout {
            rank: self.rank,
            operation: "draining streams for a rebuild",
            waited: limit,
        })
    }

    /// Frees what peers have given up; says whether that was everything.
    fn free_given_up(&self) -> bool {
        lock(&self.dropped).retain(|allocation| !allocation.try_free(self));
        let permanent = self.permanent().filter(|left| !left.try_free(self)).count();
        permanent + self.unreclaimed() == 0
    }
}

impl Drop for Inner {
    /// Gives everything back, within [`GOOD_ORDER`] and [`DRAIN`]. What a stuck device or a peer may
    /// still touch is left to the end of the process.
    fn drop(&mut self) {
        let start = Instant::now();
        if let Some(fault) = self.fault.get()
            && !self.finalized.load(Ordering::Acquire)
        {
            // It leaves because of that: peers may be waiting for what was not enqueued.
            self.health.poison(fault.clone());
        }
        let drained = self.drain(GOOD_ORDER) || {
            // Nobody will ever synchronise with these waits: they leave by the abort word.
            self.health.poison(Error::Aborted { rank: self.rank });
            self.drain(DRAIN)
        };
        if drained {
            self.close_remaining_streams();
            self.close_idle_streams();
            self.destroy_graphs();
            // What graphs held that did not know of it.
            lock(&self.kept).retain(|kept| !kept.is::<Loaded>());
            self.unload_modules();
            for allocation in lock(&self.dropped).iter() {
                allocation.unmap(self);
            }
            if let Some(pad) = self.pad.get() {
                pad.close(self);
            }
            if let Some(collectives) = self.collectives.get() {
                // Without the others: they may be gone. `finalize` gives them up in good order.
                collectives.vendors.abort(&self.backend, self.rank);
            }
            for allocation in self.permanent() {
                allocation.unmap(self);
            }
        }
        let state = match self.health.check() {
            Ok(()) => RankState::Left,
            Err(_) if drained => RankState::FailedAndLeft,
            // A stuck device may still touch peers' memory: they keep it while this process lives.
            Err(_) => RankState::Failed,
        };
        self.health
            .control()
            .set_state(self.rank, state, self.health.culprit());
        // Memory shared by file may go at once: peers' mappings keep it. Other kinds wait a while
        // for peers that leave later.
        let mut free = drained && self.free_given_up();
        while drained && !free && start.elapsed() < GOOD_ORDER + DRAIN {
            std::thread::sleep(Duration::from_millis(1));
            free = self.free_given_up();
        }
        if let Some(watcher) = lock(&self.watcher).take() {
            self.health.stop_watcher(watcher);
        }
        if drained {
            let staging = lock(&self.staging);
            // SAFETY: no work is left, and nothing else holds these.
            unsafe {
                let _ = self.backend.stream_destroy(staging.stream);
                let _ = self.backend.host_free(staging.memory);
                let _ = self.backend.host_free(self.words);
            }
        }
        if drained && free {
            // SAFETY: dropped once, here; what is dropped after this does not call it.
            unsafe { ManuallyDrop::drop(&mut self.backend) };
        } else {
            tracing::warn!(
                rank = self.rank,
                drained,
                "memory that may still be in use is left to the end of the process"
            );
            // Its host words may still be waited on.
            std::mem::forget(self.pad.take());
        }
    }
}
