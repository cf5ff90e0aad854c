//! The communicator: a world of ranks, each with a device, that can address each other's memory.

use crate::backend::Device;
use crate::backend::abi::{Capabilities, DeviceDescription, MemoryInformation, Watch};
use crate::base::error::{Error, Result};
use crate::base::gemm_reduce_row::GemmReduceRow;
use crate::base::gemm_row::GemmRow;
use crate::base::names::{ShareKind, SignalPlacement};
use crate::memory::multicast::object::MulticastStatus;
use crate::network::status::NetworkStatus;
use crate::rank::release::Kept;
use crate::world::configuration::{BackendSource, Configuration};
use crate::world::peer::Peer;
use crate::world::rebuild;
use crate::world::setup::{self, BackendBuild, Established};
use crate::world::start_memory::StartMemory;
use crate::world::world::World;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Longest wait for messages that were sent before the last exchange.
const MESSAGES: Duration = Duration::from_millis(200);

/// This rank's membership in a world of ranks.
///
/// Every rank must call the collective methods, whose documentation says "Collective", in the same order. If a rank
/// calls another method, passes different arguments, fails or dies, the call fails on every rank. After a mismatch,
/// or a step that failed on one rank, the ranks are still in step and the communicator can be used. A rank that
/// dies, or does not come within the setup deadline, poisons the communicator. All other methods concern this rank
/// alone. `Communicator` can be shared between threads.
///
/// A fork of the process cannot use it, nor anything made from it: every call there is [`Error::Forked`], and drops do
/// nothing. Fork before you build the communicator, or start a program in the fork.
///
/// ```
/// # fn main() -> symmem::Result<()> {
/// let communicator = symmem::init()?;
/// let bytes = communicator.host_all_gather(&[communicator.rank() as u8])?; // one entry per rank
/// assert_eq!(bytes.len(), communicator.world_size());
/// communicator.host_barrier()?;
/// communicator.finalize().map(drop)
/// # }
/// ```
pub struct Communicator {
    pub(crate) world: Arc<World>,
    pub(crate) peers: Vec<Peer>,
    /// The input of a rebuild.
    pub(crate) configuration: Configuration,
    pub(crate) backend: BackendBuild,
    pub(crate) device_open_time: Duration,
}

/// The memory that was still held when a communicator was finalized.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leaks {
    /// Number of buffers that this rank neither freed nor dropped.
    pub buffers: usize,
    /// Number of buffers dropped here that are not released: another rank holds them, or a graph of this rank.
    pub held_by_peers: usize,
}

impl Leaks {
    /// Returns whether everything had been given up.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Returns the total number of buffers.
    pub fn count(&self) -> usize {
        self.buffers + self.held_by_peers
    }
}

impl Communicator {
    /// Meets the other ranks and opens this rank's device. Collective; blocks for at most the setup deadline in
    /// each step.
    ///
    /// # Errors
    /// Errors name the rank that does not come, differs in version, backend or options, or fails to open its
    /// device.
    pub fn open(source: &BackendSource, configuration: Configuration) -> Result<Self> {
        setup::open(source, configuration).map(Self::of)
    }

    /// Returns this rank's number, counted from 0.
    pub fn rank(&self) -> usize {
        self.world.rank
    }

    /// Returns the number of ranks in the world.
    pub fn world_size(&self) -> usize {
        self.world.world
    }

    pub(crate) fn of(established: Established) -> Self {
        let Established {
            world,
            peers,
            configuration,
            backend,
            device_open_time,
        } = established;
        Self {
            world,
            peers,
            configuration,
            backend,
            device_open_time,
        }
    }

    pub(crate) fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Returns every rank of the world, this one included, in rank order.
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// Returns the number of nodes that the ranks are on. Ranks of one node address each other's memory.
    pub fn nodes(&self) -> usize {
        self.world.placement.nodes()
    }

    /// Returns this rank's node, counted from 0 in the order of the nodes' lowest ranks. As a color of
    /// [`Communicator::split`] it makes a group of each node.
    pub fn node(&self) -> usize {
        self.world.placement.node(self.rank())
    }

    /// Returns this rank's number among the ranks of its node, counted from 0.
    pub fn local_rank(&self) -> usize {
        self.world.placement.local_rank(self.rank())
    }

    /// Returns how bytes go between nodes: the library, its transports, and whether they are staged. `None` if all ranks
    /// are on one node.
    pub fn network(&self) -> Option<NetworkStatus> {
        let network = self.world.network.as_ref();
        network.map(|network| network.status().clone())
    }

    /// Returns the rails: for each number within a node, the rank of that number on each node that has one, by node.
    /// Traffic between nodes is spread over rails, so that each rank exchanges data with its equals.
    ///
    /// ```
    /// # fn main() -> symmem::Result<()> {
    /// let communicator = symmem::init()?;
    /// let rail = &communicator.rails()[communicator.local_rank()];
    /// assert!(rail.contains(&communicator.rank()));
    /// # communicator.finalize().map(drop)
    /// # }
    /// ```
    pub fn rails(&self) -> Vec<Vec<usize>> {
        let placement = &self.world.placement;
        let longest = (0..placement.nodes()).map(|node| placement.members(node).len());
        (0..longest.max().unwrap_or(0))
            .map(|local| placement.rail(local))
            .collect()
    }

