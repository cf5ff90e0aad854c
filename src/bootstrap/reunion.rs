//! A reunion: the survivors of a job over nodes agree which ranks are gone, though rank 0 and its store may be.
//!
//! Each rank listens at an address that all know from the start. Of the ranks that are not known to be gone the lowest
//! leads: it gathers what the others know, and tells all the union. An address where nobody listens is that of a rank
//! whose process has ended, and one that does not answer is that of a host that cannot be reached. So a rank that looks for
//! its leader, or a leader that awaits a rank, learns that it is gone. The kernel answers for a process that is stopped, or
//! that has not begun to rebuild: it is awaited until the deadline.

use std::collections::BTreeMap;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::base::bootstrap_error::BootstrapError;
use crate::base::lock::lock;
use crate::base::placement::Placement;
use crate::base::rank_set::{RankSet, WORDS};
use crate::bootstrap::client::Client;
use crate::bootstrap::connection::Connection;
use crate::bootstrap::coordinator::action::{HOST, Token};
use crate::bootstrap::deadline::time_until;
use crate::bootstrap::environment::LaunchEnvironment;
use crate::bootstrap::handshake;
use crate::bootstrap::handshake::verifier::Verifier;
use crate::bootstrap::key::Key;
use crate::bootstrap::reply::Reply;
use crate::bootstrap::request::Request;
use crate::bootstrap::store::Store;
use crate::bootstrap::stream::{Address, Listener, Stream};

/// Tag of the step in which ranks tell where they listen.
const ADDRESSES: &str = "reunion/addresses";

/// What a rank awaits.
const AWAITED: &str = "all survivors to call rebuild";

/// Interval at which a rank checks what has changed.
const LOOK: Duration = Duration::from_millis(50);

/// Time that the leader has to hand its last answers to the kernel.
const FLUSH: Duration = Duration::from_secs(1);

/// Where the ranks of a job listen for its reunion.
#[derive(Debug)]
pub(crate) struct Reunion {
    rank: u32,
    key: Key,
    /// By rank.
    addresses: Vec<String>,
    /// This rank's listener. It stays open as long as the job: a closed port means that this rank is gone.
    listener: Mutex<Listener>,
}

/// What a rank knows of the others while it agrees.
pub(crate) struct Survey<'a> {
    pub placement: &'a Placement,
    /// Returns whether a rank of this node is gone.
    pub is_lost: &'a (dyn Fn(usize) -> bool + Sync),
    /// Time after which a host that does not answer cannot be reached.
    pub silence: Duration,
    pub until: Instant,
}

impl Survey<'_> {
    /// Returns `gone`, with the ranks of the node of rank `own` that are.
    fn with_lost(&self, gone: RankSet, own: usize) -> RankSet {
        let others = (self.placement.node_members(own).iter()).filter(|&&rank| rank != own);
        let lost = others.filter(|&&rank| (self.is_lost)(rank));
        lost.fold(gone, |gone, &rank| gone.with(rank))
    }
}

impl Reunion {
    /// Listens at a free port, and learns where the others do. Collective over all ranks of the job. Returns `None` on
    /// all ranks if a rank has no address that others can reach, since the job did not meet by TCP.
    pub(super) fn prepare(
        store: &Store,
        environment: &LaunchEnvironment,
        deadline: Duration,
    ) -> Result<Option<Self>, BootstrapError> {
        let rank = environment.rank;
        let system = |source| BootstrapError::System {
            rank,
            call: "listening for the survivors of a failure",
            source,
        };
        let host = match rank {
            0 => environment
                .address
                .as_deref()
                .and_then(|address| address.rsplit_once(':'))
                .map(|(host, _)| host.to_owned()),
            _ => store.own_host(),
        };
        let mut listener = None;
        let mut address = String::new();
        if let (Some(host), Some(_)) = (host, &environment.secret) {
            let (bound, at) = bind(&host).map_err(system)?;
            (address, listener) = (at, Some(bound));
        }
        let addresses = store.all_gather(ADDRESSES, address.as_bytes(), deadline)?;
        let addresses: Vec<String> = addresses
            .into_iter()
            .map(|address| String::from_utf8_lossy(&address).into_owned())
            .collect();
        let (Some(secret), Some(listener)) = (environment.secret.clone(), listener) else {
            return Ok(None);
        };
        let all_can_be_reached = addresses.iter().all(|address| !address.is_empty());
        Ok(all_can_be_reached.then_some(Self {
            rank,
            key: Key::Secret(secret),
            addresses,
            listener: Mutex::new(listener),
        }))
    }

