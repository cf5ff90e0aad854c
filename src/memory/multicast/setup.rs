//! Setup of multicast: all ranks create and join, then bind the slots of collectives, then map; or none does.

use crate::backend::abi::{MulticastSupportCode, RawMulticast, ShareKindCode};
use crate::backend::{Backend, Multicast as _};
use crate::base::error::Result;
use crate::base::lock::lock;
use crate::bootstrap::Contribution;
use crate::memory::multicast::binding::emulate;
use crate::memory::multicast::object::{Multicast, Object};
use crate::memory::multicast::steps::{Agreed, CallError, agree, bounded};
use crate::memory::multicast::wire::{RankSupport, agreed, decode, encode};
use crate::rank::agreement::Round;
use crate::rank::allocation::Allocation;
use crate::rank::context::Context;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// Variable that sets the size of the object in bytes; the same on all ranks.
pub(crate) const BYTES_VARIABLE: &str = "SYMMEM_MULTICAST_BYTES";
/// Size of the object if the variable is unset.
const DEFAULT_BYTES: u64 = 1 << 30;

impl Multicast {
    /// Makes the first step: all agree on what they have, rank 0 creates an object, all others import it, and
    /// all join it.
    ///
    /// # Errors
    /// The errors of any collective call. A failure of multicast is not an error.
    pub(crate) fn join(
        shared: &Context,
        round: &mut Round<'_>,
        offers: &[RankSupport],
        kind: ShareKindCode,
        sharers: u32,
    ) -> Result<Arc<Self>> {
        let support = match shared.placement.spans_nodes() {
            true => Err("the ranks are on several nodes".into()),
            false => agreed(offers, kind, sharers),
        };
        let (support, reason) = match support {
            Ok(support) => (support, None),
            Err(reason) => (MulticastSupportCode::NONE, Some(reason)),
        };
        tracing::debug!(
            rank = shared.rank,
            support = support.name(),
            reason,
            "multicast"
        );
        let multicast = Arc::new(Self::new(support, reason, shared));
        // Releases everything made from here on.
        shared.on_close(multicast.clone());
        if support == MulticastSupportCode::HARDWARE
            && let Err(reason) = multicast.create_and_join(shared, round)?
        {
            multicast.go_without(shared, reason);
        }
        Ok(multicast)
    }

    fn create_and_join(&self, shared: &Context, round: &mut Round<'_>) -> Agreed<()> {
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
        // The others' descriptors keep the object alive until they have imported it, even if this rank releases it
        // first.
        let mut answers = match agree(round, &payload, descriptor.as_ref())? {
            Ok(answers) => answers,
            Err(reason) => return Ok(Err(reason)),
        };
        let joined = self.import_and_join(shared, answers.swap_remove(0));
        agree(round, &joined.map(|()| Vec::new()), None).map(|agreed| agreed.map(drop))
    }

    /// Creates the object, on one rank, and returns what the others need to import it.
    fn create(&self, shared: &Context) -> std::result::Result<(Vec<u8>, Option<OwnedFd>), String> {
        let bytes = multicast_bytes()?;
        let devices = shared.world as u32;
        let make = move |backend: &Backend| {
            let granularity = backend.multicast_granularity(devices, bytes)?;
            let raw = backend.multicast_create(devices, bytes)?;
            // SAFETY: created just now.
            let exported = unsafe { backend.multicast_export(raw) }.inspect_err(|_| {
                // SAFETY: as above, and not shared. The first failure is the one to report.
                let _ = unsafe { backend.multicast_release(raw) };
            })?;
            // SAFETY: by the backend's contract the caller owns the descriptor.
            let descriptor = (exported.descriptor >= 0)
                .then(|| unsafe { OwnedFd::from_raw_fd(exported.descriptor) });
            Ok((raw, granularity, exported, descriptor))
        };
        let undo = |backend: &Backend, (raw, ..): (RawMulticast, _, _, _)| {
            // SAFETY: created, and not shared.
            let _ = unsafe { backend.multicast_release(raw) };
        };
        let (raw, granularity, exported, descriptor) = bounded(
            shared,
            "creating the multicast object",
            self.set_up(),
            make,
            undo,
        )
        .map_err(CallError::into_reason)?;
        *lock(&self.object) = Some(Object::new(raw, exported.bytes, granularity));
        Ok((encode(&exported, granularity), descriptor))
    }

