//! The driver's functions for multicast objects, which nobody looks up unless they may be called.
//!
//! They are in a table of their own, filled by the first call that needs one: sites that forbid multicast
//! may watch for these very names.

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
    /// Devices that will join.
    pub devices: u32,
    /// Bytes of the object.
    pub bytes: usize,
    /// `CUmemAllocationHandleType`, a bit set: how it is handed to other processes.
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
    /// From CUDA 12.1 on.
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
    /// The functions, looked up by the first call.
    ///
    /// # Errors
    /// `UNSUPPORTED` where the driver is older than they are, or something forbids them by now.
    pub fn get(driver: &Driver) -> CallResult<&'static Self> {
        // An instance asks only once it was permitted to. The gate is here all the same: nothing gets past it.
        // Asked each time: a refusal is not kept for when the environment is another.
        super::permitted().map_err(refuse)?;
        let functions = FUNCTIONS.get_or_init(|| Self::look_up(driver));
        functions.as_ref().map_err(Clone::clone)
    }

    /// The functions to give back with what was made by them, whatever forbids to make more by now: what is left
    /// bound would be freed under the switch, and keep its slot.
    ///
    /// # Errors
    /// `UNSUPPORTED` where nothing was made.
    pub fn to_give_back() -> CallResult<&'static Self> {
        match FUNCTIONS.get() {
            Some(functions) => functions.as_ref().map_err(Clone::clone),
            None => Err(refuse("nothing was made that could be given back".into())),
        }
    }

    fn look_up(driver: &Driver) -> CallResult<Self> {
        // SAFETY: the library is the driver.
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
