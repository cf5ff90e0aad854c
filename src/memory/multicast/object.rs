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

use crate::backend::abi::{DeviceAddress, MulticastSupport, RawMulticast, ShareKind};
use crate::backend::{Backend, CallResult, Multicast as _};
use crate::base::error::Result;
use crate::bootstrap::Contribution;
use crate::memory::multicast::binding::emulate;
use crate::memory::multicast::steps::{Agreed, Unmade, Way, agree, bounded};
use crate::memory::multicast::wire::{Offer, Part, agreed, decode, encode};
use crate::rank::agreement::Round;
use crate::rank::allocation::Allocation;
use crate::rank::context::{Inner, lock};
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// How large the object is, in bytes; alike on all ranks.
pub(crate) const BYTES_VARIABLE: &str = "SYMMEM_MULTICAST_BYTES";
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

/// The object, and what this rank did to it.
pub(crate) struct Object {
    pub(crate) raw: RawMulticast,
    pub(crate) bytes: u64,
    pub(crate) granularity: u64,
    pub(crate) address: Option<DeviceAddress>,
    /// Where memory of this rank is bound, or where a call that never returned may yet bind it.
    pub(crate) bound: Vec<Part>,
    /// Whether a call on it never returned. It is left alone then, to the end of the process, and so is
    /// whatever is bound to it.
    pub(crate) stuck: bool,
}

impl Object {
    fn new(raw: RawMulticast, bytes: u64, granularity: u64) -> Self {
        Self {
            raw,
            bytes,
            granularity,
            address: None,
            bound: Vec::new(),
            stuck: false,
        }
    }
}

