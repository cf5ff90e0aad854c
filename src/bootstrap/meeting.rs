//! A rendezvous: how one rank reaches the store, or runs it, and joins.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::base::bootstrap_error::BootstrapError;
use crate::bootstrap::client::{StillWanted, WANTED_INTERVAL};
use crate::bootstrap::coordinator::{Coordinator, FAREWELL};
use crate::bootstrap::deadline;
use crate::bootstrap::deadline::microseconds;
use crate::bootstrap::environment::LaunchEnvironment;
#[cfg(feature = "tcp")]
use crate::bootstrap::environment::random_job;
use crate::bootstrap::failure::Failure;
use crate::bootstrap::handshake;
use crate::bootstrap::handshake::HANDSHAKE_DEADLINE;
use crate::bootstrap::key::{Key, MAX_JOB};
use crate::bootstrap::peer::PeerInformation;
use crate::bootstrap::process::ProcessIdentity;
use crate::bootstrap::reply::Reply;
use crate::bootstrap::request::{Request, VERSION};
use crate::bootstrap::secret_file;
use crate::bootstrap::secret_file::{Unusable, UserSecret};
use crate::bootstrap::server::ServerThread;
use crate::bootstrap::store::Store;
use crate::bootstrap::stream::{Address, Listener, Stream};

/// The ranks that have met.
#[derive(Debug)]
pub(super) struct Met {
    pub(super) peers: Vec<PeerInformation>,
    /// Whether they may be on several nodes.
    pub(super) may_span_nodes: bool,
}

/// A rendezvous, from one rank's view.
pub(super) struct Meeting<'a> {
    environment: &'a LaunchEnvironment,
    pub(super) address: Address,
    pub(super) key: Key,
    /// The user's secret file, if the key comes from there.
    secret_file: Option<PathBuf>,
    pub(super) peer: PeerInformation,
    start: Instant,
    pub(super) until: Instant,
    wanted: Option<StillWanted<'a>>,
}

impl<'a> Meeting<'a> {
    pub(super) fn of(
        environment: &'a LaunchEnvironment,
        deadline: Duration,
        wanted: Option<StillWanted<'a>>,
    ) -> Result<Self, BootstrapError> {
        let LaunchEnvironment {
            rank,
            ref address,
            ref secret,
            ref job,
            generation,
            source: origin,
            ..
        } = *environment;
        let uid = rustix::process::geteuid().as_raw();
        let address = address.as_deref().map(tcp_address).transpose()?;
        let mut secret_file = None;
        let key = match (secret, &address, job) {
            (Some(secret), _, _) => Key::Secret(secret.clone()),
            (None, Some(address), _) => {
                return Err(BootstrapError::SecretMissing {
                    address: address.to_string(),
                });
            }
            (None, None, Some(job)) if job.len() > MAX_JOB => {
                return Err(BootstrapError::TooLarge {
                    rank,
                    what: "a job's name",
                    size: job.len(),
                    limit: MAX_JOB,
                });
            }
            (None, None, Some(job)) => {
                let job = job.clone();
                match secret_file::of_user(uid).map_err(|file| unusable(rank, file))? {
                    Some(UserSecret { secret, path }) => {
                        secret_file = Some(path);
                        Key::User { secret, job }
                    }
                    None => Key::Job(job),
                }
            }
            (None, None, None) => return Err(BootstrapError::JobUnknown { origin }),
        };
        let address = address.unwrap_or_else(|| {
            let job = job.as_deref().unwrap_or_default();
            Address::Unix(key.socket_name(uid, job, generation))
        });
        let system = |call| move |source| BootstrapError::System { rank, call, source };
        let process = ProcessIdentity::current().map_err(system("reading /proc/self/stat"))?;
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_err(system("reading /proc/sys/kernel/random/boot_id"))?;
        let boot_id = boot_id.trim().to_owned();
        let peer = PeerInformation {
            rank,
            process,
            uid,
            node: match &environment.node {
                Some(node) => node.clone(),
                None => host_key(&boot_id),
            },
            boot_id,
        };
        let start = Instant::now();
        let until = deadline::after(start, deadline);
        Ok(Self {
            environment,
            address,
            key,
            secret_file,
            peer,
            start,
            until,
            wanted,
        })
    }

    fn system(&self, call: &'static str) -> impl Fn(io::Error) -> BootstrapError + use<> {
        let rank = self.environment.rank;
        move |source| BootstrapError::System { rank, call, source }
    }

    /// Meets the other ranks: starts the store on rank 0, and joins it.
    pub(super) fn meet(&self) -> Result<(Store, Met), BootstrapError> {
        let hosted = match self.environment.rank {
            0 => self.start_store()?,
            _ => None,
        };
        match hosted {
            Some((server, stream)) => self.join_own(server, stream),
            None => self.join(self.address.clone()),
        }
    }

