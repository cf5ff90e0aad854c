//! The store's thread in rank 0: sockets in, sockets out, one `poll` for all of them.
//!
//! No read or write blocks, so a stranger that connects and sends nothing delays no rank. The
//! [coordinator](super::coordinator) interprets requests.

use std::collections::BTreeMap;
use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::bootstrap::connection::{Connection, End};
use crate::bootstrap::coordinator::Coordinator;
use crate::bootstrap::coordinator::action::{Action, HOST, Token};
use crate::bootstrap::deadline::time_until;
use crate::bootstrap::handshake::HANDSHAKE_DEADLINE;
use crate::bootstrap::key::Key;
use crate::bootstrap::stream::{Listener, Stream};

/// Most connections that have not joined. Beyond this limit, the oldest of them is closed.
const MOST_STRANGERS: usize = 256;

/// Time to hand last messages to the kernel when the store ends.
const FLUSH_DEADLINE: Duration = Duration::from_secs(1);

/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(1);

/// Bytes read at a time.
const CHUNK: usize = 16 * 1024;

struct Server {
    listeners: Vec<Listener>,
    key: Key,
    /// Name of the abstract Unix socket to which ranks on TCP are redirected.
    name: String,
    coordinator: Coordinator,
    connections: BTreeMap<Token, Connection>,
    next_token: Token,
    /// Buffer for bytes before they are appended to a connection's.
    scratch: Box<[u8]>,
    uid: u32,
}

/// The thread of a store, which ends with rank 0's connection.
#[derive(Debug)]
pub(super) struct ServerThread(Option<JoinHandle<()>>);

impl ServerThread {
    /// Serves the job of `key` on `listeners`, whose Unix socket is named `name`. Also returns rank 0's
    /// connection.
    pub(super) fn start(
        listeners: Vec<Listener>,
        key: Key,
        name: String,
        coordinator: Coordinator,
    ) -> io::Result<(Self, Stream)> {
        let (own, of_rank_0) = Stream::pair()?;
        let server = Server {
            listeners,
            key,
            name,
            coordinator,
            connections: BTreeMap::from([(HOST, Connection::of_rank_0(own))]),
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
            self.close_silent(now);
            if let Err(error) = self.wait_and_serve() {
                tracing::error!(%error, "the store of rank 0 cannot poll its sockets and ends");
                break;
            }
        }
        self.flush();
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
                Action::StopListening => self.listeners.clear(),
                Action::Finish => finish = true,
            }
        }
        finish
    }

    fn close_silent(&mut self, now: Instant) {
        self.connections.retain(|_, connection| {
            let silent = connection.is_silent(now);
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
        for (index, events) in listeners.iter().enumerate() {
            if !events.is_empty() {
                self.accept(index);
            }
        }
        let now = Instant::now();
        for (&token, events) in tokens.iter().zip(connections) {
            if let Some(connection) = self.connections.get_mut(&token) {
                connection.resume(now);
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
                    // This process is probably out of descriptors: poll would report the waiting connection at
                    // once, so pause rather than spin.
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
            let mut strangers = self
                .connections
                .iter()
                .filter(|(_, connection)| connection.is_stranger())
                .map(|(&token, _)| token);
            // Tokens count up: the first is the oldest.
            let oldest = strangers.next();
            if let Some(oldest) = oldest.filter(|_| 1 + strangers.count() >= MOST_STRANGERS) {
                self.connections.remove(&oldest);
            }
            let token = self.next_token;
            self.next_token += 1;
            self.connections.insert(token, Connection::new(stream));
        }
    }

    /// Reads the bytes of connection `token` and acts on them.
    fn serve(&mut self, token: Token, now: Instant) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        let mut end = connection.read(&self.key, &mut self.scratch).err();
        // Requests that arrived before the end still count: a rank announces that it leaves, then closes.
        loop {
            match connection.next_request() {
                Ok(Some((request, message, beside))) => {
                    let onward = (!connection.carries_descriptors()).then_some(&*self.name);
                    match self
                        .coordinator
                        .handle(token, onward, request, message, beside, now)
                    {
                        Ok(()) => connection.has_joined(),
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
                Some(format!("sent the store an invalid message: {reason}"))
            }
        };
        self.connections.remove(&token);
        self.coordinator.disconnect(token, reason, now);
    }

    /// Hands the queues to the kernel, for at most a second.
    fn flush(&mut self) {
        let until = Instant::now() + FLUSH_DEADLINE;
        for connection in self.connections.values_mut() {
            connection.flush(until);
        }
    }
}
