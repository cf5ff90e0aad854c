//! Multicast objects of an open device.
//!
//! What an instance holds is kept in a list, so that closing it gives back whatever was not given up, in
//! order: unmapped, unbound, released. No lock is held while the driver is called: what binds or maps waits
//! for the other devices.

use super::functions::Functions;
use crate::driver::Driver;
use cudarc::driver::sys::CUmemGenericAllocationHandle;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Failure};

/// The objects of one instance, and whether it may have any.
pub struct Objects {
    pub(super) support: MulticastSupport,
    /// Why there are none, where there are none.
    why: String,
    next: AtomicU64,
    live: Mutex<HashMap<u64, Object>>,
}

/// An object that this instance has a reference to.
#[derive(Clone)]
pub(super) struct Object {
    pub handle: CUmemGenericAllocationHandle,
    pub bytes: u64,
    pub granularity: u64,
    /// Where it is mapped, if it is.
    pub address: Option<u64>,
    /// What of this device is bound: offset and bytes.
    pub bound: Vec<(u64, u64)>,
}

impl Objects {
    /// None yet.
    pub fn new((support, why): (MulticastSupport, String)) -> Self {
        Self {
            support,
            why,
            next: AtomicU64::new(1),
            live: Mutex::default(),
        }
    }

    /// A panic while the lock was held left a list of objects, each of them whole.
    pub(super) fn live(&self) -> MutexGuard<'_, HashMap<u64, Object>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn keep(&self, object: Object) -> RawMulticast {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.live().insert(number, object);
        RawMulticast(number)
    }

    pub(super) fn find(&self, call: &'static str, multicast: RawMulticast) -> CallResult<Object> {
        let found = self.live().get(&multicast.0).cloned();
        found.ok_or_else(|| {
            let number = multicast.0;
            let why = format!("multicast object {number} is not live in this instance");
            Failure::new(Status::INVALID_ARGUMENT, call, why)
        })
    }

    pub(super) fn change(&self, multicast: RawMulticast, change: impl FnOnce(&mut Object)) {
        if let Some(object) = self.live().get_mut(&multicast.0) {
            change(object);
        }
    }

    /// The driver's functions, for an instance that may call them.
    pub(super) fn functions(
        &self,
        call: &'static str,
        driver: &Driver,
    ) -> CallResult<&'static Functions> {
        self.has_objects(call).and_then(|()| Functions::get(driver))
    }

    /// Those functions, to give back what this instance made.
    pub(super) fn functions_to_give_back(
        &self,
        call: &'static str,
    ) -> CallResult<&'static Functions> {
        self.has_objects(call)
            .and_then(|()| Functions::to_give_back())
    }

    fn has_objects(&self, call: &'static str) -> CallResult<()> {
        match self.support {
            MulticastSupport::HARDWARE => Ok(()),
            _ => Err(Failure::new(Status::UNSUPPORTED, call, &*self.why)),
        }
    }
}
