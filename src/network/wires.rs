//! The connections of one rank to the ranks of other nodes.

use super::fault::{Cause, Fault};
use super::inbox::Inbox;
use super::message::{Header, IDENTIFIER, kind};
use super::staging::{Staging, of_backend};
use crate::base::limits::{BARRIER_CHANNELS, CHANNELS};
use crate::base::lock::lock;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use symmem_ucx::{Endpoint, Operation, Poll, RemoteKey, Worker};
use zerocopy::IntoBytes;

/// Turns of progress in one step: a busy connection must not keep a queue's next command waiting.
const TURNS: usize = 16;

/// A peer's copy of an allocation.
pub struct Remote {
    /// The key.
    pub key: RemoteKey,
    /// Its address at the peer.
    pub base: u64,
}

struct Connection {
    endpoint: Endpoint,
    /// Number of messages sent that the peer acknowledges.
    sent: u64,
    /// Signals given, by channel.
    given: [u32; CHANNELS as usize],
    /// Messages that UCX has not taken yet.
    sends: VecDeque<Operation>,
}

/// The connections, the keys of peers' memory, and what has arrived.
pub struct Wires {
    /// This rank.
    pub rank: usize,
    session: u64,
    // Keys and endpoints end before the worker.
    keys: HashMap<u64, Vec<Option<Remote>>>,
    connections: Vec<Option<Connection>>,
    /// What has arrived, shared with the worker's handler.
    pub inbox: Arc<Mutex<Inbox>>,
    /// The ranks that take part in barriers among nodes, one of each node.
    pub leaders: Vec<usize>,
    /// Barriers begun, by channel.
    pub barriers: [u32; BARRIER_CHANNELS as usize],
    requests: u64,
    /// Legs begun, by key.
    legs: HashMap<u64, u64>,
    /// What GPU memory is sent with; `None` if UCX reaches this rank's memory.
    staging: Option<Staging>,
    /// Holds the data of a message while UCX copies it.
    data: Vec<u8>,
    worker: Arc<Worker>,
}

impl Wires {
    /// Takes a worker, and connects it to the peers whose addresses are given, by rank. Connections are made in the
    /// background.
    ///
    /// # Errors
    /// UCX's.
    pub fn new(
        rank: usize,
        session: u64,
        worker: Arc<Worker>,
        addresses: &[Option<Vec<u8>>],
        inbox: Inbox,
        leaders: Vec<usize>,
    ) -> Result<Self, Fault> {
        let inbox = Arc::new(Mutex::new(inbox));
        let shared = inbox.clone();
        let handler =
            Box::new(move |header: &[u8], data: &[u8]| lock(&shared).handle(header, data));
        worker
            .on_message(IDENTIFIER, handler)
            .map_err(|failure| Fault::of_connection(rank, failure))?;
        let connect = |(peer, address): (usize, &Option<Vec<u8>>)| {
            let Some(address) = address else {
                return Ok(None);
            };
            let endpoint = worker.connect(peer as u32, address);
            Ok(Some(Connection {
                endpoint: endpoint.map_err(|failure| Fault::of_connection(peer, failure))?,
                sent: 0,
                given: [0; CHANNELS as usize],
                sends: VecDeque::new(),
            }))
        };
        let connections = addresses.iter().enumerate().map(connect);
        Ok(Self {
            rank,
            session,
            keys: HashMap::new(),
            connections: connections.collect::<Result<_, _>>()?,
            inbox,
            leaders,
            barriers: [0; BARRIER_CHANNELS as usize],
            requests: 0,
            legs: HashMap::new(),
            staging: None,
            data: Vec::new(),
            worker,
        })
    }

    /// Sends GPU memory with this from here on.
    pub fn stage(&mut self, staging: Staging) {
        self.staging = Some(staging);
    }

    /// Returns whether this rank's memory is a GPU's, which is staged.
    pub fn is_staged(&self) -> bool {
        self.staging.is_some()
    }

    /// Returns what GPU memory is sent with.
    ///
    /// # Errors
    /// A fault of this rank if its memory is the host's.
    pub fn staging(&mut self) -> Result<&mut Staging, Fault> {
        let rank = self.rank;
        self.staging.as_mut().ok_or_else(|| Fault {
            peer: rank,
            operation: "transfer",
            bytes: None,
            cause: Cause::Text("it does not stage memory".into()),
        })
    }

    /// Returns whether copies are under way, of which no event tells.
    pub fn awaits_device(&self) -> bool {
        let staging = self.staging.as_ref();
        staging
            .is_some_and(|staging| staging.copies.is_pending() || lock(&self.inbox).is_delivering())
    }

    /// Advances what peers have sent to GPU memory. Returns whether anything happened.
    fn advance_device(&mut self) -> Result<bool, Fault> {
        let Some(staging) = &mut self.staging else {
            return Ok(false);
        };
        let checked = staging.copies.check();
        checked.map_err(|failure| of_backend(self.rank, failure))?;
        Ok(lock(&self.inbox).settle())
    }

