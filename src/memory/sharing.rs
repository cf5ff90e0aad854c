//! Symmetric allocation: every rank allocates, exports its copy, maps the copy of every peer on its node and proves the
//! mappings.
//!
//! Each step is one exchange among the ranks, since each takes the slowest rank's time.

use crate::backend::abi::{
    DeviceAddress, ExportedHandle, RawMapping, ShareKindCode, SharedAllocation, SharedMapping,
    Status,
};
use crate::backend::{CallResult, SymmetricMemory};
use crate::base::error::{Error, Result};
use crate::bootstrap::Contribution;
use crate::health::control::MAX_ALLOCATIONS;
use crate::memory::exchange_table::ExchangeTable;
use crate::memory::staging::Staging;
use crate::rank::agreement::Round;
use crate::rank::allocation::Allocation;
use crate::rank::allocation::AllocationParts;
use crate::rank::context::Context;
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two tries to export memory for which the vendor's runtime is not ready.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// The origin of the memory.
#[derive(Clone, Copy)]
pub enum Origin {
    /// The backend allocates it.
    Backend,
    /// The backend allocates it for words and LL packets that are polled while a peer writes them.
    Signals,
    /// The caller owns it, at this address.
    Caller(DeviceAddress),
}

/// What an allocation is made with.
#[derive(Clone, Copy)]
pub struct Allocator<'a> {
    /// This rank.
    pub context: &'a Context,
    /// Copies the words of the proof.
    pub staging: &'a Staging,
    /// The address table that lists it; `None` for allocations made before the table, from which nothing is
    /// ever sent.
    pub table: Option<&'a ExchangeTable>,
}

/// Makes an allocation together with all ranks, by the first strategy in `kinds` that works on all. Blocks for
/// at most the setup deadline in each step.
///
/// Returns the allocation and the strategy that worked. After a failure no memory stays allocated on any rank.
pub fn allocate(
    allocator: Allocator<'_>,
    round: &mut Round<'_>,
    kinds: &[ShareKindCode],
    bytes: u64,
    origin: Origin,
) -> Result<(Arc<Allocation>, ShareKindCode)> {
    let shared = allocator.context;
    let mut reasons = String::new();
    let mut last = None;
    for &kind in kinds {
        match attempt(allocator, round, kind, bytes, origin) {
            Ok(allocation) => return Ok((allocation, kind)),
            // The ranks are not in step any more.
            Err(error @ (Error::Mismatch { .. } | Error::Bootstrap(_))) => return Err(error),
            Err(error) if shared.health.check().is_err() => return Err(error),
            // Ranks may fail for different reasons, so all must go on to the next strategy.
            Err(error) => {
                let _ = write!(reasons, "{}: {error}; ", kind.name());
                tracing::debug!(rank = shared.rank, kind = kind.name(), %error, "sharing strategy failed");
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
            operation: "share memory",
            message: "the ranks' backends have no sharing strategy in common".into(),
        }),
    }
}

fn attempt(
    allocator: Allocator<'_>,
    round: &mut Round<'_>,
    kind: ShareKindCode,
    bytes: u64,
    origin: Origin,
) -> Result<Arc<Allocation>> {
    let shared = allocator.context;
    let begun = Instant::now();
    let own = own_copy(shared, kind, (bytes, begun), origin);
    // Freed below if the allocation fails.
    let allocated = own.as_ref().ok().copied();
    let offered = own.and_then(|own| {
        let (kind, payload, descriptor) = offer(allocator, own, (bytes, begun), origin)?;
        Ok((((own, kind), payload), descriptor))
    });
    let (offered, descriptor) = match offered {
        Ok((offered, descriptor)) => (Ok(offered), descriptor),
        Err(error) => (Err(error), None),
    };
    let offers = round.give(offered, descriptor.as_ref().map(AsFd::as_fd));
    let outcome = offers.and_then(|((own, kind), offers)| {
        map(allocator, round, own, kind, &offers, origin).inspect_err(|_| {
            // No rank frees before all have unmapped. If this step fails too, the ranks are out of step, and
            // the survivors give up.
            let _ = round.exchange(&[]);
        })
    });
    if let (Err(_), Some(own)) = (&outcome, allocated) {
        // SAFETY: allocated above; no work was enqueued on it that has not completed.
        if let Err(failure) = unsafe { shared.backend.free(own.handle) } {
            tracing::warn!(rank = shared.rank, %failure, "could not release memory after a failure");
        }
    }
    outcome
}

