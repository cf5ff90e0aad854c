//! Multicast of a communicator: one object for all of its ranks, or none for any of them.
//!
//! A switch has few places for objects, so a communicator makes one, of a fixed size, when it comes up, and
//! each symmetric allocation is bound to a part of it while there is room. It comes about in three steps, after
//! each of which the ranks agree: one rank has created the object, all have imported it and joined; all have
//! bound the slots of collectives; all have mapped it. Where a step fails on any rank, or takes too long, all
//! undo what they did, last step first, and go without: collectives then take the members' own addresses, and
//! each rank says why, once, in the same words.
//!
//! What bites: until every rank has joined, a rank that binds or maps may block for ever, so every such call
//! is made on a thread that can be abandoned; what it gives later is undone there. And memory is unbound before
//! it is freed, but not before every rank has given it up, since an access through the object reaches
//! everybody's.

use super::agreement::Round;
use super::allocation::Allocation;
use super::shared::{Inner, lock};
use crate::abandon::run_within;
use crate::backend::abi::{
    DeviceAddress, ExportedHandle, MulticastSupport, RawMulticast, ShareKind, Status,
};
use crate::backend::{Backend, CallResult, Failure, Multicast as _};
use crate::bootstrap::Contribution;
use crate::error::Result;
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// How large the object is, in bytes; alike on all ranks.
pub(super) const BYTES_VARIABLE: &str = "SYMMEM_MULTICAST_BYTES";
/// Where that variable is not set.
const DEFAULT_BYTES: u64 = 1 << 30;

/// Whether collectives of a communicator go through multicast.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MulticastStatus {
    /// What all ranks have together.
    pub support: MulticastSupport,
    /// Why it is no more than that, or why new buffers are not bound any more; alike on all ranks.
    pub reason: Option<String>,
}

/// What one rank's backend says, as it tells the others.
pub(super) struct Offer {
    support: MulticastSupport,
    why: String,
}

impl Offer {
    /// Asks the backend.
    pub fn of(backend: &Backend) -> Self {
        let none = |failure: Failure| Self {
            support: MulticastSupport::NONE,
            why: failure.message,
        };
        match backend.multicast_support() {
            // A plugin that is older than multicast has none.
            Err(failure) => none(failure),
            Ok(MulticastSupport::NONE) => match backend.multicast_granularity(1, 1) {
                Err(failure) => none(failure),
                Ok(_) => none(Failure::new(Status::UNSUPPORTED, "", "no reason was given")),
            },
            Ok(support) => Self {
                support,
                why: String::new(),
            },
        }
    }

    /// As it travels.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.support.0.to_le_bytes().to_vec();
        // Nobody reads more than this.
        bytes.extend(self.why.chars().take(512).collect::<String>().as_bytes());
        bytes
    }

    /// What a rank sent; `None` for what is too short.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (support, why) = bytes.split_first_chunk()?;
        Some(Self {
            support: MulticastSupport(u32::from_le_bytes(*support)),
            why: String::from_utf8_lossy(why).into_owned(),
        })
    }
}

/// What all ranks have together, and why no more; the same on every rank.
fn agreed(
    offers: &[Offer],
    kind: ShareKind,
    sharers: u32,
) -> std::result::Result<MulticastSupport, String> {
    let first = offers[0].support;
    for (rank, offer) in offers.iter().enumerate() {
        match offer.support {
            MulticastSupport::NONE => return Err(format!("rank {rank}: {}", offer.why)),
            support if support != first => {
                let (mine, theirs) = (first.name(), support.name());
                return Err(format!("rank 0 has {mine}, rank {rank} {theirs}"));
            }
            _ => {}
        }
    }
    match first {
        MulticastSupport::EMULATED => Ok(first),
        MulticastSupport::HARDWARE if offers.len() == 1 => {
            Err("there is only one rank, which needs none".into())
        }
        MulticastSupport::HARDWARE if sharers > 1 => Err(format!(
            "{sharers} ranks share a device, which can join an object once"
        )),
        MulticastSupport::HARDWARE if kind != ShareKind::VMM_FILE_DESCRIPTOR => Err(format!(
            "memory that is shared by {} cannot be bound",
            kind.name()
        )),
        MulticastSupport::HARDWARE => Ok(first),
        other => Err(format!("support {} is of a newer version", other.0)),
    }
}

/// A part of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    offset: u64,
    bytes: u64,
}

