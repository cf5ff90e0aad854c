//! The network of a communicator that spans nodes: set-up, the engine's lock, and teardown.

use super::command::Command;
use super::engine::{Engine, Outlook};
use super::fault::Fault;
use super::inbox::Inbox;
use super::lane::Lane;
use super::mirrors::Mirrors;
use super::opening::{Hello, Opened, host_delivery, open_worker, random, reaches_memory, stage};
use super::pinned::PINNED;
use super::section::{Runs, Section};
use super::slots::{Slot, Slots};
use super::status::NetworkStatus;
use super::versions::Versions;
use super::wires::Wires;
use crate::backend::abi::{CAPABILITY_STREAM_WAIT, DeviceAddress};
use crate::base::error::{Error, Result};
use crate::base::lock::lock;
use crate::base::placement::Placement;
use crate::health::watcher::Health;
use crate::memory::pad::SignalPad;
use crate::rank::agreement::Round;
use crate::rank::context::{Closing, Context};
use crate::rank::driver::{Assistant, Driver};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use symmem_core::host::Sleeper;
use symmem_ucx::{Memory, Waker, Worker};

/// Time that a rank waits, when it leaves, for messages that UCX has not sent and for the others' farewells.
const FAREWELL: Duration = Duration::from_secs(1);
/// Time after the failure of a connection in which the death of its rank may be reported, which says more.
const VERDICT: Duration = Duration::from_millis(150);
/// Most time for which a call that finds no engine waits for the cause: more than [`VERDICT`], on a crowded machine too.
const CAUSE: Duration = Duration::from_secs(1);

/// Sleep of a second thread that would wait for the worker.
const MOMENT: Duration = Duration::from_micros(50);

/// The connections of a rank to the ranks of other nodes.
pub struct Network {
    rank: usize,
    pub(super) placement: Placement,
    pub(super) health: Arc<Health>,
    /// `None` once it is closed.
    pub(super) engine: Mutex<Option<Engine>>,
    pub(super) inbox: Arc<Mutex<Inbox>>,
    context: symmem_ucx::Context,
    slots: Slots,
    pub(super) mirrors: Mirrors,
    /// The registration of the memory that GPU memory is staged in, if it is.
    pinned: Mutex<Option<Memory>>,
    /// Number of changes that a step of the engine must see.
    pushed: AtomicUsize,
    /// Number of commands of queues that are not complete.
    unfinished: AtomicUsize,
    /// Whether commands are refused, and whether nothing uses this rank's memory any more.
    closed: AtomicBool,
    released: AtomicBool,
    /// Whether a host thread that waits has progressed the engine lately.
    pub(super) helped: AtomicBool,
    /// Whether a host thread that waits sleeps, and looks again when its stream has moved.
    pub(super) left: AtomicBool,
    /// Whether commands are under way.
    busy: AtomicBool,
    /// Whether a host thread waits for the worker in place of the network's own.
    pub(super) attended: AtomicBool,
    /// Whether the thread may look again and again for a moment: no rank needs its processor.
    pub(super) spins: bool,
    /// Whether the thread waits for the worker, for longer than a moment.
    pub(super) sleeping: AtomicBool,
    pub(super) stopping: AtomicBool,
    worker: Arc<Worker>,
    waker: Waker,
    thread: Mutex<Option<JoinHandle<()>>>,
    pub(super) versions: Versions,
    status: NetworkStatus,
}

