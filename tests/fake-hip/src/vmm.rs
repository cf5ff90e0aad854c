//! Virtual memory management: memory and addresses separately, and memory shared by file descriptor.

use std::ffi::{c_int, c_void};

use fake_device::error::{Code, Result};
use fake_device::report::violation;
pub use fake_device::vmm::{Access, GRANULARITY, Location, Properties};
use fake_device::{api, vmm};

use crate::release::{self, release};

/// Fails for older releases, which have these functions without an implementation on Linux.
fn supported() -> Result {
    if release() < release::VIRTUAL_MEMORY {
        Err(Code::NOT_SUPPORTED)
    } else {
        Ok(())
    }
}

api! {
    fn [hipMemGetAllocationGranularity](out: Option<&mut usize>, properties: Option<&Properties>, option: u32) {
        supported()?;
        vmm::granularity(out, properties, option)
    }
    fn [hipMemCreate](out: Option<&mut u64>, bytes: usize, properties: Option<&Properties>, flags: u64) {
        supported()?;
        vmm::create(out, bytes, properties, flags)
    }
    fn [hipMemRelease](handle: u64) {
        supported()?;
        vmm::release(handle)
    }
    fn [hipMemRetainAllocationHandle](out: Option<&mut u64>, address: u64) {
        supported()?;
        if (release::RETAIN_CRASHES..release::RETAIN_HOLDS).contains(&release()) && !vmm::is_mapped(address) {
            violation(format!("{address:#x} is not mapped: the runtime would read through a null pointer"));
            return Err(Code::INVALID_VALUE);
        }
        match release() {
            release::RETAIN_HOLDS.. => vmm::retain(out, address),
            _ => vmm::find(out, address),
        }
    }
    fn [hipMemGetAllocationPropertiesFromHandle](out: Option<&mut Properties>, handle: u64) {
        supported()?;
        vmm::properties(out, handle)
    }
    fn [hipMemExportToShareableHandle](out: Option<&mut c_int>, handle: u64, kind: u32, flags: u64) {
        supported()?;
        vmm::export(out, handle, kind, flags)
    }
    fn [hipMemAddressReserve](out: Option<&mut u64>, bytes: usize, alignment: usize, hint: u64, flags: u64) {
        supported()?;
        vmm::reserve(out, bytes, alignment, hint, flags)
    }
    fn [hipMemAddressFree](base: u64, bytes: usize) {
        supported()?;
        vmm::free_addresses(base, bytes)
    }
    fn [hipMemMap](base: u64, bytes: usize, offset: usize, handle: u64, flags: u64) {
        supported()?;
        vmm::map(base, bytes, offset, handle, flags)
    }
    fn [hipMemUnmap](base: u64, bytes: usize) {
        supported()?;
        vmm::unmap(base, bytes)
    }
    fn [hipMemGetAccess](flags: Option<&mut u64>, location: Option<&Location>, address: u64) {
        supported()?;
        // The runtime treats the end of a mapping as if it still belonged to the mapping.
        let behind = !vmm::is_mapped(address) && vmm::is_mapped(address.wrapping_sub(1));
        vmm::access(flags, location, address - u64::from(behind))
    }
}
api! { unsafe;
    fn [hipMemImportFromShareableHandle](out: Option<&mut u64>, shareable: *mut c_void, kind: u32) {
        supported()?;
        let descriptor = if release() >= release::IMPORT_BY_VALUE {
            i32::try_from(shareable as isize).map_err(|_| Code::INVALID_VALUE)?
        } else if (shareable as usize) < 4096 || !(shareable as usize).is_multiple_of(align_of::<c_int>()) {
            // A descriptor instead of a pointer: the real runtime would read from that address and crash.
            violation("before 7.1 a descriptor is imported by a pointer to it".into());
            return Err(Code::INVALID_VALUE);
        } else {
            // SAFETY: the caller promises a pointer to a descriptor, which these releases expect.
            unsafe { shareable.cast::<c_int>().read() }
        };
        // SAFETY: the caller owns the descriptor and keeps it open during the call.
        unsafe { vmm::import(out, descriptor, kind) }
    }
    fn [hipMemSetAccess](base: u64, bytes: usize, descriptors: *const Access, count: usize) {
        supported()?;
        // SAFETY: the caller promises `count` descriptors.
        unsafe { vmm::set_access(base, bytes, descriptors, count) }
    }
}
