//! The store's thread in rank 0: sockets in, sockets out, one `poll` for all of them.
//!
//! No read or write blocks, so a stranger who connects and says nothing delays nobody. What requests
//! mean is the [coordinator](super::coordinator)'s business.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::bootstrap::coordinator::{Action, Beside, Coordinator, HOST, Token, Transport};
use crate::bootstrap::descriptors;
use crate::bootstrap::descriptors::Batch;
use crate::bootstrap::handshake::{Challenge, HELLO_BYTES, PROOF_BYTES};
use crate::bootstrap::message::{Frame, HEADER_BYTES, MAX_BODY, Request};
use crate::bootstrap::secret::Secret;
use crate::bootstrap::stream::{Listener, Stream, time_until};

/// A connection that has not joined by then is closed.
pub(super) const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(5);

/// Most connections that have not joined. Where strangers crowd in, the one that has been silent for
/// longest is closed.
const MOST_STRANGERS: usize = 256;

/// Time to hand last messages to the kernel when the store ends.
const FLUSH_DEADLINE: Duration = Duration::from_secs(1);

/// Pause before a send is tried again that the kernel refused because too many descriptors are on
/// their way (`ETOOMANYREFS`); no event announces that there are fewer.
const DESCRIPTORS_IN_FLIGHT_PAUSE: Duration = Duration::from_millis(1);

/// Pause after a caller could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(1);

/// Bytes read at a time.
const CHUNK: usize = 16 * 1024;

/// How far a connection has come.
enum Phase {
    Greeting {
        hello: [u8; HELLO_BYTES],
        filled: usize,
    },
    Proving {
        challenge: Challenge,
        proof: [u8; PROOF_BYTES],
        filled: usize,
    },
    Trusted,
}

struct Outgoing {
    frame: Vec<u8>,
    sent: usize,
    descriptors: Option<Arc<Vec<OwnedFd>>>,
}

struct Connection {
    stream: Stream,
    phase: Phase,
    /// When it is closed unless it has joined.
    deadline: Option<Instant>,
    incoming: Vec<u8>,
    batches: VecDeque<Batch>,
    outgoing: VecDeque<Outgoing>,
    /// When to try again to send descriptors.
    paused: Option<Instant>,
}

/// Why a connection ends.
enum End {
    /// The other side closed it, or it broke.
    Closed,
    /// It sent what no rank sends.
    Violation(String),
}

struct Server {
    listeners: Vec<Listener>,
    secret: Secret,
    coordinator: Coordinator,
    connections: BTreeMap<Token, Connection>,
    next_token: Token,
    /// Where bytes are read to before they are appended to a connection's.
    scratch: Box<[u8]>,
    uid: u32,
}

/// The thread of a store, which ends with rank 0's connection.
#[derive(Debug)]
pub(super) struct ServerThread(Option<JoinHandle<()>>);

impl ServerThread {
    /// Serve the job with `secret` behind `listeners`; also the connection that rank 0 joins by.
    pub(super) fn start(
        listeners: Vec<Listener>,
        secret: Secret,
        coordinator: Coordinator,
    ) -> io::Result<(Self, Stream)> {
        let (own, of_rank_0) = Stream::pair()?;
        // Made here and handed over in this process: there is nothing to prove.
        let host = Connection {
            phase: Phase::Trusted,
            deadline: None,
            ..Connection::new(own)
        };
        let server = Server {
            listeners,
            secret,
            coordinator,
            connections: BTreeMap::from([(HOST, host)]),
            next_token: HOST + 1,
            scratch: vec![0; CHUNK].into_boxed_slice(),
            uid: rustix::process::geteuid().as_raw(),
        };
        let thread = std::thread::Builder::new()
            .name("symmem-store".into())
            .spawn(move || server.run())?;
        Ok((Self(Some(thread)), of_rank_0))
    }
}

/// Waits until the store has sent what is queued, a second at most. Rank 0's connection must have been
/// shut down.
impl Drop for ServerThread {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // The thread does not panic; if it did, the ranks saw their connections close.
            let _ = thread.join();
        }
    }
}

impl Server {
    /// Serve until the store ends. Blocks.
    fn run(mut self) {
        loop {
            let now = Instant::now();
            self.coordinator.expire(now);
            if self.carry_out() {
                break;
            }
            self.close_silent(now);
            if let Err(error) = self.wait_and_serve() {
                tracing::error!(%error, "the store of rank 0 cannot poll its sockets and ends");
                break;
            }
        }
        self.flush();
    }

    /// Do what the coordinator decided; true if the store ends.
    fn carry_out(&mut self) -> bool {
        let mut finish = false;
        for action in self.coordinator.take_actions() {
            match action {
                Action::Send {
                    to,
                    frame,
                    descriptors,
                } => {
                    if let Some(connection) = self.connections.get_mut(&to) {
                        connection.outgoing.push_back(Outgoing {
                            frame,
                            sent: 0,
                            descriptors,
                        });
                        // An error shows again, as an end, when the connection is read.
                        let _ = connection.send_queued();
                    }
                }
                Action::StopListening => self.listeners.clear(),
                Action::Finish => finish = true,
            }
        }
        finish
    }