impl Network {
    /// Opens UCX and connects this rank to the ranks of other nodes. A step of a round, of all ranks. Blocks for at most
    /// the setup deadline.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if UCX is missing, or its memory is not the host's; [`Error::Network`]; the errors of a round.
    pub fn open(
        context: &Context,
        round: &mut Round<'_>,
        pad: &Arc<SignalPad>,
    ) -> Result<Arc<Self>> {
        let (rank, placement) = (context.rank, &*context.placement);
        let opened = open_worker(context, placement);
        let hello = opened.and_then(|opened| {
            let hello = Hello {
                session: random().map_err(|error| Error::System {
                    rank,
                    call: "getrandom",
                    reason: error.to_string(),
                })?,
                pinned: opened.pinned.as_ref().map_or(0, |one| one.memory.address()),
                key: opened
                    .pinned
                    .as_ref()
                    .map_or(Vec::new(), |one| one.key.clone()),
                version: opened.status.ucx.clone(),
                address: opened.worker.address().to_vec(),
            };
            Ok((opened, hello.encode()))
        });
        let (opened, hellos) = round.give(hello, None)?;
        let Opened {
            status,
            context: ucx,
            worker,
            slots,
            pinned,
        } = opened;
        let mut session = 0_u64;
        let (mut addresses, mut keys) = (Vec::new(), Vec::new());
        let mut versions = Versions::default();
        for (peer, hello) in hellos.iter().enumerate() {
            let hello = Hello::decode(&hello.payload).unwrap_or(Hello {
                session: 0,
                pinned: 0,
                key: Vec::new(),
                version: String::new(),
                address: Vec::new(),
            });
            session = session.rotate_left(1) ^ hello.session;
            let far = !placement.share_node(rank, peer);
            keys.push((far && !hello.key.is_empty()).then_some((hello.pinned, hello.key)));
            addresses.push(far.then_some(hello.address));
            versions.add(hello.version);
        }
        let (registered, delivery, staging) = match pinned {
            None => (None, host_delivery(pad), None),
            Some(opened) => {
                let (delivery, staging) = stage(context, &opened, pad);
                (Some(opened.memory), delivery, Some(staging))
            }
        };
        let inbox = Inbox::new(session, context.world, delivery);
        let leaders = (0..placement.nodes()).map(|node| placement.members(node)[0]);
        let (waker, transports) = (worker.waker(), worker.transports());
        let worker = Arc::new(worker);
        let wires = Wires::new(
            rank,
            session,
            worker.clone(),
            &addresses,
            inbox,
            leaders.collect(),
        )
        .and_then(|mut wires| {
            if let Some(staging) = staging {
                wires.stage(staging);
                wires.add_keys(PINNED, &keys)?;
            }
            Ok(wires)
        })
        .map_err(|fault| versions.explain(fault.into_error(rank, placement)));
        let wires = round.vote(wires)?;
        let health = context.health.clone();
        let network = Arc::new(Self {
            rank,
            placement: placement.clone(),
            health: context.health.clone(),
            inbox: wires.inbox.clone(),
            engine: Mutex::new(Some(
                Engine::new(wires).guarded(move || health.look().is_ok()),
            )),
            context: ucx,
            slots,
            mirrors: Mirrors::default(),
            pinned: Mutex::new(registered),
            pushed: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            released: AtomicBool::new(false),
            helped: AtomicBool::new(false),
            left: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            attended: AtomicBool::new(false),
            spins: !context.crowded,
            sleeping: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            worker,
            waker,
            thread: Mutex::default(),
            versions,
            status: NetworkStatus {
                transports,
                staged: !reaches_memory(context),
                ..status
            },
        });
        context.on_close(network.clone());
        context.assist(network.clone());
        let thread = network.start_thread().map_err(|error| Error::System {
            rank,
            call: "spawning the network's thread",
            reason: error.to_string(),
        });
        *lock(&network.thread) = round.vote(thread.map(Some))?;
        let abandoned = Arc::downgrade(&network);
        context.health.on_poison(Box::new(move || {
            if let Some(network) = abandoned.upgrade() {
                network.abandon();
            }
        }));
        Ok(network)
    }

    /// Returns the library, the transports and the way of the bytes.
    pub fn status(&self) -> &NetworkStatus {
        &self.status
    }

    /// Returns the UCX context, which registers memory.
    pub(super) fn context(&self) -> &symmem_ucx::Context {
        &self.context
    }

    /// Makes a lane for a queue.
    ///
    /// # Errors
    /// The backend's; the error that poisoned the communicator.
    pub fn open_lane(&self, driver: &Driver) -> Result<Arc<Lane>> {
        let lane = Arc::new(Lane::new(self.take_slot(driver)?));
        match self.with_engine(|engine| engine.add_lane(lane.clone())) {
            Some(()) => Ok(lane),
            None => Err(self.cause()),
        }
    }

    /// Takes a pair of words.
    ///
    /// # Errors
    /// The backend's.
    pub fn take_slot(&self, driver: &Driver) -> Result<Slot> {
        self.slots
            .take(&driver.backend)
            .map_err(|failure| driver.failed("host_allocate", failure))
    }

    /// Takes back a pair of words that no stream uses.
    pub fn give_back(&self, slot: Slot) {
        self.slots.give_back(slot);
    }

    /// Adds the section of a graph that was recorded.
    ///
    /// # Errors
    /// The error that poisoned the communicator.
    pub fn add_section(&self, section: Arc<Section>) -> Result<()> {
        self.with_engine(|engine| engine.add_section(section))
            .ok_or_else(|| self.cause())
    }

    /// Calls `action` with the engine, unless it has ended.
    fn with_engine<T>(&self, action: impl FnOnce(&mut Engine) -> T) -> Option<T> {
        lock(&self.engine).as_mut().map(action)
    }

