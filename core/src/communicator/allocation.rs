//! Symmetric allocations: every rank allocates, shares, maps every peer's copy and proves it.

use super::shared::Inner;
use crate::backend::SymmetricMemory;
use crate::backend::abi::{
    DeviceAddress, ExportedHandle, RawMapping, ShareKind, SharedAllocation, SharedMapping,
};
use crate::bootstrap::Contribution;
use crate::communicator::agreement::Round;
use crate::error::{Error, Result};
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One rank's part of a symmetric allocation: its own copy, and every peer's as it is mapped here.
pub struct Allocation {
    /// Numbers allocations, alike on all ranks.
    pub number: u64,
    /// Where the control block counts who has given it up.
    entry: usize,
    kind: ShareKind,
    /// This rank's copy.
    pub own: SharedAllocation,
    /// The first byte of each rank's copy, as this device addresses it.
    pub peers: Vec<DeviceAddress>,
    mappings: Vec<Option<RawMapping>>,
    /// Whether peers' copies are unmapped, and whether the own one is freed.
    unmapped: AtomicBool,
    freed: AtomicBool,
}

/// Where the memory comes from.
#[derive(Clone, Copy)]
pub enum Origin {
    /// The backend allocates it.
    Backend,
    /// The caller owns it, at this address.
    Caller(DeviceAddress),
}

impl Allocation {
    /// Its entry in the control block, and its row in the table of addresses; alike on all ranks.
    pub fn entry(&self) -> usize {
        self.entry
    }

    /// Where a byte of this rank's copy is at `peer`: `bases[peer] + (local - bases[me])`.
    pub fn at(&self, peer: usize, offset: u64) -> DeviceAddress {
        DeviceAddress(self.peers[peer].0 + offset)
    }
}

/// Makes an allocation together with all ranks, by the first strategy in `kinds` that works on all.
///
/// Returns it with the strategy that worked. On failure nothing is left on any rank.
pub fn allocate(
    shared: &Inner,
    round: &mut Round<'_>,
    kinds: &[ShareKind],
    bytes: u64,
    origin: Origin,
) -> Result<(Allocation, ShareKind)> {
    let mut reasons = String::new();
    let mut last = None;
    for &kind in kinds {
        match attempt(shared, round, kind, bytes, origin) {
            Ok(allocation) => return Ok((allocation, kind)),
            // The ranks are not in step any more.
            Err(error @ (Error::Mismatch { .. } | Error::Bootstrap(_))) => return Err(error),
            Err(error) if shared.health.check().is_err() => return Err(error),
            // Each rank fails for a reason of its own, so all of them must try on, whatever it was.
            Err(error) => {
                let _ = write!(reasons, "{}: {error}; ", kind.name());
                tracing::debug!(rank = shared.rank, kind = kind.name(), %error, "strategy failed");
                last = Some(error);
            }
        }
    }
    match last {
        Some(error) if kinds.len() == 1 => Err(error),
        Some(Error::PeerUnreachable { rank, peer, .. }) => Err(Error::PeerUnreachable {
            rank,
            peer,
            reason: reasons,
        }),
        Some(Error::NotShareable {
            rank,
            address,
            bytes,
            ..
        }) => Err(Error::NotShareable {
            rank,
            address,
            bytes,
            reason: reasons,
        }),
        Some(error) => Err(error),
        None => Err(Error::Unsupported {
            rank: shared.rank,
            operation: "sharing memory",
            message: "the ranks' backends have no strategy in common".into(),
        }),
    }
}

fn attempt(
    shared: &Inner,
    round: &mut Round<'_>,
    kind: ShareKind,
    bytes: u64,
    origin: Origin,
) -> Result<Allocation> {
    let backend = &shared.backend;
    let mine = match origin {
        Origin::Backend => backend.allocate(kind, bytes),
        // SAFETY: the caller of `register` keeps the memory until it is freed.
        Origin::Caller(address) => unsafe { backend.register(kind, address, bytes) },
    }
    .map_err(|failure| match origin {
        Origin::Backend => Error::backend(shared.rank, "allocate", failure).about(None, bytes),
        Origin::Caller(address) => Error::NotShareable {
            rank: shared.rank,
            address: address.0,
            bytes,
            reason: failure.to_string(),
        },
    });
    // The one step whose failure leaves something on some ranks only.
    let allocated = mine.as_ref().ok().copied();
    let outcome = round.vote(mine);
    let outcome = outcome.and_then(|own| {
        share(shared, round, own, bytes, origin).inspect_err(|_| {
            // Nobody frees before everybody has unmapped. Where this step fails too, the ranks are
            // out of step and whoever lives gives up.
            let _ = round.exchange(&[]);
        })
    });
    if let (Err(_), Some(own)) = (&outcome, allocated) {
        // SAFETY: allocated above; no work was enqueued on it that has not completed.
        if let Err(failure) = unsafe { backend.free(own.handle) } {
            tracing::warn!(rank = shared.rank, %failure, "while giving up an allocation");
        }
    }
    outcome
}

