//! A rank's connection to the store of its job.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::base::bootstrap_error::BootstrapError;
use crate::base::fork_mark::ForkMark;
use crate::base::shortened::shortened;
use crate::bootstrap::client::{Client, StillWanted, WANTED_INTERVAL};
use crate::bootstrap::deadline::microseconds;
use crate::bootstrap::descriptors::Batch;
use crate::bootstrap::peer::PeerInformation;
use crate::bootstrap::reply::Reply;
use crate::bootstrap::request::{MAX_NAME, MAX_REASON, MAX_VALUE, Request, payload_limit};
use crate::bootstrap::server::ServerThread;
use crate::bootstrap::stream::Stream;

/// Time to notify the store that this rank leaves or fails.
const FAREWELL_DEADLINE: Duration = Duration::from_secs(1);

/// Interval at which a rank that waits in a collective checks whether its peers' processes run.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A rank's contribution to an all-gather.
#[derive(Debug)]
pub struct Contribution {
    /// Its bytes.
    pub payload: Vec<u8>,
    /// Its file descriptor, now this process's own: close-on-exec, closed on drop.
    pub descriptor: Option<OwnedFd>,
}

/// Blocking exchange of small messages between all ranks of a job, through rank 0.
///
/// All ranks must call the collectives in the same order, from one thread of a rank at a time: a second thread
/// waits for the first. Every call returns by its deadline (at most half a second later, if rank 0 does not
/// answer). Once a rank has died or failed, or rank 0 has left, all calls of all ranks fail at once with that
/// reason; if rank 0 is stopped, collectives fail within 0.1 s of a death, and other calls at their deadline.
///
/// In a fork of the process that connected, every call is [`BootstrapError::Forked`], and the drop does nothing.
#[derive(Debug)]
pub struct Store {
    client: Client,
    process: Arc<ForkMark>,
    world: u32,
    /// All ranks, once they have met.
    peers: Vec<PeerInformation>,
    /// The store's thread, on rank 0 only.
    server: Option<ServerThread>,
}

impl Store {
    pub(super) fn new(rank: u32, world: u32, stream: Stream, server: Option<ServerThread>) -> Self {
        Self {
            client: Client::new(rank, stream),
            process: Arc::new(ForkMark::new()),
            world,
            peers: Vec::new(),
            server,
        }
    }

    /// Shows the store that this rank is alive, and notices if the store is not, after `silence`. Called several times
    /// within that time; does not block.
    pub(crate) fn beat(&self, silence: Duration) {
        if !self.process.is_fork() {
            self.client.beat(silence);
        }
    }

    /// Ends what [`Store::beat`] began.
    pub(crate) fn rest(&self) {
        if !self.process.is_fork() {
            self.client.rest();
        }
    }

    /// Makes the end of the connection mean that rank 0 has died: for ranks that may be on several nodes, which keep it.
    pub(super) fn lasting(mut self) -> Self {
        self.client.last();
        self
    }

    /// Returns the host of this end, if it is connected over TCP.
    #[cfg(feature = "tcp")]
    pub(super) fn own_host(&self) -> Option<String> {
        self.client.own_host()
    }

    /// Makes collectives end when the process of one of `peers` has.
    pub(super) fn among(mut self, peers: &[PeerInformation]) -> Self {
        self.peers = peers.to_vec();
        self
    }

    /// Returns this rank.
    pub fn rank(&self) -> u32 {
        self.client.rank()
    }

    /// Returns the number of ranks in the job.
    pub fn world(&self) -> u32 {
        self.world
    }

    /// Returns the mark of the process that connected.
    pub(crate) fn process(&self) -> &Arc<ForkMark> {
        &self.process
    }

    /// Refuses a call in a fork, which shares the socket with its parent: each would read the other's answers.
    fn check_process(&self) -> Result<(), BootstrapError> {
        match self.process.is_fork() {
            false => Ok(()),
            true => Err(BootstrapError::Forked {
                rank: self.client.rank(),
                owner: self.process.owner(),
            }),
        }
    }

    /// Returns the most bytes that a rank can contribute to one all-gather: all ranks share 1 MiB.
    pub fn payload_limit(&self) -> usize {
        payload_limit(self.world)
    }

    /// Returns every rank's payload, in rank order. Collective under `tag`; blocks until all ranks have come,
    /// for at most `deadline`.
    ///
    /// # Errors
    /// - [`BootstrapError::Timeout`] names the ranks that had not come; this rank's payload is
    ///   withdrawn, so the call can be repeated.
    /// - [`BootstrapError::PeerDied`], [`BootstrapError::PeerFailed`], [`BootstrapError::PeerLeft`].
    /// - [`BootstrapError::TagMismatch`] if all ranks wait, but not all for the same tag.
    /// - [`BootstrapError::TooLarge`] above [`Store::payload_limit`].
    pub fn all_gather(
        &self,
        tag: &str,
        payload: &[u8],
        deadline: Duration,
    ) -> Result<Vec<Vec<u8>>, BootstrapError> {
        let parts = self.all_gather_with_descriptors(tag, payload, None, deadline)?;
        Ok(parts.into_iter().map(|part| part.payload).collect())
    }

