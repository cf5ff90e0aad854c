//! A world of ranks, each with a device, that can address each other's memory.

use crate::backend::Device;
use crate::backend::abi::{Capabilities, DeviceDescription, MemoryInformation, Watch};
use crate::base::error::{Error, Result};
use crate::base::gemm_row::GemmRow;
use crate::base::names::{ShareKind, SignalPlacement};
use crate::memory::multicast::object::MulticastStatus;
use crate::world::configuration::{BackendSource, Configuration};
use crate::world::peer::Peer;
use crate::world::rebuild;
use crate::world::setup::{self, Established};
use crate::world::world::World;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// This rank's membership in a world of ranks.
///
/// Collective methods (marked so) must be called by every rank, in the same order; a rank that calls
/// another one, passes something else, fails or dies makes them fail on every rank. After a mismatch,
/// or a step that failed on one rank, the ranks are in step and go on; a rank that dies or does not
/// come within the setup deadline poisons the communicator. Everything else
/// is this rank's own business. `Communicator` can be shared between threads.
pub struct Communicator {
    pub(crate) world: Arc<World>,
    pub(crate) peers: Vec<Peer>,
    /// What a rebuild starts from.
    pub(crate) configuration: Configuration,
    pub(crate) backend_name: String,
    pub(crate) device_open_time: Duration,
}

/// What was still held when a communicator was finalized.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leaks {
    /// Buffers that this rank neither freed nor dropped.
    pub buffers: usize,
    /// Buffers dropped here that another rank still holds.
    pub held_by_peers: usize,
}

impl Leaks {
    /// Whether everything had been given up.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// How many in all.
    pub fn count(&self) -> usize {
        self.buffers + self.held_by_peers
    }
}

impl Communicator {
    /// Meets the other ranks and opens this rank's device. Collective; blocks at most the setup
    /// deadline for each step.
    ///
    /// # Errors
    /// A rank that does not come, differs in version, backend or options, or fails to open its
    /// device, named.
    pub fn open(source: &BackendSource, configuration: Configuration) -> Result<Self> {
        setup::open(source, configuration).map(Self::of)
    }

    /// This rank, counted from 0.
    pub fn rank(&self) -> usize {
        self.world.rank
    }

    /// Ranks in the world.
    pub fn world_size(&self) -> usize {
        self.world.world
    }

    pub(crate) fn of(established: Established) -> Self {
        let Established {
            world,
            peers,
            configuration,
            backend_name,
            device_open_time,
        } = established;
        Self {
            world,
            peers,
            configuration,
            backend_name,
            device_open_time,
        }
    }

    pub(crate) fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Every rank of the world, this one included.
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// Whether another rank uses this rank's device. Kernels of both that wait for each other may
    /// then not run at the same time, so waits are slower and grids must stay small.
    pub fn shares_device(&self) -> bool {
        let own = self.rank();
        self.peers
            .iter()
            .any(|peer| peer.rank != own && peer.same_device)
    }

    /// This rank's device.
    pub fn device(&self) -> &DeviceDescription {
        &self.world.description
    }