impl Part {
    fn end(self) -> u64 {
        self.offset + self.bytes
    }
}

/// The object, and what this rank did to it.
struct Object {
    raw: RawMulticast,
    bytes: u64,
    granularity: u64,
    address: Option<DeviceAddress>,
    bound: Vec<Part>,
}

/// A communicator's multicast, whatever became of it.
pub struct Multicast {
    support: AtomicU32,
    /// Why there is no more than that.
    reason: Mutex<Option<String>>,
    /// What this rank has to give back.
    object: Mutex<Option<Object>>,
}

/// The answer to a step on the control plane: what every rank gave, or why all go without.
type Agreed<T> = Result<std::result::Result<T, String>>;

/// The first byte of what a rank says of a step.
const WORKED: u8 = 0;
/// Its reason follows.
const FAILED: u8 = 1;

/// Ends a step: what all ranks gave if it worked on all of them, or the reason of the first on which it did
/// not, in the same words everywhere.
fn agree(
    round: &mut Round<'_>,
    outcome: &std::result::Result<Vec<u8>, String>,
    descriptor: Option<&OwnedFd>,
) -> Agreed<Vec<Contribution>> {
    let message = match outcome {
        Ok(payload) => [&[WORKED], payload.as_slice()].concat(),
        Err(why) => {
            let why: String = why.chars().take(1024).collect();
            [&[FAILED], why.as_bytes()].concat()
        }
    };
    let mut answers = round.exchange_with(&message, descriptor.map(AsFd::as_fd))?;
    for (rank, answer) in answers.iter_mut().enumerate() {
        let worked = answer.payload.first() == Some(&WORKED);
        answer.payload.drain(..answer.payload.len().min(1));
        if !worked {
            let why = String::from_utf8_lossy(&answer.payload);
            return Ok(Err(format!("rank {rank}: {why}")));
        }
    }
    Ok(Ok(answers))
}

/// The result of a call that may come when nobody waits for it any more: it is undone then.
struct Late<T, U: FnOnce(&Backend, T)> {
    backend: Arc<Backend>,
    result: Option<CallResult<T>>,
    undo: Option<U>,
}

impl<T, U: FnOnce(&Backend, T)> Drop for Late<T, U> {
    fn drop(&mut self) {
        if let (Some(Ok(value)), Some(undo)) = (self.result.take(), self.undo.take()) {
            undo(&self.backend, value);
        }
    }
}

/// Why a call has no result.
enum Unmade {
    /// It failed, and left nothing.
    Failed(String),
    /// It goes on, and may yet use what it was given.
    Stuck(String),
}

impl Unmade {
    fn reason(&self) -> &str {
        match self {
            Self::Failed(why) | Self::Stuck(why) => why,
        }
    }
}

/// Makes a call that may block until other ranks have come. Shorter than their wait for this rank, so that they
/// hear the reason.
fn bounded<T, U>(
    shared: &Inner,
    what: &'static str,
    call: impl FnOnce(&Backend) -> CallResult<T> + Send + 'static,
    undo: U,
) -> std::result::Result<T, Unmade>
where
    T: Send + 'static,
    U: FnOnce(&Backend, T) + Send + 'static,
{
    let limit = shared.options.setup_deadline - shared.options.setup_deadline / 4;
    let backend = Arc::clone(&shared.backend);
    let work = move || {
        let result = Some(call(&backend));
        let undo = Some(undo);
        Late {
            backend,
            result,
            undo,
        }
    };
    match run_within("symmem-multicast", limit, work) {
        Ok(mut outcome) => match outcome.result.take() {
            Some(Ok(value)) => Ok(value),
            Some(Err(failure)) => Err(Unmade::Failed(failure.to_string())),
            None => Err(Unmade::Failed(format!("{what} gave nothing"))),
        },
        Err(abandoned) => Err(Unmade::Stuck(format!("{what}: {abandoned}"))),
    }
}

fn warn(shared: &Inner, call: &'static str, outcome: CallResult<()>) {
    if let Err(failure) = outcome {
        tracing::warn!(rank = shared.rank, %failure, call, "giving multicast up");
    }
}

impl Multicast {
    fn new(support: MulticastSupport, reason: Option<String>) -> Self {
        Self {
            support: AtomicU32::new(support.0),
            reason: Mutex::new(reason),
            object: Mutex::new(None),
        }
    }

