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

use crate::backend::abi::{DeviceAddress, MulticastSupport, RawMulticast};
use crate::backend::{Backend, CallResult, Multicast as _};
use crate::base::limits::DRAIN;
use crate::base::lock::lock;
use crate::base::names;
use crate::memory::multicast::steps::{Phase, Unmade, bounded};
use crate::memory::multicast::wire::Part;
use crate::rank::context::{Closing, Context};
use crate::rank::driver::Driver;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Whether collectives of a communicator go through multicast.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MulticastStatus {
    /// What all ranks have together.
    pub support: names::MulticastSupport,
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

/// A communicator's multicast, whatever became of it.
pub struct Multicast {
    support: AtomicU32,
    /// Why there is no more than that.
    pub(crate) reason: Mutex<Option<String>>,
    /// What this rank has to give back.
    pub(crate) object: Mutex<Option<Object>>,
    /// The set-up's.
    deadline: Duration,
    /// Whether the communicator is torn down.
    leaving: Arc<AtomicBool>,
}

impl Multicast {
    /// What the ranks agreed on, before there is an object.
    pub fn new(support: MulticastSupport, reason: Option<String>, context: &Context) -> Self {
        Self {
            support: AtomicU32::new(support.0),
            reason: Mutex::new(reason),
            object: Mutex::new(None),
            deadline: context.deadlines.setup,
            leaving: context.leaving.clone(),
        }
    }

    /// For a step of the set-up that begins now. Shorter than the others' wait for it, so that they hear the
    /// reason.
    pub fn set_up(&self) -> Phase {
        Phase::SetUp(Instant::now() + (self.deadline - self.deadline / 4))
    }

    /// For what is given back from now on.
    pub fn giving_back(&self) -> Phase {
        // Peers that leave too wait no longer for this rank, and the teardown is abandoned.
        let limit = match self.leaving.load(Ordering::Acquire) {
            true => self.deadline.min(DRAIN),
            false => self.deadline - self.deadline / 4,
        };
        Phase::GiveBack(Instant::now() + limit)
    }

    /// From here on all ranks go without, for this reason.
    pub fn forgo(&self, reason: String) {
        self.support
            .store(MulticastSupport::NONE.0, Ordering::Release);
        *lock(&self.reason) = Some(reason);
    }

    /// What the ranks have.
    pub fn support(&self) -> MulticastSupport {
        MulticastSupport(self.support.load(Ordering::Acquire))
    }

    /// What the ranks have, and why no more.
    pub fn status(&self) -> MulticastStatus {
        MulticastStatus {
            // The ranks agree on no other number.
            support: names::MulticastSupport::of(self.support()).unwrap_or_default(),
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

    /// The object, unless a call on it never returned.
    pub(crate) fn usable(&self) -> Option<RawMulticast> {
        let object = lock(&self.object);
        let usable = object.as_ref().filter(|object| !object.stuck);
        usable.map(|object| object.raw)
    }

    /// Leaves the object alone from here on: a call that never returned may yet use it.
    pub(crate) fn leave_alone(&self) {
        if let Some(object) = lock(&self.object).as_mut() {
            object.stuck = true;
        }
    }

    /// What came of a step of the way back, which goes on with the next one even if it failed; says whether it
    /// was made and returned.
    pub(crate) fn returned(
        &self,
        driver: &Driver,
        outcome: std::result::Result<(), Unmade>,
    ) -> bool {
        let Err(unmade) = outcome else {
            return true;
        };
        let reason = unmade.reason();
        tracing::warn!(rank = driver.rank, reason, "giving multicast up");
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
        driver: &Driver,
        what: &'static str,
        phase: Phase,
        call: impl FnOnce(&Backend, RawMulticast) -> CallResult<T> + Send + 'static,
        undo: impl FnOnce(&Backend, RawMulticast, T) + Send + 'static,
    ) -> std::result::Result<T, Unmade> {
        let gone = || Unmade::Uncalled("an earlier call on the object never returned".into());
        let raw = self.usable().ok_or_else(gone)?;
        let called = bounded(
            driver,
            what,
            phase,
            move |backend| call(backend, raw),
            move |backend, value| undo(backend, raw, value),
        );
        if let Err(Unmade::Stuck(_)) = called {
            self.leave_alone();
        }
        called
    }

    /// Undoes all that this rank did to the object, last step first, for no rank uses it any more; says whether
    /// nothing of it is left. What gives back may block too, and nothing that ends may end in that.
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
            driver,
            "giving the object back",
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
            // SAFETY: mapped by this rank, and by the caller's word not used.
            let unmap = move |backend: &Backend| unsafe { backend.multicast_unmap(raw) };
            let outcome = bounded(
                driver,
                "unmapping the object",
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

    /// Whatever is bound was given up by all, and is unbound.
    fn give_back(&self, driver: &Driver) -> bool {
        self.undo(driver)
    }
}
