//! A rank's end of its connection to the store: requests out, answers in.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::base::bootstrap_error::BootstrapError;
use crate::base::lock::lock;
use crate::bootstrap::deadline;
use crate::bootstrap::deadline::microseconds;
use crate::bootstrap::descriptors;
use crate::bootstrap::descriptors::Batch;
use crate::bootstrap::failure::Failure;
use crate::bootstrap::frame::{Frame, HEADER_BYTES, UNSOLICITED};
use crate::bootstrap::pulse::Pulse;
use crate::bootstrap::reply::Reply;
use crate::bootstrap::request::Request;
use crate::bootstrap::stream::Stream;

/// Time past a deadline for which a rank waits for rank 0 to name the missing ranks. If no answer comes, rank 0
/// itself is stopped or overloaded.
const VERDICT_GRACE: Duration = Duration::from_millis(500);

/// Most time that a pulse waits for a thread that is writing.
const WRITING: Duration = Duration::from_millis(1);

/// Interval at which a rank that waits for an answer checks whether the store has been silent for too long.
const SILENCE_INTERVAL: Duration = Duration::from_millis(100);

/// Bytes read at a time.
const CHUNK: usize = 16 * 1024;

/// Returns whether a call is still wanted.
pub(super) type StillWanted<'a> = &'a (dyn Fn() -> bool + Sync);

/// Interval at which a rank checks whether a rendezvous is still wanted.
pub(super) const WANTED_INTERVAL: Duration = Duration::from_millis(10);

/// A connection on which one request at a time waits for its answer.
#[derive(Debug)]
pub(super) struct Client {
    rank: u32,
    stream: Stream,
    /// Held while a frame is written, so that a failure can be reported while a collective waits.
    writing: Mutex<()>,
    /// A thread that panics while it holds this leaves at worst a reply unread.
    inbox: Mutex<Inbox>,
    /// Whether the connection lasts as long as the rank, whatever carries it: its end is rank 0's.
    lasts: bool,
    pulse: Pulse,
    /// Whether the pulse has ended for good. Held while a pulse is sent, so that none follows the end.
    rested: Mutex<bool>,
}

#[derive(Debug)]
struct Inbox {
    /// Buffer for bytes before they are appended to the others.
    scratch: Box<[u8]>,
    bytes: Vec<u8>,
    batches: VecDeque<Batch>,
    /// Number of the request last sent.
    request: u64,
    /// The reason why no call can succeed any more.
    failure: Option<Failure>,
    /// Whether the connection ended without such a reason from the store.
    ended: bool,
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
            ended: false,
        }
    }
}

impl Client {
    pub(super) fn new(rank: u32, stream: Stream) -> Self {
        Self {
            rank,
            stream,
            writing: Mutex::new(()),
            inbox: Mutex::new(Inbox::new()),
            lasts: false,
            pulse: Pulse::default(),
            rested: Mutex::default(),
        }
    }

    /// Makes the end of the connection mean that rank 0 has died.
    pub(super) fn last(&mut self) {
        self.lasts = true;
    }

    /// Returns the connection over TCP that is to blame if it ends, rather than rank 0.
    fn fragile(&self) -> Option<String> {
        self.stream.connection().filter(|_| !self.lasts)
    }

    /// Returns the host of this end, if it is connected over TCP.
    #[cfg(feature = "tcp")]
    pub(super) fn own_host(&self) -> Option<String> {
        self.stream.own_host()
    }

    pub(super) fn rank(&self) -> u32 {
        self.rank
    }

    /// Sends a request that has no answer. Blocks until `until` at most.
    pub(super) fn tell(&self, request: &Request, until: Instant) -> Result<(), Errno> {
        self.send(request, UNSOLICITED, None, until)
    }

    /// Sends a pulse if one is due. Does not block: if the store has not read for so long that nothing more can be
    /// sent, there is no pulse, and its silence counts.
    pub(super) fn beat(&self, silence: Duration) {
        let now = Instant::now();
        // Another thread is at it, or ends the pulse.
        let Ok(rested) = self.rested.try_lock() else {
            return;
        };
        if *rested || !self.pulse.is_due(silence, now) {
            return;
        }
        let request = Request::Pulse {
            silence: microseconds(silence),
        };
        // A connection that is gone is noticed when it is read.
        match self.stream.wait(PollFlags::OUT, now).unwrap_or(false)
            && self.tell(&request, now + WRITING).is_ok()
        {
            true => self.pulse.sent(silence, now),
            // Else a link that is cut while much is on its way would never be noticed.
            false => self.pulse.held_back(silence, now),
        }
    }

