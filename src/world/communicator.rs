//! A world of ranks, each with a device, that can address each other's memory.

use crate::backend::Device;
use crate::backend::abi::{
    Capabilities, DeviceAddress, DeviceDescription, MemoryInformation, ShareKind, SignalPlacement,
    Watch,
};
use crate::base::element::Element;
use crate::base::error::{Error, Result};
use crate::buffer::symmetric::SymmetricBuffer;
use crate::gemm::stored::GemmRow;
use crate::memory::multicast::object::MulticastStatus;
use crate::memory::sharing;
use crate::memory::sharing::Origin;
use crate::rank::context::Shared;
use crate::stream::transfers::Stream;
use crate::world::setup::{BackendSource, Configuration};
use crate::world::{rebuild, setup};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What another rank is, as it told when the communicator came up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its rank.
    pub rank: usize,
    /// Its process.
    pub process: u32,
    /// Its device's ordinal, in its own numbering.
    pub device: u32,
    /// Identifies its device; partitions of one device may have it in common.
    pub uuid: [u8; 16],
    /// Its device's PCI address as text, zero-padded.
    pub bus: [u8; 16],
    /// Whether it is a thread of this process.
    pub same_process: bool,
    /// Whether it uses the same device as this rank.
    pub same_device: bool,
}

impl Peer {
    /// What tells its device from every other of the machine: the UUID alone does not, where a vendor's
    /// partitions of a device have it in common.
    pub(crate) fn identity(&self) -> ([u8; 16], [u8; 16]) {
        (self.uuid, self.bus)
    }
}

