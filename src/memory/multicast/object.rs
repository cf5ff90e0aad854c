//! Multicast of a communicator: one NVLS object for all of its ranks, or none for any of them.
//!
//! A switch has room for few objects, so a communicator makes one of a fixed size during its setup, and each
//! symmetric allocation is bound to a part of it while there is room. The setup takes three steps, each
//! followed by an agreement of the ranks: one rank has created the object, all have imported and joined it; all
//! have bound the slots of collectives; all have mapped it. If a step fails on any rank, or takes too long, all
//! ranks undo their steps in reverse order and go without multicast: collectives then use the members' own
//! addresses, and each rank logs the reason once, in the same words.
//!
//! Dangers: until every rank has joined, a rank that binds or maps may block forever. So every such call runs
//! on a thread that can be abandoned, and a late result is undone there. Memory is unbound before it is freed,
//! but only after every rank has given it up, since an access through the object reaches the memory of all
//! ranks.

use crate::backend::abi::{DeviceAddress, MulticastSupportCode, RawMulticast};
use crate::backend::{Backend, CallResult, Multicast as _};
use crate::base::deadline::after;
use crate::base::limits::DRAIN;
use crate::base::lock::lock;
use crate::base::names;
use crate::memory::multicast::steps::{CallError, Phase, bounded};
use crate::memory::multicast::wire::Part;
use crate::rank::context::{Closing, Context};
use crate::rank::driver::Driver;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A communicator's status of multicast.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MulticastStatus {
    /// The support that all ranks have in common.
    pub support: names::MulticastSupport,
    /// The reason why there is no more support, or why new buffers are no longer bound; the same on all ranks.
    pub reason: Option<String>,
}

/// The object, and this rank's use of it.
pub(crate) struct Object {
    pub(crate) raw: RawMulticast,
    pub(crate) bytes: u64,
    pub(crate) granularity: u64,
    pub(crate) address: Option<DeviceAddress>,
    /// Parts where memory of this rank is bound, or where a call that never returned may still bind it.
    pub(crate) bound: Vec<Part>,
    /// Whether a call on it never returned. The object, and all memory bound to it, are then left alone until
    /// the process ends.
    pub(crate) stuck: bool,
}

