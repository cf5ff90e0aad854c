//! Dma-bufs of address ranges, and external memory.

use std::ffi::c_int;

use fake_device::error::Code;
use fake_device::{api, ranges};

/// `hipExternalMemoryHandleDesc`.
#[repr(C)]
pub struct HandleDescription {
    kind: u32,
    handle: [u64; 2],
    size: u64,
    flags: u32,
    reserved: [u32; 16],
}

/// `hipExternalMemoryBufferDesc`.
#[repr(C)]
pub struct BufferDescription {
    offset: u64,
    size: u64,
    flags: u32,
    reserved: [u32; 16],
}

/// `hipMemRangeHandleTypeDmaBufFd`, and `hipExternalMemoryHandleTypeOpaqueFd`.
const DESCRIPTOR: u32 = 1;

api! {
    fn [hipMemGetHandleForAddressRange](out: Option<&mut c_int>, address: u64, bytes: usize, kind: u32, flags: u64) {
        if kind != DESCRIPTOR || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        ranges::export(out, address, bytes)
    }
    fn [hipExternalMemoryGetMappedBuffer](out: Option<&mut u64>, external: u64, buffer: Option<&BufferDescription>) {
        let buffer = buffer.ok_or(Code::INVALID_VALUE)?;
        if buffer.flags != 0 || buffer.reserved != [0; 16] {
            return Err(Code::INVALID_VALUE);
        }
        ranges::map(out, external, buffer.offset, buffer.size)
    }
    fn [hipDestroyExternalMemory](external: u64) { ranges::destroy(external) }
}
api! { unsafe;
    fn [hipImportExternalMemory](out: Option<&mut u64>, handle: Option<&HandleDescription>) {
        let handle = handle.ok_or(Code::INVALID_VALUE)?;
        if handle.kind != DESCRIPTOR || handle.flags != 0 || handle.reserved != [0; 16] {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller keeps the descriptor open during the call.
        unsafe { ranges::import(out, handle.handle[0] as u32 as i32, handle.size) }
    }
}
