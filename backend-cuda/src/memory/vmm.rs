//! CUDA's calls of virtual memory management; [`symmem_gpu::vmm`] has the order of the steps.

use crate::driver::constants::result::{INVALID_DEVICE, INVALID_VALUE, PEER_ACCESS_UNSUPPORTED};
use crate::driver::constants::*;
use crate::driver::structs::{AccessDescription, AllocationProperties, MemoryLocation};
use crate::driver::{Driver, call};
use cudarc::driver::sys::{CUdevice, CUmemGenericAllocationHandle};
use rustix::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::ffi::c_void;
use std::ptr::without_provenance_mut;
use symmem_core::backend::abi::{ExportedHandle, ShareKindCode, Status};
use symmem_core::backend::{CallResult, Failure};
use symmem_gpu::memory::Span;
use symmem_gpu::vmm::{Mapped, VirtualMemory};

/// Physical memory of this process or a peer, mapped for this device.
pub type VmmMemory = Mapped<CUmemGenericAllocationHandle>;

/// The driver's calls for one device. Context current.
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

/// Name of the call that reports the granularity of physical memory.
pub const GRANULARITY: &str = "cuMemGetAllocationGranularity";

/// Returns the driver's recommended granularity for shareable memory, in bytes.
pub fn granularity(driver: &Driver, device: CUdevice) -> CallResult<u64> {
    let mut bytes = 0;
    let properties = properties(device);
    // SAFETY: the out-pointer is writable, and all fields of the properties are set.
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

/// Allocates `bytes` bytes, a multiple of the granularity, and maps them. Context current.
pub fn allocate(driver: &Driver, device: CUdevice, bytes: u64) -> CallResult<VmmMemory> {
    let mut handle = 0;
    let properties = properties(device);
    // SAFETY: the out-pointer is writable, and all fields of the properties are set.
    unsafe {
        call!(
            driver,
            cuMemCreate(&raw mut handle, bytes as usize, &raw const properties, 0)
        )
    }?;
    VmmMemory::new(&Runtime { driver, device }, handle, bytes)
}

/// Maps a peer's memory. Does not close the descriptor, which stays the caller's. Context current.
pub fn import(
    driver: &Driver,
    device: CUdevice,
    exported: &ExportedHandle,
) -> CallResult<VmmMemory> {
    let handle = import_handle(driver, exported)?;
    VmmMemory::new(&Runtime { driver, device }, handle, exported.bytes)
        .map_err(|failure| unreachable_peer(failure, device, exported.device))
}

/// Returns the driver's handle of an object that a peer exported. Does not close the descriptor. Context current.
pub fn import_handle(
    driver: &Driver,
    exported: &ExportedHandle,
) -> CallResult<CUmemGenericAllocationHandle> {
    let mut handle = 0;
    // The driver expects the descriptor's value in the pointer argument.
    let descriptor = without_provenance_mut::<c_void>(exported.descriptor as usize);
    // SAFETY: the out-pointer is writable, and the driver checks the descriptor.
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

/// Returns the handle with which a peer maps the memory, with a new file descriptor.
pub fn export(driver: &Driver, memory: &VmmMemory, ordinal: u32) -> CallResult<ExportedHandle> {
    let span = Span {
        base: memory.address,
        bytes: memory.bytes,
        offset: 0,
    };
    Ok(ExportedHandle {
        descriptor: descriptor(driver, memory.physical)?.into_raw_fd(),
        ..span.handle(ShareKindCode::VMM_FILE_DESCRIPTOR, ordinal)
    })
}

impl Runtime<'_> {
    /// Reserves an address range at a multiple of `alignment` bytes; 0 selects the driver's default.
    pub fn reserve_aligned(&self, bytes: u64, alignment: u64) -> CallResult<u64> {
        let mut address = 0;
        // SAFETY: the out-pointer is writable.
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
        // SAFETY: `reserve` made the range, and nothing is mapped to it any more.
        unsafe { call!(self.driver, cuMemAddressFree(address, bytes as usize)) }
    }

    fn map(&self, address: u64, bytes: u64, physical: Self::Physical) -> CallResult<()> {
        // SAFETY: the range and the physical memory are live.
        unsafe {
            call!(
                self.driver,
                cuMemMap(address, bytes as usize, 0, physical, 0)
            )
        }
    }

    fn unmap(&self, address: u64, bytes: u64) -> CallResult<()> {
        // SAFETY: `map` mapped the range, and no work uses it any more.
        unsafe { call!(self.driver, cuMemUnmap(address, bytes as usize)) }
    }

    fn permit(&self, address: u64, bytes: u64) -> CallResult<()> {
        let access = AccessDescription {
            location: location(self.device),
            flags: ACCESS_READ_WRITE,
        };
        // SAFETY: the range is mapped, and all fields of the description are set.
        unsafe {
            call!(
                self.driver,
                cuMemSetAccess(address, bytes as usize, &raw const access, 1)
            )
        }
    }

    /// Returns true: CUDA reports a failed `cuMemMap`.
    fn is_mapped(&self, _address: u64) -> CallResult<bool> {
        Ok(true)
    }

    fn release(&self, physical: Self::Physical) -> CallResult<()> {
        // SAFETY: the handle was created or imported, and is released once.
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
    // SAFETY: the driver created the descriptor for the caller, who owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Explains a refused `cuMemSetAccess`: the driver reports an invalid device for a peer out of reach.
fn unreachable_peer(failure: Failure, device: CUdevice, peer: u32) -> Failure {
    const REFUSALS: [u32; 3] = [INVALID_VALUE, INVALID_DEVICE, PEER_ACCESS_UNSUPPORTED];
    if failure.call != "cuMemSetAccess" || !REFUSALS.contains(&(failure.vendor_code as u32)) {
        return failure;
    }
    let message = format!(
        "device {device} cannot address memory of the peer's device (ordinal {peer} in its process): \
         {}; `nvidia-smi topo -p2p rw` shows which devices can",
        failure.message
    );
    Failure {
        status: Status::PEER_UNREACHABLE,
        message,
        ..failure
    }
}