    /// Returns why there is no engine. Blocks for at most [`CAUSE`] if that is yet to be found out: see [`Network::fail`].
    pub(super) fn cause(&self) -> Error {
        let start = Instant::now();
        loop {
            match self.health.check() {
                Err(cause) => return cause,
                Ok(()) if start.elapsed() > CAUSE => return Error::Aborted { rank: self.rank },
                Ok(()) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Returns whether streams wait in hardware for a word in host memory.
    pub fn waits_in_hardware(driver: &Driver) -> bool {
        driver.capabilities.flags & CAPABILITY_STREAM_WAIT != 0
    }

    /// Counts a command that a call is about to add to a lane.
    pub fn count(&self) {
        self.unfinished.fetch_add(1, Ordering::AcqRel);
    }

    /// Advances the engine after a command was added to a lane.
    ///
    /// # Errors
    /// The error that poisoned the communicator.
    pub fn kick(&self, lane: &Lane) -> Result<()> {
        self.pushed.fetch_add(1, Ordering::SeqCst);
        if self.closed.load(Ordering::SeqCst) {
            // Whoever closed the network may have released this lane before the command was added.
            lane.abandon();
            return Err(self.cause());
        }
        match self.drive() {
            // Nobody else looks at a stream's word.
            Some(outlook) if outlook.armed => self.wake(),
            _ => {}
        }
        Ok(())
    }

    /// Wakes the thread, or the host thread that waits in its place.
    pub fn wake(&self) {
        self.pushed.fetch_add(1, Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) || self.attended.load(Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// Wakes the host thread that waits in place of the network's own: another thread may have raised its word.
    fn tell_sleeper(&self) {
        // As in `sleep`: one of the two sees what the other wrote.
        fence(Ordering::SeqCst);
        if self.attended.load(Ordering::Relaxed) {
            self.waker.wake();
        }
    }

    /// Waits until something arrives, or the thread is woken. May return early.
    pub(super) fn wait(&self, limit: Duration) {
        if let Err(failure) = self.worker.wait(limit) {
            tracing::warn!(rank = self.rank, %failure, "cannot wait for the network");
            std::thread::sleep(limit.min(Duration::from_millis(1)));
        }
    }

    /// Returns the number of changes that a step of the engine must see.
    pub(super) fn changes(&self) -> usize {
        self.pushed.load(Ordering::SeqCst)
    }

    /// Advances the engine, unless another thread does; that thread then sees what was added before this call.
    pub(super) fn drive(&self) -> Option<Outlook> {
        loop {
            let before = self.changes();
            let mut engine = match self.engine.try_lock() {
                Ok(engine) => engine,
                Err(TryLockError::Poisoned(engine)) => engine.into_inner(),
                Err(TryLockError::WouldBlock) => return None,
            };
            let outlook = self.step(engine.as_mut()?);
            drop(engine);
            match outlook {
                Ok(outlook) if outlook.stopped => {
                    self.abandon();
                    return None;
                }
                Ok(outlook) if self.changes() == before => return Some(outlook),
                Ok(_) => {}
                Err(fault) => {
                    self.fail(fault);
                    return None;
                }
            }
        }
    }

    fn step(&self, engine: &mut Engine) -> std::result::Result<Outlook, Fault> {
        let outlook = engine.step()?;
        self.busy.store(outlook.busy, Ordering::Relaxed);
        if outlook.moved {
            self.tell_sleeper();
        }
        if outlook.completed > 0 {
            self.unfinished
                .fetch_sub(outlook.completed, Ordering::AcqRel);
        }
        Ok(outlook)
    }

    /// Ends everything after a failure: the communicator is poisoned, then the streams are released.
    fn fail(&self, fault: Fault) {
        // Taken out first, so that the other threads of this rank do not meet the same failure.
        let Some(engine) = lock(&self.engine).take() else {
            return;
        };
        // A rank that died breaks its connections, and its death says more.
        let start = Instant::now();
        while start.elapsed() < VERDICT && self.health.check().is_ok() {
            self.health.watch_once();
            std::thread::sleep(Duration::from_millis(5));
        }
        let error = fault.into_error(self.rank, &self.placement);
        let error = self.versions.explain(error);
        tracing::warn!(rank = self.rank, %error, "the network failed");
        if self.health.check().is_ok() {
            self.health.poison(error);
        }
        self.release(engine);
    }

    /// Ends everything after the communicator was poisoned.
    pub(super) fn abandon(&self) {
        if let Some(engine) = lock(&self.engine).take() {
            self.release(engine);
        }
    }

    fn release(&self, mut engine: Engine) {
        self.closed.store(true, Ordering::SeqCst);
        engine.abandon();
        self.released.store(true, Ordering::Release);
        self.wake();
    }

    /// Returns whether a rank of another node may still address this rank's copy of an allocation.
    pub(super) fn is_addressed(&self, number: u64) -> bool {
        if lock(&self.engine).is_none() {
            // Without connections nothing arrives any more.
            return false;
        }
        self.far_ranks().any(|peer| {
            lock(&self.inbox).is_addressed_by(number, peer) && !self.health.is_gone(peer)
        })
    }

    /// Returns the ranks of other nodes.
    fn far_ranks(&self) -> impl Iterator<Item = usize> {
        let ranks = 0..self.placement.world();
        ranks.filter(|&peer| !self.placement.share_node(peer, self.rank))
    }

    /// Returns whether no rank of another node has its communicator any more.
    fn all_have_left(&self) -> bool {
        let inbox = lock(&self.inbox);
        self.far_ranks()
            .all(|peer| inbox.has_departed(peer) || self.health.is_lost(peer))
    }

    fn start_thread(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let network = self.clone();
        std::thread::Builder::new()
            .name("symmem-network".into())
            .stack_size(512 * 1024)
            .spawn(move || network.serve())
    }

    /// Returns a new command with the network's bounds.
    pub fn command(
        operation: &'static str,
        deadline: Duration,
        action: super::command::Action,
    ) -> Command {
        Command {
            operation,
            deadline,
            action,
        }
    }
}

impl Assistant for Network {
    fn help(&self) -> bool {
        self.helped.store(true, Ordering::Relaxed);
        self.drive().is_some_and(|outlook| outlook.moved)
    }

    fn is_idle(&self) -> bool {
        self.unfinished.load(Ordering::Acquire) == 0 || self.released.load(Ordering::Acquire)
    }
}

impl Sleeper for Network {
    /// Where every rank has a processor, its thread is faster: it looks again and again for a moment, and sends while the host
    /// thread enqueues.
    fn watches(&self, word: DeviceAddress) -> bool {
        !self.spins && !self.attended.load(Ordering::Relaxed) && self.slots.word(word).is_some()
    }

    fn sleep(&self, word: DeviceAddress, seen: u32, longest: Duration) {
        if self.attended.swap(true, Ordering::Relaxed) {
            // Another thread was faster since `watches`.
            std::thread::sleep(longest.min(MOMENT));
            return;
        }
        fence(Ordering::SeqCst);
        if (self.slots.word(word)).is_some_and(|word| word.load(Ordering::Acquire) == seen) {
            self.wait(longest);
        }
        self.attended.store(false, Ordering::Relaxed);
    }

    fn leave(&self) {
        self.left.store(true, Ordering::Relaxed);
        // Its thread looks by itself before long. To wake it costs a processor, which on a crowded machine the awaited rank
        // needs, unless commands are under way beside what is waited for.
        let now = self.spins || self.busy.load(Ordering::Relaxed);
        if self.helped.swap(false, Ordering::Relaxed)
            && now
            && let Some(thread) = &*lock(&self.thread)
        {
            thread.thread().unpark();
        }
    }
}

impl Runs for Network {
    fn wake(&self) {
        Self::wake(self);
    }

    fn give_back(&self, slot: Slot) {
        Self::give_back(self, slot);
    }
}

impl Closing for Network {
    /// Tells the peers that this rank uses none of their memory any more, and that its own is going.
    fn close(&self, _driver: &Driver) {
        lock(&self.inbox).close();
        if !lock(&self.inbox).drain() {
            tracing::warn!(
                rank = self.rank,
                "copies from other nodes are still under way"
            );
        }
        if let Some(engine) = &mut *lock(&self.engine) {
            engine.wires.say_farewell();
        }
    }

    /// Closes the connections. Blocks for at most [`FAREWELL`] for the others' farewells, before which their connections
    /// would look broken.
    fn end(&self, driver: &Driver) {
        let start = Instant::now();
        while start.elapsed() < FAREWELL && self.health.check().is_ok() && !self.all_have_left() {
            self.drive();
            std::thread::sleep(Duration::from_micros(200));
        }
        self.stopping.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = lock(&self.thread).take() {
            // A panic of the thread is ignored.
            let _ = thread.join();
        }
        self.abandon();
        lock(&self.pinned).take();
        // SAFETY: no stream has work, and none gets any. Without connections no peer reaches a mirror.
        unsafe {
            self.slots.free(&driver.backend);
            self.mirrors.free(&driver.backend);
        }
    }
}
