//! The store's thread in rank 0: sockets in, sockets out, one `poll` for all of them.
//!
//! No read or write blocks, so a stranger that connects and sends nothing delays no rank. Ranks are served before new
//! connections are accepted, and only a few of those at a time, so neither do thousands of strangers. A connection that
//! has proved to be a rank's, or may believe that it has, is never closed for them. The [coordinator](super::coordinator) interprets requests.

use std::collections::BTreeMap;
use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::bootstrap::connection::{Connection, End, Standing};
use crate::bootstrap::coordinator::Coordinator;
use crate::bootstrap::coordinator::action::{Action, HOST, Token};
use crate::bootstrap::deadline::time_until;
use crate::bootstrap::failure::Failure;
use crate::bootstrap::handshake::verifier::Verifier;
use crate::bootstrap::key::Key;
use crate::bootstrap::request::Request;
use crate::bootstrap::strangers;
use crate::bootstrap::strangers::Refusals;
use crate::bootstrap::stream::{Listener, Stream};

/// Most connections that are accepted before all others are served again.
const MOST_ACCEPTED: usize = 64;

/// Time to hand last messages to the kernel when the store ends.
const FLUSH_DEADLINE: Duration = Duration::from_secs(1);

/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(1);

/// Bytes read at a time.
const CHUNK: usize = 16 * 1024;

struct Server {
    listeners: Vec<Listener>,
    verifier: Verifier,
    /// Name of the abstract Unix socket to which ranks on TCP are redirected.
    name: String,
    coordinator: Coordinator,
    connections: BTreeMap<Token, Connection>,
    next_token: Token,
    /// Most connections that have shown nothing of a rank's.
    most_strangers: usize,
    refusals: Refusals,
    /// Buffer for bytes before they are appended to a connection's.
    scratch: Box<[u8]>,
    uid: u32,
}

/// The thread of a store, which ends with rank 0's connection.
#[derive(Debug)]
pub(super) struct ServerThread(Option<JoinHandle<()>>);

impl ServerThread {
    /// Serves the job of `key`, of `world` ranks, on `listeners`, whose Unix socket is named `name`. Also returns rank
    /// 0's connection.
    pub(super) fn start(
        listeners: Vec<Listener>,
        key: Key,
        name: String,
        world: u32,
        coordinator: Coordinator,
    ) -> io::Result<(Self, Stream)> {
        let (own, of_rank_0) = Stream::pair()?;
        let server = Server {
            listeners,
            verifier: Verifier::new(key),
            name,
            coordinator,
            connections: BTreeMap::from([(HOST, Connection::of_rank_0(own))]),
            next_token: HOST + 1,
            most_strangers: strangers::limit(world),
            refusals: Refusals::default(),
            scratch: vec![0; CHUNK].into_boxed_slice(),
            uid: rustix::process::geteuid().as_raw(),
        };
        let thread = std::thread::Builder::new()
            .name("symmem-store".into())
            .spawn(move || server.run())?;
        Ok((Self(Some(thread)), of_rank_0))
    }
}

/// Waits until the store has sent its queue, for at most a second. Rank 0's connection must have been shut
/// down.
impl Drop for ServerThread {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // The thread does not panic; if it did, the ranks saw their connections close.
            let _ = thread.join();
        }
    }
}

impl Server {
    /// Serves until the store ends. Blocks.
    fn run(mut self) {
        loop {
            let now = Instant::now();
            self.coordinator.expire(now);
            if self.carry_out() {
                break;
            }
            self.report_refusals(now, false);
            if let Err(error) = self.wait_and_serve() {
                tracing::error!(%error, "the store of rank 0 cannot poll its sockets and ends");
                break;
            }
            // Now, and not before: what ranks sent while this process was stopped has been read.
            self.close_silent(now);
            self.coordinator.end_silent(now);
        }
        self.flush();
        self.report_refusals(Instant::now(), true);
    }

