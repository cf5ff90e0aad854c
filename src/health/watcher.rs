//! The state of a communicator, usable or poisoned, and the thread that watches over it.
//!
//! [`Health`] holds the abort word, which every waiting kernel polls, and the wait record, which the first wait
//! to give up fills. Poisoning is final: the cause is kept, the abort word is set, hardware waits are released
//! by the store that they wait for, and peers are notified twice: through the control block, for ranks that
//! wait on a device, and through the job's store, for ranks that wait there.

use crate::backend::abi::{DeviceAddress, HostMemory, SIGNAL_STRIDE, WaitRecord, Watch};
use crate::base::error::{Error, Result, translate};
use crate::base::fork_mark::ForkMark;
use crate::base::limits::WATCH_INTERVAL;
use crate::base::lock::lock;
use crate::base::placement::Placement;
use crate::base::rank_set::RankSet;
use crate::bootstrap::{Bootstrap, BootstrapError};
use crate::health::control::{Blame, ControlBlock, RankState};
use crate::health::heartbeat::Heartbeats;
use crate::health::host_waits::{HostWait, HostWaits};
use crate::health::record::{RingCall, counts_members, error_of};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most time by which the store's news may come later on one rank than on another of its node.
const NEWS: Duration = Duration::from_millis(100);

/// Time after which a round of the watcher is late: on a busy machine its thread may get no processor for far longer. A
/// thread that waits then makes the round.
const LATE: Duration = WATCH_INTERVAL.saturating_mul(4);

/// The health state that calls, streams and the watcher share.
pub struct Health {
    rank: usize,
    /// The process that built the communicator. A fork of it touches neither the words nor the control page: the
    /// driver may not have mapped them there, and what it writes its parent and the peers would see.
    process: Arc<ForkMark>,
    bootstrap: Arc<Bootstrap>,
    placement: Arc<Placement>,
    control: ControlBlock,
    words: HostMemory,
    cause: OnceLock<Error>,
    host_waits: HostWaits,
    heartbeats: Heartbeats,
    /// Ranks of other nodes that are known to be dead.
    dead_elsewhere: Mutex<RankSet>,
    /// Time after which a rank of another node that is not heard from is dead.
    silence: Duration,
    /// Hooks that the watcher runs once the communicator is poisoned.
    on_poison: Mutex<Vec<Hook>>,
    stopping: AtomicBool,
    start: Instant,
    /// Milliseconds from the start to the last round.
    round: AtomicU64,
}

/// A hook that ends something that neither the abort word nor a store to a word ends.
pub type Hook = Box<dyn FnOnce() + Send>;

// SAFETY: `words` is host memory that outlives the value and is accessed through atomics, and read
// volatile where kernels write.
unsafe impl Send for Health {}
// SAFETY: as above.
unsafe impl Sync for Health {}

impl Health {
    /// Takes memory for the abort word and the wait record ([`words::allocate`]). The caller frees it after the last kernel
    /// has ended and this value is dropped.
    ///
    /// [`words::allocate`]: crate::health::words::allocate
    pub fn new(
        bootstrap: Arc<Bootstrap>,
        control: ControlBlock,
        words: HostMemory,
        silence: Duration,
    ) -> Self {
        let (rank, placement) = (bootstrap.rank() as usize, bootstrap.placement());
        Self {
            rank,
            process: bootstrap.store().process().clone(),
            heartbeats: Heartbeats::new(placement.node_members(rank), Instant::now()),
            placement: placement.clone(),
            bootstrap,
            control,
            words,
            cause: OnceLock::new(),
            host_waits: HostWaits::new(),
            dead_elsewhere: Mutex::default(),
            silence,
            on_poison: Mutex::default(),
            stopping: AtomicBool::new(false),
            start: Instant::now(),
            round: AtomicU64::new(0),
        }
    }