    fn connection(&mut self, peer: usize) -> Result<&mut Connection, Fault> {
        let connection = self.connections.get_mut(peer).and_then(Option::as_mut);
        connection.ok_or_else(|| Fault {
            peer,
            operation: "connection",
            bytes: None,
            cause: Cause::Text("it is not connected".into()),
        })
    }

    /// Returns the ranks of other nodes.
    pub fn peers(&self) -> Vec<usize> {
        let ranks = 0..self.connections.len();
        ranks
            .filter(|&rank| self.connections[rank].is_some())
            .collect()
    }

    /// Reads the keys of an allocation's copies, by rank.
    ///
    /// # Errors
    /// UCX's, if no transport can use one.
    pub fn add_keys(
        &mut self,
        number: u64,
        copies: &[Option<(u64, Vec<u8>)>],
    ) -> Result<(), Fault> {
        let mut keys = Vec::new();
        for (peer, copy) in copies.iter().enumerate() {
            keys.push(match copy {
                None => None,
                Some((base, packed)) => {
                    let key = self.connection(peer)?.endpoint.unpack(packed);
                    Some(Remote {
                        key: key.map_err(|failure| Fault::of_connection(peer, failure))?,
                        base: *base,
                    })
                }
            });
        }
        self.keys.insert(number, keys);
        Ok(())
    }

    /// Forgets the keys of an allocation's copies, and tells their owners.
    pub fn give_up(&mut self, number: u64) {
        if self.keys.remove(&number).is_none() {
            return;
        }
        let header = Header {
            kind: kind::GIVEN_UP,
            number,
            ..Header::default()
        };
        for peer in self.peers() {
            // A peer to which nothing can be sent is gone, or the next step reports it.
            let _ = self.send(peer, header, None);
        }
    }

    /// Sends a message, with data from `(address, bytes)` of this rank's memory.
    ///
    /// # Errors
    /// UCX's.
    pub fn send(
        &mut self,
        peer: usize,
        header: Header,
        data: Option<(u64, usize)>,
    ) -> Result<(), Fault> {
        let header = Header {
            session: self.session,
            source: self.rank as u32,
            acknowledged: lock(&self.inbox).acknowledge(peer),
            ..header
        };
        let mut copy = std::mem::take(&mut self.data);
        copy.clear();
        if let Some((address, bytes)) = data {
            copy.reserve(bytes);
            let from = std::ptr::with_exposed_provenance::<u8>(address as usize);
            // SAFETY: the command's memory is live until it is complete, and the copy has room. Peers may write to the
            // source, so no reference is made to it.
            unsafe {
                from.copy_to_nonoverlapping(copy.as_mut_ptr(), bytes);
                copy.set_len(bytes);
            }
        }
        let connection = self.connection(peer)?;
        let sent = connection
            .endpoint
            .send(IDENTIFIER, header.as_bytes(), &copy);
        let operation = sent.map_err(|failure| Fault::of_connection(peer, failure))?;
        if matches!(operation.poll(), Poll::Pending) {
            connection.sends.push_back(operation);
        }
        self.data = copy;
        Ok(())
    }

    /// Sends a message that the peer acknowledges. Returns the count of acknowledgements that covers it.
    ///
    /// # Errors
    /// UCX's.
    pub fn send_acknowledged(
        &mut self,
        peer: usize,
        header: Header,
        data: Option<(u64, usize)>,
    ) -> Result<u64, Fault> {
        self.send(peer, header, data)?;
        let connection = self.connection(peer)?;
        connection.sent += 1;
        Ok(connection.sent)
    }

    /// Counts a signal to a peer, and returns its value.
    pub fn next_signal(&mut self, peer: usize, channel: u32) -> Result<u32, Fault> {
        let given = &mut self.connection(peer)?.given[channel as usize];
        *given = given.wrapping_add(1);
        Ok(*given)
    }

    /// Counts a leg of a key, and returns its number.
    pub fn next_leg(&mut self, key: u64) -> u64 {
        let count = self.legs.entry(key).or_default();
        *count += 1;
        *count
    }

    /// Returns an identifier for a request.
    pub fn next_request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    fn remote(&self, peer: usize, number: u64) -> Result<(&Endpoint, &Remote), Fault> {
        let remote = self
            .keys
            .get(&number)
            .and_then(|keys| keys.get(peer)?.as_ref());
        let connection = self.connections.get(peer).and_then(Option::as_ref);
        match (connection, remote) {
            (Some(connection), Some(remote)) => Ok((&connection.endpoint, remote)),
            _ => Err(Fault {
                peer,
                operation: "transfer",
                bytes: None,
                cause: Cause::Text(format!("allocation {number} has no key of its memory")),
            }),
        }
    }

