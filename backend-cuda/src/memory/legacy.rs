//! `cuMemAlloc` memory: shared by its inter-process handle, or within a process by its address.

use crate::driver::constants::IPC_LAZY_ENABLE_PEER_ACCESS;
use crate::driver::{Driver, call};
use cudarc::driver::sys::CUipcMemHandle;
use std::ffi::c_char;
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::{ExportedHandle, ShareKindCode};
use symmem_gpu::memory::Span;

/// Memory of `cuMemAlloc`, in whole blocks.
pub struct PlainMemory {
    kind: ShareKindCode,
    address: u64,
    bytes: u64,
}

impl PlainMemory {
    /// Allocates `bytes` bytes, a multiple of the driver's block size. Context current.
    pub fn allocate(driver: &Driver, kind: ShareKindCode, bytes: u64) -> CallResult<Self> {
        let mut address = 0;
        // SAFETY: the out-pointer is writable.
        unsafe { call!(driver, cuMemAlloc_v2(&raw mut address, bytes as usize)) }?;
        Ok(Self {
            kind,
            address,
            bytes,
        })
    }

    /// Frees the memory. No work may still use it. Context current.
    pub fn release(self, driver: &Driver) -> CallResult<()> {
        // SAFETY: `allocate` allocated the memory, and taking `self` frees it only once.
        unsafe { call!(driver, cuMemFree_v2(self.address)) }
    }

    /// Returns the address of the first byte on this device.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the handle with which a peer maps the memory. Context current.
    pub fn export(&self, driver: &Driver, ordinal: u32) -> CallResult<ExportedHandle> {
        let span = Span {
            base: self.address,
            bytes: self.bytes,
            offset: 0,
        };
        export(driver, ordinal, self.kind, &span)
    }
}

/// Returns the handle with which a peer maps a range of `cuMemAlloc` memory. Context current.
pub fn export(
    driver: &Driver,
    ordinal: u32,
    kind: ShareKindCode,
    span: &Span,
) -> CallResult<ExportedHandle> {
    let mut exported = span.handle(kind, ordinal);
    if kind == ShareKindCode::LEGACY_IPC {
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: the out-pointer is writable, and the caller's memory is live.
        unsafe { call!(driver, cuIpcGetMemHandle(&raw mut handle, span.base)) }?;
        exported.opaque = handle.reserved.map(|byte| byte as u8);
    }
    Ok(exported)
}

/// A peer's memory, opened by its inter-process handle. The driver refuses handles of its own process.
pub struct OpenedHandle {
    address: u64,
}

impl OpenedHandle {
    /// Opens the handle. Context current.
    pub fn open(driver: &Driver, exported: &ExportedHandle) -> CallResult<Self> {
        let handle = CUipcMemHandle {
            reserved: exported.opaque.map(|byte| byte as c_char),
        };
        let mut address = 0;
        // SAFETY: the out-pointer is writable; the driver checks the handle.
        unsafe {
            call!(
                driver,
                cuIpcOpenMemHandle_v2(&raw mut address, handle, IPC_LAZY_ENABLE_PEER_ACCESS)
            )
        }?;
        Ok(Self { address })
    }

    /// Closes the handle. No work may still use the memory. Context current.
    pub fn release(self, driver: &Driver) -> CallResult<()> {
        // SAFETY: `open` opened the handle, and taking `self` closes it only once.
        unsafe { call!(driver, cuIpcCloseMemHandle(self.address)) }
    }

    /// Returns the address of the first byte of the peer's allocation on this device.
    pub fn address(&self) -> u64 {
        self.address
    }
}