    /// What the device can do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.world.capabilities
    }

    /// How memory is shared, as the ranks negotiated it.
    pub fn share_kind(&self) -> ShareKind {
        // Unknown kinds are not negotiated.
        ShareKind::of(self.world.kind).unwrap_or(ShareKind::SameProcess)
    }

    /// Where signal words live.
    pub fn signal_placement(&self) -> SignalPlacement {
        self.configuration.signal_placement
    }

    /// Whether collectives can go through multicast, and why not, or why new buffers are not reached by it.
    pub fn multicast(&self) -> MulticastStatus {
        self.world.multicast.status()
    }

    /// Free and total memory of the device now.
    ///
    /// # Errors
    /// The backend's.
    pub fn memory_information(&self) -> Result<MemoryInformation> {
        let shared = &self.world;
        shared
            .backend
            .memory_information()
            .map_err(|failure| shared.failed("memory", failure))
    }

    /// Waits on the host until every rank has called it. Collective; device work is not waited for.
    ///
    /// # Errors
    /// A rank that died, failed or did not come within the setup deadline.
    pub fn host_barrier(&self) -> Result<()> {
        self.world
            .agreement
            .begin("host_barrier")
            .exchange(&[])
            .map(drop)
    }

    /// Gives every rank's bytes to every rank, in rank order, over the host. Collective. For small
    /// data such as addresses and figures.
    ///
    /// # Errors
    /// As [`Communicator::host_barrier`].
    pub fn host_all_gather(&self, payload: &[u8]) -> Result<Vec<Vec<u8>>> {
        let shared = &self.world;
        let mut round = shared.agreement.begin("host_all_gather");
        // Too much on one rank alone must not leave the others waiting.
        let most = shared.agreement.most_bytes();
        let fits = if payload.len() <= most {
            Ok(())
        } else {
            Err(Error::InvalidArgument {
                rank: shared.rank,
                operation: "host_all_gather",
                message: format!("{} bytes; a rank can give {most} at most", payload.len()),
            })
        };
        round.vote(fits)?;
        round.exchange(payload)
    }

    /// Whether the communicator can still be used. Not blocking: looks at what kernels, the watcher
    /// and peers have reported.
    ///
    /// # Errors
    /// What poisoned it.
    pub fn check(&self) -> Result<()> {
        self.world.health.look()
    }

    /// Ends all waits of all ranks: every kernel and stream that waits leaves, and every later call
    /// fails, here with [`Error::Aborted`], elsewhere with [`Error::PeerFailed`]. Waits for nobody, for
    /// a second at most if rank 0 is stopped; peers notice within 50 ms. The contents of every buffer are undefined afterwards.
    pub fn abort(&self) {
        self.world
            .health
            .poison(Error::Aborted { rank: self.rank() });
    }

    /// Leaves in good order: waits for this rank's work, then for every rank to get here, and says
    /// what was not given up. Collective.
    ///
    /// # Errors
    /// As any collective call; the communicator is given up all the same.
    pub fn finalize(self) -> Result<Leaks> {
        let shared = &self.world;
        let mut round = shared.agreement.begin("finalize");
        let idle = shared.wait_all_idle(shared.deadlines.setup);
        round.vote(idle)?;
        shared.reclaim();
        // The second step sees what the others gave up in the first.
        round.exchange(&[])?;
        let nccl = &shared.collectives.nccl;
        nccl.destroy(&shared.backend, shared.rank);
        shared.finalized.store(true, Ordering::Release);
        shared.reclaim();
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

    /// A new communicator among those who are left of a poisoned one, renumbered densely in the old
    /// order. Collective over them: every rank that is alive and still has its communicator comes, one
    /// that was only slow too. Poisons the communicator if nothing has yet.
    ///
    /// Waits for this rank's work to leave the device (seconds), then at most the setup deadline for
    /// the others, and for the processes of the dead to be gone from the system, so that nothing they
    /// could still write to is used again. A rank that dies meanwhile is left out as well. Works
    /// whichever rank died, rank 0 too.
    ///
    /// The device stays open. Buffers, streams, graphs and groups of the old communicator are of no
    /// use any more, and what buffers hold is undefined: drop them before, so that their memory is
    /// free for new ones.
    ///
    /// # Errors
    /// - [`Error::HostTimeout`]: this rank's own work did not leave the device.
    /// - [`BootstrapError::Timeout`](crate::bootstrap::BootstrapError::Timeout) names ranks that are
    ///   alive and did not come.
    /// - [`Error::PeerFailed`]: a rank gave its communicator up after it had agreed to rebuild.
    /// - What [`Communicator::open`] fails with. Ranks have their new numbers in those.
    ///
    /// After an error this rank is out of the job.
    pub fn rebuild(self) -> Result<Self> {
        rebuild::rebuild(&self.rebuilding()).map(Self::of)
    }

    /// How often this job has been rebuilt, on top of the generation it was launched with.
    pub fn generation(&self) -> u64 {
        self.configuration.launch.generation
    }

    /// How long a wait may take before it fails, unless the call says otherwise.
    pub fn deadline(&self) -> Duration {
        self.world.deadlines.wait
    }

    /// What a kernel of one's own that waits for a peer has to watch, so that it leaves when the
    /// communicator is aborted, and after `deadline` at the latest. Valid while the communicator lives.
    pub fn watch(&self, deadline: Duration) -> Watch {
        self.world.health.watch(deadline)
    }

    /// How long the backend took to open this rank's device: the part of bringing a communicator up
    /// that is the driver's own.
    pub fn device_open_time(&self) -> Duration {
        self.device_open_time
    }

    /// How products are done that were measured before.
    pub(crate) fn gemm_rows(&self) -> &[GemmRow] {
        &self.configuration.gemm_rows
    }

    /// The open backend, for measuring what this library adds to it.
    ///
    /// # Safety
    /// Nothing that the backend is told may end, or use after its end, what this communicator has: streams,
    /// memory, events and graphs of the communicator's are only named while their handles live, and work
    /// enqueued here uses no memory that is not known to outlive it.
    pub unsafe fn backend(&self) -> &crate::backend::Backend {
        &self.world.backend
    }

    /// What a rebuild starts from.
    fn rebuilding(&self) -> rebuild::Old<'_> {
        rebuild::Old {
            world: &self.world,
            configuration: &self.configuration,
            backend_name: &self.backend_name,
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
