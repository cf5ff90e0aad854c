//! Binding: the part of the object that an allocation takes, the same on all ranks, and its release.

use crate::backend::abi::{DeviceAddress, MulticastSupportCode};
use crate::backend::{Backend, Multicast as _};
use crate::base::error::Result;
use crate::base::lock::lock;
use crate::memory::multicast::object::Multicast;
use crate::memory::multicast::steps::{Agreed, CallError, agree, bounded};
use crate::memory::multicast::wire::{Part, encode_request, place};
use crate::rank::agreement::Round;
use crate::rank::allocation::{Allocation, Attachment};
use crate::rank::driver::Driver;
use std::sync::Arc;

impl Multicast {
    /// Sets an allocation's multicast address, after all ranks have bound and mapped it.
    pub(crate) fn reach(&self, allocation: &Allocation, part: Part) {
        let base = lock(&self.object)
            .as_ref()
            .and_then(|object| object.address);
        if let Some(base) = base {
            let address = DeviceAddress(base.0 + part.offset);
            allocation.set_multicast(address);
        }
    }

    /// Binds a new allocation, on all ranks or on none. A failure of the binding is not an error: collectives
    /// then use the members' own addresses.
    ///
    /// # Errors
    /// The errors of any collective call.
    pub(crate) fn bind(
        self: &Arc<Self>,
        driver: &Driver,
        round: &mut Round<'_>,
        allocation: &Allocation,
    ) -> Result<()> {
        match self.support() {
            MulticastSupportCode::EMULATED => emulate(allocation),
            // After a failure nothing more is bound; the reason is the same on all ranks.
            MulticastSupportCode::HARDWARE if lock(&self.reason).is_none() => {
                match self.bind_part(driver, round, allocation)? {
                    Ok(Some(part)) => self.reach(allocation, part),
                    Ok(None) => tracing::debug!(
                        rank = driver.rank,
                        bytes = allocation.bytes(),
                        "the multicast object has no room for a buffer"
                    ),
                    Err(reason) => {
                        tracing::warn!(
                            rank = driver.rank,
                            reason,
                            "multicast failed; later buffers do not use it"
                        );
                        *lock(&self.reason) = Some(reason);
                        // The allocation is not used yet.
                        allocation.stop_reaching(driver);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Binds an allocation to a part that no rank uses; `None` if there is no room. If it fails on another
    /// rank, or the ranks do not agree, the caller unbinds what this rank has bound.
    pub(crate) fn bind_part(
        self: &Arc<Self>,
        driver: &Driver,
        round: &mut Round<'_>,
        allocation: &Allocation,
    ) -> Agreed<Option<Part>> {
        let object = lock(&self.object);
        let known = object
            .as_ref()
            .filter(|object| !object.stuck)
            .map(|object| {
                let bytes = allocation.bytes() / object.granularity * object.granularity;
                (object.bytes, encode_request(bytes, &object.bound))
            });
        drop(object);
        let own = known.as_ref().map(|(_, request)| request.clone());
        let own = own
            .ok_or_else(|| "an earlier call on the multicast object has not returned".to_owned());
        let answers = match agree(round, &own, None)? {
            Ok(answers) => answers,
            Err(reason) => return Ok(Err(reason)),
        };
        let requests = answers.iter().map(|answer| answer.payload.as_slice());
        let part = match place(requests, known.map_or(0, |(size, _)| size)) {
            Ok(Some(part)) => part,
            Ok(None) => return Ok(Ok(None)),
            Err(reason) => return Ok(Err(reason)),
        };
        let handle = allocation.handle();
        let bound = self.try_on(
            driver,
            "binding memory to the multicast object",
            self.set_up(),
            // SAFETY: both are live; no rank has anything bound there.
            move |backend, raw| unsafe {
                backend.multicast_bind(raw, part.offset, handle, part.bytes)
            },
            move |backend, raw, ()| {
                // SAFETY: bound, and not used. A failure cannot be reported any more.
                let _ = unsafe { backend.multicast_unbind(raw, part.offset, part.bytes) };
            },
        );
        let here = matches!(bound, Ok(()) | Err(CallError::Stuck(_)));
        if here && let Some(object) = lock(&self.object).as_mut() {
            object.bound.push(part);
            let multicast = self.clone();
            allocation.attach(Box::new(Bound { multicast, part }));
        }
        let bound = bound.map(|()| Vec::new()).map_err(CallError::into_reason);
        let agreed = agree(round, &bound, None)?;
        Ok(agreed.map(|_| Some(part)))
    }

    /// Unbinds a part, if memory of this rank is bound there. Returns whether that memory may be freed. Blocks
    /// for at most the setup deadline, and holds no lock meanwhile.
    fn unbind_part(&self, driver: &Driver, part: Part) -> bool {
        let raw = match lock(&self.object).as_ref() {
            Some(object) if !object.bound.contains(&part) => return true,
            Some(object) if object.stuck => return false,
            Some(object) => object.raw,
            None => return true,
        };
        let unbind = move |backend: &Backend| {
            // SAFETY: bound by this rank; the caller guarantees that no work uses it any more.
            unsafe { backend.multicast_unbind(raw, part.offset, part.bytes) }
        };
        let outcome = bounded(
            driver,
            "unbinding memory from the multicast object",
            self.giving_back(),
            unbind,
            |_, ()| (),
        );
        let returned = self.returned(driver, outcome);
        if returned && let Some(object) = lock(&self.object).as_mut() {
            object.bound.retain(|bound| *bound != part);
        }
        returned
    }
}

/// This rank's memory that is bound to a part of the object.
struct Bound {
    multicast: Arc<Multicast>,
    part: Part,
}

impl Attachment for Bound {
    fn name(&self) -> &'static str {
        "part of the multicast object"
    }

    fn detach(&self, _driver: &Driver) {}

    /// Returns whether accesses through the object, from any rank, still reach the memory.
    fn reaches_memory(&self) -> bool {
        let object = lock(&self.multicast.object);
        object
            .iter()
            .any(|object| object.bound.contains(&self.part))
    }

    /// Unbinds memory that every rank has given up. The memory may not be freed if a call that never returned
    /// may still use it.
    fn release_memory(&self, driver: &Driver) -> bool {
        self.multicast.unbind_part(driver, self.part)
    }
}

/// Marks an allocation as reachable by emulated multicast, which uses the members' own addresses.
pub(crate) fn emulate(allocation: &Allocation) {
    allocation.set_multicast(DeviceAddress::NULL);
}
