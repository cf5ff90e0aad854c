//! Memory by virtual-memory management; core has the order of the steps.
//!
//! What bites: `hipMemSetAccess` fails at times on any but the first part of a range (rocm-systems 2516,
//! 2667), so a range has one mapping and one right of access. An inter-process handle of such memory is
//! none (ROCm/clr 266). `hipMemRetainAllocationHandle` reads through a null pointer for any other memory
//! (from 6.2 into 7.14, rocm-systems 5807), and for a long time held nothing (2696). `hipMemMap` may report
//! success and map nothing (releases around 6.3): `hipMemGetAccess` knows.

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
use symmem_core::backend::abi::{ExportedHandle, ShareKind, Status};
use symmem_core::backend::{CallResult, Failure};
use symmem_gpu::memory::{Content, Span};
use symmem_gpu::vmm::{Mapped, VirtualMemory};
use symmem_kernels_hip::Target;

/// Physical memory of this process or of a peer, mapped here.
pub type VmmMemory = Mapped<Handle>;

/// The call that says in which units physical memory is made.
pub const GRANULARITY: &str = "hipMemGetAllocationGranularity";

/// The runtime's handle of physical memory.
#[derive(Clone, Copy)]
pub struct Handle(Physical);

// SAFETY: a handle that the runtime lets any thread use.
unsafe impl Send for Handle {}

/// Calls an optional function by its name, where the library has it.
macro_rules! optional {
    ($runtime:expr, $name:ident($($argument:expr),* $(,)?)) => {
        match $runtime.table.$name {
            Some(function) => $runtime.check(stringify!($name), function($($argument),*)),
            None => Err(missing(stringify!($name))),
        }
    };
}

/// The calls, for a device that has it.
pub struct VirtualMemoryManagement {
    device: Ordinal,
    target: Target,
}

impl VirtualMemoryManagement {
    /// Of a device; `None` where device or library do without. Device current.
    pub fn of(device: Ordinal, target: Target) -> CallResult<Option<Self>> {
        let (runtime, number) = (device.runtime, device.number);
        let supported = describe::attribute(runtime, number, VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)?;
        let whole = supported != 0 && is_whole(&runtime.table);
        Ok(whole.then_some(Self { device, target }))
    }

    /// Whether symmetric memory can be made of it: signals need a kind of memory that not every release has.
    /// What a program made with it is recognised all the same.
    pub fn shares(&self) -> bool {
        refusal(self.device.runtime.version, self.target).is_none()
    }

    /// The recommended granularity of memory that can be shared, in bytes.
    pub fn granularity(&self) -> CallResult<u64> {
        let (properties, mut bytes) = (self.properties(ALLOCATION_TYPE_PINNED), 0);
        let (place, wanted) = (&raw mut bytes, &raw const properties);
        // SAFETY: the place is writable and the properties complete.
        unsafe {
            optional!(
                self.device.runtime,
                hipMemGetAllocationGranularity(place, wanted, GRANULARITY_RECOMMENDED)
            )
        }?;
        Ok(bytes as u64)
    }

    /// Allocates `bytes`, a multiple of the granularity, and maps them. Device current.
    pub fn allocate(&self, content: Content, bytes: u64) -> CallResult<VmmMemory> {
        let version = self.device.runtime.version;
        let kind = allocation_type(content, version, self.target)
            .ok_or_else(|| Failure::new(Status::UNSUPPORTED, "hipMemCreate", NEEDS_UNCACHED))?;
        let (properties, mut physical) = (self.properties(kind), null_mut());
        let (place, wanted) = (&raw mut physical, &raw const properties);
        // SAFETY: the place is writable and the properties complete.
        unsafe {
            optional!(
                self.device.runtime,
                hipMemCreate(place, bytes as usize, wanted, 0)
            )
        }?;
        VmmMemory::new(self, Handle(physical), bytes)
    }

    /// Maps a peer's memory, whose descriptor stays the caller's. Device current.
    pub fn import(&self, exported: &ExportedHandle) -> CallResult<VmmMemory> {
        let runtime = self.device.runtime;
        let (mut physical, mut descriptor) = (null_mut(), exported.descriptor);
        // Before 7.1 a pointer to the descriptor, since then the descriptor itself.
        let shareable = match runtime.version {
            VERSION_7_1.. => without_provenance_mut::<c_void>(descriptor as usize),
            _ => (&raw mut descriptor).cast(),
        };
        let place = &raw mut physical;
        // SAFETY: the place is writable; the descriptor is readable; the runtime checks it.
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

    /// What a peer needs to map memory: a new descriptor of it.
    pub fn export(&self, physical: Handle, span: &Span) -> CallResult<ExportedHandle> {
        Ok(ExportedHandle {
            descriptor: descriptor(self.device.runtime, physical)?.into_raw_fd(),
            ..span.handle(ShareKind::VMM_FILE_DESCRIPTOR, self.device.number)
        })
    }

    /// The physical memory behind an address; `None` where it is memory of another kind. To be given to
    /// [`VirtualMemoryManagement::let_go`].
    pub fn behind(&self, address: u64) -> CallResult<Option<Handle>> {
        let (table, mut physical) = (&self.device.runtime.table, null_mut());
        let Some(retain) = table.hipMemRetainAllocationHandle else {
            return Ok(None);
        };
        // Asked first: what follows must not be asked of memory that is not mapped.
        if !self.is_mapped(address)? {
            return Ok(None);
        }
        // SAFETY: the place is writable; the address is of mapped memory, or the runtime checks it.
        let code = unsafe { retain(&raw mut physical, address) };
        let found = self.applies("hipMemRetainAllocationHandle", code)?;
        Ok(found.then_some(Handle(physical)))
    }

    /// Gives up what [`VirtualMemoryManagement::behind`] found. Older runtimes did not count it as held, so
    /// that to release it would take the memory from its owner.
    pub fn let_go(&self, physical: Handle) -> CallResult<()> {
        match self.device.runtime.version {
            VERSION_7_14.. => self.release(physical),
            _ => Ok(()),
        }
    }

    /// Whether a question about an address applies to its memory.
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

    /// A refusal to give access to a peer's memory is a peer out of reach.
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
                "device {} cannot address memory of the peer's device (its ordinal there is {peer}): {}; \
                 `amd-smi topology` shows which can",
                self.device.number, failure.message
            ),
            ..failure
        }
    }
}

