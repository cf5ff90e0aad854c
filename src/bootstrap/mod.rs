//! How the ranks of a job find each other and exchange what they need before they share memory.
//!
//! A [`LaunchEnvironment`] says who this rank is; [`Bootstrap::connect`] meets the others and gives a
//! [`Store`], through which all ranks exchange small payloads and file descriptors, and the
//! [`PeerInformation`] of each.
//!
//! Rank 0 runs the store in a thread. By default it listens on an abstract Unix socket whose name
//! follows from job, user and generation: there is no port to agree on and no file to leave behind,
//! and both ends have the kernel's word for the other's user. Every connection proves the job's
//! secret before a message is read. `host:port` can be given instead; a rank that comes that way is
//! checked and sent on to the Unix socket, since file descriptors travel nowhere else.

mod codec;
mod coordinator;
mod descriptors;
mod environment;
mod error;
mod handshake;
mod message;
mod process;
mod secret;
mod server;
mod store;
mod stream;

use std::io;
use std::time::{Duration, Instant};

use rustix::io::Errno;

pub use environment::LaunchEnvironment;
pub use error::BootstrapError;
pub use message::PeerInformation;
pub use process::ProcessIdentity;
pub use secret::Secret;
pub use store::{Contribution, Store};

use coordinator::Coordinator;
use handshake::Refusal;
use message::{Reply, Request, VERSION};
use server::{HANDSHAKE_DEADLINE, ServerThread};
use store::Wanted;
use stream::{Address, Listener, Stream};

/// A rank that has met all others of its job.
#[derive(Debug)]
pub struct Bootstrap {
    environment: LaunchEnvironment,
    peers: Vec<PeerInformation>,
    store: Store,
}

impl Bootstrap {
    /// Meet the other ranks. Blocks until all have come, at most until `deadline` from now.
    ///
    /// Ranks may be processes or threads. One job can meet again under the same environment once a
    /// rendezvous is complete, if all its ranks do so in the same order.
    ///
    /// # Errors
    /// - [`BootstrapError::Timeout`] names the ranks that did not come.
    /// - [`BootstrapError::RankTaken`], [`BootstrapError::WorldMismatch`],
    ///   [`BootstrapError::VersionMismatch`], [`BootstrapError::GenerationMismatch`],
    ///   [`BootstrapError::OtherHost`], [`BootstrapError::PeerDied`]: on every rank that has come or
    ///   comes within a second.
    /// - [`BootstrapError::WrongSecret`], [`BootstrapError::ForeignUser`]: what listens there is not this job's rank 0.
    /// - [`BootstrapError::JobUnknown`], [`BootstrapError::SecretMissing`] and those of
    ///   [`LaunchEnvironment::from_variables`].
    pub fn connect(
        environment: LaunchEnvironment,
        deadline: Duration,
    ) -> Result<Self, BootstrapError> {
        Self::meet(environment, deadline, None)
    }

    /// As [`Bootstrap::connect`], for as long as it is `wanted`, which is asked every few milliseconds.
    ///
    /// # Errors
    /// Also [`BootstrapError::CalledOff`], once it is not.
    pub fn connect_while(
        environment: LaunchEnvironment,
        deadline: Duration,
        wanted: &(dyn Fn() -> bool + Sync),
    ) -> Result<Self, BootstrapError> {
        Self::meet(environment, deadline, Some(wanted))
    }

    fn meet(
        environment: LaunchEnvironment,
        deadline: Duration,
        wanted: Option<Wanted<'_>>,
    ) -> Result<Self, BootstrapError> {
        environment.check()?;
        let meeting = Meeting::of(&environment, deadline, wanted)?;
        let hosted = if environment.rank == 0 {
            meeting.start_store()?
        } else {
            None
        };
        let (store, peers) = match hosted {
            Some((server, stream)) => meeting.join_own(server, stream)?,
            None => meeting.join(meeting.address.clone())?,
        };
        tracing::debug!(
            rank = environment.rank,
            world = environment.world,
            "met all ranks"
        );
        Ok(Self {
            environment,
            peers,
            store,
        })
    }

