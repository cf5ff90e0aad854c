//! Memory by virtual-memory management; core has the order of the steps.

use crate::driver::constants::result::{INVALID_DEVICE, INVALID_VALUE, PEER_ACCESS_UNSUPPORTED};
use crate::driver::constants::*;
use crate::driver::structs::{AccessDescription, AllocationProperties, MemoryLocation};
use crate::driver::{Driver, call};
use cudarc::driver::sys::{CUdevice, CUmemGenericAllocationHandle};
use rustix::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::ffi::c_void;
use std::ptr::without_provenance_mut;
use symmem_core::backend::abi::{ExportedHandle, ShareKind, Status};
use symmem_core::backend::{CallResult, Failure};
use symmem_gpu::memory::Span;
use symmem_gpu::vmm::{Mapped, VirtualMemory};

/// Physical memory of this process or of a peer, mapped here.
pub type VmmMemory = Mapped<CUmemGenericAllocationHandle>;

/// The driver, for memory that a device addresses. Context current.
pub struct Runtime<'a> {
    pub driver: &'a Driver,
    pub device: CUdevice,
}

fn location(device: CUdevice) -> MemoryLocation {
    MemoryLocation {
        kind: LOCATION_TYPE_DEVICE,
        id: device,
    }
}

fn properties(device: CUdevice) -> AllocationProperties {
    AllocationProperties {
        kind: ALLOCATION_TYPE_PINNED,
        handle_types: HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        location: location(device),
        ..AllocationProperties::default()
    }
}

/// The call that says in which units physical memory is made.
pub const GRANULARITY: &str = "cuMemGetAllocationGranularity";

/// The driver's recommended granularity for memory that can be shared, in bytes.
pub fn granularity(driver: &Driver, device: CUdevice) -> CallResult<u64> {
    let mut bytes = 0;
    let properties = properties(device);
    // SAFETY: the place is writable and the properties complete.
    unsafe {
        call!(
            driver,
            cuMemGetAllocationGranularity(
                &raw mut bytes,
                &raw const properties,
                GRANULARITY_RECOMMENDED
            )
        )
    }?;
    Ok(bytes as u64)
}

/// Allocates `bytes`, a multiple of the granularity, and maps them. Context current.
pub fn allocate(driver: &Driver, device: CUdevice, bytes: u64) -> CallResult<VmmMemory> {
    let mut handle = 0;
    let properties = properties(device);
    // SAFETY: the place is writable and the properties complete.
    unsafe {
        call!(
            driver,
            cuMemCreate(&raw mut handle, bytes as usize, &raw const properties, 0)
        )
    }?;
    VmmMemory::new(&Runtime { driver, device }, handle, bytes)
}

/// Maps a peer's memory, whose descriptor stays the caller's. Context current.
pub fn import(
    driver: &Driver,
    device: CUdevice,
    exported: &ExportedHandle,
) -> CallResult<VmmMemory> {
    let handle = import_handle(driver, exported)?;
    VmmMemory::new(&Runtime { driver, device }, handle, exported.bytes)
        .map_err(|failure| unreachable_peer(failure, device, exported.device))
}

/// The driver's handle of what a peer exported, whose descriptor stays the caller's. Context current.
pub fn import_handle(
    driver: &Driver,
    exported: &ExportedHandle,
) -> CallResult<CUmemGenericAllocationHandle> {
    let mut handle = 0;
    // The driver takes the descriptor itself where a pointer would stand.
    let descriptor = without_provenance_mut::<c_void>(exported.descriptor as usize);
    // SAFETY: the place is writable; the driver checks the descriptor.
    unsafe {
        call!(
            driver,
            cuMemImportFromShareableHandle(
                &raw mut handle,
                descriptor,
                HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
            )
        )
    }?;
    Ok(handle)
}

