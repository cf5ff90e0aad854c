//! The current device of a thread.

use crate::runtime::constants::result::PEER_ACCESS_ALREADY_ENABLED;
use crate::runtime::{Runtime, hip};
use std::ffi::c_int;
use symmem_core::backend::abi::Status;
use symmem_core::backend::{CallResult, Failure};
use symmem_gpu::Current;

/// A device by its ordinal.
#[derive(Clone, Copy)]
pub struct Ordinal {
    pub runtime: &'static Runtime,
    pub number: u32,
}

impl Ordinal {
    /// Lets this device's kernels and copies reach what `hipMalloc` gave on `peer`.
    ///
    /// Never disabled again: other code in the process may have come to rely on it.
    pub fn enable_peer_access(self, peer: u32) -> CallResult<()> {
        if peer == self.number {
            return Ok(());
        }
        let (runtime, mut can) = (self.runtime, 0);
        let (own, peer) = (self.number as c_int, peer as c_int);
        // SAFETY: the place is writable; the runtime checks the devices.
        unsafe { hip!(runtime, hipDeviceCanAccessPeer(&raw mut can, own, peer)) }?;
        if can == 0 {
            return Err(Failure::new(
                Status::PEER_UNREACHABLE,
                "hipDeviceCanAccessPeer",
                format!(
                    "device {own} cannot address the memory of device {peer}; `amd-smi topology` shows \
                     which devices can: use those"
                ),
            ));
        }
        let _entered = self.enter()?;
        // SAFETY: it takes plain numbers; the flags must be 0.
        let code = unsafe { (runtime.table.hipDeviceEnablePeerAccess)(peer, 0) };
        if code == PEER_ACCESS_ALREADY_ENABLED {
            runtime.forget_last_error();
            return Ok(());
        }
        runtime.check("hipDeviceEnablePeerAccess", code)
    }
}

impl Current for Ordinal {
    type Entered<'a> = Entered;

    /// The runtime is asked each time, since the program may change devices behind our back; it is a
    /// read of a thread-local.
    #[inline]
    fn enter(&self) -> CallResult<Entered> {
        let (runtime, own, mut current) = (self.runtime, self.number as c_int, 0);
        // SAFETY: the place is writable.
        unsafe { hip!(runtime, hipGetDevice(&raw mut current)) }?;
        if current == own {
            return Ok(Entered { restore: None });
        }
        // SAFETY: it takes a plain number.
        unsafe { hip!(runtime, hipSetDevice(own)) }?;
        Ok(Entered {
            restore: Some((runtime, current)),
        })
    }
}

/// Proof that the device is current on this thread.
pub struct Entered {
    restore: Option<(&'static Runtime, c_int)>,
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        if let Some((runtime, device)) = self.restore {
            // SAFETY: the device was current when the guard was made.
            let code = unsafe { (runtime.table.hipSetDevice)(device) };
            if code != 0 {
                // Nobody is left to tell; but the number is not for others to find.
                runtime.forget_last_error();
            }
        }
    }
}
