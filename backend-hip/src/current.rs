//! The current device of a thread.

use crate::runtime::constants::result::PEER_ACCESS_ALREADY_ENABLED;
use crate::runtime::{Runtime, hip};
use std::ffi::c_int;
use symmem_core::backend::abi::Status;
use symmem_core::backend::{CallResult, Failure};
use symmem_gpu::Current;

/// A device, by its ordinal.
#[derive(Clone, Copy)]
pub struct Ordinal {
    pub runtime: &'static Runtime,
    pub number: u32,
}

impl Ordinal {
    /// Lets kernels and copies of this device access all `hipMalloc` memory on `peer`. Never undone, since
    /// other code in the process may come to rely on it.
    pub fn enable_peer_access(self, peer: u32) -> CallResult<()> {
        if peer == self.number {
            return Ok(());
        }
        let (runtime, mut can) = (self.runtime, 0);
        let (own, peer) = (self.number as c_int, peer as c_int);
        // SAFETY: the out-pointer is writable, and the runtime checks both devices.
        unsafe { hip!(runtime, hipDeviceCanAccessPeer(&raw mut can, own, peer)) }?;
        if can == 0 {
            return Err(Failure::new(
                Status::PEER_UNREACHABLE,
                "hipDeviceCanAccessPeer",
                format!(
                    "device {own} cannot address the memory of device {peer}; use devices that can \
                     address each other, as `amd-smi topology` shows"
                ),
            ));
        }
        let _entered = self.enter()?;
        // SAFETY: the function takes plain numbers, and flags of 0 are valid.
        let code = unsafe { (runtime.table.hipDeviceEnablePeerAccess)(peer, 0) };
        if code == PEER_ACCESS_ALREADY_ENABLED {
            runtime.forget_last_error();
            return Ok(());
        }
        runtime.check("hipDeviceEnablePeerAccess", code)
    }
}

impl Current for Ordinal {
    type ContextGuard<'a> = ContextGuard;

    /// Asks the runtime each time, because the program may switch devices in between. The call reads a thread-local.
    #[inline]
    fn enter(&self) -> CallResult<ContextGuard> {
        let (runtime, own, mut current) = (self.runtime, self.number as c_int, 0);
        // SAFETY: the out-pointer is writable.
        unsafe { hip!(runtime, hipGetDevice(&raw mut current)) }?;
        if current == own {
            return Ok(ContextGuard { restore: None });
        }
        // SAFETY: the function takes a plain number, which the runtime checks.
        unsafe { hip!(runtime, hipSetDevice(own)) }?;
        Ok(ContextGuard {
            restore: Some((runtime, current)),
        })
    }
}

/// Guard: the device is current on this thread until this is dropped.
pub struct ContextGuard {
    restore: Option<(&'static Runtime, c_int)>,
}

impl Drop for ContextGuard {
    #[inline]
    fn drop(&mut self) {
        if let Some((runtime, device)) = self.restore {
            // SAFETY: the device was current when the guard was created, so its number is valid.
            let code = unsafe { (runtime.table.hipSetDevice)(device) };
            if code != 0 {
                // The failure cannot be reported, but must not stay in the thread's last error.
                runtime.forget_last_error();
            }
        }
    }
}