fn own_copy(
    shared: &Context,
    kind: ShareKindCode,
    (bytes, begun): (u64, Instant),
    origin: Origin,
) -> Result<SharedAllocation> {
    let backend = &shared.backend;
    // A backend may try to export the caller's memory.
    until_ready(shared, "register", (bytes, begun), || match origin {
        Origin::Backend => backend.allocate(kind, bytes),
        Origin::Signals => backend.allocate_signals(kind, bytes),
        // SAFETY: the caller of `register` keeps the memory until it is freed.
        Origin::Caller(address) => unsafe { backend.register(kind, address, bytes) },
    })?
    .map_err(|failure| match origin {
        Origin::Backend | Origin::Signals => {
            Error::backend(shared.rank, "allocate", failure).about(None, bytes)
        }
        Origin::Caller(address) => Error::NotShareable {
            rank: shared.rank,
            address: address.0,
            bytes,
            reason: failure.to_string(),
        },
    })
}

/// Returns what peers need to map this rank's copy: its kind, the handle, and the file descriptor. For the
/// caller's memory the handle is followed by its first bytes, with which peers prove that they read it.
fn offer(
    allocator: Allocator<'_>,
    own: SharedAllocation,
    (bytes, begun): (u64, Instant),
    origin: Origin,
) -> Result<(ShareKindCode, Vec<u8>, Option<OwnedFd>)> {
    let shared = allocator.context;
    const NAME: &str = "export";
    let exported = until_ready(shared, NAME, (bytes, begun), || {
        // SAFETY: allocated by the caller.
        unsafe { shared.backend.export(own.handle) }
    })?
    .map_err(|failure| Error::backend(shared.rank, NAME, failure).about(None, bytes))?;
    // SAFETY: by the backend's contract the caller owns the descriptor.
    let descriptor =
        (exported.descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(exported.descriptor) });
    let mut payload = encode(&exported);
    if let Origin::Caller(_) = origin {
        let mut contents = vec![0; bytes.min(64) as usize];
        allocator.staging.read(shared, own.address, &mut contents)?;
        payload.extend(contents);
    }
    Ok((exported.kind, payload, descriptor))
}

/// Repeats a call while the vendor's runtime is not ready for it, for less time since `begun` than the peers wait for this
/// rank, so that they receive the reason. The outer error is the health's, or that the time is over.
fn until_ready<T>(
    shared: &Context,
    operation: &'static str,
    (bytes, begun): (u64, Instant),
    mut call: impl FnMut() -> CallResult<T>,
) -> Result<CallResult<T>> {
    let limit = shared.deadlines.setup - shared.deadlines.setup / 8;
    loop {
        let failure = match call() {
            Err(failure) if failure.status == Status::NOT_READY => failure,
            done => return Ok(done),
        };
        let waited = begun.elapsed();
        if waited >= limit {
            return Err(Error::ShareTimeout {
                rank: shared.rank,
                operation,
                bytes,
                waited,
                failure: Box::new(failure),
            });
        }
        shared.health.look()?;
        std::thread::sleep(RETRY_INTERVAL);
    }
}

/// Completes the allocation after the offers: mappings, proof, the control block's entry.
fn map(
    allocator: Allocator<'_>,
    round: &mut Round<'_>,
    own: SharedAllocation,
    kind: ShareKindCode,
    offers: &[Contribution],
    origin: Origin,
) -> Result<Arc<Allocation>> {
    let shared = allocator.context;
    let mut unmapping = Unmapping {
        shared,
        mappings: Vec::new(),
    };
    let mut peers = Vec::new();
    let imported = (0..shared.world).try_for_each(|peer| {
        let local = match peer == shared.rank {
            true => Some(own.address),
            false => {
                (!shared.placement.share_node(peer, shared.rank)).then_some(DeviceAddress::NULL)
            }
        };
        if let Some(address) = local {
            peers.push(address);
            unmapping.mappings.push(None);
            return Ok(());
        }
        let mapping = import(shared, peer, &offers[peer])?;
        peers.push(mapping.address);
        unmapping.mappings.push(Some(mapping.handle));
        Ok(())
    });
    match origin {
        Origin::Backend | Origin::Signals => {
            let written = imported.and_then(|()| write_tokens(allocator, &peers));
            round.vote(written)?;
            round.vote(check_tokens(allocator, &peers))?;
        }
        Origin::Caller(_) => {
            let compared = imported.and_then(|()| compare_contents(allocator, &peers, offers));
            round.vote(compared)?;
        }
    }
    let cleared = match origin {
        Origin::Backend | Origin::Signals => clear_tokens(allocator, &peers),
        Origin::Caller(_) => Ok(()),
    };
    let entry = entry_for(shared, round, cleared)?;
    let allocation = Allocation::new(AllocationParts {
        number: round.number(),
        entry,
        kind,
        own,
        peers,
        mappings: std::mem::take(&mut unmapping.mappings),
    });
    if let Some(table) = allocator.table {
        table.list(shared, &allocation)?;
    }
    Ok(allocation)
}