    /// What the ranks have.
    pub fn support(&self) -> MulticastSupport {
        MulticastSupport(self.support.load(Ordering::Acquire))
    }

    /// What the ranks have, and why no more.
    pub fn status(&self) -> MulticastStatus {
        MulticastStatus {
            support: self.support(),
            reason: lock(&self.reason).clone(),
        }
    }

    /// Bytes to allocate so that all of an allocation can be bound.
    pub fn padded(&self, bytes: u64) -> u64 {
        let granularity = lock(&self.object)
            .as_ref()
            .map_or(1, |object| object.granularity);
        bytes.checked_next_multiple_of(granularity).unwrap_or(bytes)
    }

    /// The first step: all agree on what they have, one creates an object, all import and join it.
    ///
    /// # Errors
    /// As any collective call; not for a failure of multicast.
    pub(super) fn join(
        shared: &Inner,
        round: &mut Round<'_>,
        offers: &[Offer],
        kind: ShareKind,
        sharers: u32,
    ) -> Result<()> {
        let (support, reason) = match agreed(offers, kind, sharers) {
            Ok(support) => (support, None),
            Err(reason) => (MulticastSupport::NONE, Some(reason)),
        };
        tracing::debug!(
            rank = shared.rank,
            support = support.name(),
            reason,
            "multicast"
        );
        // Set once, here. What is made from here on is given back by it.
        let multicast = shared.multicast.get_or_init(|| Self::new(support, reason));
        if support == MulticastSupport::HARDWARE
            && let Err(reason) = multicast.create_and_join(shared, round)?
        {
            multicast.go_without(shared, reason);
        }
        Ok(())
    }

    fn create_and_join(&self, shared: &Inner, round: &mut Round<'_>) -> Agreed<()> {
        let created = if shared.rank == 0 {
            self.create(shared).map(Some)
        } else {
            Ok(None)
        };
        let (payload, descriptor) = match created {
            Ok(Some((payload, descriptor))) => (Ok(payload), descriptor),
            Ok(None) => (Ok(Vec::new()), None),
            Err(why) => (Err(why), None),
        };
        // The creator keeps its own reference: all others import while the object is alive.
        let mut answers = match agree(round, &payload, descriptor.as_ref())? {
            Ok(answers) => answers,
            Err(reason) => return Ok(Err(reason)),
        };
        let joined = self.import_and_join(shared, answers.swap_remove(0));
        agree(round, &joined.map(|()| Vec::new()), None).map(|agreed| agreed.map(drop))
    }

    /// On one rank: makes the object, and what the others need of it.
    fn create(&self, shared: &Inner) -> std::result::Result<(Vec<u8>, Option<OwnedFd>), String> {
        let bytes = bytes_wanted()?;
        let devices = shared.world as u32;
        let make = move |backend: &Backend| {
            let granularity = backend.multicast_granularity(devices, bytes)?;
            let raw = backend.multicast_create(devices, bytes)?;
            // SAFETY: created just now.
            let exported = unsafe { backend.multicast_export(raw) }.inspect_err(|_| {
                // SAFETY: as above, and given to nobody. The first failure is the one to tell.
                let _ = unsafe { backend.multicast_release(raw) };
            })?;
            // SAFETY: the backend's contract gives the descriptor to the caller, here.
            let descriptor = (exported.descriptor >= 0)
                .then(|| unsafe { OwnedFd::from_raw_fd(exported.descriptor) });
            Ok((raw, granularity, exported, descriptor))
        };
        let undo = |backend: &Backend, (raw, ..): (RawMulticast, _, _, _)| {
            // SAFETY: created, and given to nobody.
            let _ = unsafe { backend.multicast_release(raw) };
        };
        let (raw, granularity, exported, descriptor) =
            bounded(shared, "creating the object", make, undo)
                .map_err(|unmade| unmade.reason().to_owned())?;
        *lock(&self.object) = Some(Object {
            raw,
            bytes: exported.bytes,
            granularity,
            address: None,
            bound: Vec::new(),
        });
        Ok((encode(&exported, granularity), descriptor))
    }