    /// Agrees with all survivors on the ranks that are gone, and where the others meet; `gone` is what this rank knows.
    /// Blocks until all have come, until the deadline at most.
    ///
    /// # Errors
    /// [`BootstrapError::Timeout`] names ranks that are alive and did not come; [`BootstrapError::CalledOff`] if another
    /// survivor takes this rank for gone.
    pub(crate) fn agree(
        &self,
        mut gone: RankSet,
        survey: &Survey<'_>,
    ) -> Result<Agreed, BootstrapError> {
        let start = Instant::now();
        let own = self.rank as usize;
        loop {
            gone = survey.with_lost(gone, own);
            let leader = (0..self.addresses.len()).find(|&rank| !gone.contains(rank));
            let leader = leader.unwrap_or(own);
            let agreed = match leader == own {
                true => Some(self.lead(gone, survey, start)?),
                false => self.follow(leader, gone, survey, start)?,
            };
            match agreed {
                Some(agreed) if agreed.gone.contains(own) => {
                    return Err(BootstrapError::CalledOff { rank: self.rank });
                }
                Some(agreed) => return Ok(agreed),
                None => gone = gone.with(leader),
            }
        }
    }

    fn timeout(&self, missing: Vec<u32>, start: Instant) -> BootstrapError {
        BootstrapError::Timeout {
            rank: self.rank,
            awaited: AWAITED.into(),
            missing,
            elapsed: start.elapsed(),
            source: None,
        }
    }

    // ---- one that follows ----

    /// Tells the leader what this rank knows, and returns what all agreed on; `None` if the leader is gone.
    fn follow(
        &self,
        leader: usize,
        gone: RankSet,
        survey: &Survey<'_>,
        start: Instant,
    ) -> Result<Option<Agreed>, BootstrapError> {
        let missing = || vec![leader as u32];
        let address = &self.addresses[leader];
        let is_lost =
            || survey.placement.share_node(leader, self.rank as usize) && (survey.is_lost)(leader);
        if is_gone(address, survey.silence) || is_lost() {
            return Ok(None);
        }
        let address = Address::Tcp(address.clone());
        let Ok(mut stream) = Stream::connect(&address, survey.until) else {
            // It listened just now.
            return Ok(None);
        };
        match handshake::greet(&mut stream, &self.key, survey.until) {
            Ok(true) => {}
            Err(Errno::TIMEDOUT) => return Err(self.timeout(missing(), start)),
            // Its port is another's now, or it has ended.
            Ok(false) | Err(_) => return Ok(None),
        }
        let mut client = Client::new(self.rank, stream);
        client.last();
        let request = Request::Set {
            key: self.rank.to_string(),
            value: bytes_of(gone),
        };
        let left = survey.until.saturating_duration_since(Instant::now());
        let wanted = || !is_lost();
        match client.call(&request, None, AWAITED, left, Some((&wanted, LOOK))) {
            Ok((Reply::Value { bytes }, _)) => match Agreed::parse(&bytes) {
                Some(agreed) => Ok(Some(agreed)),
                None => Err(client.malformed("a set of ranks of another length")),
            },
            Ok((other, _)) => Err(client.malformed(&format!("{other:?} at a reunion"))),
            Err(BootstrapError::Timeout { .. }) => Err(self.timeout(missing(), start)),
            // It has ended.
            Err(_) => Ok(None),
        }
    }

    // ---- the one that leads ----

