//! `hipMalloc` memory: shared by its inter-process handle, inside a process by its address, or by a dma-buf (`range`).
//!
//! A handle opens at the base of its allocation, no matter which pointer into it the handle was created from.
//! So only bases are exported, with the offset beside them. Opening a handle twice in a process may give
//! another mapping, or fail. So each is opened once per process, with a reference count.

use super::range;
use crate::current::Ordinal;
use crate::runtime::constants::{
    IPC_LAZY_ENABLE_PEER_ACCESS, IPC_LAZY_ENABLE_PEER_ACCESS_BEFORE_6, MALLOC_UNCACHED,
};
use crate::runtime::structs::IpcHandle;
use crate::runtime::{Runtime, VERSION_6, hip};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::{ExportedHandle, ShareKindCode};
use symmem_gpu::memory::{Content, Span};

/// `hipMalloc` memory of whole blocks.
pub struct PlainMemory {
    pub kind: ShareKindCode,
    pub span: Span,
}

impl PlainMemory {
    /// Allocates `bytes` bytes, a multiple of the block size. Device current.
    pub fn allocate(
        runtime: &Runtime,
        kind: ShareKindCode,
        content: Content,
        bytes: u64,
    ) -> CallResult<Self> {
        let mut base = 0;
        let (place, length) = (&raw mut base, bytes as usize);
        // SAFETY: the out-pointer is writable.
        unsafe {
            match content {
                Content::Data => hip!(runtime, hipMalloc(place, length)),
                Content::Signals => {
                    hip!(
                        runtime,
                        hipExtMallocWithFlags(place, length, MALLOC_UNCACHED)
                    )
                }
            }
        }?;
        let span = Span {
            base,
            bytes,
            offset: 0,
        };
        Ok(Self { kind, span })
    }

    /// Frees the memory, which no work may still use. Device current.
    pub fn release(self, runtime: &Runtime) -> CallResult<()> {
        // SAFETY: `allocate` made this memory, and consuming `self` frees it only once.
        unsafe { hip!(runtime, hipFree(self.span.base)) }
    }
}

/// Returns a peer's handle for a range of `hipMalloc` memory; the caller owns its descriptor, if it has one. Device
/// current.
pub fn export(device: Ordinal, kind: ShareKindCode, span: &Span) -> CallResult<ExportedHandle> {
    if kind == ShareKindCode::ADDRESS_RANGE {
        return range::export(device, span);
    }
    let (runtime, mut exported) = (device.runtime, span.handle(kind, device.number));
    if kind == ShareKindCode::LEGACY_IPC {
        let mut handle = IpcHandle { reserved: [0; 64] };
        // SAFETY: the caller's memory is live, and the out-pointer is writable.
        unsafe { hip!(runtime, hipIpcGetMemHandle(&raw mut handle, span.base)) }?;
        exported.opaque = handle.reserved;
    }
    Ok(exported)
}

/// A peer's allocation that this process has open, and its reference count.
struct Object {
    address: u64,
    users: usize,
}

type Objects = HashMap<[u8; 64], Object>;

static OPEN: Mutex<Option<Objects>> = Mutex::new(None);

/// Locks the table. A panic under the lock leaves it with valid entries.
fn open_objects() -> MutexGuard<'static, Option<Objects>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the only flag with which a runtime of this version opens a handle.
fn open_flag(version: u32) -> u32 {
    match version {
        VERSION_6.. => IPC_LAZY_ENABLE_PEER_ACCESS,
        _ => IPC_LAZY_ENABLE_PEER_ACCESS_BEFORE_6,
    }
}

/// A reference to a peer's memory that was opened by its inter-process handle. The runtime refuses handles of
/// its own process, for which the library uses `SAME_PROCESS`.
pub struct Opened {
    handle: [u8; 64],
    address: u64,
}

impl Opened {
    /// Opens the handle, or adds a reference if this process has it open: all devices of the process that can
    /// address the peer may use the mapping. Device current.
    pub fn open(runtime: &Runtime, exported: &ExportedHandle) -> CallResult<Self> {
        let mut objects = open_objects();
        let objects = objects.get_or_insert_default();
        let handle = exported.opaque;
        if let Some(object) = objects.get_mut(&handle) {
            object.users += 1;
            let address = object.address;
            return Ok(Self { handle, address });
        }
        let (mut address, reserved) = (0, handle);
        // SAFETY: the out-pointer is writable, and the runtime checks the handle.
        unsafe {
            hip!(
                runtime,
                hipIpcOpenMemHandle(
                    &raw mut address,
                    IpcHandle { reserved },
                    open_flag(runtime.version)
                )
            )
        }?;
        objects.insert(handle, Object { address, users: 1 });
        Ok(Self { handle, address })
    }

    /// Drops a reference; the last one closes the handle. No work may still use the memory. Device current.
    pub fn close(self, runtime: &Runtime) -> CallResult<()> {
        let mut objects = open_objects();
        let objects = objects.get_or_insert_default();
        if let Some(object) = objects.get_mut(&self.handle)
            && object.users > 1
        {
            object.users -= 1;
            return Ok(());
        }
        objects.remove(&self.handle);
        // SAFETY: `open` opened this address, and no reference is left.
        unsafe { hip!(runtime, hipIpcCloseMemHandle(self.address)) }
    }

    /// Returns the address of the first byte of the peer's allocation.
    pub fn address(&self) -> u64 {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_opened_with_the_flag_of_the_runtimes_version() {
        assert_eq!(open_flag(50_700_000), 0);
        assert_eq!(open_flag(VERSION_6), 1);
        assert_eq!(open_flag(71_400_000), 1);
    }
}
