//! Memory shared by the dma-buf of its address range, as Iris shares it (`iris/host/platform/hip.py` in ROCm/iris).
//!
//! `hipMemGetHandleForAddressRange`, from ROCm 7.0 on, exports the whole allocation, whatever part is asked for, and wants
//! whole blocks of 2 MiB. The importer maps it as external memory of an opaque descriptor, which stays the caller's.
//!
//! Not established by public sources, so this is the last strategy to be tried: what the importer's caches keep of such
//! memory, and when the exporter's memory is given back. ROCm/clr's `hipExternalMemoryGetMappedBuffer` takes a reference
//! that `hipDestroyExternalMemory` does not drop, and Iris makes no other call; so does this file.

use crate::current::Ordinal;
use crate::runtime::Runtime;
use crate::runtime::constants::{EXTERNAL_MEMORY_OPAQUE_FD, RANGE_HANDLE_DMA_BUF};
use crate::runtime::structs::{ExternalBuffer, ExternalHandle};
use crate::runtime::table::External;
use rustix::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::ptr::null_mut;
use symmem_core::backend::CallResult;
use symmem_core::backend::Failure;
use symmem_core::backend::abi::{ExportedHandle, ShareKindCode, Status};
use symmem_gpu::memory::Span;

/// Returns whether the runtime has every call.
pub fn is_offered(runtime: &Runtime) -> bool {
    let table = &runtime.table;
    table.hipMemGetHandleForAddressRange.is_some()
        && table.hipImportExternalMemory.is_some()
        && table.hipExternalMemoryGetMappedBuffer.is_some()
        && table.hipDestroyExternalMemory.is_some()
}

/// Calls an optional function by name; `UNSUPPORTED` if the library lacks it.
macro_rules! optional {
    ($runtime:expr, $name:ident($($argument:expr),* $(,)?)) => {
        match $runtime.table.$name {
            Some(function) => $runtime.check(stringify!($name), function($($argument),*)),
            None => Err(Failure::new(
                Status::UNSUPPORTED,
                stringify!($name),
                "this runtime lacks the function, which ROCm has from 7.0 on; share memory another way",
            )),
        }
    };
}

/// Exports the allocation of a range as a new file descriptor. Device current.
pub fn descriptor(runtime: &Runtime, span: &Span) -> CallResult<OwnedFd> {
    let mut number: i32 = -1;
    let place = (&raw mut number).cast();
    let bytes = span.bytes as usize;
    // SAFETY: the caller's memory is live, and the runtime writes one int for this kind of handle.
    unsafe {
        optional!(
            runtime,
            hipMemGetHandleForAddressRange(place, span.base, bytes, RANGE_HANDLE_DMA_BUF, 0)
        )
    }?;
    // SAFETY: the runtime created this descriptor, and the caller owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Returns a peer's handle for a range, with a new file descriptor. Device current.
pub fn export(device: Ordinal, span: &Span) -> CallResult<ExportedHandle> {
    Ok(ExportedHandle {
        descriptor: descriptor(device.runtime, span)?.into_raw_fd(),
        ..span.handle(ShareKindCode::ADDRESS_RANGE, device.number)
    })
}

/// A peer's allocation that was imported from its dma-buf.
pub struct Imported {
    external: External,
    address: u64,
}

// SAFETY: the runtime accepts this handle on any thread.
unsafe impl Send for Imported {}

impl Imported {
    /// Imports and maps a peer's allocation; the caller keeps the descriptor. Device current.
    pub fn import(runtime: &Runtime, exported: &ExportedHandle) -> CallResult<Self> {
        let handle = ExternalHandle::of_descriptor(
            EXTERNAL_MEMORY_OPAQUE_FD,
            exported.descriptor,
            exported.bytes,
        );
        let (mut external, mut address) = (null_mut(), 0);
        let (place, wanted) = (&raw mut external, &raw const handle);
        // SAFETY: the struct is complete, the out-pointer is writable, and the runtime checks the descriptor.
        unsafe { optional!(runtime, hipImportExternalMemory(place, wanted)) }?;
        let buffer = ExternalBuffer::whole(exported.bytes);
        let (place, wanted) = (&raw mut address, &raw const buffer);
        // SAFETY: the memory was imported above; the struct is complete, and the out-pointer is writable.
        let mapped = unsafe {
            optional!(
                runtime,
                hipExternalMemoryGetMappedBuffer(place, external, wanted)
            )
        };
        let imported = Self { external, address };
        match mapped {
            Ok(()) => Ok(imported),
            Err(failure) => {
                // The first failure is the one to report.
                let _ = imported.release(runtime);
                Err(failure)
            }
        }
    }

    /// Gives up the mapping. No work may still use the memory. Device current.
    pub fn release(self, runtime: &Runtime) -> CallResult<()> {
        // SAFETY: `import` made this object, and consuming `self` destroys it only once.
        unsafe { optional!(runtime, hipDestroyExternalMemory(self.external)) }
    }

    /// Returns the address of the first byte of the peer's allocation.
    pub fn address(&self) -> u64 {
        self.address
    }
}
