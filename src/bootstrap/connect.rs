//! A rank's entry into its job: it meets the other ranks, and keeps the information about them.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::abi::MAX_RANKS;
use crate::base::bootstrap_error::BootstrapError;
use crate::base::placement::Placement;
use crate::bootstrap::client::StillWanted;
use crate::bootstrap::environment::{LaunchEnvironment, random_job};
use crate::bootstrap::meeting::Meeting;
use crate::bootstrap::node::NodeStore;
use crate::bootstrap::peer::PeerInformation;
#[cfg(feature = "tcp")]
use crate::bootstrap::reunion::Reunion;
use crate::bootstrap::secret::Secret;
use crate::bootstrap::store::{Contribution, Store};
use std::os::fd::BorrowedFd;

/// A rank that has met all others of its job.
#[derive(Debug)]
pub struct Bootstrap {
    environment: LaunchEnvironment,
    peers: Vec<PeerInformation>,
    placement: Arc<Placement>,
    /// The store of this rank's node, if the job's may be on another.
    node: Option<NodeStore>,
    /// Where survivors of a failure meet, if ranks may be on several nodes.
    #[cfg(feature = "tcp")]
    reunion: Option<Reunion>,
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
        let (store, met) = meeting.meet()?;
        let peers = met.peers;
        let (placement, node) = if met.may_span_nodes {
            let keys: Vec<&str> = peers.iter().map(|peer| peer.node.as_str()).collect();
            let placement = Placement::of(&keys);
            check_nodes(&placement, &environment)?;
            let node = NodeStore::meet(&store, &environment, &placement, meeting.left());
            let node = node.inspect_err(|error| {
                // The ranks of other nodes have met and go on.
                let _ = store.fail(&error.to_string());
            })?;
            (placement, Some(node))
        } else {
            (Placement::one_node(peers.len()), None)
        };
        #[cfg(feature = "tcp")]
        let reunion = match &node {
            Some(_) => Reunion::prepare(&store, &environment, meeting.left())?,
            None => None,
        };
        tracing::debug!(
            rank = environment.rank,
            world = environment.world,
            nodes = placement.nodes(),
            "all ranks have met"
        );
        Ok(Self {
            environment,
            peers,
            placement: Arc::new(placement),
            node,
            #[cfg(feature = "tcp")]
            reunion,
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

    /// Returns the store, through which all ranks exchange payloads. It carries file descriptors only if all ranks are on
    /// one node: see [`Bootstrap::gather`].
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns whether the connection to rank 0 lasts and needs a pulse, since ranks may be on several nodes.
    pub(crate) fn has_pulse(&self) -> bool {
        self.node.is_some()
    }

    /// Returns where survivors of a failure meet, if ranks may be on several nodes and met by TCP.
    #[cfg(feature = "tcp")]
    pub(crate) fn reunion(&self) -> Option<&Reunion> {
        self.reunion.as_ref()
    }

    /// Returns the most bytes that a rank can contribute to one [`Bootstrap::gather`].
    pub fn payload_limit(&self) -> usize {
        self.store.payload_limit() - 1
    }

    /// Gathers as [`Store::all_gather_with_descriptors`] does. A descriptor goes to the ranks of its owner's node only;
    /// the others find none.
    ///
    /// # Errors
    /// As [`Store::all_gather_with_descriptors`].
    pub fn gather(
        &self,
        tag: &str,
        payload: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
        deadline: Duration,
    ) -> Result<Vec<Contribution>, BootstrapError> {
        let Some(node) = &self.node else {
            return (self.store).all_gather_with_descriptors(tag, payload, descriptor, deadline);
        };
        // Each rank says whether it has one, so that nodes without any need no second step.
        let mut message = payload.to_vec();
        message.push(u8::from(descriptor.is_some()));
        let payloads = self.store.all_gather(tag, &message, deadline)?;
        let mut flags = Vec::with_capacity(payloads.len());
        let mut contributions: Vec<Contribution> = payloads
            .into_iter()
            .map(|mut payload| {
                flags.push(payload.pop() == Some(1));
                Contribution {
                    payload,
                    descriptor: None,
                }
            })
            .collect();
        let members = self.placement.node_members(self.rank() as usize);
        if members.iter().any(|&member| flags[member]) {
            for (member, descriptor) in node.gather(&self.store, tag, descriptor, deadline)? {
                contributions[member].descriptor = descriptor;
            }
        }
        Ok(contributions)
    }
}

/// Checks that no node has more ranks than kernels address.
fn check_nodes(
    placement: &Placement,
    environment: &LaunchEnvironment,
) -> Result<(), BootstrapError> {
    let most = (0..placement.nodes()).map(|node| placement.members(node).len());
    match most.max() {
        Some(most) if most > MAX_RANKS => Err(BootstrapError::RankOutsideWorld {
            rank: MAX_RANKS as u32,
            world: most as u32,
            origin: environment.source,
        }),
        _ => Ok(()),
    }
}