/// What a peer needs to map memory: a new descriptor of it.
pub fn export(driver: &Driver, memory: &VmmMemory, ordinal: u32) -> CallResult<ExportedHandle> {
    let span = Span {
        base: memory.address,
        bytes: memory.bytes,
        offset: 0,
    };
    Ok(ExportedHandle {
        descriptor: descriptor(driver, memory.physical)?.into_raw_fd(),
        ..span.handle(ShareKind::VMM_FILE_DESCRIPTOR, ordinal)
    })
}

impl Runtime<'_> {
    /// Reserves a range of addresses that starts at a multiple of `alignment`; 0 for the driver's own.
    pub fn reserve_aligned(&self, bytes: u64, alignment: u64) -> CallResult<u64> {
        let mut address = 0;
        // SAFETY: the place is writable.
        unsafe {
            call!(
                self.driver,
                cuMemAddressReserve(&raw mut address, bytes as usize, alignment as usize, 0, 0)
            )
        }?;
        Ok(address)
    }
}

impl VirtualMemory for Runtime<'_> {
    type Physical = CUmemGenericAllocationHandle;
    const MAP: &'static str = "cuMemMap";

    fn reserve(&self, bytes: u64) -> CallResult<u64> {
        self.reserve_aligned(bytes, 0)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> CallResult<()> {
        // SAFETY: `reserve` made the range; nothing is mapped to it any more.
        unsafe { call!(self.driver, cuMemAddressFree(address, bytes as usize)) }
    }

    fn map(&self, address: u64, bytes: u64, physical: Self::Physical) -> CallResult<()> {
        // SAFETY: range and physical memory are live.
        unsafe {
            call!(
                self.driver,
                cuMemMap(address, bytes as usize, 0, physical, 0)
            )
        }
    }

    fn unmap(&self, address: u64, bytes: u64) -> CallResult<()> {
        // SAFETY: `map` mapped the range; nothing uses it any more.
        unsafe { call!(self.driver, cuMemUnmap(address, bytes as usize)) }
    }

    fn permit(&self, address: u64, bytes: u64) -> CallResult<()> {
        let access = AccessDescription {
            location: location(self.device),
            flags: ACCESS_READ_WRITE,
        };
        // SAFETY: the range is mapped and the description complete.
        unsafe {
            call!(
                self.driver,
                cuMemSetAccess(address, bytes as usize, &raw const access, 1)
            )
        }
    }

    /// The driver says so where it cannot map.
    fn is_mapped(&self, _address: u64) -> CallResult<bool> {
        Ok(true)
    }

    fn release(&self, physical: Self::Physical) -> CallResult<()> {
        // SAFETY: created or imported, and given up once.
        unsafe { call!(self.driver, cuMemRelease(physical)) }
    }
}

/// Exports a physical handle as a new file descriptor.
pub fn descriptor(driver: &Driver, handle: CUmemGenericAllocationHandle) -> CallResult<OwnedFd> {
    let mut descriptor: i32 = -1;
    // SAFETY: for this kind of handle the driver writes one int.
    unsafe {
        call!(
            driver,
            cuMemExportToShareableHandle(
                (&raw mut descriptor).cast(),
                handle,
                HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                0
            )
        )
    }?;
    // SAFETY: the driver made the descriptor for the caller.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// What the driver calls an invalid device when access is set is a peer out of reach.
fn unreachable_peer(failure: Failure, device: CUdevice, peer: u32) -> Failure {
    const REFUSALS: [u32; 3] = [INVALID_VALUE, INVALID_DEVICE, PEER_ACCESS_UNSUPPORTED];
    if failure.call != "cuMemSetAccess" || !REFUSALS.contains(&(failure.vendor_code as u32)) {
        return failure;
    }
    let message = format!(
        "device {device} cannot address memory of the peer's device (its ordinal there is {peer}): \
         {}; `nvidia-smi topo -p2p rw` shows which devices can",
        failure.message
    );
    Failure {
        status: Status::PEER_UNREACHABLE,
        message,
        ..failure
    }
}
