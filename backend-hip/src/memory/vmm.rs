//! HIP's calls of virtual memory management; the order of the steps is in [`symmem_gpu::vmm`].
//!
//! Dangers: `hipMemSetAccess` sometimes fails on any but the first part of a range (rocm-systems 2516, 2667),
//! so a range has one mapping and one access right. Inter-process handles of such memory do not work (ROCm/clr
//! 266). `hipMemRetainAllocationHandle` dereferences a null pointer for all other memory (from 6.2 into 7.14,
//! rocm-systems 5807), and before 7.14 took no reference (2696). `hipMemMap` may report success and map nothing
//! (releases around 6.3), which `hipMemGetAccess` reveals.

use crate::current::Ordinal;
use crate::describe;
use crate::runtime::constants::device_attribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
use crate::runtime::constants::*;
use crate::runtime::structs::{AccessDescription, AllocationProperties, MemoryLocation};
use crate::runtime::table::{Code, Physical, Table};
use crate::runtime::{Runtime, VERSION_7_1, VERSION_7_2, VERSION_7_14};
use rustix::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::ffi::c_void;
use std::ptr::{null_mut, without_provenance_mut};
use symmem_core::backend::abi::{ExportedHandle, ShareKindCode, Status};
use symmem_core::backend::{CallResult, Failure};
use symmem_gpu::memory::{Content, Span};
use symmem_gpu::vmm::{Mapped, VirtualMemory};
use symmem_kernels_hip::Target;

/// Mapped physical memory, of this process or a peer.
pub type VmmMemory = Mapped<Handle>;

/// The runtime's call for the granularity of physical memory.
pub const GRANULARITY: &str = "hipMemGetAllocationGranularity";

/// The runtime's handle of physical memory.
#[derive(Clone, Copy)]
pub struct Handle(Physical);

// SAFETY: the runtime accepts this handle on any thread.
unsafe impl Send for Handle {}

/// Calls an optional function by name; `UNSUPPORTED` if the library lacks it.
macro_rules! optional {
    ($runtime:expr, $name:ident($($argument:expr),* $(,)?)) => {
        match $runtime.table.$name {
            Some(function) => $runtime.check(stringify!($name), function($($argument),*)),
            None => Err(missing(stringify!($name))),
        }
    };
}

/// The calls for a device that supports virtual memory management.
pub struct VirtualMemoryManagement {
    device: Ordinal,
    target: Target,
}

impl VirtualMemoryManagement {
    /// Returns the calls for a device; `None` if the device or the library lacks them. Device current.
    pub fn of(device: Ordinal, target: Target) -> CallResult<Option<Self>> {
        let (runtime, number) = (device.runtime, device.number);
        let supported = describe::attribute(runtime, number, VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)?;
        let whole = supported != 0 && is_whole(&runtime.table);
        Ok(whole.then_some(Self { device, target }))
    }

    /// Returns whether symmetric memory can be allocated this way: signals need a kind of memory that not every
    /// release has. Memory that the program allocated this way can be registered all the same.
    pub fn shares(&self) -> bool {
        refusal(self.device.runtime.version, self.target).is_none()
    }

    /// Returns the recommended granularity of shareable memory in bytes.
    pub fn granularity(&self) -> CallResult<u64> {
        let (properties, mut bytes) = (self.properties(ALLOCATION_TYPE_PINNED), 0);
        let (place, wanted) = (&raw mut bytes, &raw const properties);
        // SAFETY: the properties are complete, and the out-pointer is writable.
        unsafe {
            optional!(
                self.device.runtime,
                hipMemGetAllocationGranularity(place, wanted, GRANULARITY_RECOMMENDED)
            )
        }?;
        Ok(bytes as u64)
    }

    /// Allocates and maps `bytes` bytes, a multiple of the granularity. Device current.
    pub fn allocate(&self, content: Content, bytes: u64) -> CallResult<VmmMemory> {
        let version = self.device.runtime.version;
        let kind = allocation_type(content, version, self.target)
            .ok_or_else(|| Failure::new(Status::UNSUPPORTED, "hipMemCreate", NEEDS_UNCACHED))?;
        let (properties, mut physical) = (self.properties(kind), null_mut());
        let (place, wanted) = (&raw mut physical, &raw const properties);
        // SAFETY: the properties are complete, and the out-pointer is writable.
        unsafe {
            optional!(
                self.device.runtime,
                hipMemCreate(place, bytes as usize, wanted, 0)
            )
        }?;
        VmmMemory::new(self, Handle(physical), bytes)
    }

    /// Maps a peer's memory; the caller keeps the descriptor. Device current.
    pub fn import(&self, exported: &ExportedHandle) -> CallResult<VmmMemory> {
        let runtime = self.device.runtime;
        let (mut physical, mut descriptor) = (null_mut(), exported.descriptor);
        // The argument is a pointer to the descriptor before 7.1, and the descriptor's value since.
        let shareable = match runtime.version {
            VERSION_7_1.. => without_provenance_mut::<c_void>(descriptor as usize),
            _ => (&raw mut descriptor).cast(),
        };
        let place = &raw mut physical;
        // SAFETY: the out-pointer is writable, and the descriptor is readable and checked by the runtime.
        unsafe {
            optional!(
                runtime,
                hipMemImportFromShareableHandle(
                    place,
                    shareable,
                    HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                )
            )
        }?;
        VmmMemory::new(self, Handle(physical), exported.bytes)
            .map_err(|failure| self.out_of_reach(failure, exported.device))
    }