    /// Gathers what the other survivors know, and tells all the union.
    fn lead(
        &self,
        gone: RankSet,
        survey: &Survey<'_>,
        start: Instant,
    ) -> Result<Agreed, BootstrapError> {
        let (rank, own) = (self.rank, self.rank as usize);
        let system = |call, source| BootstrapError::System { rank, call, source };
        let listener = lock(&self.listener);
        let mut gathering = Gathering::new(&listener, self.key.clone(), own);
        let found = Mutex::new(gone);
        let awaited = Mutex::new(Vec::new());
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Ends the thread, however this ends.
            let _over = Over(&is_over);
            let probing = || self.probe(&awaited, &found, survey, &is_over);
            std::thread::Builder::new()
                .spawn_scoped(scope, probing)
                .map_err(|source| system("starting a thread that looks for survivors", source))?;
            loop {
                let gone = survey.with_lost(gathering.known(*lock(&found)), own);
                *lock(&found) = gone;
                let left: Vec<usize> = (0..self.addresses.len())
                    .filter(|&rank| !gone.contains(rank) && !gathering.has(rank))
                    .collect();
                if left.is_empty() {
                    let host = self.addresses[own].rsplit_once(':');
                    let host = host.map_or("", |(host, _)| host);
                    // Free for the rank 0 of the new job, which is this one.
                    let free = bind(host).map_err(|source| system("finding a free port", source));
                    let (_, address) = free?;
                    let agreed = Agreed { gone, address };
                    gathering.answer(&agreed);
                    return Ok(agreed);
                }
                if Instant::now() >= survey.until {
                    let missing = left.iter().map(|&rank| rank as u32).collect();
                    return Err(self.timeout(missing, start));
                }
                *lock(&awaited) = left;
                gathering.serve().map_err(|error| {
                    system("waiting for the survivors of a failure", error.into())
                })?;
            }
        })
    }

    /// Looks whether ranks of other nodes that are awaited are gone, again and again until it is over.
    fn probe(
        &self,
        awaited: &Mutex<Vec<usize>>,
        gone: &Mutex<RankSet>,
        survey: &Survey<'_>,
        is_over: &AtomicBool,
    ) {
        let placement = survey.placement;
        let is_over = || is_over.load(Ordering::Acquire);
        while !is_over() {
            let ranks = lock(awaited).clone();
            let elsewhere = |rank: &usize| !placement.share_node(*rank, self.rank as usize);
            for rank in ranks.into_iter().filter(elsewhere) {
                if is_over() {
                    return;
                }
                if lock(gone).contains(rank) {
                    continue;
                }
                let found = probe(&self.addresses[rank], survey.silence);
                let mut gone = lock(gone);
                *gone = match found {
                    Found::Alive => *gone,
                    Found::Ended => gone.with(rank),
                    // Its host, and with it the whole node.
                    Found::Unreachable => {
                        let node = placement.node_members(rank).iter();
                        node.fold(*gone, |gone, &rank| gone.with(rank))
                    }
                };
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Sets a flag when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// What the survivors agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub gone: RankSet,
    /// Where the new job's rank 0, the lowest survivor, listens.
    pub address: String,
}

impl Agreed {
    fn bytes(&self) -> Vec<u8> {
        [&bytes_of(self.gone), self.address.as_bytes()].concat()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (gone, address) = bytes.split_at_checked(SET_BYTES)?;
        Some(Self {
            gone: set_of(gone)?,
            address: String::from_utf8(address.to_vec()).ok()?,
        })
    }
}

/// Listens at a free port of `host`; also returns the address.
fn bind(host: &str) -> io::Result<(Listener, String)> {
    let listener = Listener::bind(&Address::Tcp(format!("{host}:0")))?;
    let address = format!("{host}:{}", listener.port()?);
    Ok((listener, address))
}

/// What a connection to a rank's address tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Alive,
    Ended,
    Unreachable,
}

/// Looks whether a process listens at `address`, for `silence` at most.
fn probe(address: &str, silence: Duration) -> Found {
    let address = match address.to_socket_addrs().map(|mut found| found.next()) {
        Ok(Some(address)) => address,
        // It was found at the start.
        Ok(None) | Err(_) => return Found::Alive,
    };
    match TcpStream::connect_timeout(&address, silence) {
        Ok(_) => Found::Alive,
        Err(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Found::Ended,
            io::ErrorKind::TimedOut
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable => Found::Unreachable,
            // This rank is at fault, for instance because it has no descriptor left.
            _ => Found::Alive,
        },
    }
}

fn is_gone(address: &str, silence: Duration) -> bool {
    probe(address, silence) != Found::Alive
}

/// Bytes of a set of ranks.
const SET_BYTES: usize = WORDS * 8;

fn bytes_of(set: RankSet) -> Vec<u8> {
    let words = set.words();
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Reads a set of ranks.
fn set_of(bytes: &[u8]) -> Option<RankSet> {
    let mut words = [0; WORDS];
    let (chunks, rest) = bytes.as_chunks();
    if chunks.len() != WORDS || !rest.is_empty() {
        return None;
    }
    for (word, chunk) in words.iter_mut().zip(chunks) {
        *word = u64::from_le_bytes(*chunk);
    }
    Some(RankSet::of_words(words))
}

/// The connections of those that have come.
struct Gathering<'a> {
    listener: &'a Listener,
    verifier: Verifier,
    leader: usize,
    connections: BTreeMap<Token, Connection>,
    next: Token,
    /// By connection: the rank, its request, and whom it knows to be gone.
    said: BTreeMap<Token, (usize, u64, RankSet)>,
    scratch: Box<[u8]>,
}

/// Most connections at a time: all ranks of a world, and some strangers.
const MOST_CONNECTIONS: usize = 2 * crate::base::limits::MAX_WORLD;

impl<'a> Gathering<'a> {
    fn new(listener: &'a Listener, key: Key, leader: usize) -> Self {
        Self {
            listener,
            verifier: Verifier::new(key),
            leader,
            connections: BTreeMap::new(),
            next: HOST + 1,
            said: BTreeMap::new(),
            scratch: vec![0; 4096].into_boxed_slice(),
        }
    }

    /// Returns `gone`, with whom those know that have come.
    fn known(&self, gone: RankSet) -> RankSet {
        let said = self.said.values().map(|(_, _, gone)| *gone);
        said.fold(gone, RankSet::union)
    }

    /// Returns whether a rank has come, and is still there; the leader has.
    fn has(&self, rank: usize) -> bool {
        rank == self.leader || self.said.values().any(|(known, ..)| *known == rank)
    }

    /// Sends everyone the answer.
    fn answer(&mut self, agreed: &Agreed) {
        let bytes = agreed.bytes();
        let reply = Reply::Value { bytes };
        let until = Instant::now() + FLUSH;
        for (token, (_, request, _)) in &self.said {
            if let Some(connection) = self.connections.get_mut(token) {
                connection.send(reply.encode(*request, 0), None);
            }
        }
        for connection in self.connections.values_mut() {
            connection.flush(until);
        }
    }

    /// Waits a little for whatever comes, and handles it.
    fn serve(&mut self) -> Result<(), Errno> {
        let until = Instant::now() + LOOK;
        let tokens: Vec<Token> = self.connections.keys().copied().collect();
        let ready: Vec<PollFlags> = {
            let mut polled = vec![PollFd::new(self.listener, PollFlags::IN)];
            let connections = self.connections.values();
            polled
                .extend(connections.map(|connection| PollFd::new(connection, connection.events())));
            match poll(&mut polled, Some(&time_until(Some(until)))) {
                Ok(_) => polled.iter().map(PollFd::revents).collect(),
                Err(Errno::INTR) => return Ok(()),
                Err(error) => return Err(error),
            }
        };
        let now = Instant::now();
        for (&token, events) in tokens.iter().zip(&ready[1..]) {
            if !events.is_empty() {
                self.read(token, now);
            }
        }
        self.connections.retain(|token, connection| {
            let silent = connection.is_silent(now);
            silent.then(|| self.said.remove(token));
            !silent
        });
        while self.connections.len() < MOST_CONNECTIONS
            && let Ok(stream) = self.listener.accept()
        {
            self.connections.insert(self.next, Connection::new(stream));
            self.read(self.next, now);
            self.next += 1;
        }
        Ok(())
    }

    /// Reads from a connection; forgets it if it has ended, or sends what no survivor sends.
    fn read(&mut self, token: Token, now: Instant) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        connection.resume(now);
        let mut over = connection
            .read(&mut self.verifier, &mut self.scratch)
            .is_err();
        loop {
            match connection.next_request() {
                Ok(Some((number, Request::Set { key, value }, _))) => {
                    match (key.parse(), set_of(&value)) {
                        (Ok(rank), Some(gone)) => {
                            self.said.insert(token, (rank, number, gone));
                        }
                        _ => over = true,
                    }
                }
                Ok(None) => break,
                Ok(Some(_)) | Err(_) => {
                    over = true;
                    break;
                }
            }
        }
        if over {
            self.connections.remove(&token);
            self.said.remove(&token);
        }
    }
}

#[cfg(test)]
#[path = "reunion_tests.rs"]
mod tests;
