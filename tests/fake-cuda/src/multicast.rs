//! Multicast objects.

use std::ffi::c_int;

use fake_device::api;
use fake_device::multicast;
pub use fake_device::multicast::ObjectProperties;

api! {
    fn [cuMulticastGetGranularity](out: Option<&mut usize>, properties: Option<&ObjectProperties>, option: u32) {
        multicast::granularity(out, properties, option)
    }
    fn [cuMulticastCreate](out: Option<&mut u64>, properties: Option<&ObjectProperties>) {
        multicast::create(out, properties)
    }
    fn [cuMulticastAddDevice](handle: u64, device: c_int) { multicast::add_device(handle, device) }
    fn [cuMulticastBindMem](
        handle: u64, offset: usize, memory: u64, memory_offset: usize, bytes: usize, flags: u64,
    ) {
        multicast::bind(handle, offset, memory, memory_offset, bytes, flags)
    }
    fn [cuMulticastBindAddr](handle: u64, offset: usize, address: u64, bytes: usize, flags: u64) {
        multicast::bind_address(handle, offset, address, bytes, flags)
    }
    fn [cuMulticastUnbind](handle: u64, device: c_int, offset: usize, bytes: usize) {
        multicast::unbind(handle, device, offset, bytes)
    }
}