    /// Gathers as [`Store::all_gather`] does, with an optional file descriptor beside each rank's payload.
    ///
    /// Each rank receives a duplicate of every descriptor, its own included. Descriptors of a
    /// collective that does not complete are closed.
    ///
    /// # Errors
    /// As [`Store::all_gather`]; [`BootstrapError::DescriptorLost`] if a process is at its limit of open files.
    pub fn all_gather_with_descriptors(
        &self,
        tag: &str,
        payload: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
        deadline: Duration,
    ) -> Result<Vec<Contribution>, BootstrapError> {
        self.gather_while(tag, payload, descriptor, deadline, &|| true)
    }

    /// Gathers as [`Store::all_gather_with_descriptors`] does, but waits only while it is `wanted`, which is checked ten
    /// times a second.
    ///
    /// # Errors
    /// As [`Store::all_gather`]; [`BootstrapError::CalledOff`] once it is not wanted.
    pub(super) fn gather_while(
        &self,
        tag: &str,
        payload: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
        deadline: Duration,
        wanted: StillWanted<'_>,
    ) -> Result<Vec<Contribution>, BootstrapError> {
        self.check_size("a payload", payload.len(), self.payload_limit())?;
        self.check_size("a tag", tag.len(), MAX_NAME)?;
        let request = Request::AllGather {
            tag: tag.to_owned(),
            payload: payload.to_owned(),
            deadline: microseconds(deadline),
        };
        let awaited = format!("collective {tag:?}");
        let (reply, batch) = self.call_all(&request, descriptor, awaited, (deadline, wanted))?;
        let Reply::Gathered { parts } = reply else {
            return Err(self.unexpected(&reply));
        };
        if parts.len() != self.world as usize {
            return Err(self
                .client
                .malformed("the number of contributions differs from the world size"));
        }
        let mut descriptors = batch
            .map(|batch| batch.descriptors)
            .unwrap_or_default()
            .into_iter();
        let contributions = parts.into_iter().zip(0..).map(|(part, owner)| {
            let descriptor = if part.has_descriptor {
                let lost = BootstrapError::DescriptorLost {
                    owner,
                    receiver: self.client.rank(),
                };
                Some(descriptors.next().ok_or(lost)?)
            } else {
                None
            };
            Ok(Contribution {
                payload: part.payload,
                descriptor,
            })
        });
        contributions.collect()
    }

    /// Blocks until every rank has come to the barrier `tag`, for at most `deadline`.
    ///
    /// # Errors
    /// As [`Store::all_gather`].
    pub fn barrier(&self, tag: &str, deadline: Duration) -> Result<(), BootstrapError> {
        self.all_gather(tag, &[], deadline).map(drop)
    }

