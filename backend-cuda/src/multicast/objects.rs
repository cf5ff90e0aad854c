//! Multicast objects of an open device.
//!
//! They are kept in a list, so that closing the device can unmap, unbind and release those that the caller did
//! not. No lock is held during a driver call, since binding and mapping wait for the other devices.

use super::functions::Functions;
use crate::driver::Driver;
use cudarc::driver::sys::CUmemGenericAllocationHandle;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Failure};

/// The objects of one open device, and whether it may have any.
pub struct Objects {
    pub(super) support: MulticastSupportCode,
    /// Why the device may have no objects, if so.
    why: String,
    next: AtomicU64,
    live: Mutex<HashMap<u64, Object>>,
}

/// An object that this device holds a reference to.
#[derive(Clone)]
pub(super) struct Object {
    pub handle: CUmemGenericAllocationHandle,
    pub bytes: u64,
    pub granularity: u64,
    /// Address of the mapping, if any.
    pub address: Option<u64>,
    /// Bound ranges of this device: offset and size, in bytes.
    pub bound: Vec<(u64, u64)>,
}

impl Objects {
    /// Creates an empty list.
    pub fn new((support, why): (MulticastSupportCode, String)) -> Self {
        Self {
            support,
            why,
            next: AtomicU64::new(1),
            live: Mutex::default(),
        }
    }

    /// Locks the list. After a panic under the lock it is still a list of whole objects.
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
            let why = format!(
                "multicast object {number} is not live here: it was released, or belongs to another device"
            );
            Failure::new(Status::INVALID_ARGUMENT, call, why)
        })
    }

    pub(super) fn change(&self, multicast: RawMulticast, change: impl FnOnce(&mut Object)) {
        if let Some(object) = self.live().get_mut(&multicast.0) {
            change(object);
        }
    }

    /// Returns the driver's functions if this device may call them.
    pub(super) fn functions(
        &self,
        call: &'static str,
        driver: &Driver,
    ) -> CallResult<&'static Functions> {
        self.has_objects(call).and_then(|()| Functions::get(driver))
    }

    /// Returns the driver's functions for releasing objects of this device.
    pub(super) fn functions_to_give_back(
        &self,
        call: &'static str,
    ) -> CallResult<&'static Functions> {
        self.has_objects(call)
            .and_then(|()| Functions::to_give_back())
    }

    fn has_objects(&self, call: &'static str) -> CallResult<()> {
        match self.support {
            MulticastSupportCode::HARDWARE => Ok(()),
            _ => Err(Failure::new(Status::UNSUPPORTED, call, &*self.why)),
        }
    }
}
