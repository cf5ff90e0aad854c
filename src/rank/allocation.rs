//! Symmetric allocations: every rank has a copy and maps every peer's. How one is made is in
//! `memory::sharing`; here is how it ends.

use crate::backend::SymmetricMemory;
use crate::backend::abi::{DeviceAddress, RawAllocation, RawMapping, ShareKind, SharedAllocation};
use crate::base::error::Result;
use crate::base::lock::lock;
use crate::rank::driver::Driver;
use crate::rank::release::{Progress, Resource};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// What rooms above have attached to an allocation: an NCCL window, a part of the multicast object, a row of
/// the table of addresses.
pub trait Attachment: Send + Sync {
    /// Names the kind of attachment; an allocation has one of a kind at most.
    fn name(&self) -> &'static str;
    /// Ends it, before peers' copies are unmapped. No handle of the allocation is left, but a call that found
    /// the memory by the table may be enqueueing.
    fn detach(&self, driver: &Driver);
    /// Whether peers reach this rank's copy by it, so that the copy stays until all have given it up.
    fn reaches_memory(&self) -> bool {
        false
    }
    /// Ends that, before the copy is freed; says whether it may be freed.
    fn release_memory(&self, _driver: &Driver) -> bool {
        true
    }
}

/// One rank's part of a symmetric allocation: its own copy, and every peer's as it is mapped here.
pub struct Allocation {
    /// Numbers allocations, alike on all ranks.
    pub number: u64,
    /// Where the control block counts who has given it up.
    entry: usize,
    kind: ShareKind,
    own: SharedAllocation,
    /// The first byte of each rank's copy, as this device addresses it.
    peers: Vec<DeviceAddress>,
    mappings: Vec<Option<RawMapping>>,
    attachments: Mutex<Vec<Box<dyn Attachment>>>,
    /// Its first byte at all ranks at once, if it can be reached so; null where multicast is emulated.
    multicast: OnceLock<DeviceAddress>,
    /// Steps of its end that were made.
    detached: AtomicBool,
    unmapped: AtomicBool,
    freed: AtomicBool,
}

/// What an allocation is made of.
pub struct Parts {
    /// Alike on all ranks.
    pub number: u64,
    /// Its entry in the control block.
    pub entry: usize,
    /// How it is shared.
    pub kind: ShareKind,
    /// This rank's copy.
    pub own: SharedAllocation,
    /// Each rank's copy, as this device addresses it.
    pub peers: Vec<DeviceAddress>,
    /// Peers' copies, mapped.
    pub mappings: Vec<Option<RawMapping>>,
}

