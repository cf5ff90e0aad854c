//! Virtual memory management: memory and addresses separately, and memory shared by file descriptor.

use std::ffi::c_void;

use fake_device::error::Code;
pub use fake_device::vmm::{Access, GRANULARITY, Location, Properties};
use fake_device::{api, vmm};

api! {
    fn [cuMemGetAllocationGranularity](out: Option<&mut usize>, properties: Option<&Properties>, option: u32) {
        vmm::granularity(out, properties, option)
    }
    fn [cuMemCreate](out: Option<&mut u64>, bytes: usize, properties: Option<&Properties>, flags: u64) {
        vmm::create(out, bytes, properties, flags)
    }
    fn [cuMemRelease](handle: u64) { vmm::release(handle) }
    fn [cuMemRetainAllocationHandle](out: Option<&mut u64>, address: u64) { vmm::retain(out, address) }
    fn [cuMemGetAllocationPropertiesFromHandle](out: Option<&mut Properties>, handle: u64) {
        vmm::properties(out, handle)
    }
    fn [cuMemExportToShareableHandle](out: Option<&mut i32>, handle: u64, kind: u32, flags: u64) {
        vmm::export(out, handle, kind, flags)
    }
    fn [cuMemAddressReserve](out: Option<&mut u64>, bytes: usize, alignment: usize, hint: u64, flags: u64) {
        vmm::reserve(out, bytes, alignment, hint, flags)
    }
    fn [cuMemAddressFree](base: u64, bytes: usize) { vmm::free_addresses(base, bytes) }
    fn [cuMemMap](base: u64, bytes: usize, offset: usize, handle: u64, flags: u64) {
        vmm::map(base, bytes, offset, handle, flags)
    }
    fn [cuMemUnmap](base: u64, bytes: usize) { vmm::unmap(base, bytes) }
    fn [cuMemGetAccess](flags: Option<&mut u64>, location: Option<&Location>, address: u64) {
        vmm::access(flags, location, address)
    }
}
api! { unsafe;
    fn [cuMemImportFromShareableHandle](out: Option<&mut u64>, descriptor: *mut c_void, kind: u32) {
        // The argument is the descriptor itself, cast to a pointer.
        let descriptor = i32::try_from(descriptor as isize).map_err(|_| Code::INVALID_VALUE)?;
        // SAFETY: the caller owns the descriptor and keeps it open during the call.
        unsafe { vmm::import(out, descriptor, kind) }
    }
    fn [cuMemSetAccess](base: u64, bytes: usize, descriptors: *const Access, count: usize) {
        // SAFETY: the caller promises `count` descriptors.
        unsafe { vmm::set_access(base, bytes, descriptors, count) }
    }
}