    fn close_silent(&mut self, now: Instant) {
        self.connections.retain(|_, connection| {
            let silent = connection.deadline.is_some_and(|deadline| deadline <= now);
            if silent {
                tracing::warn!(
                    "closed a connection that did not join within {HANDSHAKE_DEADLINE:?}"
                );
            }
            !silent
        });
    }

    fn wait_and_serve(&mut self) -> Result<(), Errno> {
        let connection_deadlines = self
            .connections
            .values()
            .flat_map(|connection| [connection.deadline, connection.paused])
            .flatten();
        let deadline = self
            .coordinator
            .next_deadline()
            .into_iter()
            .chain(connection_deadlines)
            .min();
        let tokens: Vec<Token> = self.connections.keys().copied().collect();
        let ready: Vec<PollFlags> = {
            let listeners = self
                .listeners
                .iter()
                .map(|listener| PollFd::new(listener, PollFlags::IN));
            let connections = self
                .connections
                .values()
                .map(|connection| PollFd::new(&connection.stream, connection.events()));
            let mut polled: Vec<PollFd<'_>> = listeners.chain(connections).collect();
            match poll(&mut polled, Some(&time_until(deadline))) {
                Ok(_) => polled.iter().map(PollFd::revents).collect(),
                Err(Errno::INTR) => return Ok(()),
                Err(error) => return Err(error),
            }
        };
        let (listeners, connections) = ready.split_at(self.listeners.len());
        for (index, events) in listeners.iter().enumerate() {
            if !events.is_empty() {
                self.accept(index);
            }
        }
        let now = Instant::now();
        for (&token, events) in tokens.iter().zip(connections) {
            if let Some(connection) = self.connections.get_mut(&token) {
                if connection.paused.is_some_and(|until| until <= now) {
                    connection.paused = None;
                }
                let _ = connection.send_queued();
                if !events.difference(PollFlags::OUT).is_empty() {
                    self.serve(token, now);
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self, index: usize) {
        loop {
            let stream = match self.listeners[index].accept() {
                Ok(stream) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    // Most likely this process is out of descriptors: poll will say at once that a
                    // caller still waits, so pause rather than spin.
                    tracing::warn!(%error, "could not accept a connection to the store");
                    std::thread::sleep(ACCEPT_PAUSE);
                    return;
                }
            };
            match stream.peer_uid() {
                Ok(Some(uid)) if uid != self.uid => {
                    tracing::warn!(uid, "refused a connection of another user");
                    continue;
                }
                Ok(_) => {}
                Err(_) => continue,
            }
            let strangers = self
                .connections
                .values()
                .filter(|connection| connection.deadline.is_some());
            if strangers.count() >= MOST_STRANGERS {
                let oldest = self
                    .connections
                    .iter()
                    .find(|(_, connection)| connection.deadline.is_some());
                if let Some((&oldest, _)) = oldest {
                    self.connections.remove(&oldest);
                }
            }
            let token = self.next_token;
            self.next_token += 1;
            self.connections.insert(token, Connection::new(stream));
        }
    }

    /// Read what connection `token` has sent and act on it.
    fn serve(&mut self, token: Token, now: Instant) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        let mut end = connection.read(&self.secret, &mut self.scratch).err();
        // What arrived before the end still counts: a rank says that it leaves, then closes.
        loop {
            match connection.next_request() {
                Ok(Some((request, message, beside))) => {
                    let transport = connection.stream.transport;
                    match self
                        .coordinator
                        .handle(token, transport, request, message, beside, now)
                    {
                        Ok(()) => connection.deadline = None,
                        Err(reason) => {
                            end = Some(End::Violation(reason.to_owned()));
                            break;
                        }
                    }
                }
                Ok(None) => break,
                Err(reason) => {
                    end = Some(End::Violation(reason));
                    break;
                }
            }
        }
        let reason = match end {
            None => return,
            Some(End::Closed) => None,
            Some(End::Violation(reason)) => {
                tracing::warn!(reason, "closed a connection to the store");
                Some(format!(
                    "sent the store what it does not understand: {reason}"
                ))
            }
        };
        self.connections.remove(&token);
        self.coordinator.disconnect(token, reason, now);
    }

    /// Hand what is queued to the kernel, for a second at most.
    fn flush(&mut self) {
        let until = Instant::now() + FLUSH_DEADLINE;
        for connection in self.connections.values_mut() {
            while connection.send_queued().is_ok() && !connection.outgoing.is_empty() {
                if connection.paused.take().is_some() {
                    std::thread::sleep(DESCRIPTORS_IN_FLIGHT_PAUSE);
                }
                if !connection
                    .stream
                    .wait(PollFlags::OUT, until)
                    .unwrap_or(false)
                    || Instant::now() >= until
                {
                    break;
                }
            }
        }
    }
}

impl Connection {
    fn new(stream: Stream) -> Self {
        Self {
            stream,
            phase: Phase::Greeting {
                hello: [0; HELLO_BYTES],
                filled: 0,
            },
            deadline: Some(Instant::now() + HANDSHAKE_DEADLINE),
            incoming: Vec::new(),
            batches: VecDeque::new(),
            outgoing: VecDeque::new(),
            paused: None,
        }
    }