    /// Returns a peer's handle for a range, with a new file descriptor.
    pub fn export(&self, physical: Handle, span: &Span) -> CallResult<ExportedHandle> {
        Ok(ExportedHandle {
            descriptor: descriptor(self.device.runtime, physical)?.into_raw_fd(),
            ..span.handle(ShareKindCode::VMM_FILE_DESCRIPTOR, self.device.number)
        })
    }

    /// Returns the physical memory behind an address; `None` for other kinds of memory. Pass it to
    /// [`VirtualMemoryManagement::let_go`] after use.
    pub fn behind(&self, address: u64) -> CallResult<Option<Handle>> {
        let (table, mut physical) = (&self.device.runtime.table, null_mut());
        let Some(retain) = table.hipMemRetainAllocationHandle else {
            return Ok(None);
        };
        // Check first: the call below may crash for memory that is not mapped.
        if !self.is_mapped(address)? {
            return Ok(None);
        }
        // SAFETY: the out-pointer is writable, and the address is mapped, or the runtime checks it.
        let code = unsafe { retain(&raw mut physical, address) };
        let found = self.applies("hipMemRetainAllocationHandle", code)?;
        Ok(found.then_some(Handle(physical)))
    }

    /// Releases what [`VirtualMemoryManagement::behind`] returned. Runtimes before 7.14 took no reference
    /// there, so releasing it would take the memory from its owner.
    pub fn let_go(&self, physical: Handle) -> CallResult<()> {
        match self.device.runtime.version {
            VERSION_7_14.. => self.release(physical),
            _ => Ok(()),
        }
    }

    /// Returns false if the runtime rejects the address of a query as invalid.
    fn applies(&self, call: &'static str, code: Code) -> CallResult<bool> {
        let runtime = self.device.runtime;
        if code == result::INVALID_VALUE {
            runtime.forget_last_error();
            return Ok(false);
        }
        runtime.check(call, code).map(|()| true)
    }

    fn location(&self) -> MemoryLocation {
        MemoryLocation {
            kind: LOCATION_TYPE_DEVICE,
            id: self.device.number as i32,
        }
    }

    fn properties(&self, kind: u32) -> AllocationProperties {
        AllocationProperties {
            kind,
            handle_types: HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            location: self.location(),
            ..AllocationProperties::default()
        }
    }

    /// Explains a refused `hipMemSetAccess` as a peer out of reach.
    fn out_of_reach(&self, failure: Failure, peer: u32) -> Failure {
        const REFUSALS: [Code; 3] = [
            result::INVALID_VALUE,
            result::INVALID_DEVICE,
            result::PEER_ACCESS_UNSUPPORTED,
        ];
        let refused = REFUSALS.contains(&(failure.vendor_code as Code));
        if failure.call != "hipMemSetAccess" || !refused {
            return failure;
        }
        Failure {
            status: Status::PEER_UNREACHABLE,
            message: format!(
                "device {} cannot address memory of the peer's device (ordinal {peer} in its process): {}; \
                 `amd-smi topology` shows which devices can",
                self.device.number, failure.message
            ),
            ..failure
        }
    }
}

/// Returns the `hipMemAllocationType` for this use of memory; `None` if this version has none.
///
/// Signals may lie in ordinary memory on gfx942 and gfx950, where a peer's store invalidates the owner's cache
/// line (LLVM's AMDGPU guide, memory model gfx942), but not on gfx90a.
fn allocation_type(content: Content, version: u32, target: Target) -> Option<u32> {
    match (content, target) {
        (Content::Data, _) => Some(ALLOCATION_TYPE_PINNED),
        (Content::Signals, _) if version >= VERSION_7_2 => Some(ALLOCATION_TYPE_UNCACHED),
        (Content::Signals, Target::Gfx90a) => None,
        (Content::Signals, _) => Some(ALLOCATION_TYPE_PINNED),
    }
}

const NEEDS_UNCACHED: &str = "on gfx90a signals need uncached physical memory, which ROCm has from version 7.2 on; \
                              share memory by inter-process handles, or update ROCm";

/// Returns why virtual memory management cannot allocate symmetric memory with this version and target, if so.
pub fn refusal(version: u32, target: Target) -> Option<&'static str> {
    match allocation_type(Content::Signals, version, target) {
        Some(_) => None,
        None => Some(NEEDS_UNCACHED),
    }
}

