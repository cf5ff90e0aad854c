//! Symmetric allocations: every rank has a copy and maps every peer's. How one is made is in
//! `sharing`; here is how it ends.

use crate::backend::SymmetricMemory;
use crate::backend::abi::{DeviceAddress, RawMapping, RawVendor, ShareKind, SharedAllocation};
use crate::base::error::{Error, Result};
use crate::group::nccl::deregister;
use crate::memory::multicast::wire::Part;
use crate::memory::sharing;
use crate::rank::context::Inner;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// One rank's part of a symmetric allocation: its own copy, and every peer's as it is mapped here.
pub struct Allocation {
    /// Numbers allocations, alike on all ranks.
    pub number: u64,
    /// Where the control block counts who has given it up.
    pub(crate) entry: usize,
    pub(crate) kind: ShareKind,
    /// This rank's copy.
    pub own: SharedAllocation,
    /// The first byte of each rank's copy, as this device addresses it.
    pub peers: Vec<DeviceAddress>,
    pub(crate) mappings: Vec<Option<RawMapping>>,
    /// The communicator of the vendor's library in which the own copy is a window, and the window.
    pub window: OnceLock<(RawVendor, u64)>,
    /// Its first byte at all ranks at once, if it can be reached so; null where multicast is emulated.
    pub multicast: OnceLock<DeviceAddress>,
    /// The part of the multicast object to which this rank bound its copy, or may have.
    pub(crate) part: OnceLock<Part>,
    /// Whether peers' copies are unmapped, and whether the own one is freed.
    pub(crate) unmapped: AtomicBool,
    pub(crate) freed: AtomicBool,
}

impl Allocation {
    /// Its entry in the control block, and its row in the table of addresses; alike on all ranks.
    pub fn entry(&self) -> usize {
        self.entry
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

    /// Where a byte of this rank's copy is at `peer`: `bases[peer] + (local - bases[me])`.
    pub fn at(&self, peer: usize, offset: u64) -> DeviceAddress {
        DeviceAddress(self.peers[peer].0 + offset)
    }
}

impl Allocation {
    /// Unmaps peers' copies and tells everybody. Call once no work of this rank uses them.
    pub(crate) fn unmap(&self, shared: &Inner) {
        if self.unmapped.swap(true, Ordering::AcqRel) {
            return;
        }
        deregister(shared, self);
        sharing::unlist(shared, self.entry);
        for (peer, mapping) in self.mappings.iter().enumerate() {
            if let Some(mapping) = *mapping {
                // SAFETY: it came from `import`; by the caller's word no work uses it.
                if let Err(failure) = unsafe { shared.backend.unmap(mapping) } {
                    tracing::warn!(rank = shared.rank, peer, %failure, "unmap");
                }
            }
        }
        shared.health.control().give_up(self.entry, shared.rank);
    }

    fn is_bound(&self, shared: &Inner) -> bool {
        let multicast = shared.multicast.get();
        multicast.is_some_and(|multicast| multicast.has_bound(self))
    }

    /// Frees this rank's copy if every peer has unmapped it or is gone; says whether it is freed.
    pub(crate) fn try_free(&self, shared: &Inner) -> bool {
        if self.freed.load(Ordering::Acquire) {
            return true;
        }
        // A file's memory outlives its exporter's mapping while any peer maps it; not so what a peer reaches by
        // a multicast address, from which it is taken before.
        if !self.is_bound(shared)
            && matches!(
                self.kind,
                ShareKind::MEMORY_FILE | ShareKind::VMM_FILE_DESCRIPTOR
            )
        {
            self.free_now(shared);
            return true;
        }
        let health = &shared.health;
        let in_use = (0..shared.world)
            .any(|rank| !health.control().has_given_up(self.entry, rank) && !health.is_gone(rank));
        if in_use {
            return false;
        }
        self.free_now(shared);
        true
    }

    fn free_now(&self, shared: &Inner) {
        if self.freed.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(multicast) = shared.multicast.get()
            && !multicast.unbind(shared, self)
        {
            // Left to the end of the process.
            return;
        }
        // SAFETY: it came from `allocate` or `register`; nobody maps it any more.
        if let Err(failure) = unsafe { shared.backend.free(self.own.handle) } {
            tracing::warn!(rank = shared.rank, %failure, "free");
        }
        shared.health.control().release(self.entry, shared.rank);
    }
}

/// The collective end of an allocation: unmapped by all, then freed by all.
///
/// The buffer must hold the only count of it besides graphs, which keep what they use.
pub fn free(shared: &Inner, allocation: &Arc<Allocation>) -> Result<()> {
    let mut round = shared.agreement.begin("free");
    round.compare(&[(
        "the buffer (by order of allocation)",
        allocation.number.to_string(),
    )])?;
    let unused = shared
        .wait_all_idle(shared.options.setup_deadline)
        .and_then(|()| {
            // Graphs that were dropped go now, since nothing runs any more.
            shared.reclaim();
            if Arc::strong_count(allocation) == 1 {
                return Ok(());
            }
            Err(Error::InvalidArgument {
                rank: shared.rank,
                operation: "free",
                message: "a graph uses the buffer; drop the graph first".into(),
            })
        });
    round.vote(unused)?;
    allocation.unmap(shared);
    round.vote(Ok(()))?;
    allocation.free_now(shared);
    Ok(())
}

/// Releases what it can of allocations whose buffers were dropped; keeps the rest.
///
/// Nothing is unmapped while any stream of this rank has work, since that work may use it; nor is what is bound
/// to multicast unbound and freed then, since either may wait for the device, and the work for a peer.
pub fn reclaim(shared: &Inner, dropped: &mut Vec<Arc<Allocation>>) {
    if dropped.is_empty() {
        return;
    }
    let idle = shared.all_idle();
    dropped.retain(|allocation| {
        // A graph that uses the allocation keeps it.
        if idle && Arc::strong_count(allocation) == 1 {
            allocation.unmap(shared);
        }
        let unmapped = allocation.unmapped.load(Ordering::Acquire);
        let may_free = unmapped && (idle || !allocation.is_bound(shared));
        !(may_free && allocation.try_free(shared))
    });
}
