//! A rank's entry into its job: it meets the other ranks, and keeps the information about them.

use std::sync::Arc;
use std::time::Duration;

use crate::base::bootstrap_error::BootstrapError;
use crate::base::placement::Placement;
use crate::bootstrap::client::StillWanted;
use crate::bootstrap::environment::{LaunchEnvironment, random_job};
use crate::bootstrap::meeting::Meeting;
use crate::bootstrap::peer::PeerInformation;
use crate::bootstrap::secret::Secret;
use crate::bootstrap::store::Store;

/// A rank that has met all others of its job.
#[derive(Debug)]
pub struct Bootstrap {
    environment: LaunchEnvironment,
    peers: Vec<PeerInformation>,
    placement: Arc<Placement>,
    store: Store,
}

impl Bootstrap {
    /// Meets the other ranks. Blocks until all have come, for at most `deadline`, and half a second more if rank 0
    /// does not answer. After a failure, one rank blocks for up to 0.8 s to tell the ranks that come late: rank 0 or,
    /// if it has died, the first survivor. The lookup of a host name for a rendezvous by TCP has no deadline.
    ///
    /// Ranks of a job without a secret meet under the user's own, which the first of them that finds none writes to
    /// `XDG_RUNTIME_DIR/symmem-secret` (`/run/user/UID` if the variable is not set) or, if that folder is not the user's
    /// own or cannot hold it, to `HOME/.symmem-secret`. If neither folder can, the job's name takes its place. Ranks that
    /// find different files never meet; their errors name the files.
    ///
    /// Ranks may be processes or threads. One job can meet again under the same environment once a
    /// rendezvous is complete, if all its ranks do so in the same order.
    ///
    /// # Errors
    /// - [`BootstrapError::Timeout`] names the ranks that did not come.
    /// - [`BootstrapError::RankTaken`], [`BootstrapError::WorldMismatch`],
    ///   [`BootstrapError::VersionMismatch`], [`BootstrapError::GenerationMismatch`],
    ///   [`BootstrapError::OtherHost`], [`BootstrapError::PeerDied`]: on every rank that has come or
    ///   comes within 0.8 s.
    /// - [`BootstrapError::WrongSecret`], [`BootstrapError::ForeignUser`]: another process than this job's rank
    ///   0 listens there.
    /// - [`BootstrapError::ConnectionLost`] names a connection over TCP that was cut or altered: on every rank, if rank
    ///   0 noticed it.
    /// - [`BootstrapError::SecretFile`] if the user's secret file cannot be used.
    /// - [`BootstrapError::JobUnknown`], [`BootstrapError::SecretMissing`] and those of
    ///   [`LaunchEnvironment::from_variables`].
    pub fn connect(
        environment: LaunchEnvironment,
        deadline: Duration,
    ) -> Result<Self, BootstrapError> {
        Self::meet(environment, deadline, None)
    }

    /// Connects as [`Bootstrap::connect`] does, but waits only while it is `wanted`, which is checked every few
    /// milliseconds.
    ///
    /// # Errors
    /// As [`Bootstrap::connect`]; [`BootstrapError::CalledOff`] once it is not wanted.
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
        wanted: Option<StillWanted<'_>>,
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
            "all ranks have met"
        );
        let placement = Arc::new(Placement::one_node(peers.len()));
        Ok(Self {
            environment,
            peers,
            placement,
            store,
        })
    }

    /// Makes `world` ranks within this process, one for each thread. No other process can join them. Blocks as
    /// [`Bootstrap::connect`] does.
    ///
    /// # Errors
    /// As [`Bootstrap::connect`].
    pub fn threads(world: u32, deadline: Duration) -> Result<Vec<Self>, BootstrapError> {
        let job = random_job(0)?;
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

    /// Returns this rank.
    pub fn rank(&self) -> u32 {
        self.environment.rank
    }

    /// Returns the number of ranks in the job.
    pub fn world(&self) -> u32 {
        self.environment.world
    }

    /// Returns the launch environment of this rank.
    pub fn environment(&self) -> &LaunchEnvironment {
        &self.environment
    }

    /// Returns all ranks, this one included, in rank order.
    pub fn peers(&self) -> &[PeerInformation] {
        &self.peers
    }

    /// Returns which ranks share a node.
    pub fn placement(&self) -> &Arc<Placement> {
        &self.placement
    }

    /// Returns the store, through which all ranks exchange payloads and descriptors.
    pub fn store(&self) -> &Store {
        &self.store
    }
}
