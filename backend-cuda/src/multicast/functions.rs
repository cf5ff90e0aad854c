//! The driver's functions for multicast objects.
//!
//! They are in a table of their own, filled by the first call that may use one: sites that forbid multicast may
//! watch for look-ups of these very names.

use crate::driver::{Code, Driver, SONAME, version_text};
use cudarc::driver::sys::{CUdevice, CUmemGenericAllocationHandle};
use std::ffi::c_uint;
use std::mem::offset_of;
use std::sync::OnceLock;
use symmem_core::backend::abi::Status;
use symmem_core::backend::{CallResult, Failure};

/// `CUmulticastObjectProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ObjectProperties {
    /// Number of devices that will join.
    pub devices: u32,
    /// Size of the object in bytes.
    pub bytes: usize,
    /// `CUmemAllocationHandleType`, a bit set: how other processes import the object.
    pub handle_types: u64,
    /// Zero.
    pub flags: u64,
}

const _: () = {
    assert!(size_of::<ObjectProperties>() == 32 && align_of::<ObjectProperties>() == 8);
    assert!(offset_of!(ObjectProperties, bytes) == 8);
    assert!(offset_of!(ObjectProperties, handle_types) == 16);
    assert!(offset_of!(ObjectProperties, flags) == 24);
};

symmem_gpu::symbol_table! {
    /// The multicast functions, from CUDA 12.1 on.
    pub struct Functions {
        required {
            cuMulticastCreate(object: *mut CUmemGenericAllocationHandle, properties: *const ObjectProperties) -> Code;
            cuMulticastAddDevice(object: CUmemGenericAllocationHandle, device: CUdevice) -> Code;
            cuMulticastBindMem(
                object: CUmemGenericAllocationHandle,
                offset: usize,
                memory: CUmemGenericAllocationHandle,
                memory_offset: usize,
                bytes: usize,
                flags: u64
            ) -> Code;
            cuMulticastUnbind(object: CUmemGenericAllocationHandle, device: CUdevice, offset: usize, bytes: usize) -> Code;
            cuMulticastGetGranularity(bytes: *mut usize, properties: *const ObjectProperties, option: c_uint) -> Code;
        }
        optional {}
    }
}

/// Filled by the first call that may look them up.
static FUNCTIONS: OnceLock<CallResult<Functions>> = OnceLock::new();

impl Functions {
    /// Returns the functions; the first call looks them up.
    ///
    /// # Errors
    /// `UNSUPPORTED` if the driver is older than 12.1, or if a variable forbids multicast by now.
    pub fn get(driver: &Driver) -> CallResult<&'static Self> {
        // Devices call this only after they were permitted to, but check again, so that no path bypasses the
        // check. Check at each call: the environment may change, so a refusal is not cached.
        super::permitted().map_err(refuse)?;
        let functions = FUNCTIONS.get_or_init(|| Self::look_up(driver));
        functions.as_ref().map_err(Clone::clone)
    }

    /// Returns the functions for releasing objects, even if a variable forbids multicast by now: memory that
    /// stays bound would be freed while the switch uses it, and keep its slot.
    ///
    /// # Errors
    /// `UNSUPPORTED` if no object was ever created.
    pub fn to_give_back() -> CallResult<&'static Self> {
        match FUNCTIONS.get() {
            Some(functions) => functions.as_ref().map_err(Clone::clone),
            None => Err(refuse(
                "this process has created no multicast object".into(),
            )),
        }
    }

    fn look_up(driver: &Driver) -> CallResult<Self> {
        // SAFETY: the library is NVIDIA's driver.
        unsafe { Self::load(driver.library()) }.map_err(|symbol| {
            refuse(format!(
                "{SONAME} has no symbol {symbol}; its version is {}, and multicast needs 12.1 or newer: \
                 update the driver",
                version_text(driver.version)
            ))
        })
    }
}

fn refuse(why: String) -> Failure {
    Failure::new(Status::UNSUPPORTED, "dlsym", why)
}
