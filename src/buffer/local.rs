//! Memory that one rank allocates alone, and that all ranks make symmetric later.

use crate::backend::abi::{DeviceAddress, ShareKindCode, SharedAllocation};
use crate::backend::{Backend, SymmetricMemory};
use crate::base::element::Element;
use crate::base::error::{Error, Result};
use crate::buffer::symmetric::SymmetricBuffer;
use crate::memory::sharing::Origin;
use crate::rank::allocation::{Attachment, free_waits_for_device};
use crate::rank::driver::Driver;
use crate::rank::release::{Progress, Resource};
use crate::world::communicator::Communicator;
use crate::world::world::World;
use std::sync::Arc;

/// Memory of this rank's device that peers can map, but do not yet: [`Communicator::allocate_local`] makes it, and
/// [`Communicator::rendezvous`] makes symmetric buffers of it, of all of it or of parts. A framework's allocator can take its
/// segments from here, and ranks need not have the same number of them, nor their tensors at the same place in them.
///
/// Collectives take it without a rendezvous, too: [`Communicator::device_slice`] of its address.
///
/// It is freed once this value and all buffers made of it are dropped, and no work of this rank's streams is under way,
/// since that may wait for a peer. Work on a stream that the communicator does not know must be over by then.
///
/// ```
/// # fn main() -> symmem::Result<()> {
/// # let communicator = symmem::init()?;
/// let segment = communicator.allocate_local(1 << 20)?; // this rank alone
/// let tensor = communicator.rendezvous::<f32>(&segment, 4096, &[16, 64])?; // all ranks, each with its own offset
/// assert_eq!(tensor.len(), 1024);
/// # drop((segment, tensor));
/// # communicator.finalize().map(drop)
/// # }
/// ```
pub struct LocalMemory {
    world: Arc<World>,
    /// `None` only during the drop.
    part: Option<Arc<LocalPart>>,
}

/// The memory, which its handle and the buffers made of it hold.
struct LocalPart {
    backend: Arc<Backend>,
    kind: ShareKindCode,
    own: SharedAllocation,
    rank: usize,
}

/// Keeps the memory as long as an allocation made of it is not freed.
struct Kept {
    _part: Arc<LocalPart>,
}

impl Communicator {
    /// Allocates `bytes` zeroed bytes on this rank's device, rounded up to the device's granularity (2 MiB for virtual
    /// memory). Not collective. May block as the driver's allocation does.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::InvalidArgument`] if `bytes` is 0; the error that poisoned the communicator.
    pub fn allocate_local(&self, bytes: usize) -> Result<LocalMemory> {
        const NAME: &str = "allocate_local";
        let world = self.world();
        world.health.check()?;
        world.reclaim();
        if bytes == 0 {
            return Err(world.invalid(NAME, "0 bytes; ask for at least 1"));
        }
        let kind = world.kind;
        let own = world
            .backend
            .allocate(kind, bytes as u64)
            .map_err(|failure| {
                Error::backend(world.rank, NAME, failure).about(None, bytes as u64)
            })?;
        let part = LocalPart {
            backend: Arc::clone(&world.backend),
            kind,
            own,
            rank: world.rank,
        };
        Ok(LocalMemory {
            world: Arc::clone(world),
            part: Some(Arc::new(part)),
        })
    }

    /// Makes a symmetric buffer of memory that each rank has allocated by itself: as many elements as the product of
    /// `shape`, from byte `offset` of `memory` on. The offset, and the size of the memory, may differ between ranks. The
    /// contents stay; nothing may write the first 64 bytes meanwhile, which the ranks compare. The memory may be of another
    /// communicator of this process on the same device. Collective; other ranks may call [`Communicator::register`]
    /// instead, whose name errors have. Blocks as [`Communicator::allocate`] does.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] on a rank whose memory is too small, or if the shape has no elements, and
    /// [`Error::PeerFailed`] on the others; also the errors of [`Communicator::register`].
    pub fn rendezvous<T: Element>(
        &self,
        memory: &LocalMemory,
        offset: usize,
        shape: &[usize],
    ) -> Result<SymmetricBuffer<T>> {
        let part = memory.part();
        // Past the end, no buffer fits.
        let room = part.own.bytes.saturating_sub(offset as u64);
        let address = DeviceAddress(part.own.address.0.saturating_add(offset as u64));
        let buffer = self.buffer_in("register", shape, Origin::Caller(address), room)?;
        buffer.allocation().attach(Box::new(Kept {
            _part: Arc::clone(part),
        }));
        Ok(buffer)
    }
}

impl LocalMemory {
    fn part(&self) -> &Arc<LocalPart> {
        self.part
            .as_ref()
            .expect("taken only by `drop`, which ends the value")
    }

    /// Returns the address of its first byte on this rank's device.
    pub fn address(&self) -> DeviceAddress {
        self.part().own.address
    }

    /// Returns its size in bytes, which may be more than was asked for.
    pub fn bytes(&self) -> usize {
        self.part().own.bytes as usize
    }
}

impl Drop for LocalMemory {
    fn drop(&mut self) {
        if let Some(part) = self.part.take() {
            self.world.give_up(part);
        }
    }
}

impl std::fmt::Debug for LocalMemory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("LocalMemory")
            .field("address", &self.address())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

impl Drop for LocalPart {
    fn drop(&mut self) {
        // SAFETY: allocated once, and nothing holds it: neither its handle nor a buffer, of which peers have unmapped theirs
        // if they must. The release queue drops it when no work of this rank is under way.
        if let Err(failure) = unsafe { self.backend.free(self.own.handle) } {
            tracing::warn!(rank = self.rank, %failure, "free failed");
        }
    }
}

impl Resource for LocalPart {
    /// Its drop frees it.
    fn release(&self, _driver: &Driver, quiet: bool, unheld: bool) -> Progress {
        Progress::done(quiet && unheld)
    }

    fn waits_for_device(&self) -> bool {
        free_waits_for_device(self.kind)
    }
}

impl Attachment for Kept {
    fn name(&self) -> &'static str {
        "memory that this rank allocated alone"
    }

    fn detach(&self, _driver: &Driver) {}
}
