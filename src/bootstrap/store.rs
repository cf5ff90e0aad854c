//! A rank's connection to the store of its job.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::bootstrap::coordinator::Transport;
use crate::bootstrap::descriptors;
use crate::bootstrap::descriptors::Batch;
use crate::bootstrap::error::BootstrapError;
use crate::bootstrap::message::{
    Failure, Frame, HEADER_BYTES, MAX_BODY, MAX_NAME, Reply, Request, UNSOLICITED, payload_limit,
};
use crate::bootstrap::server::ServerThread;
use crate::bootstrap::stream::Stream;

/// How long past a deadline a rank waits for rank 0 to say who was missing. When even that does not
/// come, rank 0 itself is stopped or overloaded.
const VERDICT_GRACE: Duration = Duration::from_millis(500);

/// Time to tell the store that this rank leaves or fails.
const FAREWELL_DEADLINE: Duration = Duration::from_secs(1);

/// Bytes read at a time.
const CHUNK: usize = 16 * 1024;

/// Says whether a rendezvous still makes sense.
pub(super) type Wanted<'a> = &'a (dyn Fn() -> bool + Sync);

/// How often that is asked.
const WANTED_INTERVAL: Duration = Duration::from_millis(10);

/// What a rank gave to an all-gather.
#[derive(Debug)]
pub struct Contribution {
    /// Its bytes.
    pub payload: Vec<u8>,
    /// Its file descriptor, now this process's own: close-on-exec, closed on drop.
    pub descriptor: Option<OwnedFd>,
}

/// Blocking exchange of small messages between all ranks of a job, through rank 0.
///
/// Collectives are called by all ranks in the same order, from one thread of a rank at a time: a
/// second thread waits for the first. Every call returns by its deadline (at most half a second
/// later, if rank 0 does not answer). Once a rank has died, failed or, for rank 0, left, all calls
/// of all ranks fail at once with that reason.
#[derive(Debug)]
pub struct Store {
    rank: u32,
    world: u32,
    stream: Stream,
    /// Held while a frame is written, so that a failure can be told while a collective waits.
    writing: Mutex<()>,
    inbox: Mutex<Inbox>,
    /// Rank 0 holds the store itself.
    server: Option<ServerThread>,
}

#[derive(Debug)]
struct Inbox {
    /// Where bytes are read to before they are appended to the others.
    scratch: Box<[u8]>,
    bytes: Vec<u8>,
    batches: VecDeque<Batch>,
    /// Number of the request last sent.
    request: u64,
    /// Why no call can succeed any more.
    failure: Option<Failure>,
}

impl Inbox {
    fn new() -> Self {
        let scratch = vec![0; CHUNK].into_boxed_slice();
        Self {
            scratch,
            bytes: Vec::new(),
            batches: VecDeque::new(),
            request: 0,
            failure: None,
        }
    }
}