    fn events(&self) -> PollFlags {
        if self.outgoing.is_empty() || self.paused.is_some() {
            PollFlags::IN
        } else {
            PollFlags::IN | PollFlags::OUT
        }
    }

    /// Read what is there, as far as the phase allows: nothing of a message before the proof.
    fn read(&mut self, secret: &Secret, scratch: &mut [u8]) -> Result<(), End> {
        // One message's worth at a time, so that one rank cannot occupy the store.
        while self.incoming.len() < HEADER_BYTES + MAX_BODY {
            let received = match &mut self.phase {
                Phase::Greeting { hello, filled } => {
                    let received = self.stream.receive(&mut hello[*filled..]);
                    *filled += received.unwrap_or(0);
                    if *filled == hello.len() {
                        let challenge = Challenge::new(hello).ok_or_else(|| {
                            End::Violation("its first bytes are no greeting".into())
                        })?;
                        let frame = challenge.bytes(secret).to_vec();
                        self.outgoing.push_back(Outgoing {
                            frame,
                            sent: 0,
                            descriptors: None,
                        });
                        self.phase = Phase::Proving {
                            challenge,
                            proof: [0; PROOF_BYTES],
                            filled: 0,
                        };
                        self.send_queued().map_err(|_| End::Closed)?;
                    }
                    received
                }
                Phase::Proving {
                    challenge,
                    proof,
                    filled,
                } => {
                    let received = self.stream.receive(&mut proof[*filled..]);
                    *filled += received.unwrap_or(0);
                    if *filled == proof.len() {
                        if !challenge.is_met(secret, proof) {
                            return Err(End::Violation("it does not know the job's secret".into()));
                        }
                        self.phase = Phase::Trusted;
                    }
                    received
                }
                Phase::Trusted => self.receive_message_bytes(scratch),
            };
            match received {
                Ok(0) => return Err(End::Closed),
                // There is rarely more, and poll tells if there is.
                Ok(count) if count < scratch.len() && matches!(self.phase, Phase::Trusted) => {
                    return Ok(());
                }
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(_) => return Err(End::Closed),
            }
        }
        Ok(())
    }

    fn receive_message_bytes(&mut self, scratch: &mut [u8]) -> Result<usize, Errno> {
        let received = match self.stream.transport {
            Transport::Unix => descriptors::receive(&self.stream, scratch, &mut self.batches),
            Transport::Tcp => self.stream.receive(scratch),
        }?;
        self.incoming.extend_from_slice(&scratch[..received]);
        Ok(received)
    }

    /// Take the first complete request off what was read.
    fn next_request(&mut self) -> Result<Option<(u64, Request, Beside)>, String> {
        let Some(frame) = Frame::parse(&self.incoming).map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let message = Request::parse(frame.kind, frame.body).map_err(|error| error.to_string())?;
        let (request, announced) = (frame.request, frame.descriptors);
        let taken = HEADER_BYTES + frame.body.len();
        self.incoming.drain(..taken);
        let beside = match (announced, message_takes_descriptor(&message)) {
            (0, _) => Beside::Nothing,
            (1, true) => {
                let batch = self
                    .batches
                    .pop_front()
                    .ok_or("a descriptor that was announced and is not there")?;
                let mut descriptors = batch.descriptors.into_iter();
                match (descriptors.next(), batch.truncated) {
                    (Some(descriptor), false) => Beside::Descriptor(descriptor),
                    (None, true) | (Some(_), true) => Beside::Lost,
                    (None, false) => return Err("an empty batch of descriptors".into()),
                }
            }
            _ => {
                return Err(format!(
                    "{announced} descriptors beside a message that takes none or one"
                ));
            }
        };
        if self.batches.len() > 1 {
            return Err("descriptors that no message announced".into());
        }
        Ok(Some((request, message, beside)))
    }

    /// Send what the kernel takes of the queue.
    fn send_queued(&mut self) -> Result<(), Errno> {
        while let Some(first) = self.outgoing.front_mut() {
            if self.paused.is_some() {
                return Ok(());
            }
            let rest = &first.frame[first.sent..];
            let sent = match first.descriptors.as_ref().filter(|_| first.sent == 0) {
                Some(batch) => {
                    let borrowed: Vec<_> = batch.iter().map(AsFd::as_fd).collect();
                    descriptors::send(&self.stream, rest, &borrowed)
                }
                None => self.stream.send(rest),
            };
            match sent {
                Ok(count) => first.sent += count,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::TOOMANYREFS) => {
                    self.paused = Some(Instant::now() + DESCRIPTORS_IN_FLIGHT_PAUSE);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            if first.sent == first.frame.len() {
                self.outgoing.pop_front();
            }
        }
        Ok(())
    }
}

fn message_takes_descriptor(message: &Request) -> bool {
    matches!(message, Request::AllGather { .. })
}