/// Everything after the allocation itself: handles, mappings, the proof, the control block's entry.
fn share(
    shared: &Inner,
    round: &mut Round<'_>,
    own: SharedAllocation,
    bytes: u64,
    origin: Origin,
) -> Result<Allocation> {
    let backend = &shared.backend;
    // SAFETY: allocated by the caller.
    let exported = unsafe { backend.export(own.handle) }
        .map_err(|failure| Error::backend(shared.rank, "export", failure).about(None, bytes));
    let exported = round.vote(exported)?;
    // SAFETY: the backend's contract gives the descriptor to the caller, here.
    let descriptor =
        (exported.descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(exported.descriptor) });
    let handles = round.exchange_with(&encode(&exported), descriptor.as_ref().map(AsFd::as_fd))?;

    let mut unmapping = Unmapping {
        shared,
        mappings: Vec::new(),
    };
    let mut peers = Vec::new();
    let imported = (0..shared.world).try_for_each(|peer| {
        if peer == shared.rank {
            peers.push(own.address);
            unmapping.mappings.push(None);
            return Ok(());
        }
        let mapping = import(shared, peer, &handles[peer])?;
        peers.push(mapping.address);
        unmapping.mappings.push(Some(mapping.handle));
        Ok(())
    });
    round.vote(imported)?;
    match origin {
        Origin::Backend => prove(shared, round, &peers)?,
        Origin::Caller(_) => prove_by_reading(shared, round, &peers, bytes)?,
    }
    let entry = entry_for(shared, round)?;
    if let Some(collectives) = shared.collectives.get() {
        // Before anybody can be sent what it names.
        let row = collectives.everyone.slots.table_row(shared.rank, entry);
        let addresses: Vec<u8> = peers
            .iter()
            .flat_map(|peer: &DeviceAddress| peer.0.to_le_bytes())
            .collect();
        round.vote(shared.write_bytes(row, &addresses))?;
    }
    Ok(Allocation {
        number: round.number(),
        entry,
        kind: exported.kind,
        own,
        peers,
        mappings: std::mem::take(&mut unmapping.mappings),
        unmapped: AtomicBool::new(false),
        freed: AtomicBool::new(false),
    })
}

/// Unmaps what was mapped of an allocation that did not come about.
struct Unmapping<'a> {
    shared: &'a Inner,
    mappings: Vec<Option<RawMapping>>,
}

impl Drop for Unmapping<'_> {
    fn drop(&mut self) {
        for mapping in self.mappings.drain(..).flatten() {
            // SAFETY: it came from `import`, and the work of the proof has completed or failed.
            if let Err(failure) = unsafe { self.shared.backend.unmap(mapping) } {
                tracing::warn!(rank = self.shared.rank, %failure, "while giving up a mapping");
            }
        }
    }
}

fn encode(handle: &ExportedHandle) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(100);
    bytes.extend_from_slice(&handle.kind.0.to_le_bytes());
    bytes.extend_from_slice(&handle.device.to_le_bytes());
    bytes.extend_from_slice(&handle.offset.to_le_bytes());
    bytes.extend_from_slice(&handle.bytes.to_le_bytes());
    bytes.extend_from_slice(&handle.address.to_le_bytes());
    bytes.extend_from_slice(&handle.opaque);
    bytes
}

fn decode(bytes: &[u8]) -> Option<ExportedHandle> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    Some(ExportedHandle {
        kind: ShareKind(word(0)?),
        device: word(4)?,
        offset: long(8)?,
        bytes: long(16)?,
        address: long(24)?,
        opaque: bytes.get(32..96)?.try_into().ok()?,
        descriptor: -1,
        reserved: 0,
    })
}

fn import(shared: &Inner, peer: usize, contribution: &Contribution) -> Result<SharedMapping> {
    let rank = shared.rank;
    let mut handle = decode(&contribution.payload).ok_or_else(|| Error::InvalidArgument {
        rank,
        operation: "import",
        message: format!("rank {peer} sent a handle of another version"),
    })?;
    handle.descriptor = contribution
        .descriptor
        .as_ref()
        .map_or(-1, AsRawFd::as_raw_fd);
    match (handle.kind, shared.is_same_process(peer)) {
        // The legacy handle of a rank in this very process cannot be opened; its address can be used.
        (ShareKind::LEGACY_IPC, true) => handle.kind = ShareKind::SAME_PROCESS,
        (ShareKind::SAME_PROCESS, false) => {
            return Err(Error::PeerUnreachable {
                rank,
                peer,
                reason: "its address means nothing in another process".into(),
            });
        }
        _ => {}
    }
    // SAFETY: the peer exported it and keeps it at least until the vote after this.
    unsafe { shared.backend.import(&handle) }.map_err(|failure| Error::PeerUnreachable {
        rank,
        peer,
        reason: failure.to_string(),
    })
}