/// This rank's membership in a world of ranks.
///
/// Collective methods (marked so) must be called by every rank, in the same order; a rank that calls
/// another one, passes something else, fails or dies makes them fail on every rank. After a mismatch,
/// or a step that failed on one rank, the ranks are in step and go on; a rank that dies or does not
/// come within the setup deadline poisons the communicator. Everything else
/// is this rank's own business. `Communicator` can be shared between threads.
pub struct Communicator {
    pub(crate) shared: Arc<Shared>,
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
        setup::open(source, configuration)
    }

    /// This rank, counted from 0.
    pub fn rank(&self) -> usize {
        self.shared.rank
    }

    /// Ranks in the world.
    pub fn world(&self) -> usize {
        self.shared.world
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
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
        &self.shared.description
    }

    /// What the device can do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    /// How memory is shared, as the ranks negotiated it.
    pub fn share_kind(&self) -> ShareKind {
        self.shared.kind.get().copied().unwrap_or_default()
    }

    /// Where signal words live.
    pub fn signal_placement(&self) -> SignalPlacement {
        self.configuration.signal_placement
    }

    /// Whether collectives can go through multicast, and why not, or why new buffers are not reached by it.
    pub fn multicast(&self) -> MulticastStatus {
        self.shared.multicast().status()
    }

    /// Free and total memory of the device now.
    ///
    /// # Errors
    /// The backend's.
    pub fn memory_information(&self) -> Result<MemoryInformation> {
        let shared = &self.shared;
        shared
            .backend
            .memory_information()
            .map_err(|failure| shared.failed("memory", failure))
    }

    /// Allocates `shape`'s product of elements on every rank, zeroed. Collective.
    ///
    /// # Errors
    /// [`Error::Mismatch`] on every rank if shapes or element types differ; [`Error::OutOfMemory`] on
    /// a rank without room and [`Error::PeerFailed`] on the others; [`Error::PeerUnreachable`] if a
    /// peer's copy cannot be mapped or does not pass the proof. Nothing is left behind.
    pub fn allocate<T: Element>(&self, shape: &[usize]) -> Result<SymmetricBuffer<T>> {
        self.buffer::<T>("allocate", shape, Origin::Backend)
    }

    /// Makes memory that the caller owns symmetric: `shape`'s product of elements at `address` on
    /// this device, at whatever address each rank has. Collective. The contents stay.
    ///
    /// # Errors
    /// [`Error::NotShareable`] with the reason where the memory is of a kind that peers cannot map
    /// (managed memory, memory from a pool, memory of another device). What
    /// [`Communicator::allocate`] fails with, too. [`Communicator::stage`] is the way out.
    ///
    /// # Safety
    /// The memory stays allocated until the buffer is freed, or dropped by every rank, and nothing
    /// on the host refers to it meanwhile.
    pub unsafe fn register<T: Element>(
        &self,
        address: DeviceAddress,
        shape: &[usize],
    ) -> Result<SymmetricBuffer<T>> {
        self.buffer("register", shape, Origin::Caller(address))
    }

    /// A symmetric copy of memory that the caller owns, for memory that cannot be registered.
    /// Collective. The copy is taken on `stream` now; later changes are not followed.
    ///
    /// # Errors
    /// What [`Communicator::allocate`] and a copy fail with.
    ///
    /// # Safety
    /// The elements at `address` are allocated, on this device or visible to it, until the stream has
    /// passed this point.
    pub unsafe fn stage<T: Element>(
        &self,
        address: DeviceAddress,
        shape: &[usize],
        stream: &Stream,
    ) -> Result<SymmetricBuffer<T>> {
        let buffer = self.buffer::<T>("stage", shape, Origin::Backend)?;
        // SAFETY: the caller's word for the source; the buffer has exactly this size.
        unsafe { stream.copy_in(&buffer, address)? };
        Ok(buffer)
    }

    fn buffer<T: Element>(
        &self,
        operation: &'static str,
        shape: &[usize],
        origin: Origin,
    ) -> Result<SymmetricBuffer<T>> {
        let shared = &self.shared;
        shared.reclaim();
        let length = shape
            .iter()
            .try_fold(1usize, |product, &side| product.checked_mul(side));
        let bytes = length.and_then(|length| length.checked_mul(size_of::<T>()));
        let mut round = shared.agreement.begin(operation);
        // Compared before it is judged, so that a rank with a bad shape does not leave the others.
        round.compare(&[
            ("the shape", format!("{shape:?}")),
            ("the element type", std::any::type_name::<T>().into()),
            ("the element size", size_of::<T>().to_string()),
        ])?;
        let (Some(length), Some(bytes)) = (length, bytes.filter(|&bytes| bytes > 0)) else {
            return Err(Error::InvalidArgument {
                rank: shared.rank,
                operation,
                message: format!(
                    "the shape {shape:?} of {}-byte elements has no size that memory can have",
                    size_of::<T>()
                ),
            });
        };
        let kinds = match origin {
            Origin::Backend | Origin::Signals => vec![self.share_kind()],
            Origin::Caller(address) => {
                let aligned = address.0.is_multiple_of(align_of::<T>() as u64);
                let misaligned = || Error::InvalidArgument {
                    rank: shared.rank,
                    operation,
                    message: format!(
                        "{:#x} is not aligned to the {} bytes of its elements",
                        address.0,
                        align_of::<T>()
                    ),
                };
                round.vote(aligned.then_some(()).ok_or_else(misaligned))?;
                // Whoever allocated the memory chose its kind: try all that every rank has.
                setup::common_kinds(&mut round, &setup::listed_kinds(&shared.capabilities))?
            }
        };
        let multicast = shared.multicast();
        let bytes = match origin {
            Origin::Caller(_) => bytes as u64,
            Origin::Backend | Origin::Signals => multicast.padded(bytes as u64),
        };
        let (allocation, _) = sharing::allocate(shared, &mut round, &kinds, bytes, origin)?;
        if !matches!(origin, Origin::Caller(_))
            && let Err(error) = multicast.bind(shared, &mut round, &allocation)
        {
            shared.give_up(Arc::new(allocation));
            return Err(error);
        }
        Ok(SymmetricBuffer::new(
            shared.clone(),
            allocation,
            length,
            shape.to_vec(),
        ))
    }

    /// A new stream of this rank, not ordered with any other.
    ///
    /// # Errors
    /// The backend's.
    pub fn stream(&self) -> Result<Stream> {
        Stream::new(self.shared.clone())
    }

    /// A stream that the caller made with the vendor's own API, on this rank's
    /// device; 0 is the default stream. Dropping the value leaves the stream alone.
    ///
    /// # Safety
    /// The stream belongs to this rank's device. It lives until the value was dropped with all its
    /// work done, or else as long as the communicator and everything made from it: a stream dropped
    /// with work is asked later whether it is idle. Where the caller captures it by the vendor's own
    /// API, buffers and communicator outlive the last launch of that graph, of which they know
    /// nothing.
    pub unsafe fn stream_from_raw(&self, raw: u64) -> Stream {
        // SAFETY: the caller's word.
        unsafe { Stream::from_raw(self.shared.clone(), raw) }
    }

    /// Waits on the host until every rank has called it. Collective; device work is not waited for.
    ///
    /// # Errors
    /// A rank that died, failed or did not come within the setup deadline.
    pub fn host_barrier(&self) -> Result<()> {
        self.shared
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
        let shared = &self.shared;
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
        self.shared.health.look()
    }

    /// Ends all waits of all ranks: every kernel and stream that waits leaves, and every later call
    /// fails, here with [`Error::Aborted`], elsewhere with [`Error::PeerFailed`]. Waits for nobody, for
    /// a second at most if rank 0 is stopped; peers notice within 50 ms. The contents of every buffer are undefined afterwards.
    pub fn abort(&self) {
        self.shared
            .health
            .poison(Error::Aborted { rank: self.rank() });
    }

    /// Leaves in good order: waits for this rank's work, then for every rank to get here, and says
    /// what was not given up. Collective.
    ///
    /// # Errors
    /// As any collective call; the communicator is given up all the same.
    pub fn finalize(self) -> Result<Leaks> {
        let shared = &self.shared;
        let mut round = shared.agreement.begin("finalize");
        let idle = shared.wait_all_idle(shared.options.setup_deadline);
        round.vote(idle)?;
        shared.reclaim();
        // The second step sees what the others gave up in the first.
        round.exchange(&[])?;
        let vendors = &shared.collectives().vendors;
        vendors.destroy(&shared.backend, shared.rank);
        shared.finalized.store(true, Ordering::Release);
        shared.reclaim();
        let leaks = Leaks {
            buffers: shared.live_buffers.load(Ordering::Acquire),
            held_by_peers: shared.unreclaimed(),
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
        rebuild::rebuild(self)
    }

    /// How often this job has been rebuilt, on top of the generation it was launched with.
    pub fn generation(&self) -> u64 {
        self.configuration.launch.generation
    }

    /// How long a wait may take before it fails, unless the call says otherwise.
    pub fn deadline(&self) -> Duration {
        self.shared.options.deadline
    }

    /// What a kernel of one's own that waits for a peer has to watch, so that it leaves when the
    /// communicator is aborted, and after `deadline` at the latest. Valid while the communicator lives.
    pub fn watch(&self, deadline: Duration) -> Watch {
        self.shared.health.watch(deadline)
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

    /// The backend, for kernels of one's own.
    pub fn backend(&self) -> &crate::backend::Backend {
        &self.shared.backend
    }
}

impl std::fmt::Debug for Communicator {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Communicator")
            .field("rank", &self.rank())
            .field("world", &self.world())
            .field("share_kind", &self.share_kind().name())
            .finish_non_exhaustive()
    }
}