    /// Sends the next pulse if there were some and it is due.
    fn beat_again(&self) {
        if let Some(silence) = self.pulse.period() {
            self.beat(silence);
        }
    }

    /// Ends the pulse for good: the store does not wait for it any more.
    pub(super) fn rest(&self) {
        let mut rested = lock(&self.rested);
        *rested = true;
        if self.pulse.is_on() {
            self.pulse.end();
            let silence = 0;
            // A connection that is gone needs no end.
            let _ = self.tell(&Request::Pulse { silence }, Instant::now() + WRITING);
        }
    }

    /// Notes that the store is dead if it has been silent for too long. Returns whether it has. Called when all that has
    /// arrived has been read.
    fn end_silent(&self, inbox: &mut Inbox) -> bool {
        let silence = self.pulse.silence(Instant::now());
        if let Some(silence) = silence {
            self.end_of_silence(inbox, silence);
        }
        silence.is_some()
    }

    /// Notes that the store is dead, since it has been silent for so long.
    fn end_of_silence(&self, inbox: &mut Inbox, silence: Duration) {
        if inbox.failure.is_none() {
            tracing::warn!(
                rank = self.rank,
                ?silence,
                "nothing was heard from rank 0 for too long: its host has stopped or cannot be reached; raise \
                 SYMMEM_SILENCE if it was only slow"
            );
            inbox.failure = Some(Failure::Died { rank: 0 });
        }
    }