    fn import_and_join(
        &self,
        shared: &Inner,
        offered: Contribution,
    ) -> std::result::Result<(), String> {
        if shared.rank != 0 {
            let (mut exported, granularity) = decode(&offered.payload)
                .ok_or("rank 0 sent an object in another version's form")?;
            let import = move |backend: &Backend| {
                let descriptor = offered.descriptor.as_ref();
                exported.descriptor = descriptor.map_or(-1, AsRawFd::as_raw_fd);
                // SAFETY: rank 0 exported it, and keeps it at least until the vote after this.
                unsafe { backend.multicast_import(&exported) }
            };
            let undo = |backend: &Backend, raw| {
                // SAFETY: imported, and given to nobody.
                let _ = unsafe { backend.multicast_release(raw) };
            };
            let raw = bounded(shared, "importing the object", import, undo)
                .map_err(|unmade| unmade.reason().to_owned())?;
            *lock(&self.object) = Some(Object {
                raw,
                bytes: exported.bytes,
                granularity,
                address: None,
                bound: Vec::new(),
            });
        }
        // SAFETY: the object is live, and joined once.
        self.try_on(
            shared,
            "joining the object",
            |backend, raw| unsafe { backend.multicast_join(raw) },
            |_, _, ()| (),
        )
    }

    /// Makes a call on the object that may block. Where it does not return, the object is left alone for good:
    /// the call may yet use it.
    fn try_on<T: Send + 'static>(
        &self,
        shared: &Inner,
        what: &'static str,
        call: impl FnOnce(&Backend, RawMulticast) -> CallResult<T> + Send + 'static,
        undo: impl FnOnce(&Backend, RawMulticast, T) + Send + 'static,
    ) -> std::result::Result<T, String> {
        let raw = lock(&self.object).as_ref().map(|object| object.raw);
        let raw = raw.ok_or("there is no object any more")?;
        let called = bounded(
            shared,
            what,
            move |backend| call(backend, raw),
            move |backend, value| undo(backend, raw, value),
        );
        called.map_err(|unmade| {
            if let Unmade::Stuck(_) = unmade {
                lock(&self.object).take();
            }
            unmade.reason().to_owned()
        })
    }

    /// The second and the third step: all bind the slots of collectives, then all map the object.
    ///
    /// # Errors
    /// As [`Multicast::join`].
    pub(super) fn bind_and_map(
        &self,
        shared: &Inner,
        round: &mut Round<'_>,
        slots: &Allocation,
    ) -> Result<()> {
        match self.support() {
            MulticastSupport::EMULATED => emulate(slots),
            MulticastSupport::HARDWARE => {
                if let Err(reason) = self.bind_slots_and_map(shared, round, slots)? {
                    self.go_without(shared, reason);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn bind_slots_and_map(
        &self,
        shared: &Inner,
        round: &mut Round<'_>,
        slots: &Allocation,
    ) -> Agreed<()> {
        let part = match self.bind_part(shared, round, slots)? {
            Ok(Some(part)) => part,
            Ok(None) => {
                let (slots, bytes) = (
                    slots.own.bytes,
                    lock(&self.object).as_ref().map_or(0, |object| object.bytes),
                );
                return Ok(Err(format!(
                    "{slots} bytes for collectives do not fit an object of {bytes}; raise {BYTES_VARIABLE}"
                )));
            }
            Err(reason) => return Ok(Err(reason)),
        };
        let mapped = self.try_on(
            shared,
            "mapping the object",
            // SAFETY: live and joined by all, and mapped here alone.
            |backend, raw| unsafe { backend.multicast_map(raw) },
            // SAFETY: mapped, and given to nobody.
            |backend, raw, _| drop(unsafe { backend.multicast_unmap(raw) }),
        );
        let mapped = mapped.map(|address| {
            if let Some(object) = lock(&self.object).as_mut() {
                object.address = Some(address);
            }
        });
        let agreed = agree(round, &mapped.map(|()| Vec::new()), None)?;
        Ok(agreed.map(|_| self.reach(slots, part)))
    }

    /// Says where an allocation can be reached, now that all ranks have bound and mapped it.
    fn reach(&self, allocation: &Allocation, part: Part) {
        let base = lock(&self.object)
            .as_ref()
            .and_then(|object| object.address);
        if let Some(base) = base {
            let address = DeviceAddress(base.0 + part.offset);
            // Set once: an allocation is bound when it is made.
            let _ = allocation.multicast.set(address);
        }
    }

    /// Binds a new allocation, on all ranks or on none. Nothing that fails here is an error: the allocation is
    /// then reached by its members' own addresses.
    ///
    /// # Errors
    /// As any collective call.
    pub(super) fn bind(
        &self,
        shared: &Inner,
        round: &mut Round<'_>,
        allocation: &Allocation,
    ) -> Result<()> {
        match self.support() {
            MulticastSupport::EMULATED => emulate(allocation),
            // After a failure nothing more is bound; the reason is the same on all ranks.
            MulticastSupport::HARDWARE if lock(&self.reason).is_none() => {
                match self.bind_part(shared, round, allocation)? {
                    Ok(Some(part)) => self.reach(allocation, part),
                    Ok(None) => tracing::debug!(
                        rank = shared.rank,
                        bytes = allocation.own.bytes,
                        "no room is left for a buffer in the multicast object"
                    ),
                    Err(reason) => {
                        tracing::warn!(
                            rank = shared.rank,
                            reason,
                            "no more buffers are bound to multicast"
                        );
                        *lock(&self.reason) = Some(reason);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Binds an allocation to a part that no rank uses; `None` where there is none.
    fn bind_part(
        &self,
        shared: &Inner,
        round: &mut Round<'_>,
        allocation: &Allocation,
    ) -> Agreed<Option<Part>> {
        let known = lock(&self.object).as_ref().map(|object| {
            let bytes = allocation.own.bytes / object.granularity * object.granularity;
            (object.bytes, bytes, encode_parts(&object.bound))
        });
        let own = known.as_ref().map(|(_, _, bound)| bound.clone());
        let own = own.ok_or_else(|| "it lost the object".to_owned());
        let answers = match agree(round, &own, None)? {
            Ok(answers) => answers,
            Err(reason) => return Ok(Err(reason)),
        };
        // All ranks look at the same list, so all find the same place.
        let taken = answers
            .iter()
            .flat_map(|answer| decode_parts(&answer.payload));
        let (size, bytes) = known.map_or((0, 0), |(size, bytes, _)| (size, bytes));
        let Some(part) = first_fit(taken.collect(), size, bytes) else {
            return Ok(Ok(None));
        };
        let handle = allocation.own.handle;
        let bound = self.try_on(
            shared,
            "binding memory",
            // SAFETY: both are live; no rank has anything bound there.
            move |backend, raw| unsafe {
                backend.multicast_bind(raw, part.offset, handle, part.bytes)
            },
            // SAFETY: bound, and used by nobody.
            move |backend, raw, ()| {
                drop(unsafe { backend.multicast_unbind(raw, part.offset, part.bytes) })
            },
        );
        let here = bound.is_ok();
        if !here && lock(&self.object).is_none() {
            // The call goes on, with this memory.
            allocation.stuck.store(true, Ordering::Release);
        }
        if here && let Some(object) = lock(&self.object).as_mut() {
            object.bound.push(part);
            let _ = allocation.part.set(part);
        }
        let agreed = agree(round, &bound.map(|()| Vec::new()), None);
        if here && !matches!(agreed, Ok(Ok(_))) {
            self.unbind_part(shared, part);
        }
        agreed.map(|agreed| agreed.map(|_| Some(part)))
    }

    fn unbind_part(&self, shared: &Inner, part: Part) {
        let mut object = lock(&self.object);
        let Some(object) = object.as_mut() else {
            return;
        };
        let before = object.bound.len();
        object.bound.retain(|bound| *bound != part);
        if object.bound.len() < before {
            // SAFETY: bound by this rank, and by the caller's word used by nobody any more.
            let outcome = unsafe {
                shared
                    .backend
                    .multicast_unbind(object.raw, part.offset, part.bytes)
            };
            warn(shared, "unbind", outcome);
        }
    }

    /// Whether this rank has bound an allocation, so that every rank's accesses reach its memory.
    pub(super) fn has_bound(&self, allocation: &Allocation) -> bool {
        let object = lock(&self.object);
        let part = allocation.part.get();
        part.is_some_and(|part| object.iter().any(|object| object.bound.contains(part)))
    }

    /// Unbinds an allocation that every rank has given up, before it is freed.
    pub(super) fn unbind(&self, shared: &Inner, allocation: &Allocation) {
        if let Some(&part) = allocation.part.get() {
            self.unbind_part(shared, part);
        }
    }

    /// All ranks together do without. Before anything uses the object.
    fn go_without(&self, shared: &Inner, reason: String) {
        tracing::warn!(
            rank = shared.rank,
            reason,
            "collectives go without multicast"
        );
        self.support
            .store(MulticastSupport::NONE.0, Ordering::Release);
        *lock(&self.reason) = Some(reason);
        self.unmap(shared);
        self.release(shared);
    }

    /// Unmaps the object; no work of this rank uses it any more.
    pub(super) fn unmap(&self, shared: &Inner) {
        if let Some(object) = lock(&self.object).as_mut()
            && object.address.take().is_some()
        {
            // SAFETY: mapped by this rank, and by the caller's word not used.
            let outcome = unsafe { shared.backend.multicast_unmap(object.raw) };
            warn(shared, "unmap", outcome);
        }
    }

    /// Gives the object up, with what is still bound: no rank uses that.
    pub(super) fn release(&self, shared: &Inner) {
        let bound = lock(&self.object)
            .as_ref()
            .map(|object| object.bound.clone());
        for part in bound.into_iter().flatten().rev() {
            self.unbind_part(shared, part);
        }
        if let Some(object) = lock(&self.object).take() {
            // SAFETY: live, not mapped, and nothing of this rank is bound.
            let outcome = unsafe { shared.backend.multicast_release(object.raw) };
            warn(shared, "release", outcome);
        }
    }
}

/// Without a switch every allocation of the backend's can be reached, by its members' own addresses.
fn emulate(allocation: &Allocation) {
    let _ = allocation.multicast.set(DeviceAddress::NULL);
}

fn bytes_wanted() -> std::result::Result<u64, String> {
    match std::env::var(BYTES_VARIABLE) {
        Err(std::env::VarError::NotPresent) => Ok(DEFAULT_BYTES),
        Ok(text) if text.trim().is_empty() => Ok(DEFAULT_BYTES),
        Ok(text) => match text.trim().parse() {
            Ok(bytes) if bytes > 0 => Ok(bytes),
            _ => Err(format!("{BYTES_VARIABLE}={text} is no number of bytes")),
        },
        Err(error) => Err(format!("{BYTES_VARIABLE}: {error}")),
    }
}

/// The first place for so many bytes that no part takes.
fn first_fit(mut taken: Vec<Part>, size: u64, bytes: u64) -> Option<Part> {
    taken.sort_by_key(|part| part.offset);
    let mut offset = 0;
    for part in taken {
        if part.offset >= offset && part.offset - offset >= bytes {
            break;
        }
        offset = offset.max(part.end());
    }
    let fits = bytes > 0 && size.checked_sub(offset)? >= bytes;
    fits.then_some(Part { offset, bytes })
}

fn encode_parts(parts: &[Part]) -> Vec<u8> {
    let numbers = parts.iter().flat_map(|part| [part.offset, part.bytes]);
    numbers.flat_map(u64::to_le_bytes).collect()
}

/// What a peer sent; a damaged part, or one that no address space has, is left out.
fn decode_parts(bytes: &[u8]) -> Vec<Part> {
    let (parts, _) = bytes.as_chunks::<16>();
    let number = |half: &[u8]| {
        half.iter()
            .rev()
            .fold(0, |sum, &byte| sum << 8 | u64::from(byte))
    };
    let part = |bytes: &[u8; 16]| Part {
        offset: number(&bytes[..8]),
        bytes: number(&bytes[8..]),
    };
    let sound = |part: &Part| part.offset.checked_add(part.bytes).is_some();
    parts.iter().map(part).filter(sound).collect()
}

/// An object as it travels: device, bytes, what its backend put into the handle, and its granularity.
fn encode(exported: &ExportedHandle, granularity: u64) -> Vec<u8> {
    let mut bytes = exported.kind.0.to_le_bytes().to_vec();
    bytes.extend_from_slice(&exported.device.to_le_bytes());
    bytes.extend_from_slice(&exported.bytes.to_le_bytes());
    bytes.extend_from_slice(&exported.opaque);
    bytes.extend_from_slice(&granularity.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<(ExportedHandle, u64)> {
    let (kind, rest) = bytes.split_first_chunk()?;
    let (device, rest) = rest.split_first_chunk()?;
    let (size, rest) = rest.split_first_chunk()?;
    let (opaque, rest) = rest.split_first_chunk()?;
    let granularity = u64::from_le_bytes(rest.try_into().ok()?);
    let exported = ExportedHandle {
        kind: ShareKind(u32::from_le_bytes(*kind)),
        device: u32::from_le_bytes(*device),
        offset: 0,
        bytes: u64::from_le_bytes(*size),
        address: 0,
        opaque: *opaque,
        descriptor: -1,
        reserved: 0,
    };
    (granularity > 0).then_some((exported, granularity))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn part(offset: u64, bytes: u64) -> Part {
        Part { offset, bytes }
    }

    fn offers(supports: &[MulticastSupport]) -> Vec<Offer> {
        let offer = |&support| Offer {
            support,
            why: "it is off".into(),
        };
        supports.iter().map(offer).collect()
    }

    #[test]
    fn a_part_is_the_first_place_that_no_rank_uses() {
        assert_eq!(first_fit(vec![], 8, 4), Some(part(0, 4)));
        let ranks = || vec![part(4, 2), part(0, 2), part(4, 4), part(0, 2)];
        assert_eq!(first_fit(ranks(), 16, 2), Some(part(2, 2)));
        assert_eq!(first_fit(ranks(), 16, 3), Some(part(8, 3)));
        assert_eq!(first_fit(ranks(), 16, 8), Some(part(8, 8)));
        assert_eq!(first_fit(ranks(), 16, 9), None);
        assert_eq!(first_fit(vec![], 8, 0), None);
        // What a rank sends is its word only.
        assert_eq!(first_fit(vec![part(100, 1)], 8, 8), Some(part(0, 8)));
        assert_eq!(first_fit(vec![part(0, u64::MAX)], 8, 8), None);
    }

    #[test]
    fn parts_survive_their_way_and_impossible_ones_are_left_out() {
        let parts = [part(0, 4096), part(1 << 40, u64::from(u32::MAX))];
        assert_eq!(decode_parts(&encode_parts(&parts)), parts);
        let mut sent = encode_parts(&[part(u64::MAX, 2)]);
        sent.push(7);
        assert_eq!(decode_parts(&sent), []);
    }

    #[test]
    fn all_ranks_have_it_or_none_and_the_first_that_lacks_it_is_named() {
        use MulticastSupport as S;
        let kind = ShareKind::VMM_FILE_DESCRIPTOR;
        let (two, hardware) = (offers(&[S::HARDWARE; 2]), offers(&[S::HARDWARE]));
        assert_eq!(agreed(&two, kind, 1), Ok(S::HARDWARE));
        assert_eq!(
            agreed(&offers(&[S::EMULATED]), ShareKind::MEMORY_FILE, 2),
            Ok(S::EMULATED)
        );
        let without = [
            (
                agreed(&offers(&[S::HARDWARE, S::NONE]), kind, 1),
                "rank 1: it is off",
            ),
            (
                agreed(&offers(&[S::HARDWARE, S::EMULATED]), kind, 1),
                "rank 1 EMULATED",
            ),
            (agreed(&two, kind, 2), "2 ranks share"),
            (agreed(&two, ShareKind::LEGACY_IPC, 1), "LEGACY_IPC"),
            (agreed(&hardware, kind, 1), "one rank"),
            (agreed(&offers(&[S(9); 2]), kind, 1), "newer"),
        ];
        for (agreed, words) in without {
            let reason = agreed.unwrap_err();
            assert!(reason.contains(words), "{reason}");
        }
    }

    #[test]
    fn an_object_survives_its_way_and_a_short_one_is_refused() {
        let exported = ExportedHandle {
            kind: ShareKind::VMM_FILE_DESCRIPTOR,
            device: 3,
            offset: 0,
            bytes: 1 << 30,
            address: 0,
            opaque: [7; 64],
            descriptor: -1,
            reserved: 0,
        };
        let sent = encode(&exported, 2 << 20);
        let (found, granularity) = decode(&sent).expect("whole");
        assert_eq!(
            (found.device, found.bytes, found.opaque),
            (3, 1 << 30, [7; 64])
        );
        assert_eq!((found.kind, granularity), (exported.kind, 2 << 20));
        assert!(decode(&sent[1..]).is_none());
        assert!(decode(&encode(&exported, 0)).is_none());
        let offer = Offer::decode(&offers(&[MulticastSupport::HARDWARE])[0].encode());
        let offer = offer.expect("whole");
        assert_eq!(
            (offer.support, &*offer.why),
            (MulticastSupport::HARDWARE, "it is off")
        );
        assert!(Offer::decode(&[1, 0, 0]).is_none());
    }
}
