//! Copies and fills, either ordered on a stream or blocking.

use fake_device::api;
use fake_device::copies::Side::{Any, Device, Host};
use fake_device::copies::{Side, copy, copy_between, copy_rows, fill};
use fake_device::error::{Code, Result};
use std::ffi::c_void;

/// One matrix's half of `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// Bytes before the first element of each row.
    pub x_bytes: usize,
    /// Rows before the first.
    pub y: usize,
    /// `CUmemorytype`.
    pub memory_type: u32,
    /// The host address, which the fake does not read.
    pub host: *const c_void,
    /// Address of row 0.
    pub device: u64,
    /// The array handle, which the fake does not read.
    pub array: *const c_void,
    /// Bytes from one row to the next.
    pub stride: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RowsCopy {
    /// The source.
    pub source: Rows,
    /// The destination.
    pub destination: Rows,
    /// Bytes per row.
    pub bytes: usize,
    /// Number of rows.
    pub rows: usize,
}

impl Rows {
    /// Returns address, stride and side. `CU_MEMORYTYPE_DEVICE` and `_UNIFIED` are supported, whose address is
    /// `device`.
    fn place(&self) -> Result<(u64, usize, Side)> {
        let side = match self.memory_type {
            2 => Device,
            4 => Any,
            _ => return Err(Code::INVALID_VALUE),
        };
        let first = self.device + (self.y * self.stride + self.x_bytes) as u64;
        Ok((first, self.stride, side))
    }
}

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
        // SAFETY: both sides are device memory, so no host pointer is used.
        unsafe { copy((to, Device), (from, Device), bytes, 0, true) }
    }
    fn [cuMemcpy](to: u64, from: u64, bytes: usize) {
        // SAFETY: the caller promises the host memory, if a side is host memory.
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
        // SAFETY: the caller promises the host memory, if a side is host memory.
        unsafe { copy((to, Any), (from, Any), bytes, stream, false) }
    }
    fn [cuMemcpyDtoDAsync_v2](to: u64, from: u64, bytes: usize, stream: u64) {
        // SAFETY: both sides are device memory, so no host pointer is used.
        unsafe { copy((to, Device), (from, Device), bytes, stream, false) }
    }
}
api! {
    fn [cuMemcpyPeerAsync](
        to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize, stream: u64,
    ) {
        copy_between((to, to_context), (from, from_context), bytes, stream)
    }
    fn [cuMemcpy2DAsync_v2](copy: Option<&RowsCopy>, stream: u64) {
        let copy = copy.ok_or(Code::INVALID_VALUE)?;
        copy_rows(copy.destination.place()?, copy.source.place()?, copy.bytes, copy.rows, stream)
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
