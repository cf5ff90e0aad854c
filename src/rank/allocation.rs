//! Symmetric allocations: every rank has a copy and maps every peer's. `memory::sharing` makes them; this file
//! ends them.

use crate::backend::SymmetricMemory;
use crate::backend::abi::{
    DeviceAddress, RawAllocation, RawMapping, ShareKindCode, SharedAllocation,
};
use crate::base::error::Result;
use crate::base::lock::lock;
use crate::rank::driver::Driver;
use crate::rank::release::{Progress, Resource};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Something that a higher layer has attached to an allocation: an NCCL window, a part of the multicast object,
/// a row of the address table.
pub trait Attachment: Send + Sync {
    /// Returns the kind of attachment; an allocation has at most one of each kind.
    fn name(&self) -> &'static str;
    /// Ends it, before peers' copies are unmapped. The allocation has no handle any more, but a call that found
    /// the memory through the address table may still be enqueueing.
    fn detach(&self, driver: &Driver);
    /// Called once peers' copies are unmapped: no work of this rank addresses them any more.
    fn unmapped(&self, _driver: &Driver) {}
    /// Returns whether ranks of other nodes may still address this rank's copy, which then stays.
    fn is_addressed(&self, _driver: &Driver) -> bool {
        false
    }
    /// Returns whether peers reach this rank's copy through it. The copy then stays until all ranks have given
    /// it up.
    fn reaches_memory(&self) -> bool {
        false
    }
    /// Ends that access, before the copy is freed. Returns whether the copy may be freed.
    fn release_memory(&self, _driver: &Driver) -> bool {
        true
    }
}

/// Returns whether the free of memory that is shared by this strategy waits for all work on the device.
pub fn free_waits_for_device(kind: ShareKindCode) -> bool {
    !matches!(
        kind,
        ShareKindCode::MEMORY_FILE | ShareKindCode::VMM_FILE_DESCRIPTOR
    )
}

/// One rank's part of a symmetric allocation: its own copy, and the mappings of every peer's.
pub struct Allocation {
    /// Number of the allocation, the same on all ranks.
    pub number: u64,
    /// Entry of the node's control block that counts the ranks that have given it up.
    entry: usize,
    kind: ShareKindCode,
    own: SharedAllocation,
    /// Address of each rank's copy, as this device addresses it; null for ranks of other nodes.
    peers: Vec<DeviceAddress>,
    mappings: Vec<Option<RawMapping>>,
    attachments: Mutex<Vec<Box<dyn Attachment>>>,
    /// Its multicast address, if multicast reaches it; null if multicast is emulated.
    multicast: OnceLock<DeviceAddress>,
    /// Completed steps of its end.
    detached: AtomicBool,
    unmapped: AtomicBool,
    freed: AtomicBool,
}

/// The parts of an allocation.
pub struct AllocationParts {
    /// Number of the allocation, the same on all ranks.
    pub number: u64,
    /// Its entry in the node's control block.
    pub entry: usize,
    /// The strategy by which it is shared.
    pub kind: ShareKindCode,
    /// This rank's copy.
    pub own: SharedAllocation,
    /// Address of each rank's copy, as this device addresses it; null for ranks of other nodes.
    pub peers: Vec<DeviceAddress>,
    /// Mappings of peers' copies.
    pub mappings: Vec<Option<RawMapping>>,
}

impl Allocation {
    /// Makes an allocation from parts that all ranks have proved.
    pub fn new(parts: AllocationParts) -> Arc<Self> {
        Arc::new(Self {
            number: parts.number,
            entry: parts.entry,
            kind: parts.kind,
            own: parts.own,
            peers: parts.peers,
            mappings: parts.mappings,
            attachments: Mutex::default(),
            multicast: OnceLock::new(),
            detached: AtomicBool::new(false),
            unmapped: AtomicBool::new(false),
            freed: AtomicBool::new(false),
        })
    }

    /// Returns its entry in the control block, which is also its row in the address table; the same on all
    /// ranks of a node. Ranks of all nodes share its number.
    pub fn entry(&self) -> usize {
        self.entry
    }

    /// Returns the bytes of this rank's copy.
    pub fn bytes(&self) -> u64 {
        self.own.bytes
    }

    /// Returns the backend's handle of this rank's copy.
    pub fn handle(&self) -> RawAllocation {
        self.own.handle
    }

    /// Returns the address of each rank's copy; null for ranks of other nodes.
    pub fn peers(&self) -> &[DeviceAddress] {
        &self.peers
    }

    /// Returns the address of a byte of a rank's copy: `bases[peer] + (local - bases[me])`. The rank is of this node.
    #[inline]
    pub fn at(&self, peer: usize, offset: u64) -> DeviceAddress {
        debug_assert!(
            self.peers[peer] != DeviceAddress::NULL,
            "rank {peer} is on another node"
        );
        DeviceAddress(self.peers[peer].0 + offset)
    }

    /// Returns the multicast address of a byte; null if multicast is emulated, `None` if multicast does not
    /// reach it.
    pub fn at_all(&self, offset: u64) -> Option<DeviceAddress> {
        let address = *self.multicast.get()?;
        let at = if address == DeviceAddress::NULL {
            0
        } else {
            offset
        };
        Some(DeviceAddress(address.0 + at))
    }

    /// Sets its multicast address. Called once, when it is made.
    pub fn set_multicast(&self, address: DeviceAddress) {
        let _ = self.multicast.set(address);
    }