    /// Stores `value` under `key` for all ranks, in place of the previous value. Blocks until rank 0 answers,
    /// for at most `deadline`.
    ///
    /// # Errors
    /// [`BootstrapError::TooLarge`], [`BootstrapError::Timeout`], and those of a failed job.
    pub fn set(&self, key: &str, value: &[u8], deadline: Duration) -> Result<(), BootstrapError> {
        self.check_size("a key", key.len(), MAX_NAME)?;
        self.check_size("a value", value.len(), MAX_VALUE)?;
        let request = Request::Set {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        match self
            .call(
                &request,
                None,
                &format!("the store to set {key:?}"),
                deadline,
            )?
            .0
        {
            Reply::Done => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Returns the value under `key`. Blocks until a rank has set it, for at most `deadline`.
    ///
    /// # Errors
    /// [`BootstrapError::TooLarge`], [`BootstrapError::Timeout`], and those of a failed job.
    pub fn get(&self, key: &str, deadline: Duration) -> Result<Vec<u8>, BootstrapError> {
        self.check_size("a key", key.len(), MAX_NAME)?;
        let request = Request::Get {
            key: key.to_owned(),
            deadline: microseconds(deadline),
        };
        match self
            .call(&request, None, &format!("key {key:?}"), deadline)?
            .0
        {
            Reply::Value { bytes } => Ok(bytes),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Adds `amount` to the counter under `key`, which starts at 0, and returns the sum. The counter wraps, and
    /// is stored as 8 little-endian bytes. Blocks until rank 0 answers, for at most `deadline`.
    ///
    /// # Errors
    /// [`BootstrapError::NotACounter`], [`BootstrapError::TooLarge`], [`BootstrapError::Timeout`], and those of a
    /// failed job.
    pub fn add(&self, key: &str, amount: i64, deadline: Duration) -> Result<i64, BootstrapError> {
        self.check_size("a key", key.len(), MAX_NAME)?;
        let request = Request::Add {
            key: key.to_owned(),
            amount,
        };
        match self
            .call(
                &request,
                None,
                &format!("the store to add to {key:?}"),
                deadline,
            )?
            .0
        {
            Reply::Sum { value } => Ok(value),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Reports to all ranks that this one cannot continue: their pending and later calls, and this rank's own,
    /// fail with [`BootstrapError::PeerFailed`]. Does not wait for the other ranks, and can be called while
    /// another thread of this rank is in a collective.
    ///
    /// # Errors
    /// [`BootstrapError::System`] if rank 0 cannot be reached any more.
    pub fn fail(&self, reason: &str) -> Result<(), BootstrapError> {
        let reason = shortened(reason, MAX_REASON).to_owned();
        self.tell(&Request::Fail { reason })
    }

    /// Reports to all ranks that this one cannot continue, since `rank` has died, or failed for `reason`: their calls fail
    /// with [`BootstrapError::PeerDied`] or [`BootstrapError::PeerFailed`] of that rank. Otherwise as [`Store::fail`].
    ///
    /// # Errors
    /// As [`Store::fail`].
    pub(crate) fn blame(&self, rank: u32, died: bool, reason: &str) -> Result<(), BootstrapError> {
        let reason = shortened(reason, MAX_REASON).to_owned();
        self.tell(&Request::Blame { rank, died, reason })
    }

    fn tell(&self, request: &Request) -> Result<(), BootstrapError> {
        self.check_process()?;
        let sent = (self.client).tell(request, Instant::now() + FAREWELL_DEADLINE);
        sent.map_err(|error| self.client.system("sending to the store", error))
    }

    /// Checks whether the job has failed. Does not block: for a thread that watches over peers.
    ///
    /// While another thread is in a call, that call reports the failure, and this one returns `Ok`. The store's
    /// descriptor ([`AsFd`]) becomes readable when there may be news.
    ///
    /// # Errors
    /// The error of every later call of this rank.
    pub fn check(&self) -> Result<(), BootstrapError> {
        self.check_process()?;
        self.client.check()
    }

    /// Sends `request` and waits for its answer.
    fn call(
        &self,
        request: &Request,
        descriptor: Option<BorrowedFd<'_>>,
        awaited: &str,
        deadline: Duration,
    ) -> Result<(Reply, Option<Batch>), BootstrapError> {
        self.check_process()?;
        (self.client).call(request, descriptor, awaited, deadline, None)
    }

    /// Calls as [`Store::call`] does, for a collective, which cannot complete once a peer's process has ended. Rank 0
    /// learns of that end by itself and answers with the reason, unless it is stopped.
    fn call_all(
        &self,
        request: &Request,
        descriptor: Option<BorrowedFd<'_>>,
        awaited: String,
        (deadline, wanted): (Duration, StillWanted<'_>),
    ) -> Result<(Reply, Option<Batch>), BootstrapError> {
        self.check_process()?;
        let dead = OnceLock::new();
        let can_complete = || {
            if !wanted() {
                return false;
            }
            let mut peers = self.peers.iter();
            let rank_0 = peers.next().filter(|rank_0| rank_0.process.is_stopped());
            let ended = rank_0.and_then(|_| peers.find(|peer| !peer.process.is_alive()));
            ended.is_none_or(|peer| dead.set(peer.rank).is_err())
        };
        let watch = Some((&can_complete as StillWanted<'_>, LOOK_INTERVAL));
        let called = (self.client).call(request, descriptor, &awaited, deadline, watch);
        match (called, dead.get()) {
            (Err(BootstrapError::CalledOff { .. }), Some(&peer)) => {
                Err(BootstrapError::PeerDied { peer, awaited })
            }
            (called, _) => called,
        }
    }

    fn check_size(
        &self,
        what: &'static str,
        size: usize,
        limit: usize,
    ) -> Result<(), BootstrapError> {
        if size > limit {
            return Err(BootstrapError::TooLarge {
                rank: self.client.rank(),
                what,
                size,
                limit,
            });
        }
        Ok(())
    }

    fn unexpected(&self, reply: &Reply) -> BootstrapError {
        self.client.malformed(&format!(
            "a reply that does not match the request: {reply:?}"
        ))
    }

    /// Returns whether rank 0's process ended without a word.
    pub(super) fn has_ended(&self) -> bool {
        self.client.has_ended()
    }

    /// Joins the store and waits for all other ranks.
    pub(super) fn join(
        &self,
        request: &Request,
        deadline: Duration,
        wanted: Option<StillWanted<'_>>,
    ) -> Result<Reply, BootstrapError> {
        let wanted = wanted.map(|wanted| (wanted, WANTED_INTERVAL));
        (self.client)
            .call(request, None, "the rendezvous", deadline, wanted)
            .map(|(reply, _)| reply)
    }
}

impl AsFd for Store {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.client.as_fd()
    }
}

/// Leaves the job. On rank 0 this ends the store, within a second. A rank that is panicking does not leave: it
/// counts as dead. A fork does nothing: the socket is its parent's, and the store's thread does not run in it.
impl Drop for Store {
    fn drop(&mut self) {
        if self.process.is_fork() {
            std::mem::forget(self.server.take());
            return;
        }
        if !std::thread::panicking() {
            // A store that is gone needs no notice.
            let _ = (self.client).tell(&Request::Leave, Instant::now() + FAREWELL_DEADLINE);
        }
        self.client.shut_down();
        // Before the socket closes: the others must learn that rank 0 left, not see an end.
        drop(self.server.take());
    }
}