    /// Starts the store on rank 0. Returns `None` if another process already listens; the join then tells
    /// which.
    pub(super) fn start_store(&self) -> Result<Option<(ServerThread, Stream)>, BootstrapError> {
        let listener = match Listener::bind(&self.address) {
            Ok(listener) => listener,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(None),
            Err(error) => return Err(self.system("listening at the rendezvous")(error)),
        };
        let (listeners, name) = match &self.address {
            Address::Unix(name) => (vec![listener], name.clone()),
            #[cfg(feature = "tcp")]
            Address::Tcp(_) => {
                let name = format!("symmem-{}", random_job(self.environment.rank)?);
                let unix = Listener::bind(&Address::Unix(name.clone()))
                    .map_err(self.system("listening on an abstract Unix socket"))?;
                (vec![listener, unix], name)
            }
        };
        let LaunchEnvironment {
            world, generation, ..
        } = *self.environment;
        let coordinator = Coordinator::new(world, generation, self.peer.boot_id.clone())
            .over_nodes(self.environment.may_span_nodes());
        ServerThread::start(listeners, self.key.clone(), name, world, coordinator)
            .map(Some)
            .map_err(self.system("starting the store's thread"))
    }

    /// Joins the store that this process runs.
    pub(super) fn join_own(
        &self,
        server: ServerThread,
        stream: Stream,
    ) -> Result<(Store, Met), BootstrapError> {
        let store = Store::new(self.peer.rank, self.environment.world, stream, Some(server));
        let joined = store.join(&self.request(), self.left(), self.wanted);
        self.welcomed(store, joined.map_err(|error| self.explained(error))?)
    }

    /// Joins the store at `address`, or at the address to which it redirects this rank.
    pub(super) fn join(&self, address: Address) -> Result<(Store, Met), BootstrapError> {
        let stream = self.reach(&address)?;
        let store = Store::new(self.peer.rank, self.environment.world, stream, None);
        let reply = match store.join(&self.request(), self.left(), self.wanted) {
            Ok(reply) => reply,
            Err(error) => {
                let has_ended = store.has_ended();
                drop(store);
                if has_ended {
                    self.stand_in();
                }
                return Err(self.explained(error));
            }
        };
        match (address, reply) {
            (Address::Unix(_), reply) => self.welcomed(store, reply),
            #[cfg(feature = "tcp")]
            (Address::Tcp(_), Reply::Redirect { name }) => {
                // With a farewell, so that the store does not take the end for a cut.
                drop(store);
                self.join(Address::Unix(name))
            }
            #[cfg(feature = "tcp")]
            (Address::Tcp(_), reply) => self.welcomed(store, reply),
        }
    }

    /// Listens in place of rank 0, which died, to tell the ranks that come late: else they would wait for it until
    /// their deadline. The first survivor to listen blocks for [`FAREWELL`]; the others return at once.
    fn stand_in(&self) {
        let is_wanted = || self.wanted.is_none_or(|wanted| wanted());
        // Of two ranks, none is left to come.
        if self.environment.world <= 2 || !is_wanted() {
            return;
        }
        // A failure leaves the late ranks to their deadline. Usually another rank listens: a survivor, or rank 0 of
        // the next attempt.
        let Ok(listener) = Listener::bind(&self.address) else {
            return;
        };
        let LaunchEnvironment {
            world, generation, ..
        } = *self.environment;
        let failure = Failure::Died { rank: 0 };
        let boot_id = self.peer.boot_id.clone();
        let coordinator = Coordinator::of_failed(world, generation, boot_id, failure)
            .over_nodes(self.environment.may_span_nodes());
        // No rank is redirected, so there is no socket to name.
        let (key, name) = (self.key.clone(), String::new());
        let started = ServerThread::start(vec![listener], key, name, world, coordinator);
        let Ok((server, stream)) = started else {
            return;
        };
        let until = self.until.min(Instant::now() + FAREWELL);
        while Instant::now() < until && is_wanted() {
            std::thread::sleep(
                WANTED_INTERVAL.min(until.saturating_duration_since(Instant::now())),
            );
        }
        // Its end is the server's.
        drop(stream);
        drop(server);
    }

    fn welcomed(&self, store: Store, reply: Reply) -> Result<(Store, Met), BootstrapError> {
        let world = self.environment.world as usize;
        match reply {
            Reply::Welcome {
                may_span_nodes,
                peers,
            } if peers.len() == world => {
                let store = match may_span_nodes {
                    true => store.lasting(),
                    false => store.among(&peers),
                };
                let met = Met {
                    peers,
                    may_span_nodes,
                };
                Ok((store, met))
            }
            other => Err(self.unexpected(&other)),
        }
    }