impl Store {
    pub(super) fn new(rank: u32, world: u32, stream: Stream, server: Option<ServerThread>) -> Self {
        Self {
            rank,
            world,
            stream,
            writing: Mutex::new(()),
            inbox: Mutex::new(Inbox::new()),
            server,
        }
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Ranks in the job.
    pub fn world(&self) -> u32 {
        self.world
    }

    /// Most bytes that a rank can give to one all-gather: 1 MiB is shared by all ranks.
    pub fn payload_limit(&self) -> usize {
        payload_limit(self.world)
    }

    /// Every rank's payload, by rank, at every rank. Collective under `tag`; blocks until all ranks
    /// have come.
    ///
    /// # Errors
    /// - [`BootstrapError::Timeout`] names the ranks that had not come; this rank's payload is
    ///   withdrawn, so the call can be repeated.
    /// - [`BootstrapError::PeerDied`], [`BootstrapError::PeerFailed`], [`BootstrapError::PeerLeft`].
    /// - [`BootstrapError::TagMismatch`] if all ranks wait, but not for the same tag.
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

    /// Like [`Store::all_gather`], with a file descriptor beside the payload where a rank gives one.
    ///
    /// Each rank receives a duplicate of every descriptor, its own included. Descriptors of a
    /// collective that does not complete are closed.
    ///
    /// # Errors
    /// As [`Store::all_gather`], and [`BootstrapError::DescriptorLost`] where a process is at its
    /// limit of open files.
    pub fn all_gather_with_descriptors(
        &self,
        tag: &str,
        payload: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
        deadline: Duration,
    ) -> Result<Vec<Contribution>, BootstrapError> {
        self.check_size("a payload", payload.len(), self.payload_limit())?;
        self.check_size("a tag", tag.len(), MAX_NAME)?;
        let request = Request::AllGather {
            tag: tag.to_owned(),
            payload: payload.to_owned(),
            deadline: microseconds(deadline),
        };
        let awaited = format!("collective {tag:?}");
        let (reply, batch) = self.call(&request, descriptor, &awaited, deadline)?;
        let Reply::Gathered { parts } = reply else {
            return Err(self.unexpected(&reply));
        };
        if parts.len() != self.world as usize {
            return Err(self.malformed("a gather of another size than the world"));
        }
        let mut descriptors = batch
            .map(|batch| batch.descriptors)
            .unwrap_or_default()
            .into_iter();
        let contributions = parts.into_iter().zip(0..).map(|(part, owner)| {
            let descriptor = if part.has_descriptor {
                let lost = BootstrapError::DescriptorLost {
                    owner,
                    receiver: self.rank,
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

    /// Wait until every rank has come to the barrier `tag`.
    ///
    /// # Errors
    /// As [`Store::all_gather`].
    pub fn barrier(&self, tag: &str, deadline: Duration) -> Result<(), BootstrapError> {
        self.all_gather(tag, &[], deadline).map(drop)
    }

    /// Keep `value` under `key` for all ranks, in place of what was there. Waits for rank 0 only.
    ///
    /// # Errors
    /// [`BootstrapError::TooLarge`], [`BootstrapError::Timeout`], and those of a failed job.
    pub fn set(&self, key: &str, value: &[u8], deadline: Duration) -> Result<(), BootstrapError> {
        self.check_size("a key", key.len(), MAX_NAME)?;
        self.check_size("a value", value.len(), MAX_BODY - 1024)?;
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

    /// The value under `key`; waits until a rank has set it.
    ///
    /// # Errors
    /// [`BootstrapError::Timeout`], and those of a failed job.
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

    /// Add `amount` to the counter under `key`, which starts at 0, and return the sum. The counter
    /// wraps, and is kept as 8 little-endian bytes. Waits for rank 0 only.
    ///
    /// # Errors
    /// [`BootstrapError::NotACounter`], [`BootstrapError::Timeout`], and those of a failed job.
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

    /// Tell all ranks that this one cannot go on: their pending and later calls, and this rank's own,
    /// fail with [`BootstrapError::PeerFailed`]. Returns without waiting for them, also while another
    /// thread of this rank is in a collective.
    ///
    /// # Errors
    /// [`BootstrapError::System`] if rank 0 cannot be reached any more.
    pub fn fail(&self, reason: &str) -> Result<(), BootstrapError> {
        let end = (0..=reason.len().min(64 * 1024))
            .rev()
            .find(|&end| reason.is_char_boundary(end))
            .unwrap_or(0);
        let request = Request::Fail {
            reason: reason[..end].to_owned(),
        };
        let sent = self.send(
            &request,
            UNSOLICITED,
            None,
            Instant::now() + FAREWELL_DEADLINE,
        );
        sent.map_err(|error| self.system("sending to the store", error))
    }

    /// Whether the job has failed, without blocking: for a thread that watches over peers.
    ///
    /// While another thread is in a call that call reports the failure, and this one returns `Ok`.
    /// The store's descriptor ([`AsFd`]) becomes readable when there may be news.
    ///
    /// # Errors
    /// What every later call of this rank will fail with.
    pub fn check(&self) -> Result<(), BootstrapError> {
        let Ok(mut inbox) = self.inbox.try_lock() else {
            return Ok(());
        };
        loop {
            if let Some(failure) = &inbox.failure {
                return Err(BootstrapError::from_failure(
                    failure.clone(),
                    self.rank,
                    "",
                    Duration::ZERO,
                ));
            }
            // Replies here answer requests whose caller has given up.
            let found = self.next_reply(&mut inbox)?.is_some() || self.receive(&mut inbox);
            if !found && inbox.failure.is_none() {
                return Ok(());
            }
        }
    }

    /// Send `request` and wait for its answer.
    fn call(
        &self,
        request: &Request,
        descriptor: Option<BorrowedFd<'_>>,
        awaited: &str,
        deadline: Duration,
    ) -> Result<(Reply, Option<Batch>), BootstrapError> {
        self.call_while(request, descriptor, awaited, deadline, None)
    }

    /// As [`Store::call`], while the answer is wanted at all.
    fn call_while(
        &self,
        request: &Request,
        descriptor: Option<BorrowedFd<'_>>,
        awaited: &str,
        deadline: Duration,
        wanted: Option<Wanted<'_>>,
    ) -> Result<(Reply, Option<Batch>), BootstrapError> {
        let start = Instant::now();
        let failed =
            |failure| BootstrapError::from_failure(failure, self.rank, awaited, start.elapsed());
        let mut inbox = self.lock_inbox();
        if let Some(failure) = inbox.failure.clone() {
            return Err(failed(failure));
        }
        inbox.request += 1;
        let number = inbox.request;
        let far = Duration::from_secs(100 * 365 * 24 * 3600);
        let until = start + deadline.min(far) + VERDICT_GRACE;
        match self.send(request, number, descriptor, until) {
            Ok(()) => {}
            Err(Errno::TIMEDOUT) => {
                // Part of a frame may be out: nothing sensible can follow it.
                let reason = format!("it has not read from its sockets for {:?}", start.elapsed());
                inbox.failure = Some(Failure::Failed { rank: 0, reason });
                return Err(failed(Failure::TimedOut { missing: vec![0] }));
            }
            // The reason, if rank 0 gave one, is still to be read.
            Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(error) => return Err(self.system("sending to the store", error)),
        }
        loop {
            match self.next_reply(&mut inbox)? {
                Some((to, Reply::Failure(failure), _)) if to == number => {
                    return Err(failed(failure));
                }
                Some((to, reply, batch)) if to == number => return Ok((reply, batch)),
                // An answer to a call that has given up; its descriptors are closed here.
                Some(_) => continue,
                None => {}
            }
            if let Some(failure) = inbox.failure.clone() {
                return Err(failed(failure));
            }
            if self.receive(&mut inbox) {
                continue;
            }
            let wake = wanted.map_or(until, |_| until.min(Instant::now() + WANTED_INTERVAL));
            match self.stream.wait(PollFlags::IN, wake) {
                Ok(true) => {}
                Ok(false) if Instant::now() >= until => {
                    return Err(failed(Failure::TimedOut { missing: vec![0] }));
                }
                Ok(false) if wanted.is_none_or(|wanted| wanted()) => {}
                Ok(false) => return Err(BootstrapError::CalledOff { rank: self.rank }),
                Err(error) => return Err(self.system("waiting for the store", error)),
            }
        }
    }

    fn send(
        &self,
        request: &Request,
        number: u64,
        descriptor: Option<BorrowedFd<'_>>,
        until: Instant,
    ) -> Result<(), Errno> {
        let frame = request.encode(number, u16::from(descriptor.is_some()));
        let _writing = self.lock_writing(until)?;
        let mut sent = 0;
        if descriptor.is_some() {
            sent = loop {
                match descriptors::send(&self.stream, &frame, descriptor.as_slice()) {
                    Err(Errno::AGAIN) => {
                        if !self.stream.wait(PollFlags::OUT, until)? {
                            return Err(Errno::TIMEDOUT);
                        }
                    }
                    // The user has too many descriptors on their way; no event tells when there are
                    // fewer.
                    Err(Errno::TOOMANYREFS) if Instant::now() < until => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    other => break other?,
                }
            };
        }
        self.stream.send_all(&frame[sent..], until)
    }

    /// Take the first complete reply to a request off what was received. Unsolicited ones become
    /// `inbox.failure`.
    fn next_reply(
        &self,
        inbox: &mut Inbox,
    ) -> Result<Option<(u64, Reply, Option<Batch>)>, BootstrapError> {
        let Some(frame) =
            Frame::parse(&inbox.bytes).map_err(|error| self.malformed(&error.to_string()))?
        else {
            return Ok(None);
        };
        let reply = Reply::parse(frame.kind, frame.body)
            .map_err(|error| self.malformed(&error.to_string()))?;
        let (number, announced) = (frame.request, frame.descriptors);
        let taken = HEADER_BYTES + frame.body.len();
        inbox.bytes.drain(..taken);
        let batch = if announced > 0 {
            inbox.batches.pop_front()
        } else {
            None
        };
        match reply {
            Reply::Failure(failure) if number == UNSOLICITED => {
                inbox.failure.get_or_insert(failure);
                Ok(None)
            }
            reply => Ok(Some((number, reply, batch))),
        }
    }

    /// Take in what has arrived, without blocking; `false` if nothing has. The end of the stream
    /// becomes `inbox.failure`.
    fn receive(&self, inbox: &mut Inbox) -> bool {
        let received = match self.stream.transport {
            Transport::Unix => {
                descriptors::receive(&self.stream, &mut inbox.scratch, &mut inbox.batches)
            }
            Transport::Tcp => self.stream.receive(&mut inbox.scratch),
        };
        match received {
            Ok(count) if count > 0 => {
                inbox.bytes.extend_from_slice(&inbox.scratch[..count]);
                true
            }
            Err(Errno::AGAIN) => false,
            Ok(_) | Err(_) => {
                inbox.failure.get_or_insert(Failure::Died { rank: 0 });
                false
            }
        }
    }

    /// A thread in a collective may hold it for as long as rank 0 reads nothing: who has less time,
    /// to tell of a failure, does not wait for that.
    fn lock_writing(&self, until: Instant) -> Result<MutexGuard<'_, ()>, Errno> {
        loop {
            match self.writing.try_lock() {
                Ok(guard) => return Ok(guard),
                Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() >= until => {
                    return Err(Errno::TIMEDOUT);
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(200)),
            }
        }
    }

    fn lock_inbox(&self) -> MutexGuard<'_, Inbox> {
        // A panic while it was held left at worst a reply unread.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_size(
        &self,
        what: &'static str,
        size: usize,
        limit: usize,
    ) -> Result<(), BootstrapError> {
        if size > limit {
            return Err(BootstrapError::TooLarge {
                rank: self.rank,
                what,
                size,
                limit,
            });
        }
        Ok(())
    }

    fn unexpected(&self, reply: &Reply) -> BootstrapError {
        self.malformed(&format!("an answer to another question: {reply:?}"))
    }

    fn malformed(&self, reason: &str) -> BootstrapError {
        BootstrapError::Malformed {
            rank: self.rank,
            reason: reason.to_owned(),
        }
    }

    fn system(&self, call: &'static str, error: Errno) -> BootstrapError {
        BootstrapError::System {
            rank: self.rank,
            call,
            source: io::Error::from(error),
        }
    }

    /// Join the store and wait for all others.
    pub(super) fn join(
        &self,
        request: &Request,
        deadline: Duration,
        wanted: Option<Wanted<'_>>,
    ) -> Result<Reply, BootstrapError> {
        self.call_while(request, None, "the rendezvous", deadline, wanted)
            .map(|(reply, _)| reply)
    }
}

impl AsFd for Store {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Leaves the job. On rank 0 that ends the store, after a second at most. A rank that is panicking
/// does not leave: to the others it has died.
impl Drop for Store {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // A store that is gone needs no goodbye.
            let _ = self.send(
                &Request::Leave,
                UNSOLICITED,
                None,
                Instant::now() + FAREWELL_DEADLINE,
            );
        }
        // Tells the server even where a child inherited the socket by a fork.
        let _ = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Write);
        // Before the socket closes: the others hear that rank 0 left rather than see an end.
        drop(self.server.take());
    }
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
