//! The runtime's own memory: shared by its inter-process handle, or inside a process by its address.
//!
//! A handle opens at the base of its allocation, wherever in it the pointer was that it was made from: so
//! only bases are exported, and the offset travels beside them. To open one twice in a process may give
//! another mapping, or none: so an object is opened once in a process, and counted.

use crate::current::Ordinal;
use crate::runtime::constants::{
    IPC_LAZY_ENABLE_PEER_ACCESS, IPC_LAZY_ENABLE_PEER_ACCESS_BEFORE_6, MALLOC_UNCACHED,
};
use crate::runtime::structs::IpcHandle;
use crate::runtime::{Runtime, VERSION_6, hip};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::{ExportedHandle, ShareKind};
use symmem_gpu::memory::{Content, Span};

/// Memory by `hipMalloc`, in whole blocks.
pub struct PlainMemory {
    pub kind: ShareKind,
    pub span: Span,
}

impl PlainMemory {
    /// Allocates `bytes`, a multiple of the runtime's block. Device current.
    pub fn allocate(
        runtime: &Runtime,
        kind: ShareKind,
        content: Content,
        bytes: u64,
    ) -> CallResult<Self> {
        let mut base = 0;
        let (place, length) = (&raw mut base, bytes as usize);
        // SAFETY: the place is writable.
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

    /// Frees it. Nothing may be using it. Device current.
    pub fn release(self, runtime: &Runtime) -> CallResult<()> {
        // SAFETY: allocated by `allocate` and freed once, since `self` is used up.
        unsafe { hip!(runtime, hipFree(self.span.base)) }
    }
}

/// What a peer needs of the runtime's memory. Device current.
pub fn export(device: Ordinal, kind: ShareKind, span: &Span) -> CallResult<ExportedHandle> {
    let (runtime, mut exported) = (device.runtime, span.handle(kind, device.number));
    if kind == ShareKind::LEGACY_IPC {
        let mut handle = IpcHandle { reserved: [0; 64] };
        // SAFETY: the place is writable and the memory live.
        unsafe { hip!(runtime, hipIpcGetMemHandle(&raw mut handle, span.base)) }?;
        exported.opaque = handle.reserved;
    }
    Ok(exported)
}

/// An object of a peer's, as this process has it open.
struct Object {
    address: u64,
    users: usize,
}

type Objects = HashMap<[u8; 64], Object>;

static OPEN: Mutex<Option<Objects>> = Mutex::new(None);

/// A panic while the lock was held left whole entries.
fn open_objects() -> MutexGuard<'static, Option<Objects>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The flag that opening a handle takes, and without which it is refused.
fn open_flag(version: u32) -> u32 {
    match version {
        VERSION_6.. => IPC_LAZY_ENABLE_PEER_ACCESS,
        _ => IPC_LAZY_ENABLE_PEER_ACCESS_BEFORE_6,
    }
}

/// One use of a peer's memory, opened by its inter-process handle. The runtime refuses one of its own
/// process; core then takes the address.
pub struct Opened {
    handle: [u8; 64],
    address: u64,
}

impl Opened {
    /// Opens it, or counts one more user: every device of the process that can address the peer's may use
    /// the mapping. Device current.
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
        // SAFETY: the place is writable; the runtime checks the handle.
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

    /// Ends one use; the last one closes it. Nothing may be using it. Device current.
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
        // SAFETY: opened by `open`, and no user is left.
        unsafe { hip!(runtime, hipIpcCloseMemHandle(self.address)) }
    }

    /// The first byte of the peer's object.
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