    /// `world` ranks of one process, to be given to a thread each. Nobody else can join them.
    ///
    /// # Errors
    /// As [`Bootstrap::connect`].
    pub fn threads(world: u32, deadline: Duration) -> Result<Vec<Self>, BootstrapError> {
        let job = environment::random_job(0)?;
        let secret = Secret::random().map_err(|source| BootstrapError::System {
            rank: 0,
            call: "getrandom",
            source,
        })?;
        let environments: Vec<LaunchEnvironment> = (0..world.max(1))
            .map(|rank| {
                let mut environment = LaunchEnvironment::local(rank, world, job.clone())?;
                environment.secret = Some(secret.clone());
                environment.source = "threads of one process";
                Ok(environment)
            })
            .collect::<Result<_, BootstrapError>>()?;
        std::thread::scope(|scope| {
            let ranks: Vec<_> = environments
                .into_iter()
                .map(|environment| {
                    let rank = environment.rank;
                    std::thread::Builder::new()
                        .spawn_scoped(scope, move || Self::connect(environment, deadline))
                        .map_err(|source| BootstrapError::System {
                            rank,
                            call: "starting a rank's thread",
                            source,
                        })
                })
                .collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            // Every thread is joined by the scope in any case; the first error is the one to report.
            ranks.into_iter().map(|rank| rank.and_then(join)).collect()
        })
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.environment.rank
    }

    /// Ranks in the job.
    pub fn world(&self) -> u32 {
        self.environment.world
    }

    /// What this rank was launched with.
    pub fn environment(&self) -> &LaunchEnvironment {
        &self.environment
    }

    /// All ranks, this one included, by rank.
    pub fn peers(&self) -> &[PeerInformation] {
        &self.peers
    }

    /// The store that all ranks exchange payloads and descriptors through.
    pub fn store(&self) -> &Store {
        &self.store
    }
}

/// A rendezvous as one rank goes about it.
struct Meeting<'a> {
    environment: &'a LaunchEnvironment,
    address: Address,
    secret: Secret,
    peer: PeerInformation,
    start: Instant,
    until: Instant,
    wanted: Option<Wanted<'a>>,
}