impl Allocation {
    /// An allocation that all ranks have proved.
    pub fn new(parts: Parts) -> Arc<Self> {
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

    /// Its entry in the control block, and its row in the table of addresses; alike on all ranks.
    pub fn entry(&self) -> usize {
        self.entry
    }

    /// Bytes of this rank's copy.
    pub fn bytes(&self) -> u64 {
        self.own.bytes
    }

    /// The backend's handle of this rank's copy.
    pub fn handle(&self) -> RawAllocation {
        self.own.handle
    }

    /// The first byte of each rank's copy.
    pub fn peers(&self) -> &[DeviceAddress] {
        &self.peers
    }

    /// Where a byte of a rank's copy is: `bases[peer] + (local - bases[me])`.
    pub fn at(&self, peer: usize, offset: u64) -> DeviceAddress {
        DeviceAddress(self.peers[peer].0 + offset)
    }

    /// Where a byte is at all ranks at once; null where multicast is emulated, `None` where it is not there.
    pub fn at_all(&self, offset: u64) -> Option<DeviceAddress> {
        let address = *self.multicast.get()?;
        let at = if address == DeviceAddress::NULL {
            0
        } else {
            offset
        };
        Some(DeviceAddress(address.0 + at))
    }

    /// Says where it can be reached at all ranks at once. Once, when it is made.
    pub fn set_multicast(&self, address: DeviceAddress) {
        let _ = self.multicast.set(address);
    }

    /// Has `attachment` end with it.
    pub fn attach(&self, attachment: Box<dyn Attachment>) {
        lock(&self.attachments).push(attachment);
    }

    /// Whether it has an attachment of this kind.
    pub fn has(&self, name: &str) -> bool {
        lock(&self.attachments).iter().any(|one| one.name() == name)
    }

    /// Ends whatever reaches this rank's copy, where that did not come about on all ranks; nothing uses it yet.
    pub fn stop_reaching(&self, driver: &Driver) {
        for one in lock(&self.attachments).iter() {
            // Where it cannot be ended the memory is kept, when it is to be freed.
            one.release_memory(driver);
        }
    }

    fn reaches_memory(&self) -> bool {
        lock(&self.attachments)
            .iter()
            .any(|one| one.reaches_memory())
    }

    /// Takes it out of everything by which work could find it that has no handle of it.
    fn detach(&self, driver: &Driver) {
        if !self.detached.swap(true, Ordering::AcqRel) {
            lock(&self.attachments)
                .iter()
                .for_each(|one| one.detach(driver));
        }
    }

    /// Unmaps peers' copies and tells everybody. No work of this rank uses them, and none will.
    fn unmap(&self, driver: &Driver) {
        self.detach(driver);
        if self.unmapped.swap(true, Ordering::AcqRel) {
            return;
        }
        for (peer, mapping) in self.mappings.iter().enumerate() {
            if let Some(mapping) = *mapping {
                // SAFETY: it came from `import`; by the caller's word no work uses it.
                if let Err(failure) = unsafe { driver.backend.unmap(mapping) } {
                    tracing::warn!(rank = driver.rank, peer, %failure, "unmap");
                }
            }
        }
        driver.health.control().give_up(self.entry, driver.rank);
    }

    /// Frees this rank's copy if every peer has unmapped it or is gone; says whether it is freed.
    fn try_free(&self, driver: &Driver) -> bool {
        if self.freed.load(Ordering::Acquire) {
            return true;
        }
        // A file's memory outlives its exporter's mapping while any peer maps it; not so what a peer reaches by
        // a multicast address, from which it is taken before.
        if !self.reaches_memory() && !self.waits_for_device() {
            self.free_now(driver);
            return true;
        }
        let health = &driver.health;
        let in_use = (0..driver.world)
            .any(|rank| !health.control().has_given_up(self.entry, rank) && !health.is_gone(rank));
        if in_use {
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
            // Left to the end of the process.
            return;
        }
        drop(attachments);
        // SAFETY: it came from `allocate` or `register`; nobody maps it any more.
        if let Err(failure) = unsafe { driver.backend.free(self.own.handle) } {
            tracing::warn!(rank = driver.rank, %failure, "free");
        }
        driver.health.control().release(self.entry, driver.rank);
    }

    /// The first step of the collective end: this rank's work is done, and nothing finds the memory any more.
    ///
    /// # Errors
    /// Work that does not end within the setup deadline.
    pub fn retire(&self, driver: &Driver, setup_deadline: std::time::Duration) -> Result<()> {
        self.detach(driver);
        driver.wait_quiet(setup_deadline)
    }

    /// The last steps: unmapped, by all ranks before any frees.
    pub fn unmap_retired(&self, driver: &Driver) {
        self.unmap(driver);
    }

    /// See [`Allocation::unmap_retired`].
    pub fn free_unmapped(&self, driver: &Driver) {
        self.free_now(driver);
    }
}

impl Resource for Allocation {
    /// Nothing is unmapped while any stream of this rank has work, since that work may use it; nor is what is
    /// bound to multicast unbound and freed then, nor memory whose free waits for the device, since the work may wait
    /// for a peer.
    fn release(&self, driver: &Driver, quiet: bool, unheld: bool) -> Progress {
        if quiet && unheld && !self.unmapped.load(Ordering::Acquire) {
            let first = !self.detached.load(Ordering::Acquire);
            self.detach(driver);
            // A call may have found it by the table just before it was taken out.
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
        !matches!(
            self.kind,
            ShareKind::MEMORY_FILE | ShareKind::VMM_FILE_DESCRIPTOR
        )
    }
}
