//! Ordinary memory, host memory, pointer attributes, copies and fills.

use std::ffi::c_void;

use fake_device::copies::Side::{self, Any, Device, Host};
use fake_device::copies::{copy, copy_rows, fill};
use fake_device::error::{Code, Result};
use fake_device::{allocations, api};

use crate::devices::architecture;
use crate::release::{self, release};

/// `hipHostMallocPortable`, `Mapped` and `WriteCombined`, which the fakes share. The flags for coherence, placement and
/// caching mean nothing for ordinary pages.
const HOST_FLAGS: u32 = 7;
const HOST_HINTS: u32 = 0xf000_0000;
/// `hipHostMallocCoherent` and `hipHostMallocNonCoherent`, which exclude each other.
const COHERENCE: u32 = 0xc000_0000;

/// Returns the two sides of a copy of a `hipMemcpyKind`.
fn sides(kind: u32) -> Result<(Side, Side)> {
    Ok(match kind {
        0 => (Host, Host),
        1 => (Device, Host),
        2 => (Host, Device),
        3 => (Device, Device),
        4 => (Any, Any),
        1024 if release() >= release::COPY_WITHOUT_UNITS => (Device, Device),
        // hipErrorInvalidMemcpyDirection.
        _ => return Err(Code(21)),
    })
}

/// Allocates device memory with the flags of `hipExtMallocWithFlags`.
fn allocate(out: Option<&mut u64>, bytes: usize, flags: u32) -> Result {
    match flags {
        0 => allocations::allocate(out, bytes),
        // Fine-grained memory, which is uncached on gfx90a only.
        1 if architecture() == "gfx90a" => allocations::allocate_uncached(out, bytes),
        1 => allocations::allocate(out, bytes),
        3 if release() >= release::UNCACHED => allocations::allocate_uncached(out, bytes),
        // A program may try a flag that an older release lacks, so this breaks no rule.
        _ => Err(Code::INVALID_VALUE),
    }
}

fn nothing_to_free(address: u64) -> bool {
    // The runtime accepts a null pointer and does nothing.
    address == 0
}

api! {
    fn [hipMemGetInfo](free: Option<&mut usize>, total: Option<&mut usize>) { allocations::info(free, total) }
    fn [hipMalloc](out: Option<&mut u64>, bytes: usize) { allocate(out, bytes, 0) }
    fn [hipExtMallocWithFlags](out: Option<&mut u64>, bytes: usize, flags: u32) {
        allocate(out, bytes, flags)
    }
    fn [hipFree](address: u64) {
        if nothing_to_free(address) {
            return Ok(());
        }
        allocations::free_device(address)
    }
    fn [hipHostMalloc](out: Option<&mut u64>, bytes: usize, flags: u32) {
        if flags & !(HOST_FLAGS | HOST_HINTS) != 0 || flags & COHERENCE == COHERENCE {
            return Err(Code::INVALID_VALUE);
        }
        allocations::allocate_host(out, bytes, flags & HOST_FLAGS)
    }
    fn [hipHostFree](address: u64) {
        if nothing_to_free(address) {
            return Ok(());
        }
        allocations::free_host(address)
    }
    fn [hipHostGetDevicePointer](out: Option<&mut u64>, address: u64, flags: u32) {
        allocations::host_device_pointer(out, address, flags)
    }
    fn [hipHostGetFlags](flags: Option<&mut u32>, address: u64) { allocations::host_flags(flags, address) }
    fn [hipHostUnregister](address: u64) { allocations::unregister_host(address) }
    fn [hipMemGetAddressRange](base: Option<&mut u64>, bytes: Option<&mut usize>, address: u64) {
        allocations::address_range(base, bytes, address)
    }
    fn [hipMemsetD8](address: u64, value: u8, count: usize) { fill(address, value.into(), 1, count, 0, true) }
    fn [hipMemsetD8Async](address: u64, value: u8, count: usize, stream: u64) {
        fill(address, value.into(), 1, count, stream, false)
    }
    fn [hipMemsetD32](address: u64, value: i32, count: usize) {
        fill(address, value as u32, 4, count, 0, true)
    }
    fn [hipMemsetD32Async](address: u64, value: i32, count: usize, stream: u64) {
        fill(address, value as u32, 4, count, stream, false)
    }
}
api! {
    fn [hipMemcpy2DAsync](
        to: u64, to_stride: usize, from: u64, from_stride: usize, bytes: usize, rows: usize, kind: u32,
        stream: u64,
    ) {
        let sides = sides(kind)?;
        copy_rows((to, to_stride, sides.0), (from, from_stride, sides.1), bytes, rows, stream)
    }
}
api! { unsafe;
    fn [hipHostRegister](pointer: *mut c_void, bytes: usize, flags: u32) {
        // SAFETY: this function's caller makes the promises that the shared function asks for.
        unsafe { allocations::register_host(pointer, bytes, flags) }
    }
    fn [hipPointerGetAttribute](out: *mut u8, attribute: u32, address: u64) {
        // SAFETY: this function's caller makes the promises that the shared function asks for.
        unsafe { allocations::attribute(out, attribute, address) }?;
        // HIP_POINTER_ATTRIBUTE_MEMORY_TYPE: older releases number the types from the host, 0.
        if attribute == 2 && release() < release::MEMORY_TYPES {
            // SAFETY: the attribute just written is a C int.
            unsafe { *out -= 1 };
        }
        Ok(())
    }
    fn [hipMemcpy](to: u64, from: u64, bytes: usize, kind: u32) {
        let sides = sides(kind)?;
        // SAFETY: the caller promises the host memory, if a side is host memory.
        unsafe { copy((to, sides.0), (from, sides.1), bytes, 0, true) }
    }
    fn [hipMemcpyAsync](to: u64, from: u64, bytes: usize, kind: u32, stream: u64) {
        let sides = sides(kind)?;
        // SAFETY: the caller promises the host memory, if a side is host memory.
        unsafe { copy((to, sides.0), (from, sides.1), bytes, stream, false) }
    }
    fn [hipMemcpyHtoD](to: u64, from: u64, bytes: usize) {
        // SAFETY: the caller promises the host memory.
        unsafe { copy((to, Device), (from, Host), bytes, 0, true) }
    }
    fn [hipMemcpyDtoH](to: u64, from: u64, bytes: usize) {
        // SAFETY: the caller promises the host memory.
        unsafe { copy((to, Host), (from, Device), bytes, 0, true) }
    }
    fn [hipMemcpyDtoDAsync](to: u64, from: u64, bytes: usize, stream: u64) {
        // SAFETY: both sides are device memory, so no host pointer is used.
        unsafe { copy((to, Device), (from, Device), bytes, stream, false) }
    }
}