impl<'a> Meeting<'a> {
    fn of(
        environment: &'a LaunchEnvironment,
        deadline: Duration,
        wanted: Option<Wanted<'a>>,
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
        let secret = match (secret, address, job) {
            (Some(secret), _, _) => secret.clone(),
            (None, Some(address), _) => {
                return Err(BootstrapError::SecretMissing {
                    address: address.clone(),
                });
            }
            (None, None, Some(job)) => Secret::of_job(job),
            (None, None, None) => return Err(BootstrapError::JobUnknown { origin }),
        };
        let address = match address {
            Some(address) => Address::Tcp(address.clone()),
            None => {
                let job = job.as_deref().unwrap_or_default();
                let parts: [&[u8]; 3] = [
                    &uid.to_le_bytes(),
                    job.as_bytes(),
                    &generation.to_le_bytes(),
                ];
                Address::Unix(format!(
                    "symmem-{}",
                    secret::hex(&secret.prove("name", &parts)[..16])
                ))
            }
        };
        let system = |call| move |source| BootstrapError::System { rank, call, source };
        let process = ProcessIdentity::current().map_err(system("reading /proc/self/stat"))?;
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_err(system("reading /proc/sys/kernel/random/boot_id"))?;
        let peer = PeerInformation {
            rank,
            process,
            uid,
            boot_id: boot_id.trim().to_owned(),
        };
        let start = Instant::now();
        // A century is as good as no deadline, and every clock can express it.
        let until = start + deadline.min(Duration::from_secs(100 * 365 * 24 * 3600));
        Ok(Self {
            environment,
            address,
            secret,
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

    /// Start the store on rank 0. `None` if another already listens: who that is shows on joining.
    fn start_store(&self) -> Result<Option<(ServerThread, Stream)>, BootstrapError> {
        let listener = match Listener::bind(&self.address) {
            Ok(listener) => listener,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(None),
            Err(error) => return Err(self.system("listening at the rendezvous")(error)),
        };
        let mut listeners = vec![listener];
        let name = match &self.address {
            Address::Unix(name) => name.clone(),
            Address::Tcp(_) => {
                let name = format!("symmem-{}", environment::random_job(self.environment.rank)?);
                let listener = Listener::bind(&Address::Unix(name.clone()))
                    .map_err(self.system("listening on an abstract Unix socket"))?;
                listeners.push(listener);
                name
            }
        };
        let LaunchEnvironment {
            world, generation, ..
        } = *self.environment;
        let coordinator = Coordinator::new(world, generation, self.peer.boot_id.clone(), name);
        ServerThread::start(listeners, self.secret.clone(), coordinator)
            .map(Some)
            .map_err(self.system("starting the store's thread"))
    }

    /// Join the store that this process holds.
    fn join_own(
        &self,
        server: ServerThread,
        stream: Stream,
    ) -> Result<(Store, Vec<PeerInformation>), BootstrapError> {
        let store = Store::new(self.peer.rank, self.environment.world, stream, Some(server));
        let reply = store.join(&self.request(), self.left(), self.wanted)?;
        self.welcomed(store, reply)
    }

    /// Join the store at `address`, or where it sends this rank on to.
    fn join(&self, address: Address) -> Result<(Store, Vec<PeerInformation>), BootstrapError> {
        let stream = self.reach(&address)?;
        let store = Store::new(self.peer.rank, self.environment.world, stream, None);
        match store.join(&self.request(), self.left(), self.wanted)? {
            Reply::Redirect { name } if matches!(address, Address::Tcp(_)) => {
                self.join(Address::Unix(name))
            }
            reply => self.welcomed(store, reply),
        }
    }

    fn welcomed(
        &self,
        store: Store,
        reply: Reply,
    ) -> Result<(Store, Vec<PeerInformation>), BootstrapError> {
        let world = self.environment.world as usize;
        match reply {
            Reply::Welcome { peers } if peers.len() == world => Ok((store, peers)),
            other => Err(BootstrapError::Malformed {
                rank: self.peer.rank,
                reason: format!("an answer to another question: {other:?}"),
            }),
        }
    }

    fn request(&self) -> Request {
        Request::Join {
            version: VERSION,
            world: self.environment.world,
            generation: self.environment.generation,
            peer: self.peer.clone(),
            deadline: u64::try_from(self.left().as_micros()).unwrap_or(u64::MAX),
        }
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// A connection on which both ends have proved the secret. Waits for rank 0 to listen.
    fn reach(&self, address: &Address) -> Result<Stream, BootstrapError> {
        let rank = self.environment.rank;
        let mut pause = Duration::from_micros(500);
        loop {
            match Stream::connect(address, self.until) {
                Ok(stream) => match self.greet(&stream, address)? {
                    true => return Ok(stream),
                    false => drop(stream),
                },
                Err(error) if is_not_yet(&error) => {}
                Err(error) => return Err(self.system("connecting to the rendezvous")(error)),
            }
            if self.wanted.is_some_and(|wanted| !wanted()) {
                return Err(BootstrapError::CalledOff { rank });
            }
            if Instant::now() >= self.until {
                return Err(BootstrapError::Timeout {
                    rank,
                    awaited: format!("rank 0 to listen at {address}"),
                    missing: vec![0],
                    elapsed: self.start.elapsed(),
                });
            }
            // Nothing announces that a name is taken: look again soon, then less often.
            std::thread::sleep(pause.min(self.until.saturating_duration_since(Instant::now())));
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Prove the secret to each other; `false` if the other end closed and may come back.
    fn greet(&self, stream: &Stream, address: &Address) -> Result<bool, BootstrapError> {
        let rank = self.environment.rank;
        let own = rustix::process::geteuid().as_raw();
        let uid = stream
            .peer_uid()
            .map_err(self.system("asking for the listener's user"))?;
        if let Some(uid) = uid.filter(|uid| *uid != own) {
            return Err(BootstrapError::ForeignUser {
                rank,
                address: address.to_string(),
                uid,
            });
        }
        let start = Instant::now();
        match handshake::greet(
            stream,
            &self.secret,
            self.until.min(start + HANDSHAKE_DEADLINE),
        ) {
            Ok(()) => Ok(true),
            Err(Refusal::WrongSecret) => Err(BootstrapError::WrongSecret {
                rank,
                address: address.to_string(),
            }),
            Err(Refusal::Broken(Errno::CONNRESET | Errno::PIPE)) => Ok(false),
            Err(Refusal::Broken(Errno::TIMEDOUT)) => Err(BootstrapError::Timeout {
                rank,
                awaited: format!("a greeting from {address}"),
                missing: vec![0],
                elapsed: start.elapsed(),
            }),
            Err(Refusal::Broken(error)) => {
                Err(self.system("greeting the rendezvous")(error.into()))
            }
        }
    }
}

/// Whether a failed connection means that rank 0 does not listen yet, or has a full queue.
fn is_not_yet(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::WouldBlock
            | io::ErrorKind::TimedOut
            | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests;