    /// Returns what a kernel that waits at most `deadline` watches, without the word in device memory.
    pub fn watch(&self, deadline: Duration) -> Watch {
        Watch {
            abort: self.words.device,
            record: DeviceAddress(self.words.device.0 + SIGNAL_STRIDE),
            aborted: DeviceAddress::NULL,
            deadline_ns: u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX),
            rank: self.rank as u32,
            reserved: 0,
        }
    }

    /// Returns which ranks share a node.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Returns the time after which a rank of another node that is not heard from is dead.
    #[cfg(feature = "tcp")]
    pub fn silence(&self) -> Duration {
        self.silence
    }

    /// Returns the ranks of other nodes that are known to be dead.
    #[cfg(feature = "tcp")]
    pub fn dead_elsewhere(&self) -> RankSet {
        *lock(&self.dead_elsewhere)
    }

    /// Returns the page shared with the peers of this node.
    pub fn control(&self) -> &ControlBlock {
        &self.control
    }

    fn abort_word(&self) -> &AtomicU32 {
        // SAFETY: the words outlive `self`, are aligned and zeroed, and are only accessed atomically.
        unsafe { AtomicU32::from_ptr(self.words.host as *mut u32) }
    }

    /// Returns whether this process is a fork of the one that built the communicator. Does not block.
    #[inline]
    pub fn is_fork(&self) -> bool {
        self.process.is_fork()
    }

    /// Refuses the use of the communicator in a fork. Does not block.
    ///
    /// # Errors
    /// [`Error::Forked`].
    #[inline]
    pub fn check_process(&self) -> Result<()> {
        match self.is_fork() {
            false => Ok(()),
            true => Err(Error::Forked {
                rank: self.rank,
                owner: self.process.owner(),
            }),
        }
    }

    /// Returns the cause if the communicator is poisoned, or [`Error::Forked`]. Does not block: two atomic loads.
    pub fn check(&self) -> Result<()> {
        self.check_process()?;
        match self.cause.get() {
            None => Ok(()),
            Some(cause) => Err(cause.clone()),
        }
    }

    /// Returns the rank to blame, if it is another.
    pub fn blame(&self) -> Option<Blame> {
        let cause = self.cause.get()?;
        let rank = match cause {
            Error::PeerDied { peer, .. }
            | Error::PeerFailed { peer, .. }
            | Error::Mismatch { peer, .. }
            | Error::Network { peer, .. }
            | Error::Timeout { peer, .. } => Some(*peer),
            Error::Bootstrap(error) => match &**error {
                BootstrapError::Timeout { missing, .. } => {
                    missing.first().map(|&peer| peer as usize)
                }
                _ => None,
            },
            _ => None,
        }?;
        let heard = matches!(cause, Error::PeerFailed { .. });
        let died = matches!(cause, Error::PeerDied { .. });
        Some(Blame { rank, heard, died })
    }

    /// Checks as [`Health::check`] does, after reading the wait record and the peers' states.
    pub fn look(&self) -> Result<()> {
        self.check_process()?;
        if let Some(error) = self.take_record() {
            self.poison(error);
        }
        // What a rank has enqueued behind a wait that it gave up runs, its signals too. So work that has ended may have
        // waited for data that never came, before the watcher has seen the failure.
        if self.cause.get().is_none() && self.has_failed_peer() {
            self.watch_once();
        }
        self.check()
    }

    /// Returns the other ranks of this rank's node.
    fn neighbors(&self) -> impl Iterator<Item = usize> + '_ {
        let members = self.placement.node_members(self.rank).iter().copied();
        members.filter(|&peer| peer != self.rank)
    }

    /// Returns whether a rank, if it exists, is on this rank's node, where its process can be seen.
    fn is_here(&self, rank: usize) -> bool {
        rank < self.placement.world() && self.placement.share_node(rank, self.rank)
    }

    /// Returns whether a rank exists and is on another node.
    fn is_elsewhere(&self, rank: usize) -> bool {
        rank < self.placement.world() && !self.is_here(rank)
    }

    fn has_failed_peer(&self) -> bool {
        self.neighbors().any(|peer| {
            let (state, _) = self.control.state(peer);
            matches!(state, RankState::Failed | RankState::FailedAndLeft)
        })
    }

    /// Poisons the communicator; the first cause is kept. Blocks for a message to rank 0, for at most a second
    /// if rank 0 is stopped. Does nothing in a fork.
    pub fn poison(&self, cause: Error) {
        if self.is_fork() {
            return;
        }
        let words = cause.to_string();
        let culprit = self.culprit(&cause);
        let first = self.cause.set(cause).is_ok();
        if first {
            tracing::warn!(rank = self.rank, cause = %words, "communicator poisoned");
            // Before anything is released that signals a peer.
            self.control
                .set_state(self.rank, RankState::Failed, self.blame());
        }
        self.abort_word().store(1, Ordering::SeqCst);
        self.host_waits.release_all();
        if first {
            // Ranks that wait in the store receive it there. If the store is gone, they know already.
            let _ = match culprit {
                Some((peer, died, reason)) => self.bootstrap.store().blame(peer, died, &reason),
                None => self.bootstrap.store().fail(&words),
            };
        }
    }

    /// Returns the rank whose death or failure is the `cause`, whether it died, and the reason, for ranks of other nodes,
    /// which cannot see for themselves: this rank may tell them before the store notices or the rank to blame does.
    fn culprit(&self, cause: &Error) -> Option<(u32, bool, String)> {
        if !self.bootstrap.has_pulse() {
            return None;
        }
        match cause {
            Error::PeerDied { peer, .. } => Some((*peer as u32, true, String::new())),
            Error::PeerFailed { peer, reason, .. } => Some((*peer as u32, false, reason.clone())),
            _ => None,
        }
    }

    /// Handles a collective call on the host that did not complete, because of `error` or of its cause. Poisons
    /// the communicator, and returns the cause.
    pub fn broken(&self, error: Error) -> Error {
        self.note_death(&error);
        // The report of a peer that gave up on a dead rank may arrive before the death is noticed.
        self.watch_once();
        self.poison_once(|| error.clone());
        self.cause.get().cloned().unwrap_or(error)
    }

    /// Returns the error in the wait record, if it is complete and the wait did not leave by an abort.
    fn take_record(&self) -> Option<Error> {
        let pointer = (self.words.host + SIGNAL_STRIDE) as *const WaitRecord;
        // SAFETY: the record outlives `self`; kernels complete it before they set the state to 2 with
        // release order, so after this acquire the rest is read without a race.
        let state = unsafe { AtomicU32::from_ptr(pointer.cast_mut().cast()) };
        if state.load(Ordering::Acquire) != 2 {
            return None;
        }
        // SAFETY: as above.
        let mut record = unsafe { pointer.read_volatile() };
        if counts_members(&record)
            && let Some(&peer) = self
                .placement
                .node_members(self.rank)
                .get(record.peer as usize)
        {
            record.peer = peer as u32;
        }
        let mut error = error_of(self.rank, &record)?;
        if (record.kind > WaitRecord::COLLECTIVE || RingCall::of(&record).is_some())
            && let Error::Timeout { peer, .. } = &mut error
        {
            // The rank awaited may itself have waited for another.
            *peer = self.heartbeats.stopped(*peer, Instant::now());
        }
        Some(error)
    }

    /// Makes the watcher release a hardware wait at its deadline, or at once if the communicator is poisoned. Neither
    /// locks nor allocates, except beyond the number of waits of [`HostWaits::add`].
    pub fn guard(&self, wait: HostWait) {
        self.host_waits.add(wait);
    }

    /// Returns whether a rank has left or died, and takes part in nothing any more.
    pub fn is_lost(&self, rank: usize) -> bool {
        self.has_left(rank) || self.is_dead(rank)
    }

    /// Makes the watcher run `hook` once the communicator is poisoned.
    pub fn on_poison(&self, hook: Hook) {
        lock(&self.on_poison).push(hook);
    }

    /// Runs the hooks, if the communicator is poisoned.
    fn run_hooks(&self) {
        if self.cause.get().is_some() {
            // Taken out first: a hook may take long, and others may be added meanwhile.
            let hooks = std::mem::take(&mut *lock(&self.on_poison));
            hooks.into_iter().for_each(|hook| hook());
        }
    }

    /// Returns whether a rank will never again touch any rank's memory. A dying process may do so until its
    /// device is closed, up to a second later.
    pub fn is_gone(&self, rank: usize) -> bool {
        // If the system cannot tell, the process is assumed to be running.
        let ended = |rank: usize| {
            let process = self.bootstrap.peers()[rank].process;
            process.wait_end(Instant::now()).unwrap_or(false)
        };
        // A rank of another node never touched memory here.
        self.has_left(rank) || self.is_dead(rank) && (!self.is_here(rank) || ended(rank))
    }

    fn has_left(&self, rank: usize) -> bool {
        let (state, _) = self.control.state(rank);
        matches!(state, RankState::Left | RankState::FailedAndLeft)
    }

    /// Returns whether a rank's process has ended, or is about to.
    pub fn is_dead(&self, rank: usize) -> bool {
        match self.is_here(rank) {
            true => !self.bootstrap.peers()[rank].process.is_alive(),
            // A peer may name a rank that does not exist.
            false => self.is_elsewhere(rank) && lock(&self.dead_elsewhere).contains(rank),
        }
    }

    /// Notes the death of a rank of another node, whose process cannot be seen from here.
    fn note_death(&self, error: &Error) {
        if let Error::PeerDied { peer, .. } = *error
            && self.is_elsewhere(peer)
        {
            let mut dead = lock(&self.dead_elsewhere);
            *dead = dead.with(peer);
        }
    }

    /// Returns a peer's death or failure as rank 0's store reports it, if any.
    fn news(&self) -> Option<Error> {
        let error = self.bootstrap.store().check().err()?;
        match translate(self.rank, error) {
            error @ (Error::PeerDied { .. } | Error::PeerFailed { .. }) => {
                self.note_death(&error);
                Some(error)
            }
            // The peer left in good order: a rank that still waits for it times out, or learns it from a call.
            _ => None,
        }
    }

    /// Returns the store's news as [`Health::news`] does, after a short wait: the store tells all ranks at once.
    fn await_news(&self) -> Option<Error> {
        let start = Instant::now();
        loop {
            match self.news() {
                None if start.elapsed() < NEWS => std::thread::sleep(Duration::from_millis(1)),
                news => return news,
            }
        }
    }

    /// Returns the error of a failed peer: with its own message if the store has it, else with `reason`.
    fn failed_peer(&self, peer: usize, reason: String) -> Error {
        match self.news() {
            Some(error @ Error::PeerFailed { peer: who, .. }) if who == peer => error,
            _ => Error::PeerFailed {
                rank: self.rank,
                peer,
                reason,
            },
        }
    }

    /// Makes one round of the watcher; none in a fork.
    pub fn watch_once(&self) {
        if self.is_fork() {
            return;
        }
        self.round.store(self.milliseconds(), Ordering::Relaxed);
        self.control.beat(self.rank);
        if self.bootstrap.has_pulse() {
            self.bootstrap.store().beat(self.silence);
        }
        self.heartbeats.look(&self.control, Instant::now());
        if let Some(error) = self.take_record() {
            self.poison(error);
        }
        for peer in self.neighbors() {
            let rank = self.rank;
            match self.control.state(peer) {
                (RankState::Left, _) => {}
                (RankState::Joining | RankState::Up, _) => {
                    if self.is_dead(peer) {
                        self.poison_once(|| Error::PeerDied { rank, peer });
                    }
                }
                // A failed rank may have ended since: the cause of its failure counts.
                (_, Some(blame)) if blame.rank == rank => {
                    self.poison_once(|| self.failed_peer(peer, "it gave up on this rank".into()))
                }
                // Of a rank of another node, a neighbor may know more.
                (_, Some(blame)) if blame.died && self.is_elsewhere(blame.rank) => {
                    let peer = blame.rank;
                    let error = Error::PeerDied { rank, peer };
                    self.note_death(&error);
                    self.poison_once(|| error);
                }
                // A rank that has left did not die, though its process may have ended since.
                (_, Some(blame)) if self.is_dead(blame.rank) && !self.has_left(blame.rank) => {
                    self.poison_once(|| Error::PeerDied {
                        rank,
                        peer: blame.rank,
                    });
                }
                (_, blame) => {
                    // Its store's news say more of a rank of another node than the page of this node does.
                    if blame.is_some_and(|blame| self.is_elsewhere(blame.rank))
                        && let Some(error) = self.await_news()
                    {
                        self.poison_once(|| error);
                        continue;
                    }
                    let peer = self.control.origin(peer);
                    let reason = match self.control.state(peer).1 {
                        Some(blame) => format!("it gave up on rank {}", blame.rank),
                        None => "it failed or was aborted".into(),
                    };
                    self.poison_once(|| self.failed_peer(peer, reason));
                }
            }
        }
        // The store notices closed connections, also of processes that cannot be observed from here.
        if self.cause.get().is_none()
            && let Some(error) = self.news()
        {
            self.poison(error);
        }
        if let Some(wait) = self.host_waits.expired() {
            self.poison_once(|| Error::Timeout {
                rank: self.rank,
                peer: wait.peer,
                operation: "wait_signal",
                channel: wait.channel,
                expected: wait.value,
                seen: wait.seen(),
                waited: Some(wait.since.elapsed()),
            });
            wait.release();
        }
    }

    /// Makes a round if the watcher's is late.
    pub fn watch_if_late(&self) {
        let (now, last) = (self.milliseconds(), self.round.load(Ordering::Relaxed));
        if u128::from(now.saturating_sub(last)) < LATE.as_millis()
            || self.stopping.load(Ordering::Acquire)
        {
            return;
        }
        // One thread makes it.
        let taken = (self.round).compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_ok() {
            self.watch_once();
        }
    }

    fn milliseconds(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    fn poison_once(&self, cause: impl FnOnce() -> Error) {
        if self.cause.get().is_none() {
            self.poison(cause());
        }
    }

    /// Starts the watcher.
    ///
    /// # Errors
    /// The operating system's, if no thread can be started.
    pub fn start_watcher(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let health = self.clone();
        std::thread::Builder::new()
            .name("symmem-watcher".into())
            .spawn(move || {
                while !health.stopping.load(Ordering::Acquire) {
                    health.watch_once();
                    health.run_hooks();
                    std::thread::park_timeout(WATCH_INTERVAL);
                }
            })
    }

    /// Ends the watcher.
    pub fn stop_watcher(&self, watcher: JoinHandle<()>) {
        self.stopping.store(true, Ordering::Release);
        watcher.thread().unpark();
        // A panic of the watcher is ignored.
        let _ = watcher.join();
        self.bootstrap.store().rest();
        // The hooks hold the resources that they would end.
        lock(&self.on_poison).clear();
    }
}
