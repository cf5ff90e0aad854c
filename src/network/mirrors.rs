//! Mirrors: pinned host memory that legs use in place of device memory, where the host does not address the device's.

use crate::backend::abi::HostMemory;
use crate::backend::{Backend, CallResult, Device};
use crate::base::lock::lock;
use std::sync::Mutex;

/// The mirrors of a rank, kept for later groups, since the free of pinned memory may wait for the device.
#[derive(Default)]
pub struct Mirrors {
    all: Mutex<Vec<HostMemory>>,
    free: Mutex<Vec<HostMemory>>,
}

impl Mirrors {
    /// Takes a mirror of `bytes` bytes. Allocates if none is free.
    ///
    /// # Errors
    /// The backend's.
    pub fn take(&self, backend: &Backend, bytes: u64) -> CallResult<HostMemory> {
        let mut free = lock(&self.free);
        if let Some(index) = free.iter().position(|mirror| mirror.bytes == bytes) {
            return Ok(free.swap_remove(index));
        }
        let mirror = backend.host_allocate(bytes)?;
        lock(&self.all).push(mirror);
        Ok(mirror)
    }

    /// Takes back a mirror that neither a stream nor a peer uses.
    pub fn give_back(&self, mirror: HostMemory) {
        lock(&self.free).push(mirror);
    }

    /// Frees all mirrors.
    ///
    /// # Safety
    /// No stream, leg or peer uses a mirror, and nothing else does from here on.
    pub unsafe fn free(&self, backend: &Backend) {
        lock(&self.free).clear();
        for mirror in lock(&self.all).drain(..) {
            // SAFETY: allocated by `take`; guaranteed by the caller. A failure cannot be handled here.
            let _ = unsafe { backend.host_free(mirror) };
        }
    }
}
