//! Copies and fills, ordered on a stream or waited for.

use fake_device::api;
use fake_device::copies::Side::{Any, Device, Host};
use fake_device::copies::{copy, copy_between, fill};

api! { unsafe;
    fn [cuMemcpyHtoD_v2](to: u64, from: u64, bytes: usize) {
        // SAFETY: the caller promises the host memory.
        unsafe { copy((to, Device), (from, Host), bytes, 0, true) }
    }
    fn [cuMemcpyDtoH_v2](to: u64, from: u64, bytes: usize) {
        // SAFETY: the caller promises the host memory.
        unsafe { copy((to, Host), (from, Device), bytes, 0, true) }
    }
    fn [cuMemcpyDtoD_v2](to: u64, from: u64, bytes: usize) {
        // SAFETY: no host memory takes part.
        unsafe { copy((to, Device), (from, Device), bytes, 0, true) }
    }
    fn [cuMemcpy](to: u64, from: u64, bytes: usize) {
        // SAFETY: the caller promises the host memory, if any takes part.
        unsafe { copy((to, Any), (from, Any), bytes, 0, true) }
    }
    fn [cuMemcpyHtoDAsync_v2](to: u64, from: u64, bytes: usize, stream: u64) {
        // SAFETY: the caller promises the host memory.
        unsafe { copy((to, Device), (from, Host), bytes, stream, false) }
    }
    fn [cuMemcpyDtoHAsync_v2](to: u64, from: u64, bytes: usize, stream: u64) {
        // SAFETY: the caller promises the host memory.
        unsafe { copy((to, Host), (from, Device), bytes, stream, false) }
    }
    fn [cuMemcpyAsync](to: u64, from: u64, bytes: usize, stream: u64) {
        // SAFETY: the caller promises the host memory, if any takes part.
        unsafe { copy((to, Any), (from, Any), bytes, stream, false) }
    }
    fn [cuMemcpyDtoDAsync_v2](to: u64, from: u64, bytes: usize, stream: u64) {
        // SAFETY: no host memory takes part.
        unsafe { copy((to, Device), (from, Device), bytes, stream, false) }
    }
}
api! {
    fn [cuMemcpyPeerAsync](
        to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize, stream: u64,
    ) {
        copy_between((to, to_context), (from, from_context), bytes, stream)
    }
    fn [cuMemsetD8_v2](address: u64, value: u8, count: usize) { fill(address, value.into(), 1, count, 0, true) }
    fn [cuMemsetD32_v2](address: u64, value: u32, count: usize) { fill(address, value, 4, count, 0, true) }
    fn [cuMemsetD8Async](address: u64, value: u8, count: usize, stream: u64) {
        fill(address, value.into(), 1, count, stream, false)
    }
    fn [cuMemsetD32Async](address: u64, value: u32, count: usize, stream: u64) {
        fill(address, value, 4, count, stream, false)
    }
}
