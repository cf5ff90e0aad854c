//! Registration of symmetric memory, so that ranks of other nodes reach it.

use super::network::Network;
use super::opening::reaches_memory;
use crate::backend::abi::{DeviceAddress, HostMemory};
use crate::base::error::{Error, Result};
use crate::base::lock::lock;
use crate::rank::agreement::Round;
use crate::rank::allocation::{Allocation, Attachment};
use crate::rank::driver::Driver;
use std::sync::{Arc, Mutex};
use symmem_ucx::Memory;

/// This rank's copy of an allocation as the network knows it, and the keys of the copies of other nodes' ranks.
struct Registration {
    number: u64,
    network: Arc<Network>,
    /// `None` without a key of it, or once it is revoked.
    memory: Mutex<Option<Memory>>,
    /// What is registered in its place, if anything.
    mirror: Option<HostMemory>,
}

/// Registers this rank's copy of an allocation, and exchanges keys with the ranks of other nodes. Where the host does not
/// address the device's memory, the allocation has no key: its bytes are staged. A step of the allocation's round, of all
/// ranks.
///
/// # Errors
/// [`Error::Network`]; the errors of a round.
pub fn register(
    network: &Arc<Network>,
    round: &mut Round<'_>,
    driver: &Driver,
    allocation: &Allocation,
) -> Result<()> {
    register_as(network, round, driver, allocation, None)
}

/// Registers this rank's copy of an allocation that only legs use, as [`register`] does. Where the host does not address
/// the device's memory, it registers pinned host memory of the same size in its place, and returns that. The memory stays
/// until the allocation is freed.
///
/// # Errors
/// As [`register`]; the backend's.
pub fn register_mirrored(
    network: &Arc<Network>,
    round: &mut Round<'_>,
    driver: &Driver,
    allocation: &Allocation,
) -> Result<Option<HostMemory>> {
    let mirror = match reaches_memory(driver) {
        true => Ok(None),
        false => {
            let taken = network.mirrors.take(&driver.backend, allocation.bytes());
            taken.map(Some)
        }
    };
    let mirror = mirror.map_err(|failure| driver.failed("host_allocate", failure));
    let mine = mirror.as_ref().ok().copied().flatten();
    let registered = round
        .vote(mirror)
        .and_then(|mirror| register_as(network, round, driver, allocation, mirror));
    if let (Err(_), Some(mirror)) = (&registered, mine) {
        network.mirrors.give_back(mirror);
    }
    registered.map(|()| mine)
}

fn register_as(
    network: &Arc<Network>,
    round: &mut Round<'_>,
    driver: &Driver,
    allocation: &Allocation,
    mirror: Option<HostMemory>,
) -> Result<()> {
    let (rank, number, bytes) = (driver.rank, allocation.number, allocation.bytes());
    let base = match mirror {
        Some(mirror) => DeviceAddress(mirror.host),
        None => allocation.at(rank, 0),
    };
    let failed = |failure: symmem_ucx::Failure| Error::Network {
        rank,
        peer: rank,
        node: network.placement.node(rank),
        bytes: Some(bytes),
        operation: "register memory",
        failure: Arc::new(failure),
    };
    let offer = match reaches_memory(driver) || mirror.is_some() {
        false => Ok((None, Vec::new())),
        true => {
            let address = std::ptr::with_exposed_provenance_mut(base.0 as usize);
            // SAFETY: the allocation is freed only after the registration has ended: it reaches the memory.
            let memory = unsafe { network.context().register(address, bytes as usize) };
            memory.map_err(failed).and_then(|memory| {
                let key = memory.packed_key().map_err(failed)?;
                Ok((Some(memory), [&base.0.to_le_bytes()[..], &key].concat()))
            })
        }
    };
    // Known before any peer has the key.
    lock(&network.inbox).open_window(number, base, bytes);
    let (memory, offers) = round.give(offer, None).inspect_err(|_| {
        lock(&network.inbox).close_window(number);
    })?;
    let copies: Vec<_> = offers
        .iter()
        .enumerate()
        .map(|(peer, offer)| {
            let (base, key) = offer.payload.split_first_chunk()?;
            let remote = !network.placement.share_node(rank, peer);
            remote.then(|| (u64::from_le_bytes(*base), key.to_vec()))
        })
        .collect();
    let keys = match &mut *lock(&network.engine) {
        Some(engine) => engine
            .wires
            .add_keys(number, &copies)
            .map_err(|fault| fault.into_error(rank, &network.placement)),
        None => driver.health.check(),
    };
    let outcome = round.vote(keys);
    if outcome.is_err() {
        lock(&network.inbox).close_window(number);
    } else {
        allocation.attach(Box::new(Registration {
            number,
            network: network.clone(),
            memory: Mutex::new(memory),
            mirror,
        }));
    }
    outcome
}

impl Attachment for Registration {
    fn name(&self) -> &'static str {
        "network"
    }

    fn detach(&self, _driver: &Driver) {}

    /// No work of this rank addresses peers' copies any more.
    fn unmapped(&self, _driver: &Driver) {
        if let Some(engine) = &mut *lock(&self.network.engine) {
            engine.wires.give_up(self.number);
        }
        self.network.wake();
    }

    fn is_addressed(&self, _driver: &Driver) -> bool {
        self.network.is_addressed(self.number)
    }

    fn reaches_memory(&self) -> bool {
        true
    }

    /// Revokes the keys.
    fn release_memory(&self, _driver: &Driver) -> bool {
        let registered = lock(&self.memory).take();
        lock(&self.network.inbox).close_window(self.number);
        if registered.is_some()
            && let Some(mirror) = self.mirror
        {
            drop(registered);
            self.network.mirrors.give_back(mirror);
        }
        true
    }
}