/// Unmaps the mappings of an allocation that failed.
struct Unmapping<'a> {
    shared: &'a Context,
    mappings: Vec<Option<RawMapping>>,
}

impl Drop for Unmapping<'_> {
    fn drop(&mut self) {
        for mapping in self.mappings.drain(..).flatten() {
            // SAFETY: it came from `import`, and the work of the proof has completed or failed.
            if let Err(failure) = unsafe { self.shared.backend.unmap(mapping) } {
                tracing::warn!(rank = self.shared.rank, %failure, "could not release a mapping after a failure");
            }
        }
    }
}

/// Bytes of an encoded handle.
pub(crate) const HANDLE_BYTES: usize = 96;

/// Encodes a handle, without the descriptor, which travels beside it.
pub(crate) fn encode(handle: &ExportedHandle) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HANDLE_BYTES);
    bytes.extend_from_slice(&handle.kind.0.to_le_bytes());
    bytes.extend_from_slice(&handle.device.to_le_bytes());
    bytes.extend_from_slice(&handle.offset.to_le_bytes());
    bytes.extend_from_slice(&handle.bytes.to_le_bytes());
    bytes.extend_from_slice(&handle.address.to_le_bytes());
    bytes.extend_from_slice(&handle.opaque);
    bytes
}

/// Decodes a handle and ignores what follows it; `None` if it is too short.
pub(crate) fn decode(bytes: &[u8]) -> Option<ExportedHandle> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    Some(ExportedHandle {
        kind: ShareKindCode(word(0)?),
        device: word(4)?,
        offset: long(8)?,
        bytes: long(16)?,
        address: long(24)?,
        opaque: bytes.get(32..HANDLE_BYTES)?.try_into().ok()?,
        descriptor: -1,
        reserved: 0,
    })
}