    /// Returns whether another rank uses this rank's device. Kernels of both that wait for each other may then
    /// not run at the same time, so waits are slower and grids must stay small.
    pub fn shares_device(&self) -> bool {
        let own = self.rank();
        self.peers
            .iter()
            .any(|peer| peer.rank != own && peer.same_device)
    }

    /// Returns the name of the backend, as `SYMMEM_BACKEND` takes it: `host`, `cuda`, `hip` or a plugin's.
    pub fn backend_name(&self) -> &str {
        &self.backend.name
    }

    /// Returns the description of this rank's device.
    pub fn device(&self) -> &DeviceDescription {
        &self.world.description
    }

    /// Returns the capabilities of this rank's device.
    pub fn capabilities(&self) -> &Capabilities {
        &self.world.capabilities
    }

    /// Returns the strategy of sharing memory that the ranks negotiated.
    pub fn share_kind(&self) -> ShareKind {
        // Unknown kinds are not negotiated.
        ShareKind::of(self.world.kind).unwrap_or(ShareKind::SameProcess)
    }

    /// Returns the placement of signal words.
    pub fn signal_placement(&self) -> SignalPlacement {
        self.configuration.signal_placement
    }

    /// Returns whether collectives can use multicast, and the reason if they cannot or if new buffers are no
    /// longer bound to it.
    pub fn multicast(&self) -> MulticastStatus {
        self.world.multicast.status()
    }

    /// Returns free and total memory of the device, in bytes.
    ///
    /// # Errors
    /// The backend's errors.
    pub fn memory_information(&self) -> Result<MemoryInformation> {
        let shared = &self.world;
        shared.health.check_process()?;
        shared
            .backend
            .memory_information()
            .map_err(|failure| shared.failed("memory", failure))
    }

    /// Returns the memory that the start of this communicator took on this rank.
    pub fn start_memory(&self) -> &StartMemory {
        &self.world.memory
    }