    /// Adds an attachment, which ends with the allocation.
    pub fn attach(&self, attachment: Box<dyn Attachment>) {
        lock(&self.attachments).push(attachment);
    }

    /// Returns whether it has an attachment of this kind.
    pub fn has(&self, name: &str) -> bool {
        lock(&self.attachments).iter().any(|one| one.name() == name)
    }

    /// Ends peers' access to this rank's copy if it was not set up on all ranks. Nothing uses the allocation
    /// yet.
    pub fn stop_reaching(&self, driver: &Driver) {
        for one in lock(&self.attachments).iter() {
            // If it cannot be ended, the memory is kept when it is to be freed.
            one.release_memory(driver);
        }
    }

    fn reaches_memory(&self) -> bool {
        lock(&self.attachments)
            .iter()
            .any(|one| one.reaches_memory())
    }

    /// Ends every attachment through which work without a handle could find it.
    fn detach(&self, driver: &Driver) {
        if !self.detached.swap(true, Ordering::AcqRel) {
            lock(&self.attachments)
                .iter()
                .for_each(|one| one.detach(driver));
        }
    }

    /// Unmaps peers' copies and records that in the control block. No work of this rank uses them, and none
    /// will.
    fn unmap(&self, driver: &Driver) {
        self.detach(driver);
        if self.unmapped.swap(true, Ordering::AcqRel) {
            return;
        }
        for (peer, mapping) in self.mappings.iter().enumerate() {
            if let Some(mapping) = *mapping {
                // SAFETY: it came from `import`; the caller guarantees that no work uses it.
                if let Err(failure) = unsafe { driver.backend.unmap(mapping) } {
                    tracing::warn!(rank = driver.rank, peer, %failure, "unmap failed");
                }
            }
        }
        lock(&self.attachments)
            .iter()
            .for_each(|one| one.unmapped(driver));
        driver.health.control().give_up(self.entry, driver.rank);
    }

    /// Frees this rank's copy: memory of a file at once, other kinds and memory that peers reach by multicast only
    /// if every rank has unmapped its peers' copies or is gone. Returns whether it is done with.
    fn try_free(&self, driver: &Driver) -> bool {
        if self.freed.load(Ordering::Acquire) {
            return true;
        }
        // The memory of a file outlives its exporter's mapping while any peer maps it. Memory that peers reach
        // by a multicast address does not: it is unbound before it is freed.
        if !self.reaches_memory() && !self.waits_for_device() {
            self.free_now(driver);
            return true;
        }
        let health = &driver.health;
        let in_use = (health.placement().node_members(driver.rank).iter())
            .any(|&rank| !health.control().has_given_up(self.entry, rank) && !health.is_gone(rank));
        if in_use
            || lock(&self.attachments)
                .iter()
                .any(|one| one.is_addressed(driver))
        {
            return false;
        }
        self.free_now(driver);
        true
    }

    fn free_now(&self, driver: &Driver) {
        if self.freed.swap(true, Ordering::AcqRel) {
            return;
        }
        let attachments = lock(&self.attachments);
        if !attachments.iter().all(|one| one.release_memory(driver)) {
            // Left allocated until the process ends.
            return;
        }
        drop(attachments);
        // SAFETY: it came from `allocate` or `register`. No peer maps it any more, or it is memory of a file, which
        // peers' mappings keep.
        if let Err(failure) = unsafe { driver.backend.free(self.own.handle) } {
            tracing::warn!(rank = driver.rank, %failure, "free failed");
        }
        driver.health.control().release(self.entry, driver.rank);
    }

    /// Makes the first step of the collective free: waits until this rank's work is done and nothing can find
    /// the memory any more.
    ///
    /// # Errors
    /// [`crate::Error::HostTimeout`] if work does not end within the setup deadline.
    pub fn retire(&self, driver: &Driver, setup_deadline: std::time::Duration) -> Result<()> {
        self.detach(driver);
        driver.wait_quiet(setup_deadline)
    }

    /// Unmaps peers' copies. A rank that has done so may free its copy once all others have.
    pub fn unmap_retired(&self, driver: &Driver) {
        self.unmap(driver);
    }

    /// Frees this rank's copy unless a rank has not yet unmapped it. Returns whether it is freed. See
    /// [`Allocation::unmap_retired`].
    pub fn free_unmapped(&self, driver: &Driver) -> bool {
        self.try_free(driver)
    }
}

impl Resource for Allocation {
    /// Unmaps nothing while any stream of this rank has work, since that work may use it. For the same reason
    /// it neither unbinds memory that is bound to multicast nor frees memory whose free waits for the device: the
    /// device's work may wait for a peer.
    fn release(&self, driver: &Driver, quiet: bool, unheld: bool) -> Progress {
        if quiet && unheld && !self.unmapped.load(Ordering::Acquire) {
            let first = !self.detached.load(Ordering::Acquire);
            self.detach(driver);
            // A call may have found it in the address table just before it was removed.
            if !first || driver.is_quiet() {
                self.unmap(driver);
            }
        }
        let unmapped = self.unmapped.load(Ordering::Acquire);
        let waits = self.reaches_memory() || self.waits_for_device();
        let may_free = unmapped && (quiet || !waits);
        Progress::done(may_free && self.try_free(driver))
    }

    fn is_memory(&self) -> bool {
        true
    }

    fn waits_for_device(&self) -> bool {
        free_waits_for_device(self.kind)
    }
}