/// Returns whether the library has every call of virtual memory management.
fn is_whole(table: &Table) -> bool {
    table.hipMemGetAllocationGranularity.is_some()
        && table.hipMemCreate.is_some()
        && table.hipMemRelease.is_some()
        && table.hipMemRetainAllocationHandle.is_some()
        && table.hipMemExportToShareableHandle.is_some()
        && table.hipMemImportFromShareableHandle.is_some()
        && table.hipMemAddressReserve.is_some()
        && table.hipMemAddressFree.is_some()
        && table.hipMemMap.is_some()
        && table.hipMemUnmap.is_some()
        && table.hipMemSetAccess.is_some()
        && table.hipMemGetAccess.is_some()
}

fn missing(call: &'static str) -> Failure {
    Failure::new(
        Status::UNSUPPORTED,
        call,
        "this runtime lacks the function; share memory by inter-process handles, or update ROCm",
    )
}

/// Returns the failure for a device without virtual memory management.
pub fn unsupported() -> Failure {
    missing("hipMemCreate")
}

/// Exports physical memory as a new file descriptor.
pub fn descriptor(runtime: &Runtime, physical: Handle) -> CallResult<OwnedFd> {
    let mut number: i32 = -1;
    let place = (&raw mut number).cast();
    // SAFETY: the runtime writes one int for this kind of handle.
    unsafe {
        optional!(
            runtime,
            hipMemExportToShareableHandle(place, physical.0, HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)
        )
    }?;
    // SAFETY: the runtime created this descriptor, and the caller owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

impl VirtualMemory for VirtualMemoryManagement {
    type Physical = Handle;
    const MAP: &'static str = "hipMemMap";

    fn reserve(&self, bytes: u64) -> CallResult<u64> {
        let (runtime, mut address) = (self.device.runtime, 0);
        let (place, bytes) = (&raw mut address, bytes as usize);
        // SAFETY: the out-pointer is writable.
        unsafe { optional!(runtime, hipMemAddressReserve(place, bytes, 0, 0, 0)) }?;
        Ok(address)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> CallResult<()> {
        let (runtime, bytes) = (self.device.runtime, bytes as usize);
        // SAFETY: `reserve` made this range, which has no mapping any more.
        unsafe { optional!(runtime, hipMemAddressFree(address, bytes)) }
    }

    fn map(&self, address: u64, bytes: u64, physical: Handle) -> CallResult<()> {
        let (runtime, bytes) = (self.device.runtime, bytes as usize);
        // SAFETY: both the range and the physical memory are live.
        unsafe { optional!(runtime, hipMemMap(address, bytes, 0, physical.0, 0)) }
    }

    fn unmap(&self, address: u64, bytes: u64) -> CallResult<()> {
        let (runtime, bytes) = (self.device.runtime, bytes as usize);
        // SAFETY: `map` made this mapping, which no work uses any more.
        unsafe { optional!(runtime, hipMemUnmap(address, bytes)) }
    }

    fn permit(&self, address: u64, bytes: u64) -> CallResult<()> {
        let (runtime, bytes) = (self.device.runtime, bytes as usize);
        let access = AccessDescription {
            location: self.location(),
            flags: ACCESS_READ_WRITE,
        };
        let description = &raw const access;
        // SAFETY: the description is complete, and the range is mapped.
        unsafe { optional!(runtime, hipMemSetAccess(address, bytes, description, 1)) }
    }

    /// Queries the access right, which only mapped memory has. Runtimes before 6.1 answer for all memory. A runtime
    /// may also take the first address behind a mapping to be in it, where other memory can begin. So this queries an
    /// odd address: mappings consist of whole pages, so it lies in the same mapping, and never just behind one.
    fn is_mapped(&self, address: u64) -> CallResult<bool> {
        let Some(ask) = self.device.runtime.table.hipMemGetAccess else {
            return Ok(false);
        };
        let (location, mut flags) = (self.location(), 0);
        // SAFETY: the out-pointer is writable, the location is complete, and the runtime checks the address.
        let code = unsafe { ask(&raw mut flags, &raw const location, address | 1) };
        self.applies("hipMemGetAccess", code)
    }

    fn release(&self, physical: Handle) -> CallResult<()> {
        // SAFETY: the handle was created, imported or retained, and is released once.
        unsafe { optional!(self.device.runtime, hipMemRelease(physical.0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_for_signals_is_uncached_where_that_can_be_had_and_refused_where_it_must_be() {
        let (data, signals) = (Content::Data, Content::Signals);
        let kind = |content, version| allocation_type(content, version, Target::Gfx90a);
        assert_eq!(kind(data, VERSION_7_1), Some(ALLOCATION_TYPE_PINNED));
        assert_eq!(kind(signals, VERSION_7_1), None);
        assert_eq!(kind(signals, VERSION_7_2), Some(ALLOCATION_TYPE_UNCACHED));
        assert!(refusal(VERSION_7_1, Target::Gfx90a).is_some_and(|why| why.contains("7.2")));
        assert_eq!(refusal(VERSION_7_2, Target::Gfx90a), None);
        let kind = allocation_type(signals, VERSION_7_1, Target::Gfx942);
        assert_eq!(kind, Some(ALLOCATION_TYPE_PINNED));
    }
}