    /// Shuts the sending side down: the server sees an end even if a child inherited the socket by a fork.
    pub(super) fn shut_down(&self) {
        // A connection that is gone needs no end.
        let _ = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Write);
    }

    /// Returns whether the store's process ended without a word. Blocks while another thread is in a call.
    pub(super) fn has_ended(&self) -> bool {
        lock(&self.inbox).ended
    }

    /// Returns the error of every later call, if it is known. Does not block; while another thread is in a
    /// call, that call reports the failure, and this one returns `Ok`.
    pub(super) fn check(&self) -> Result<(), BootstrapError> {
        let Ok(mut inbox) = self.inbox.try_lock() else {
            return Ok(());
        };
        loop {
            if let Some(failure) = &inbox.failure {
                return Err(failure.clone().into_error(self.rank, "", Duration::ZERO));
            }
            // Replies here answer requests whose caller has given up.
            let found = self.next_reply(&mut inbox)?.is_some() || self.receive(&mut inbox);
            if !found && inbox.failure.is_none() && !self.end_silent(&mut inbox) {
                return Ok(());
            }
        }
    }

    /// Sends `request` and waits for its answer until `deadline` and a grace time, and only while it is
    /// `wanted`, which is checked at the interval beside.
    pub(super) fn call(
        &self,
        request: &Request,
        descriptor: Option<BorrowedFd<'_>>,
        awaited: &str,
        deadline: Duration,
        wanted: Option<(StillWanted<'_>, Duration)>,
    ) -> Result<(Reply, Option<Batch>), BootstrapError> {
        let start = Instant::now();
        let failed = |failure: Failure| failure.into_error(self.rank, awaited, start.elapsed());
        let mut inbox = lock(&self.inbox);
        if let Some(failure) = inbox.failure.clone() {
            return Err(failed(failure));
        }
        // Another thread's call may have held the lock for long, in which nothing was sent.
        let sending = Instant::now();
        inbox.request += 1;
        let number = inbox.request;
        let until = deadline::after(start, deadline) + VERDICT_GRACE;
        // A store that reads nothing is silent, and while a frame is half sent no pulse can tell.
        let allowed = self.pulse.allowed();
        let sent_until = allowed.map_or(until, |allowed| until.min(sending + allowed));
        match self.send(request, number, descriptor, sent_until) {
            Ok(()) => {}
            Err(Errno::TIMEDOUT) => {
                // Part of a frame may have been sent: nothing valid can follow it.
                let silence = sending.elapsed();
                if allowed.is_some() {
                    self.end_of_silence(&mut inbox, silence);
                    return Err(failed(Failure::Died { rank: 0 }));
                }
                let reason = format!("it has not read from its sockets for {silence:?}");
                inbox.failure = Some(Failure::Failed { rank: 0, reason });
                return Err(failed(self.unanswered(silence)));
            }
            // The reason, if rank 0 gave one, is still to be read.
            Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(error) if self.stream.connection().is_some() => {
                let connection = self.fragile();
                self.end(&mut inbox, connection, Some(error));
            }
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
            // The watcher sends pulses, but may be waiting for a processor.
            self.beat_again();
            if self.end_silent(&mut inbox) {
                continue;
            }
            let every = match (wanted, self.pulse.is_on()) {
                (Some((_, every)), _) => Some(every),
                (None, true) => Some(SILENCE_INTERVAL),
                (None, false) => None,
            };
            let wake = every.map_or(until, |every| until.min(Instant::now() + every));
            match self.stream.wait(PollFlags::IN, wake) {
                Ok(true) => {}
                Ok(false) if Instant::now() >= until => {
                    return Err(failed(self.unanswered(start.elapsed())));
                }
                Ok(false) if wanted.is_none_or(|(wanted, _)| wanted()) => {}
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
                    // The user has too many descriptors in flight; no event reports when there are fewer.
                    Err(Errno::TOOMANYREFS) if Instant::now() < until => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    other => break other?,
                }
            };
        }
        self.stream.send_all(&frame[sent..], until)
    }

    /// Takes the first complete reply to a request out of the received bytes. Unsolicited replies become
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
            reply => {
                if let Reply::Pulse = reply {
                    self.pulse.answered();
                }
                Ok(Some((number, reply, batch)))
            }
        }
    }

    /// Receives what has arrived, without blocking; returns `false` if nothing has. The end of the stream
    /// becomes `inbox.failure`.
    fn receive(&self, inbox: &mut Inbox) -> bool {
        let received = if self.stream.carries_descriptors() {
            descriptors::receive(&self.stream, &mut inbox.scratch, &mut inbox.batches)
        } else {
            self.stream.receive(&mut inbox.scratch)
        };
        match received {
            Ok(count) if count > 0 => {
                inbox.bytes.extend_from_slice(&inbox.scratch[..count]);
                true
            }
            Err(Errno::AGAIN) => false,
            result => {
                if inbox.failure.is_none() {
                    let altered = matches!(result, Err(Errno::BADMSG));
                    let connection = match altered {
                        true => self.stream.connection(),
                        false => self.fragile(),
                    };
                    self.end(inbox, connection, result.err());
                }
                false
            }
        }
    }

    /// Notes the end of the connection: that of a `connection` over TCP which is to blame, or rank 0's.
    fn end(&self, inbox: &mut Inbox, connection: Option<String>, error: Option<Errno>) {
        // What is cut over TCP says nothing about rank 0.
        inbox.ended = connection.is_none();
        inbox.failure = Some(match connection {
            None => {
                if let Some(error) = error {
                    tracing::warn!(
                        rank = self.rank, error = %io::Error::from(error),
                        "the connection to rank 0 broke: rank 0 has ended, or its host cannot be reached"
                    );
                }
                Failure::Died { rank: 0 }
            }
            Some(connection) => Failure::of_connection(connection, vec![self.rank], error),
        });
    }

    /// Returns why there is no answer after `elapsed`: over TCP, the question or the answer may have got lost.
    fn unanswered(&self, elapsed: Duration) -> Failure {
        match self.fragile() {
            // Its own store did not get to say who is missing: too many threads want to run.
            None if self.rank == 0 => Failure::TimedOut { missing: vec![] },
            None => Failure::TimedOut { missing: vec![0] },
            Some(connection) => Failure::ConnectionLost {
                connection,
                ranks: vec![self.rank],
                reason: format!("brought no answer within {elapsed:?}"),
            },
        }
    }

    /// Locks the writing half, or gives up at `until`: a thread in a collective may hold the lock for as
    /// long as rank 0 reads nothing, and a thread that reports a failure has less time than that.
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

    pub(super) fn malformed(&self, reason: &str) -> BootstrapError {
        BootstrapError::Malformed {
            rank: self.rank,
            reason: reason.to_owned(),
        }
    }

    pub(super) fn system(&self, call: &'static str, error: Errno) -> BootstrapError {
        BootstrapError::System {
            rank: self.rank,
            call,
            source: io::Error::from(error),
        }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