fn import(shared: &Context, peer: usize, contribution: &Contribution) -> Result<SharedMapping> {
    let rank = shared.rank;
    let mut handle = decode(&contribution.payload).ok_or_else(|| Error::InvalidArgument {
        rank,
        operation: "import",
        message: format!("rank {peer} sent a handle in an unknown format; run the same build of symmem on all ranks"),
    })?;
    handle.descriptor = contribution
        .descriptor
        .as_ref()
        .map_or(-1, AsRawFd::as_raw_fd);
    match (handle.kind, shared.is_same_process(peer)) {
        // A legacy IPC handle cannot be opened in the process that made it; its address can be used directly.
        (ShareKindCode::LEGACY_IPC, true) => handle.kind = ShareKindCode::SAME_PROCESS,
        (ShareKindCode::SAME_PROCESS, false) => {
            return Err(Error::PeerUnreachable {
                rank,
                peer,
                reason: "it shared an address, which is valid only in its own process".into(),
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

// ---- the proof: drivers have often reported access to a peer that did not work ----

/// Returns the word that one rank writes to another.
fn token(from: usize, to: usize) -> [u8; 8] {
    (0x5359_4d4d_0000_0000 | (from as u64) << 16 | to as u64).to_le_bytes()
}

/// Returns the byte offset of a writer's word.
fn place(shared: &Context, from: usize) -> usize {
    shared.placement.local_rank(from) * 8
}

/// Returns the bytes of all writers' words.
fn places(shared: &Context) -> usize {
    node(shared).len() * 8
}

/// Returns the ranks of this node.
fn node(shared: &Context) -> &[usize] {
    shared.placement.node_members(shared.rank)
}

/// Returns the other ranks of this node.
fn others(shared: &Context) -> impl Iterator<Item = usize> + '_ {
    let ranks = node(shared).iter().copied();
    ranks.filter(|&peer| peer != shared.rank)
}

fn write_tokens(allocator: Allocator<'_>, peers: &[DeviceAddress]) -> Result<()> {
    let shared = allocator.context;
    let rank = shared.rank;
    others(shared).try_for_each(|peer| {
        let at = DeviceAddress(peers[peer].0 + place(shared, rank) as u64);
        allocator.staging.write(shared, at, &token(rank, peer))
    })
}

/// Checks that every peer's word has arrived here, and that each word that this rank wrote can be read back.
fn check_tokens(allocator: Allocator<'_>, peers: &[DeviceAddress]) -> Result<()> {
    let shared = allocator.context;
    let rank = shared.rank;
    let expect = |bytes: &[u8], from: usize, to: usize, what: &str| {
        let at = place(shared, from);
        let seen = &bytes[at..at + 8];
        if seen == token(from, to) {
            return Ok(());
        }
        Err(Error::PeerUnreachable {
            rank,
            peer: if from == rank { to } else { from },
            reason: format!("the mapping does not work: a word {what} reads as {seen:02x?}"),
        })
    };
    let mut inbox = vec![0; places(shared)];
    if node(shared).len() > 1 {
        allocator.staging.read(shared, peers[rank], &mut inbox)?;
    }
    others(shared).try_for_each(|peer| expect(&inbox, peer, rank, "that it wrote to this rank"))?;
    others(shared).try_for_each(|peer| {
        let mut bytes = vec![0; places(shared)];
        allocator.staging.read(shared, peers[peer], &mut bytes)?;
        expect(&bytes, rank, peer, "read back from it")
    })
}

fn clear_tokens(allocator: Allocator<'_>, peers: &[DeviceAddress]) -> Result<()> {
    let shared = allocator.context;
    if node(shared).len() == 1 {
        return Ok(());
    }
    allocator
        .staging
        .write(shared, peers[shared.rank], &vec![0; places(shared)])
}

/// Proves the mappings of the caller's memory: every rank reads each owner's first bytes and compares them;
/// none writes.
fn compare_contents(
    allocator: Allocator<'_>,
    peers: &[DeviceAddress],
    offers: &[Contribution],
) -> Result<()> {
    let shared = allocator.context;
    node(shared).iter().try_for_each(|&peer| {
        let contents = offers[peer].payload.get(HANDLE_BYTES..).unwrap_or_default();
        let mut seen = vec![0; contents.len()];
        allocator.staging.read(shared, peers[peer], &mut seen)?;
        if seen == contents {
            return Ok(());
        }
        Err(Error::PeerUnreachable {
            rank: shared.rank,
            peer,
            reason: "the mapping does not work: the first bytes read differently on the two ranks; do not write to \
                the memory while it is being registered"
                .into(),
        })
    })
}

/// Returns the control block's entry for a new allocation, which a node's lowest rank chooses for the node. `ready` is the outcome
/// of this rank's last step.
fn entry_for(shared: &Context, round: &mut Round<'_>, ready: Result<()>) -> Result<usize> {
    let health = &shared.health;
    let choose = || {
        let taken = health
            .control()
            .take_entry(node(shared), |rank| health.is_gone(rank));
        taken.ok_or_else(|| Error::InvalidArgument {
            rank: shared.rank,
            operation: "allocate",
            message: format!(
                "{MAX_ALLOCATIONS} allocations are live or not yet given up by every rank; free \
                 some first"
            ),
        })
    };
    let lowest = node(shared)[0];
    let chosen = match (ready, shared.rank == lowest) {
        (Ok(()), true) => choose().map(Some),
        (ready, _) => ready.map(|()| None),
    };
    let taken = chosen.as_ref().ok().copied().flatten();
    let payload = taken.map_or(Vec::new(), |entry| (entry as u64).to_le_bytes().to_vec());
    let answers = round
        .give(chosen.map(|_| ((), payload)), None)
        .inspect_err(|_| {
            if let Some(entry) = taken {
                health.control().give_back_entry(entry);
            }
        });
    let answer = &answers?.1[lowest].payload;
    let entry = answer.as_slice().try_into().map(u64::from_le_bytes);
    match entry.map(|entry| entry as usize) {
        Ok(entry) if entry < MAX_ALLOCATIONS => Ok(entry),
        _ => Err(Error::InvalidArgument {
            rank: shared.rank,
            operation: "allocate",
            message: format!(
                "rank {lowest} chose an entry that the control block does not have; run the same build of \
                symmem on all ranks"
            ),
        }),
    }
}