    /// Keeps `value`, such as the owner of memory that enqueued work uses, until no work of this rank is enqueued any
    /// more. Does not block: a later call of this rank drops the value, or the teardown, on any thread. If work does not
    /// leave the device, the value is never dropped.
    pub fn keep_until_idle<T: Send + Sync + 'static>(&self, value: T) {
        self.world.give_up(Arc::new(Kept(value)));
    }

    /// Blocks until every rank has called it. Collective. Does not wait for device work.
    ///
    /// # Errors
    /// The error of a rank that died, failed or did not come within the setup deadline.
    pub fn host_barrier(&self) -> Result<()> {
        self.world
            .agreement
            .begin("host_barrier")
            .exchange(&[])
            .map(drop)
    }

    /// Returns every rank's bytes, in rank order, exchanged over the host: for small data such as addresses and
    /// settings. Collective; blocks until every rank has called it.
    ///
    /// # Errors
    /// As [`Communicator::host_barrier`]; [`Error::InvalidArgument`] on a rank whose payload is too large, and
    /// [`Error::PeerFailed`] on the others.
    pub fn host_all_gather(&self, payload: &[u8]) -> Result<Vec<Vec<u8>>> {
        let shared = &self.world;
        let mut round = shared.agreement.begin("host_all_gather");
        // A payload that is too large on one rank must not leave the others waiting.
        let most = shared.agreement.most_bytes();
        let fits = if payload.len() <= most {
            Ok(())
        } else {
            Err(Error::InvalidArgument {
                rank: shared.rank,
                operation: "host_all_gather",
                message: format!(
                    "{} bytes; a rank can contribute at most {most}",
                    payload.len()
                ),
            })
        };
        round.vote(fits)?;
        round.exchange(payload)
    }

    /// Checks whether the communicator can still be used, by what kernels, the watcher and peers have reported.
    /// Does not block.
    ///
    /// # Errors
    /// The error that poisoned it.
    pub fn check(&self) -> Result<()> {
        self.world.health.look()
    }

    /// Ends all waits of all ranks. Every waiting kernel and stream leaves, and every later call fails: here
    /// with [`Error::Aborted`], elsewhere with [`Error::PeerFailed`]. Returns without waiting for the other
    /// ranks, within a second even if rank 0 is stopped; they notice within 50 ms. The contents of all buffers
    /// are undefined afterwards.
    pub fn abort(&self) {
        self.world
            .health
            .poison(Error::Aborted { rank: self.rank() });
    }

    /// Leaves in good order. Blocks until this rank's work is done, then until every rank has called it, for at
    /// most the setup deadline in each step. Returns the numbers of buffers that were still held. Collective.
    ///
    /// # Errors
    /// The errors of any collective call. The communicator is given up even then.
    pub fn finalize(self) -> Result<Leaks> {
        let shared = &self.world;
        let mut round = shared.agreement.begin("finalize");
        let idle = shared.wait_all_idle(shared.deadlines.setup);
        round.vote(idle)?;
        shared.reclaim();
        // After the first step every rank has given up its resources; the second makes that visible to all.
        round.exchange(&[])?;
        let nccl = &shared.collectives.nccl;
        nccl.destroy(&shared.backend, shared.rank);
        shared.finalized.store(true, Ordering::Release);
        shared.reclaim();
        if shared.network.is_some() {
            // Ranks of other nodes tell by messages what they have given up, which may come after the exchange.
            let until = Instant::now() + MESSAGES;
            while shared.released.memory_left() > 0 && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
                shared.reclaim();
            }
        }
        let leaks = Leaks {
            buffers: shared.live_buffers.load(Ordering::Acquire),
            held_by_peers: shared.released.memory_left(),
        };
        if !leaks.is_empty() {
            tracing::warn!(
                rank = shared.rank,
                ?leaks,
                "finalized with buffers still held"
            );
        }
        Ok(leaks)
    }

    /// Makes a new communicator of the survivors of a poisoned one, renumbered from 0 in the old order.
    /// Collective over the survivors: every rank that is alive and still has its communicator must call it,
    /// also one that was only slow. Poisons the communicator if nothing has yet.
    ///
    /// Blocks until this rank's work has left the device (seconds), then for at most the setup deadline until
    /// the others have come and the processes of dead ranks are gone from the system, so that they cannot write
    /// to memory that is used again. A rank that dies meanwhile is left out as well. Any rank may have died,
    /// rank 0 included.
    ///
    /// Over nodes, ranks whose hosts cannot be reached count as dead. The survivors meet on the host of the lowest of them, at
    /// ports that the system chooses: a firewall between nodes must let them pass.
    ///
    /// The device stays open. Buffers, streams, graphs and groups of the old communicator cannot be used any
    /// more, and the contents of buffers are undefined. Drop them first, so that their memory is free for new
    /// ones.
    ///
    /// # Errors
    /// - [`Error::Unsupported`]: the ranks are on several nodes and did not meet by TCP.
    /// - [`Error::HostTimeout`]: this rank's own work did not leave the device.
    /// - [`BootstrapError::Timeout`](crate::bootstrap::BootstrapError::Timeout) names ranks that are
    ///   alive and did not come.
    /// - [`Error::PeerFailed`]: a rank gave its communicator up after it had agreed to rebuild.
    /// - The errors of [`Communicator::open`], which use the new rank numbers.
    ///
    /// After an error this rank is out of the job.
    pub fn rebuild(self) -> Result<Self> {
        rebuild::rebuild(&self.rebuilding()).map(Self::of)
    }

    /// Returns the number of times that this job was rebuilt, plus the generation it was launched with.
    pub fn generation(&self) -> u64 {
        self.configuration.launch.generation
    }

    /// Returns the deadline of waits for which the call sets no other.
    pub fn deadline(&self) -> Duration {
        self.world.deadlines.wait
    }

    /// Returns the values that a user's waiting kernel watches, so that it leaves when the communicator is
    /// aborted, and after `deadline` at the latest. Valid while the communicator lives.
    pub fn watch(&self, deadline: Duration) -> Watch {
        self.world.watch(deadline)
    }

    /// Returns the time that the backend took to open this rank's device: the driver's part of the setup time.
    pub fn device_open_time(&self) -> Duration {
        self.device_open_time
    }

    /// Returns the tuning rows of all-gather + GEMM.
    pub(crate) fn gemm_rows(&self) -> &[GemmRow] {
        &self.configuration.gemm_rows
    }

    /// Returns the tuning rows of GEMM + reduce-scatter and GEMM + all-reduce.
    pub(crate) fn gemm_reduce_rows(&self) -> &[GemmReduceRow] {
        &self.configuration.gemm_reduce_rows
    }

    /// Returns the open backend, to measure the overhead that this library adds to it.
    ///
    /// # Safety
    /// Calls to the backend must not destroy, or use after their end, the communicator's streams, memory,
    /// events and graphs; they may name them only while their handles live. Work that they enqueue may only use
    /// memory that is known to outlive it.
    pub unsafe fn backend(&self) -> &crate::backend::Backend {
        &self.world.backend
    }

    /// The input of a rebuild.
    fn rebuilding(&self) -> rebuild::Previous<'_> {
        rebuild::Previous {
            world: &self.world,
            configuration: &self.configuration,
            backend: &self.backend,
            device_open_time: self.device_open_time,
        }
    }
}

impl std::fmt::Debug for Communicator {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Communicator")
            .field("rank", &self.rank())
            .field("world", &self.world_size())
            .field("share_kind", &self.share_kind().name())
            .finish_non_exhaustive()
    }
}