impl Object {
    pub(crate) fn new(raw: RawMulticast, bytes: u64, granularity: u64) -> Self {
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

/// A communicator's multicast, with or without an object.
pub struct Multicast {
    support: AtomicU32,
    /// The reason why there is no more support.
    pub(crate) reason: Mutex<Option<String>>,
    /// The object that this rank must release.
    pub(crate) object: Mutex<Option<Object>>,
    /// The setup deadline.
    deadline: Duration,
    /// Whether the communicator is being torn down.
    leaving: Arc<AtomicBool>,
}

impl Multicast {
    /// Makes the state after the ranks' agreement, before there is an object.
    pub fn new(support: MulticastSupportCode, reason: Option<String>, context: &Context) -> Self {
        Self {
            support: AtomicU32::new(support.0),
            reason: Mutex::new(reason),
            object: Mutex::new(None),
            deadline: context.deadlines.setup,
            leaving: context.leaving.clone(),
        }
    }

    /// Returns the phase of a setup step that begins now. Its deadline is shorter than the others' wait for
    /// this rank, so that they receive the reason.
    pub fn set_up(&self) -> Phase {
        Phase::SetUp(after(Instant::now(), self.deadline - self.deadline / 4))
    }

    /// Returns the phase of a release that begins now.
    pub fn giving_back(&self) -> Phase {
        // Peers that leave too do not wait longer for this rank, and the teardown is abandoned after that.
        let limit = match self.leaving.load(Ordering::Acquire) {
            true => self.deadline.min(DRAIN),
            false => self.deadline - self.deadline / 4,
        };
        Phase::GiveBack(after(Instant::now(), limit))
    }

    /// Disables multicast from here on, on all ranks alike, for this reason.
    pub fn forgo(&self, reason: String) {
        self.support
            .store(MulticastSupportCode::NONE.0, Ordering::Release);
        *lock(&self.reason) = Some(reason);
    }

    /// Returns the support that the ranks have.
    pub fn support(&self) -> MulticastSupportCode {
        MulticastSupportCode(self.support.load(Ordering::Acquire))
    }

    /// Returns the support that the ranks have, and the reason why there is no more.
    pub fn status(&self) -> MulticastStatus {
        MulticastStatus {
            // The ranks agree on no other number.
            support: names::MulticastSupport::of(self.support()).unwrap_or_default(),
            reason: lock(&self.reason).clone(),
        }
    }

    /// Returns the bytes to allocate so that all of an allocation can be bound.
    pub fn padded(&self, bytes: u64) -> u64 {
        // Follows from what all ranks agreed on, not from the state of this rank's object: sizes are the same
        // on all ranks.
        let granularity = match self.support() {
            MulticastSupportCode::HARDWARE => {
                lock(&self.object).as_ref().map(|object| object.granularity)
            }
            _ => None,
        };
        let granularity = granularity.unwrap_or(1);
        bytes.checked_next_multiple_of(granularity).unwrap_or(bytes)
    }

    /// Returns the object, unless a call on it never returned.
    pub(crate) fn usable(&self) -> Option<RawMulticast> {
        let object = lock(&self.object);
        let usable = object.as_ref().filter(|object| !object.stuck);
        usable.map(|object| object.raw)
    }

    /// Leaves the object alone from here on: a call that never returned may still use it.
    pub(crate) fn leave_alone(&self) {
        if let Some(object) = lock(&self.object).as_mut() {
            object.stuck = true;
        }
    }

    /// Handles the outcome of a release step; the next step follows even if this one failed. Returns whether
    /// the call was made and returned.
    pub(crate) fn returned(
        &self,
        driver: &Driver,
        outcome: std::result::Result<(), CallError>,
    ) -> bool {
        let Err(unmade) = outcome else {
            return true;
        };
        let reason = unmade.reason();
        tracing::warn!(
            rank = driver.rank,
            reason,
            "a step of releasing multicast failed"
        );
        // The failure may belong to earlier work, and the release may have succeeded. So the next step is tried
        // all the same; the driver keeps what it did not release.
        let returned = matches!(unmade, CallError::Failed(_));
        if !returned {
            self.leave_alone();
        }
        returned
    }

    /// Makes a call on the object that may block. If it does not return, the object is left alone for good.
    pub(crate) fn try_on<T: Send + 'static>(
        &self,
        driver: &Driver,
        what: &'static str,
        phase: Phase,
        call: impl FnOnce(&Backend, RawMulticast) -> CallResult<T> + Send + 'static,
        undo: impl FnOnce(&Backend, RawMulticast, T) + Send + 'static,
    ) -> std::result::Result<T, CallError> {
        let gone = || {
            CallError::Uncalled("an earlier call on the multicast object has not returned".into())
        };
        let raw = self.usable().ok_or_else(gone)?;
        let called = bounded(
            driver,
            what,
            phase,
            move |backend| call(backend, raw),
            move |backend, value| undo(backend, raw, value),
        );
        if let Err(CallError::Stuck(_)) = called {
            self.leave_alone();
        }
        called
    }

    /// Undoes this rank's steps on the object in reverse order; no rank uses it any more. Returns whether it is
    /// released. The calls may block, so they run on a thread that can be abandoned.
    pub(crate) fn undo(&self, driver: &Driver) -> bool {
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
            // SAFETY: all of this was done by this rank, and nothing uses it any more.
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
            driver,
            "releasing the multicast object",
            self.giving_back(),
            undo,
            |_, ()| (),
        );
        let returned = self.returned(driver, outcome);
        if returned {
            lock(&self.object).take();
        }
        returned
    }

    /// Unmaps the object; no work of this rank uses it any more.
    pub(crate) fn unmap(&self, driver: &Driver) {
        let object = lock(&self.object);
        let mapped = object
            .as_ref()
            .is_some_and(|object| object.address.is_some());
        drop(object);
        if let Some(raw) = self.usable().filter(|_| mapped) {
            // SAFETY: mapped by this rank; the caller guarantees that nothing uses it.
            let unmap = move |backend: &Backend| unsafe { backend.multicast_unmap(raw) };
            let outcome = bounded(
                driver,
                "unmapping the multicast object",
                self.giving_back(),
                unmap,
                |_, ()| (),
            );
            if self.returned(driver, outcome)
                && let Some(object) = lock(&self.object).as_mut()
            {
                object.address = None;
            }
        }
    }
}

impl Closing for Multicast {
    fn before_unmap(&self, driver: &Driver) {
        self.unmap(driver);
    }

    /// All ranks have given up what is bound; it is unbound here.
    fn give_back(&self, driver: &Driver) -> bool {
        self.undo(driver)
    }
}