/// Proves every mapping by a word written to the peer and a word read from it: the driver's word
/// that a peer can be reached has been wrong often enough.
fn prove(shared: &Inner, round: &mut Round<'_>, peers: &[DeviceAddress]) -> Result<()> {
    let (rank, world) = (shared.rank, shared.world);
    if world == 1 {
        return Ok(());
    }
    let token = |from: usize, to: usize| 0x5359_4d4d_0000_0000 | (from as u64) << 16 | to as u64;
    let slot = |from: usize| from as u64 * 8;
    let fail = |peer: usize, what: &str, value: u64| Error::PeerUnreachable {
        rank,
        peer,
        reason: format!("mapped, but a word {what} came out as {value:#x}"),
    };
    let peers_of = || (0..world).filter(move |&peer| peer != rank);

    let written = peers_of().try_for_each(|peer| {
        let word = token(rank, peer).to_le_bytes();
        shared.write_bytes(DeviceAddress(peers[peer].0 + slot(rank)), &word)
    });
    round.vote(written)?;
    let mut inbox = vec![0; world * 8];
    let arrived = shared.read_bytes(peers[rank], &mut inbox).and_then(|()| {
        peers_of().try_for_each(|peer| match number(&inbox, peer) {
            value if value == token(peer, rank) => Ok(()),
            value => Err(fail(peer, "it wrote here", value)),
        })
    });
    round.vote(arrived)?;
    let read = peers_of().try_for_each(|peer| {
        let mut word = vec![0; world * 8];
        shared.read_bytes(peers[peer], &mut word)?;
        match number(&word, rank) {
            value if value == token(rank, peer) => Ok(()),
            value => Err(fail(peer, "read back from it", value)),
        }
    });
    round.vote(read)?;
    let cleared = shared.write_bytes(peers[rank], &vec![0; world * 8]);
    round.vote(cleared)
}

/// The proof for memory whose contents are the caller's: every rank reads what the owner says is
/// there, and writes nothing.
fn prove_by_reading(
    shared: &Inner,
    round: &mut Round<'_>,
    peers: &[DeviceAddress],
    bytes: u64,
) -> Result<()> {
    let mut mine = vec![0; bytes.min(64) as usize];
    let read = shared.read_bytes(peers[shared.rank], &mut mine);
    round.vote(read)?;
    let contents = round.exchange(&mine)?;
    let compared = (0..shared.world).try_for_each(|peer| {
        let mut seen = vec![0; contents[peer].len()];
        shared.read_bytes(peers[peer], &mut seen)?;
        if seen == contents[peer] {
            return Ok(());
        }
        Err(Error::PeerUnreachable {
            rank: shared.rank,
            peer,
            reason: "mapped, but its first bytes read differently here than there; was the memory \
                     written while it was being registered?"
                .into(),
        })
    });
    round.vote(compared)
}

fn number(bytes: &[u8], index: usize) -> u64 {
    u64::from_le_bytes(
        bytes[index * 8..index * 8 + 8]
            .try_into()
            .expect("eight bytes"),
    )
}

/// The entry of the control block for a new allocation: rank 0 chooses, all take it.
fn entry_for(shared: &Inner, round: &mut Round<'_>) -> Result<usize> {
    let health = &shared.health;
    let chosen = if shared.rank == 0 {
        health
            .control()
            .take_entry(shared.world, |rank| health.is_gone(rank))
    } else {
        Some(0)
    };
    let chosen = chosen.ok_or_else(|| Error::InvalidArgument {
        rank: shared.rank,
        operation: "allocate",
        message: format!(
            "{} allocations are live or not yet given up by every rank; free some first",
            crate::control::MAX_ALLOCATIONS
        ),
    });
    let chosen = round.vote(chosen)?;
    let answers = round.exchange(&(chosen as u64).to_le_bytes())?;
    match answers[0].get(..8).map(|bytes| number(bytes, 0) as usize) {
        Some(entry) if entry < crate::control::MAX_ALLOCATIONS => Ok(entry),
        _ => Err(Error::InvalidArgument {
            rank: shared.rank,
            operation: "allocate",
            message: "rank 0 chose an entry that the control block does not have".into(),
        }),
    }
}

impl Allocation {
    /// Unmaps peers' copies and tells everybody. Call once no work of this rank uses them.
    pub(super) fn unmap(&self, shared: &Inner) {
        if self.unmapped.swap(true, Ordering::AcqRel) {
            return;
        }
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

    /// Frees this rank's copy if every peer has unmapped it or is gone; says whether it is freed.
    pub(super) fn try_free(&self, shared: &Inner) -> bool {
        if self.freed.load(Ordering::Acquire) {
            return true;
        }
        // A file's memory outlives its exporter's mapping while any peer maps it.
        if matches!(
            self.kind,
            ShareKind::MEMORY_FILE | ShareKind::VMM_FILE_DESCRIPTOR
        ) {
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
/// Nothing is unmapped while any stream of this rank has work, since that work may use it.
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
        !(unmapped && allocation.try_free(shared))
    });
}
