//! `cuMemAlloc`'s memory: shared by its inter-process handle, or inside a process by its address.

use crate::driver::constants::IPC_LAZY_ENABLE_PEER_ACCESS;
use crate::driver::{Driver, call};
use cudarc::driver::sys::CUipcMemHandle;
use std::ffi::c_char;
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::{ExportedHandle, ShareKind};
use symmem_gpu::memory::Span;

/// Memory by `cuMemAlloc`, in whole blocks.
pub struct PlainMemory {
    kind: ShareKind,
    address: u64,
    bytes: u64,
}

impl PlainMemory {
    /// Allocates `bytes`, a multiple of the driver's block. Context current.
    pub fn allocate(driver: &Driver, kind: ShareKind, bytes: u64) -> CallResult<Self> {
        let mut address = 0;
        // SAFETY: the place is writable.
        unsafe { call!(driver, cuMemAlloc_v2(&raw mut address, bytes as usize)) }?;
        Ok(Self {
            kind,
            address,
            bytes,
        })
    }

    /// Frees it. Nothing may be using it. Context current.
    pub fn release(self, driver: &Driver) -> CallResult<()> {
        // SAFETY: allocated by `allocate` and freed once, since `self` is used up.
        unsafe { call!(driver, cuMemFree_v2(self.address)) }
    }

    /// The first byte, as this device addresses it.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// What a peer needs. Context current.
    pub fn export(&self, driver: &Driver, ordinal: u32) -> CallResult<ExportedHandle> {
        let span = Span {
            base: self.address,
            bytes: self.bytes,
            offset: 0,
        };
        export(driver, ordinal, self.kind, &span)
    }
}

/// Describes `cuMemAlloc`'s memory for a peer. Context current.
pub fn export(
    driver: &Driver,
    ordinal: u32,
    kind: ShareKind,
    span: &Span,
) -> CallResult<ExportedHandle> {
    let mut exported = span.handle(kind, ordinal);
    if kind == ShareKind::LEGACY_IPC {
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: the place is writable and the memory live.
        unsafe { call!(driver, cuIpcGetMemHandle(&raw mut handle, span.base)) }?;
        exported.opaque = handle.reserved.map(|byte| byte as u8);
    }
    Ok(exported)
}

/// A peer's memory, opened by its inter-process handle. The driver refuses one of its own process.
pub struct OpenedHandle {
    address: u64,
}

impl OpenedHandle {
    /// Opens it. Context current.
    pub fn open(driver: &Driver, exported: &ExportedHandle) -> CallResult<Self> {
        let handle = CUipcMemHandle {
            reserved: exported.opaque.map(|byte| byte as c_char),
        };
        let mut address = 0;
        // SAFETY: the place is writable; the driver checks the handle.
        unsafe {
            call!(
                driver,
                cuIpcOpenMemHandle_v2(&raw mut address, handle, IPC_LAZY_ENABLE_PEER_ACCESS)
            )
        }?;
        Ok(Self { address })
    }

    /// Closes it. Nothing may be using it. Context current.
    pub fn release(self, driver: &Driver) -> CallResult<()> {
        // SAFETY: opened by `open` and closed once, since `self` is used up.
        unsafe { call!(driver, cuIpcCloseMemHandle(self.address)) }
    }

    /// The first byte of the peer's object, as this device addresses it.
    pub fn address(&self) -> u64 {
        self.address
    }
}