/// A communicator's multicast, whatever became of it.
pub struct Multicast {
    support: AtomicU32,
    /// Why there is no more than that.
    pub(crate) reason: Mutex<Option<String>>,
    /// What this rank has to give back.
    pub(crate) object: Mutex<Option<Object>>,
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
        // What all agreed on, and not what became of this rank's object: sizes are alike on all ranks.
        let granularity = match self.support() {
            MulticastSupport::HARDWARE => {
                lock(&self.object).as_ref().map(|object| object.granularity)
            }
            _ => None,
        };
        let granularity = granularity.unwrap_or(1);
        bytes.checked_next_multiple_of(granularity).unwrap_or(bytes)
    }

    /// The first step: all agree on what they have, one creates an object, all import and join it.
    ///
    /// # Errors
    /// As any collective call; not for a failure of multicast.
    pub(crate) fn join(
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
        let bytes = multicast_bytes()?;
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
        let (raw, granularity, exported, descriptor) = bounded(
            shared,
            "creating the object",
            Way::inwards(shared),
            make,
            undo,
        )
        .map_err(Unmade::into_reason)?;
        *lock(&self.object) = Some(Object::new(raw, exported.bytes, granularity));
        Ok((encode(&exported, granularity), descriptor))
    }

    fn import_and_join(
        &self,
        shared: &Inner,
        offered: Contribution,
    ) -> std::result::Result<(), String> {
        // Both are one step, for which the others wait.
        let way = Way::inwards(shared);
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
            let raw = bounded(shared, "importing the object", way, import, undo)
                .map_err(Unmade::into_reason)?;
            *lock(&self.object) = Some(Object::new(raw, exported.bytes, granularity));
        }
        // SAFETY: the object is live, and joined once.
        self.try_on(
            shared,
            "joining the object",
            way,
            |backend, raw| unsafe { backend.multicast_join(raw) },
            // SAFETY: whoever waited for this left the object alone, with nothing bound or mapped.
            |backend, raw, ()| drop(unsafe { backend.multicast_release(raw) }),
        )
        .map_err(Unmade::into_reason)
    }

    /// The object, unless a call on it never returned.
    fn usable(&self) -> Option<RawMulticast> {
        let object = lock(&self.object);
        let usable = object.as_ref().filter(|object| !object.stuck);
        usable.map(|object| object.raw)
    }

    /// Leaves the object alone from here on: a call that never returned may yet use it.
    fn leave_alone(&self) {
        if let Some(object) = lock(&self.object).as_mut() {
            object.stuck = true;
        }
    }

    /// What came of a step of the way back, which goes on with the next one even if it failed; says whether it
    /// was made and returned.
    pub(crate) fn returned(
        &self,
        shared: &Inner,
        outcome: std::result::Result<(), Unmade>,
    ) -> bool {
        let Err(unmade) = outcome else {
            return true;
        };
        let reason = unmade.reason();
        tracing::warn!(rank = shared.rank, reason, "giving multicast up");
        // A driver that fails may tell of earlier work, and have given back: it is asked for the next step all the
        // same, and keeps what it would not give.
        let returned = matches!(unmade, Unmade::Failed(_));
        if !returned {
            self.leave_alone();
        }
        returned
    }

    /// Makes a call on the object that may block. Where it does not return, the object is left alone for good.
    pub(crate) fn try_on<T: Send + 'static>(
        &self,
        shared: &Inner,
        what: &'static str,
        way: Way,
        call: impl FnOnce(&Backend, RawMulticast) -> CallResult<T> + Send + 'static,
        undo: impl FnOnce(&Backend, RawMulticast, T) + Send + 'static,
    ) -> std::result::Result<T, Unmade> {
        let gone = || Unmade::Uncalled("an earlier call on the object never returned".into());
        let raw = self.usable().ok_or_else(gone)?;
        let called = bounded(
            shared,
            what,
            way,
            move |backend| call(backend, raw),
            move |backend, value| undo(backend, raw, value),
        );
        if let Err(Unmade::Stuck(_)) = called {
            self.leave_alone();
        }
        called
    }

    /// The second and the third step: all bind the slots of collectives, then all map the object.
    ///
    /// # Errors
    /// As [`Multicast::join`].
    pub(crate) fn bind_and_map(
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
            Way::inwards(shared),
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
        let agreed = agree(
            round,
            &mapped.map(|()| Vec::new()).map_err(Unmade::into_reason),
            None,
        )?;
        Ok(agreed.map(|_| self.reach(slots, part)))
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
        self.give_back(shared);
    }

    /// Undoes all that this rank did to the object, last step first, for no rank uses it any more; says whether
    /// nothing of it is left. What gives back may block too, and nothing that ends may end in that.
    pub(crate) fn give_back(&self, shared: &Inner) -> bool {
        let known = lock(&self.object).as_ref().map(|object| {
            let Object { raw, address, .. } = *object;
            (raw, address, object.bound.clone(), object.stuck)
        });
        let (raw, address, bound) = match known {
            None => return true,
            Some((.., true)) => return false,
            Some((raw, address, bound, false)) => (raw, address, bound),
        };
        let undo = move |backend: &Backend| {
            // SAFETY: all of this was done by this rank, and nothing uses it, or any more.
            unsafe {
                let mut result = match address {
                    Some(_) => backend.multicast_unmap(raw),
                    None => Ok(()),
                };
                for part in bound.iter().rev() {
                    let unbound = backend.multicast_unbind(raw, part.offset, part.bytes);
                    result = result.and(unbound);
                }
                let released = backend.multicast_release(raw);
                result.and(released)
            }
        };
        let outcome = bounded(
            shared,
            "giving the object back",
            Way::back(shared),
            undo,
            |_, ()| (),
        );
        let returned = self.returned(shared, outcome);
        if returned {
            lock(&self.object).take();
        }
        returned
    }

    /// Unmaps the object; no work of this rank uses it any more.
    pub(crate) fn unmap(&self, shared: &Inner) {
        let object = lock(&self.object);
        let mapped = object
            .as_ref()
            .is_some_and(|object| object.address.is_some());
        drop(object);
        if let Some(raw) = self.usable().filter(|_| mapped) {
            // SAFETY: mapped by this rank, and by the caller's word not used.
            let unmap = move |backend: &Backend| unsafe { backend.multicast_unmap(raw) };
            let outcome = bounded(
                shared,
                "unmapping the object",
                Way::back(shared),
                unmap,
                |_, ()| (),
            );
            if self.returned(shared, outcome)
                && let Some(object) = lock(&self.object).as_mut()
            {
                object.address = None;
            }
        }
    }
}

/// How many bytes of each rank the one multicast object of a communicator reaches, before the backend rounds them
/// up: what `SYMMEM_MULTICAST_BYTES` says, and 1 GiB where it says nothing. The same on all ranks.
///
/// # Errors
/// What is wrong with the variable: text that is no number of bytes, or none of them.
pub fn multicast_bytes() -> std::result::Result<u64, String> {
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
