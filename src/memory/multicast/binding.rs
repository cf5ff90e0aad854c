//! Binding: which part of the object an allocation takes, on all ranks alike, and giving it back.

use crate::backend::abi::{DeviceAddress, MulticastSupport};
use crate::backend::{Backend, Multicast as _};
use crate::base::error::Result;
use crate::memory::multicast::object::Multicast;
use crate::memory::multicast::steps::{Agreed, Unmade, Way, agree, bounded};
use crate::memory::multicast::wire::{Part, encode_wish, place};
use crate::rank::agreement::Round;
use crate::rank::allocation::Allocation;
use crate::rank::context::{Inner, lock};

impl Multicast {
    /// Says where an allocation can be reached, now that all ranks have bound and mapped it.
    pub(crate) fn reach(&self, allocation: &Allocation, part: Part) {
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
    pub(crate) fn bind(
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
                        // Nothing uses it yet.
                        self.unbind(shared, allocation);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Binds an allocation to a part that no rank uses; `None` where there is none. Where it fails on another
    /// rank, or the ranks do not agree, the caller unbinds what this rank has bound.
    pub(crate) fn bind_part(
        &self,
        shared: &Inner,
        round: &mut Round<'_>,
        allocation: &Allocation,
    ) -> Agreed<Option<Part>> {
        let object = lock(&self.object);
        let known = object
            .as_ref()
            .filter(|object| !object.stuck)
            .map(|object| {
                let bytes = allocation.own.bytes / object.granularity * object.granularity;
                (object.bytes, encode_wish(bytes, &object.bound))
            });
        drop(object);
        let own = known.as_ref().map(|(_, wish)| wish.clone());
        let own = own.ok_or_else(|| "an earlier call on the object never returned".to_owned());
        let answers = match agree(round, &own, None)? {
            Ok(answers) => answers,
            Err(reason) => return Ok(Err(reason)),
        };
        let wishes = answers.iter().map(|answer| answer.payload.as_slice());
        let part = match place(wishes, known.map_or(0, |(size, _)| size)) {
            Ok(Some(part)) => part,
            Ok(None) => return Ok(Ok(None)),
            Err(reason) => return Ok(Err(reason)),
        };
        let handle = allocation.own.handle;
        let bound = self.try_on(
            shared,
            "binding memory",
            Way::inwards(shared),
            // SAFETY: both are live; no rank has anything bound there.
            move |backend, raw| unsafe {
                backend.multicast_bind(raw, part.offset, handle, part.bytes)
            },
            move |backend, raw, ()| {
                // SAFETY: bound, and used by nobody. Nobody is left to tell of a failure.
                let _ = unsafe { backend.multicast_unbind(raw, part.offset, part.bytes) };
            },
        );
        let here = matches!(bound, Ok(()) | Err(Unmade::Stuck(_)));
        if here && let Some(object) = lock(&self.object).as_mut() {
            object.bound.push(part);
            // Set once: an allocation is bound when it is made.
            let _ = allocation.part.set(part);
        }
        let bound = bound.map(|()| Vec::new()).map_err(Unmade::into_reason);
        let agreed = agree(round, &bound, None)?;
        Ok(agreed.map(|_| Some(part)))
    }

    /// Unbinds a part, if memory of this rank is bound there; says whether that may be freed. Blocks for no
    /// longer than the set-up's deadline, and holds nothing meanwhile.
    fn unbind_part(&self, shared: &Inner, part: Part) -> bool {
        let raw = match lock(&self.object).as_ref() {
            Some(object) if !object.bound.contains(&part) => return true,
            Some(object) if object.stuck => return false,
            Some(object) => object.raw,
            None => return true,
        };
        let unbind = move |backend: &Backend| {
            // SAFETY: bound by this rank, and by the caller's word used by nobody any more.
            unsafe { backend.multicast_unbind(raw, part.offset, part.bytes) }
        };
        let outcome = bounded(
            shared,
            "unbinding memory",
            Way::back(shared),
            unbind,
            |_, ()| (),
        );
        let returned = self.returned(shared, outcome);
        if returned && let Some(object) = lock(&self.object).as_mut() {
            object.bound.retain(|bound| *bound != part);
        }
        returned
    }

    /// Whether this rank has bound an allocation, so that every rank's accesses reach its memory.
    pub(crate) fn has_bound(&self, allocation: &Allocation) -> bool {
        let object = lock(&self.object);
        let part = allocation.part.get();
        part.is_some_and(|part| object.iter().any(|object| object.bound.contains(part)))
    }

    /// Unbinds an allocation that every rank has given up, before it is freed; says whether it may be: a call
    /// that never returned may yet use it.
    pub(crate) fn unbind(&self, shared: &Inner, allocation: &Allocation) -> bool {
        let part = allocation.part.get();
        part.is_none_or(|&part| self.unbind_part(shared, part))
    }
}

/// Without a switch every allocation of the backend's can be reached, by its members' own addresses.
pub(crate) fn emulate(allocation: &Allocation) {
    let _ = allocation.multicast.set(DeviceAddress::NULL);
}