/// `hipMemAllocationType` for what memory is to hold; `None` where it cannot be had.
///
/// Ordinary memory will do for signals on gfx942 and gfx950, where a peer's store takes the line out of
/// the owner's cache (LLVM's AMDGPU guide, memory model gfx942); not on gfx90a.
fn allocation_type(content: Content, version: u32, target: Target) -> Option<u32> {
    match (content, target) {
        (Content::Data, _) => Some(ALLOCATION_TYPE_PINNED),
        (Content::Signals, _) if version >= VERSION_7_2 => Some(ALLOCATION_TYPE_UNCACHED),
        (Content::Signals, Target::Gfx90a) => None,
        (Content::Signals, _) => Some(ALLOCATION_TYPE_PINNED),
    }
}

const NEEDS_UNCACHED: &str = "physical memory for signals is uncached from version 7.2 on, and on gfx90a has \
                              to be: share memory by inter-process handles, or update ROCm";

/// Why symmetric memory cannot be made by virtual-memory management, if so, with this version and target.
pub fn refusal(version: u32, target: Target) -> Option<&'static str> {
    match allocation_type(Content::Signals, version, target) {
        Some(_) => None,
        None => Some(NEEDS_UNCACHED),
    }
}

/// Whether the library has every call of virtual-memory management.
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
        "this runtime lacks it: share memory by inter-process handles, or update ROCm",
    )
}

/// What a device without virtual-memory management says.
pub fn unsupported() -> Failure {
    missing("hipMemCreate")
}

/// Exports physical memory as a new file descriptor.
pub fn descriptor(runtime: &Runtime, physical: Handle) -> CallResult<OwnedFd> {
    let mut number: i32 = -1;
    let place = (&raw mut number).cast();
    // SAFETY: for this kind of handle the runtime writes one int.
    unsafe {
        optional!(
            runtime,
            hipMemExportToShareableHandle(place, physical.0, HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)
        )
    }?;
    // SAFETY: the runtime made the descriptor for the caller.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

impl VirtualMemory for VirtualMemoryManagement {
    type Physical = Handle;
    const MAP: &'static str = "hipMemMap";

    fn reserve(&self, bytes: u64) -> CallResult<u64> {
        let (runtime, mut address) = (self.device.runtime, 0);
        let (place, bytes) = (&raw mut address, bytes as usize);
        // SAFETY: the place is writable.
        unsafe { optional!(runtime, hipMemAddressReserve(place, bytes, 0, 0, 0)) }?;
        Ok(address)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> CallResult<()> {
        let (runtime, bytes) = (self.device.runtime, bytes as usize);
        // SAFETY: `reserve` made the range, and nothing is mapped to it any more.
        unsafe { optional!(runtime, hipMemAddressFree(address, bytes)) }
    }

    fn map(&self, address: u64, bytes: u64, physical: Handle) -> CallResult<()> {
        let (runtime, bytes) = (self.device.runtime, bytes as usize);
        // SAFETY: range and physical memory are live.
        unsafe { optional!(runtime, hipMemMap(address, bytes, 0, physical.0, 0)) }
    }

    fn unmap(&self, address: u64, bytes: u64) -> CallResult<()> {
        let (runtime, bytes) = (self.device.runtime, bytes as usize);
        // SAFETY: `map` mapped the range; nothing uses it any more.
        unsafe { optional!(runtime, hipMemUnmap(address, bytes)) }
    }

    fn permit(&self, address: u64, bytes: u64) -> CallResult<()> {
        let (runtime, bytes) = (self.device.runtime, bytes as usize);
        let access = AccessDescription {
            location: self.location(),
            flags: ACCESS_READ_WRITE,
        };
        let description = &raw const access;
        // SAFETY: the range is mapped and the description complete.
        unsafe { optional!(runtime, hipMemSetAccess(address, bytes, description, 1)) }
    }

    /// Only of memory that is mapped is there a right of access. Before 6.1 the runtime answers for all
    /// memory; and it may take the first address behind a mapping to be in it, where other memory can begin.
    /// So an odd address is asked for: mappings are of whole pages, so it is in the same one, and behind none.
    fn is_mapped(&self, address: u64) -> CallResult<bool> {
        let Some(ask) = self.device.runtime.table.hipMemGetAccess else {
            return Ok(false);
        };
        let (location, mut flags) = (self.location(), 0);
        // SAFETY: the place is writable, the location complete; the runtime checks the address.
        let code = unsafe { ask(&raw mut flags, &raw const location, address | 1) };
        self.applies("hipMemGetAccess", code)
    }

    fn release(&self, physical: Handle) -> CallResult<()> {
        // SAFETY: created, imported or held, and given up once.
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