    /// Starts to copy bytes of this rank's memory into a peer's copy of an allocation.
    ///
    /// # Errors
    /// UCX's.
    ///
    /// # Safety
    /// The source is live until the operation is complete; the range is inside of the peer's copy, which is registered.
    pub unsafe fn put(
        &self,
        peer: usize,
        (number, offset): (u64, u64),
        from: u64,
        bytes: u64,
    ) -> Result<Operation, Fault> {
        let (endpoint, remote) = self.remote(peer, number)?;
        let source = std::ptr::with_exposed_provenance(from as usize);
        // SAFETY: guaranteed by the caller.
        let put =
            unsafe { endpoint.put(source, bytes as usize, remote.base + offset, &remote.key) };
        put.map_err(|failure| Fault::of_connection(peer, failure))
    }

    /// Starts to copy bytes of a peer's copy of an allocation into this rank's memory.
    ///
    /// # Errors
    /// UCX's.
    ///
    /// # Safety
    /// The destination is live, and nobody else uses it, until the operation is complete; the range is inside of the
    /// peer's copy, which is registered.
    pub unsafe fn get(
        &self,
        peer: usize,
        (number, offset): (u64, u64),
        to: u64,
        bytes: u64,
    ) -> Result<Operation, Fault> {
        let (endpoint, remote) = self.remote(peer, number)?;
        let destination = std::ptr::with_exposed_provenance_mut(to as usize);
        // SAFETY: guaranteed by the caller.
        let get = unsafe {
            endpoint.get(
                destination,
                bytes as usize,
                remote.base + offset,
                &remote.key,
            )
        };
        get.map_err(|failure| Fault::of_connection(peer, failure))
    }

    /// Starts to flush a connection: earlier puts have then arrived.
    ///
    /// # Errors
    /// UCX's.
    pub fn flush(&mut self, peer: usize) -> Result<Operation, Fault> {
        let flush = self.connection(peer)?.endpoint.flush();
        flush.map_err(|failure| Fault::of_connection(peer, failure))
    }

    /// Lets the worker send and receive, answers what has arrived, and looks for failures. Returns whether anything
    /// happened. Does not block.
    ///
    /// # Errors
    /// The failure of a connection, unless the peer has left in good order, and a message that makes no sense.
    pub fn progress(&mut self) -> Result<bool, Fault> {
        let mut moved = false;
        for _ in 0..TURNS {
            if !self.worker.progress() {
                break;
            }
            moved = true;
        }
        moved |= self.advance_device()?;
        if moved {
            self.answer()?;
        }
        for (peer, connection) in self.connections.iter_mut().enumerate() {
            let Some(connection) = connection else {
                continue;
            };
            while let Some(operation) = connection.sends.front() {
                match operation.poll() {
                    Poll::Pending => break,
                    // The endpoint has failed too, which is reported below.
                    Poll::Done | Poll::Failed(_) => drop(connection.sends.pop_front()),
                }
            }
            if let Some(failure) = connection.endpoint.failure()
                && !lock(&self.inbox).has_departed(peer)
            {
                return Err(Fault::of_connection(peer, failure));
            }
        }
        if let Some((peer, cause)) = lock(&self.inbox).fault() {
            return Err(Fault {
                peer: *peer,
                operation: "message",
                bytes: None,
                cause: cause.clone(),
            });
        }
        Ok(moved)
    }

    /// Sends the answers to what has arrived.
    fn answer(&mut self) -> Result<(), Fault> {
        let outbox = lock(&self.inbox).take_outbox();
        for (peer, header) in outbox {
            self.send(peer, header, None)?;
        }
        let due: Vec<usize> = lock(&self.inbox).due().collect();
        for peer in due {
            let header = Header {
                kind: kind::ACKNOWLEDGE,
                ..Header::default()
            };
            self.send(peer, header, None)?;
        }
        Ok(())
    }

    /// Tells the peers that this rank leaves in good order.
    pub fn say_farewell(&mut self) {
        let header = Header {
            kind: kind::FAREWELL,
            ..Header::default()
        };
        for peer in self.peers() {
            // A peer to which nothing can be sent is gone.
            let _ = self.send(peer, header, None);
        }
    }

    /// Returns whether UCX has messages or operations that are not complete.
    pub fn is_busy(&self) -> bool {
        let mut connections = self.connections.iter().flatten();
        connections.any(|connection| !connection.sends.is_empty())
    }

    /// Closes the connections by force, which ends all operations. Nobody's memory is used any more once the returned
    /// operations are complete.
    pub fn close(&mut self) -> Vec<Operation> {
        self.keys.clear();
        let connections = self.connections.iter_mut().filter_map(Option::take);
        connections
            .map(|connection| connection.endpoint.close(true))
            .collect()
    }

    /// Returns the worker.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }
}