    fn unexpected(&self, reply: &Reply) -> BootstrapError {
        BootstrapError::Malformed {
            rank: self.peer.rank,
            reason: format!("a reply that does not match the request: {reply:?}"),
        }
    }

    fn request(&self) -> Request {
        Request::Join {
            version: VERSION,
            world: self.environment.world,
            generation: self.environment.generation,
            peer: self.peer.clone(),
            deadline: microseconds(self.left()),
        }
    }

    /// Returns the time left until the deadline.
    pub(super) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Returns a connection that has completed the handshake. Waits for rank 0 to listen, unless it is where rank 0
    /// redirected this rank: if nobody listens there, rank 0 has died.
    pub(super) fn reach(&self, address: &Address) -> Result<Stream, BootstrapError> {
        let rank = self.environment.rank;
        let mut pause = Duration::from_micros(500);
        let mut has_warned = false;
        loop {
            let obstacle = match Stream::connect(address, self.until) {
                Ok(stream) => match self.greet(stream, address)? {
                    Ok(stream) => return Ok(stream),
                    Err(obstacle) => obstacle,
                },
                // Rank 0 listened there when it redirected this rank.
                Err(error)
                    if *address != self.address
                        && error.kind() == io::ErrorKind::ConnectionRefused =>
                {
                    self.stand_in();
                    let awaited = format!("rank 0 to listen at {address}");
                    return Err(BootstrapError::PeerDied { peer: 0, awaited });
                }
                Err(error) if is_not_yet(&error) || is_unreachable(&error) => {
                    Obstacle::NotConnected(error)
                }
                Err(error) => {
                    return Err(self.system("connecting to rank 0 at the rendezvous")(error));
                }
            };
            if let Obstacle::NotConnected(error) = &obstacle
                && is_unreachable(error)
                && !std::mem::replace(&mut has_warned, true)
            {
                let left = self.left();
                tracing::warn!(
                    rank, %address, %error, ?left,
                    "rank 0's host cannot be reached yet; trying again until the set-up's deadline"
                );
            }
            if self.wanted.is_some_and(|wanted| !wanted()) {
                return Err(BootstrapError::CalledOff { rank });
            }
            if Instant::now() >= self.until {
                return Err(self.given_up(address, obstacle));
            }
            // There is no notification of a new listener: try again soon, then less often.
            std::thread::sleep(pause.min(self.until.saturating_duration_since(Instant::now())));
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Makes the handshake with the listener. Returns the obstacle if another attempt may succeed.
    fn greet(
        &self,
        mut stream: Stream,
        address: &Address,
    ) -> Result<Result<Stream, Obstacle>, BootstrapError> {
        let rank = self.environment.rank;
        // Checked before anything is sent: over a Unix socket the key itself travels.
        let own = rustix::process::geteuid().as_raw();
        let uid = stream
            .peer_uid()
            .map_err(self.system("getsockopt(SO_PEERCRED) on the rendezvous socket"))?;
        if let Some(uid) = uid.filter(|uid| *uid != own) {
            return Err(BootstrapError::ForeignUser {
                rank,
                address: address.to_string(),
                uid,
            });
        }
        let until = self.until.min(Instant::now() + HANDSHAKE_DEADLINE);
        match handshake::greet(&mut stream, &self.key, until) {
            Ok(true) => Ok(Ok(stream)),
            Ok(false) => Err(BootstrapError::WrongSecret {
                rank,
                address: match stream.connection() {
                    None => address.to_string(),
                    Some(connection) => format!("{address} (the connection {connection})"),
                },
            }),
            // The store closes connections that it has no place for, and all when a rendezvous is over; and it does not
            // answer while its process is stopped.
            Err(error @ (Errno::CONNRESET | Errno::PIPE | Errno::TIMEDOUT)) => {
                Ok(Err(Obstacle::NotGreeted(stream.connection(), error)))
            }
            Err(error) if is_unreachable(&error.into()) => {
                Ok(Err(Obstacle::NotGreeted(stream.connection(), error)))
            }
            Err(error) => Err(self.system("the handshake with rank 0")(error.into())),
        }
    }

    /// Returns the error of a rank that met `obstacle` at its last attempt.
    fn given_up(&self, address: &Address, obstacle: Obstacle) -> BootstrapError {
        let (rank, elapsed) = (self.environment.rank, self.start.elapsed());
        let lost = |failure: Failure| failure.into_error(rank, "", elapsed);
        let timeout = |awaited, source| BootstrapError::Timeout {
            rank,
            awaited,
            missing: vec![0],
            elapsed,
            source,
        };
        match obstacle {
            Obstacle::NotGreeted(Some(connection), Errno::TIMEDOUT) => {
                lost(Failure::ConnectionLost {
                    connection,
                    ranks: vec![rank],
                    reason: "brought no answer to the greeting".into(),
                })
            }
            Obstacle::NotGreeted(Some(connection), error) => {
                lost(Failure::of_connection(connection, vec![rank], Some(error)))
            }
            Obstacle::NotGreeted(None, error) => {
                let awaited = format!("the handshake with {address}");
                timeout(awaited, Some(error.into()))
            }
            Obstacle::NotConnected(error) => {
                let named = self.named(address);
                let awaited = match error.kind() {
                    io::ErrorKind::WouldBlock => {
                        format!("the listener at {named} to accept a connection")
                    }
                    _ => format!("rank 0 to listen at {named}"),
                };
                timeout(awaited, Some(error))
            }
        }
    }

    /// Returns `error`, and if ranks are missing, why they may wait elsewhere.
    fn explained(&self, mut error: BootstrapError) -> BootstrapError {
        if let BootstrapError::Timeout { awaited, .. } = &mut error {
            *awaited = format!("{awaited} at {}", self.named(&self.address));
        }
        error
    }

    /// Returns `address`, and why a rank that looks elsewhere may wait in vain.
    fn named(&self, address: &Address) -> String {
        if *address != self.address {
            return format!(
                "{address}, to which rank 0 redirected this rank and which only processes of its network namespace \
                 can reach"
            );
        }
        match (&self.key, &self.secret_file) {
            (_, Some(path)) => format!(
                "{address}, whose name follows from the job's name and the secret in {}: ranks that use another file, \
                 by XDG_RUNTIME_DIR or HOME, need the same SYMMEM_SECRET",
                path.display()
            ),
            (Key::Job(_), None) => format!(
                "{address}, whose name follows from the job's name alone, since neither XDG_RUNTIME_DIR nor HOME is a \
                 folder of this user's own that can hold a secret file: ranks that use one need the same SYMMEM_SECRET"
            ),
            _ => address.to_string(),
        }
    }
}

/// The reason why an attempt to reach the store did not succeed, and another may.
enum Obstacle {
    /// No process listens, or the listener's queue is full.
    NotConnected(io::Error),
    /// The handshake on this connection, if it is over TCP, was not completed.
    NotGreeted(Option<String>, Errno),
}

fn unusable(rank: u32, Unusable { path, source }: Unusable) -> BootstrapError {
    BootstrapError::SecretFile {
        rank,
        path: path.display().to_string(),
        source,
    }
}

/// Returns the key of this host's node: ranks with the same key can pass each other file descriptors, which travel over
/// abstract Unix sockets, and those are of one kernel and one network namespace.
fn host_key(boot_id: &str) -> String {
    let namespace = std::fs::metadata("/proc/self/ns/net").map_or(0, |metadata| metadata.ino());
    format!("{boot_id}/{namespace}")
}

/// Returns the TCP address of rank 0 at `host:port`.
#[cfg(feature = "tcp")]
fn tcp_address(address: &str) -> Result<Address, BootstrapError> {
    Ok(Address::Tcp(address.to_owned()))
}

#[cfg(not(feature = "tcp"))]
fn tcp_address(address: &str) -> Result<Address, BootstrapError> {
    Err(BootstrapError::TcpNotBuilt {
        address: address.to_owned(),
    })
}

/// Returns whether a failed connection means that rank 0 does not listen yet, or that many others connect.
fn is_not_yet(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            // All ports are taken, until the connections of others end.
            | io::ErrorKind::AddrNotAvailable
            | io::ErrorKind::WouldBlock
            | io::ErrorKind::TimedOut
            | io::ErrorKind::Interrupted
    )
}

/// Returns whether an error of the network says that the host at the other end cannot be reached now: it may still start,
/// or a link be mended.
fn is_unreachable(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
    )
}

#[cfg(all(test, feature = "tcp"))]
mod tests {
    use super::*;
    use crate::bootstrap::secret::Secret;

    #[test]
    fn a_rank_learns_that_rank_0_died_after_it_redirected_it() {
        let mut environment = LaunchEnvironment::local(1, 2, "a job").unwrap();
        environment.address = Some("127.0.0.1:1".into());
        environment.secret = Some(Secret::random().unwrap());
        let deadline = Duration::from_secs(60);
        let meeting = Meeting::of(&environment, deadline, None).unwrap();
        let start = Instant::now();
        let name = format!("symmem-{}", random_job(1).unwrap());
        let result = meeting.reach(&Address::Unix(name)).map(drop);
        assert!(
            matches!(result, Err(BootstrapError::PeerDied { peer: 0, .. })),
            "{result:?}"
        );
        assert!(start.elapsed() < deadline / 2);
    }
}