    fn import_and_join(
        &self,
        shared: &Context,
        offered: Contribution,
    ) -> std::result::Result<(), String> {
        // Import and join are one step, for which the other ranks wait.
        let phase = self.set_up();
        if shared.rank != 0 {
            let (mut exported, granularity) = decode(&offered.payload)
                .ok_or("rank 0 sent a multicast object in an unknown format; run the same build of symmem on all \
                    ranks")?;
            let import = move |backend: &Backend| {
                let descriptor = offered.descriptor.as_ref();
                exported.descriptor = descriptor.map_or(-1, AsRawFd::as_raw_fd);
                // SAFETY: rank 0 exported it. The descriptor, which is open during the call, keeps it alive even if rank 0
                // has released it, because it has heard of a death before this rank has.
                unsafe { backend.multicast_import(&exported) }
            };
            let undo = |backend: &Backend, raw| {
                // SAFETY: imported, and not used.
                let _ = unsafe { backend.multicast_release(raw) };
            };
            let raw = bounded(
                shared,
                "importing the multicast object",
                phase,
                import,
                undo,
            )
            .map_err(CallError::into_reason)?;
            *lock(&self.object) = Some(Object::new(raw, exported.bytes, granularity));
        }
        // SAFETY: the object is live, and joined once.
        self.try_on(
            shared,
            "joining the multicast object",
            phase,
            |backend, raw| unsafe { backend.multicast_join(raw) },
            // SAFETY: the abandoned wait left the object alone, with nothing bound or mapped.
            |backend, raw, ()| drop(unsafe { backend.multicast_release(raw) }),
        )
        .map_err(CallError::into_reason)
    }

    /// Makes the second and third step: all bind the slots of collectives, then all map the object.
    ///
    /// # Errors
    /// As [`Multicast::join`].
    pub(crate) fn bind_and_map(
        self: &Arc<Self>,
        shared: &Context,
        round: &mut Round<'_>,
        slots: &Arc<Allocation>,
    ) -> Result<()> {
        match self.support() {
            MulticastSupportCode::EMULATED => emulate(slots),
            MulticastSupportCode::HARDWARE => {
                if let Err(reason) = self.bind_slots_and_map(shared, round, slots)? {
                    self.go_without(shared, reason);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn bind_slots_and_map(
        self: &Arc<Self>,
        shared: &Context,
        round: &mut Round<'_>,
        slots: &Arc<Allocation>,
    ) -> Agreed<()> {
        let part = match self.bind_part(shared, round, slots)? {
            Ok(Some(part)) => part,
            Ok(None) => {
                let (slots, bytes) = (
                    slots.bytes(),
                    lock(&self.object).as_ref().map_or(0, |object| object.bytes),
                );
                return Ok(Err(format!(
                    "{slots} bytes for collectives do not fit in a multicast object of {bytes} bytes; raise \
                     {BYTES_VARIABLE}"
                )));
            }
            Err(reason) => return Ok(Err(reason)),
        };
        let mapped = self.try_on(
            shared,
            "mapping the multicast object",
            self.set_up(),
            // SAFETY: live and joined by all, and mapped here alone.
            |backend, raw| unsafe { backend.multicast_map(raw) },
            // SAFETY: mapped, and not used.
            |backend, raw, _| drop(unsafe { backend.multicast_unmap(raw) }),
        );
        let mapped = mapped.map(|address| {
            if let Some(object) = lock(&self.object).as_mut() {
                object.address = Some(address);
            }
        });
        let agreed = agree(
            round,
            &mapped.map(|()| Vec::new()).map_err(CallError::into_reason),
            None,
        )?;
        Ok(agreed.map(|_| self.reach(slots, part)))
    }

    /// Continues without multicast, on all ranks together, before anything uses the object.
    fn go_without(&self, shared: &Context, reason: String) {
        tracing::warn!(
            rank = shared.rank,
            reason,
            "collectives do not use multicast"
        );
        self.forgo(reason);
        self.undo(shared);
    }
}

/// Returns the bytes of each rank that the communicator's multicast object can reach, before the backend rounds
/// them up: the value of `SYMMEM_MULTICAST_BYTES`, or 1 GiB if it is unset. Must be the same on all ranks.
///
/// # Errors
/// The reason why the variable's value is invalid: it is not a positive whole number.
pub fn multicast_bytes() -> std::result::Result<u64, String> {
    match std::env::var(BYTES_VARIABLE) {
        Err(std::env::VarError::NotPresent) => Ok(DEFAULT_BYTES),
        Ok(text) if text.trim().is_empty() => Ok(DEFAULT_BYTES),
        Ok(text) => match text.trim().parse() {
            Ok(bytes) if bytes > 0 => Ok(bytes),
            _ => Err(format!(
                "{BYTES_VARIABLE}={text} is not a number of bytes from 1 up"
            )),
        },
        Err(error) => Err(format!("{BYTES_VARIABLE}: {error}")),
    }
}