    /// Carries out the coordinator's decisions; returns true if the store ends.
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
                        connection.send(frame, descriptors);
                    }
                }
                Action::StopListening => self.close_doors(),
                Action::Finish => finish = true,
            }
        }
        finish
    }

    /// Accepts no more connections. Those that have not proved to be ranks' may be of the job's next rendezvous, and try
    /// again when they are closed.
    fn close_doors(&mut self) {
        self.listeners.clear();
        self.connections
            .retain(|_, connection| connection.standing() == Standing::Proved);
    }

    fn close_silent(&mut self, now: Instant) {
        let refusals = &mut self.refusals;
        self.connections.retain(|_, connection| {
            let silent = connection.is_silent(now);
            if silent {
                refusals.count("it sent no greeting in time", connection.name());
            }
            !silent
        });
    }

    fn report_refusals(&mut self, now: Instant, is_end: bool) {
        if let Some(line) = self.refusals.line(now, is_end) {
            tracing::warn!("rank 0: {line}");
        }
    }

    fn wait_and_serve(&mut self) -> Result<(), Errno> {
        let connection_deadlines = self
            .connections
            .values()
            .filter_map(Connection::next_deadline);
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
                .map(|connection| PollFd::new(connection, connection.events()));
            let mut polled: Vec<PollFd<'_>> = listeners.chain(connections).collect();
            match poll(&mut polled, Some(&time_until(deadline))) {
                Ok(_) => polled.iter().map(PollFd::revents).collect(),
                Err(Errno::INTR) => return Ok(()),
                Err(error) => return Err(error),
            }
        };
        let (listeners, connections) = ready.split_at(self.listeners.len());
        let now = Instant::now();
        for (&token, events) in tokens.iter().zip(connections) {
            if let Some(connection) = self.connections.get_mut(&token) {
                connection.resume(now);
                if !events.difference(PollFlags::OUT).is_empty() {
                    self.serve(token, now);
                }
            }
        }
        for (index, events) in listeners.iter().enumerate() {
            if !events.is_empty() {
                self.accept(index, now);
            }
        }
        Ok(())
    }

    /// Accepts connections that wait, up to a limit.
    fn accept(&mut self, index: usize, now: Instant) {
        for _ in 0..MOST_ACCEPTED {
            let stream = match self.listeners[index].accept() {
                Ok(stream) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if is_exhausted(&error) => {
                    let full = "rank 0's process could open no more file descriptors";
                    if !self.close_a_stranger(full) {
                        // Poll would report the waiting connection at once, so pause rather than spin.
                        self.refusals.count(full, None);
                        std::thread::sleep(ACCEPT_PAUSE);
                        return;
                    }
                    continue;
                }
                // It is gone again.
                Err(_) => {
                    self.refusals.count("it was closed at once", None);
                    continue;
                }
            };
            match stream.peer_uid() {
                Ok(Some(uid)) if uid != self.uid => {
                    let from = Some(format!("user {uid}"));
                    self.refusals.count("it belongs to another user", from);
                    continue;
                }
                Ok(_) => {}
                Err(_) => continue,
            }
            let connections = self.connections.values();
            let strangers = connections.filter(|one| one.standing() == Standing::Stranger);
            if strangers.count() >= self.most_strangers {
                self.close_a_stranger("newer ones needed its place");
            }
            let token = self.next_token;
            self.next_token += 1;
            self.connections.insert(token, Connection::new(stream));
            // A rank sends its greeting at once, so that it is often there already.
            self.serve(token, now);
        }
    }

    /// Closes the oldest connection that has shown nothing, if there is one.
    fn close_a_stranger(&mut self, reason: &'static str) -> bool {
        // Tokens count up: the first is the oldest.
        let mut connections = self.connections.iter();
        let oldest = connections.find(|(_, one)| one.standing() == Standing::Stranger);
        let Some(token) = oldest.map(|(&token, _)| token) else {
            return false;
        };
        if let Some(closed) = self.connections.remove(&token) {
            self.refusals.count(reason, closed.name());
        }
        true
    }

    /// Reads the bytes of connection `token` and acts on them.
    fn serve(&mut self, token: Token, now: Instant) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        let mut end = connection.read(&mut self.verifier, &mut self.scratch).err();
        // Requests that arrived before the end still count: a rank announces that it leaves, then closes.
        let mut has_left = false;
        loop {
            match connection.next_request() {
                Ok(Some((request, message, beside))) => {
                    has_left |= matches!(message, Request::Leave);
                    let onward = (!connection.carries_descriptors()).then_some(&*self.name);
                    if let Err(reason) = self
                        .coordinator
                        .handle(token, onward, request, message, beside, now)
                    {
                        end = Some(End::Violation(reason.to_owned()));
                        break;
                    }
                }
                Ok(None) => break,
                Err(reason) => {
                    end = Some(End::Violation(reason));
                    break;
                }
            }
        }
        if has_left && connection.name().is_some() {
            // Over TCP nothing follows a farewell, and whatever else comes is not the rank's.
            self.connections.remove(&token);
        } else if let Some(end) = end {
            self.close(token, end, now);
        }
    }

    /// Closes connection `token`, which has come to its `end`.
    fn close(&mut self, token: Token, end: End, now: Instant) {
        let Some(connection) = self.connections.remove(&token) else {
            return;
        };
        let has_proved = connection.standing() == Standing::Proved;
        // The connection of a rank that has joined is all that is known of its process.
        let has_joined = self.coordinator.has_joined(token);
        let name = connection.name().filter(|_| !has_joined);
        let ranks = self.coordinator.ranks_at(token);
        match (end, name) {
            (End::Refused(reason), name) => self.refusals.count(reason, name),
            (End::Closed(_), name) if !has_proved => {
                self.refusals.count("it was closed before it greeted", name);
            }
            // Over TCP no rank is to blame: anyone in between can cut the connection.
            (End::Closed(error), Some(name)) => {
                let failure = Failure::of_connection(name, ranks, error);
                self.coordinator.fail_rendezvous(failure, now);
            }
            (End::Closed(Some(Errno::BADMSG)), None) => {
                let reason = "its connection to the store carried bytes that it did not send";
                self.coordinator.disconnect(token, Some(reason.into()), now);
            }
            (End::Closed(_), None) => self.coordinator.disconnect(token, None, now),
            (End::Violation(reason), name) => {
                tracing::warn!(reason, "closed a connection to the store");
                let reason = format!("sent the store an invalid message: {reason}");
                match name {
                    Some(connection) => {
                        let failure = Failure::ConnectionLost {
                            connection,
                            ranks,
                            reason,
                        };
                        self.coordinator.fail_rendezvous(failure, now);
                    }
                    None => self.coordinator.disconnect(token, Some(reason), now),
                }
            }
        }
    }

    /// Hands the queues to the kernel, for at most a second.
    fn flush(&mut self) {
        let until = Instant::now() + FLUSH_DEADLINE;
        for connection in self.connections.values_mut() {
            connection.flush(until);
        }
    }
}

/// Returns whether `error` means that no descriptor or memory is left for a connection.
fn is_exhausted(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        code,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}
