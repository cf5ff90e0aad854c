//! Ordinary memory: allocations, pinned and registered host memory, pointer attributes.

use std::ffi::c_void;

use fake_device::allocations::{self as shared};
use fake_device::api;

api! {
    fn [cuMemGetInfo_v2](free: Option<&mut usize>, total: Option<&mut usize>) { shared::info(free, total) }
    fn [cuMemAlloc_v2](out: Option<&mut u64>, bytes: usize) { shared::allocate(out, bytes) }
    fn [cuMemFree_v2](address: u64) { shared::free_device(address) }
    fn [cuMemHostAlloc](out: Option<&mut u64>, bytes: usize, flags: u32) {
        shared::allocate_host(out, bytes, flags)
    }
    fn [cuMemFreeHost](address: u64) { shared::free_host(address) }
    fn [cuMemHostGetDevicePointer_v2](out: Option<&mut u64>, address: u64, flags: u32) {
        shared::host_device_pointer(out, address, flags)
    }
    fn [cuMemHostGetFlags](flags: Option<&mut u32>, address: u64) { shared::host_flags(flags, address) }
    fn [cuMemHostUnregister](address: u64) { shared::unregister_host(address) }
    fn [cuMemGetAddressRange_v2](base: Option<&mut u64>, bytes: Option<&mut usize>, address: u64) {
        shared::address_range(base, bytes, address)
    }
}
api! { unsafe;
    fn [cuMemHostRegister_v2](pointer: *mut c_void, bytes: usize, flags: u32) {
        // SAFETY: this function's caller makes the promises that the shared function asks for.
        unsafe { shared::register_host(pointer, bytes, flags) }
    }
    fn [cuPointerGetAttribute](out: *mut u8, attribute: u32, address: u64) {
        // SAFETY: this function's caller makes the promises that the shared function asks for.
        unsafe { shared::attribute(out, attribute, address) }
    }
    fn [cuPointerGetAttributes](count: u32, attributes: *const u32, out: *const *mut u8, address: u64) {
        // SAFETY: this function's caller makes the promises that the shared function asks for.
        unsafe { shared::attributes(count, attributes, out, address) }
    }
}
