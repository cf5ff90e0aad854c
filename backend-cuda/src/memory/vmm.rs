//! Memory by virtual-memory management: a physical handle, a reserved range, a mapping and a right
//! of access, each made after the one before and undone in the opposite order.

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

/// Physical memory of this process or of a peer, mapped here.
pub struct VmmMemory {
    handle: CUmemGenericAllocationHandle,
    address: u64,
    bytes: u64,
    done: Step,
}

/// How far the making has come.
#[derive(PartialEq, PartialOrd)]
enum Step {
    Created,
    Reserved,
    Mapped,
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

impl VmmMemory {
    /// Allocates `bytes`, a multiple of the granularity, and maps them. Context current.
    pub fn allocate(driver: &Driver, device: CUdevice, bytes: u64) -> CallResult<Self> {
        let mut handle = 0;
        let properties = properties(device);
        // SAFETY: the place is writable and the properties complete.
        unsafe {
            call!(
                driver,
                cuMemCreate(&raw mut handle, bytes as usize, &raw const properties, 0)
            )
        }?;
        Self::map(driver, device, handle, bytes)
    }

    /// Maps a peer's memory, whose descriptor stays the caller's. Context current.
    pub fn import(
        driver: &Driver,
        device: CUdevice,
        exported: &ExportedHandle,
    ) -> CallResult<Self> {
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
        Self::map(driver, device, handle, exported.bytes)
            .map_err(|failure| unreachable_peer(failure, device, exported.device))
    }

    /// Takes over a physical handle and makes it addressable by the device.
    fn map(
        driver: &Driver,
        device: CUdevice,
        handle: CUmemGenericAllocationHandle,
        bytes: u64,
    ) -> CallResult<Self> {
        let mut memory = Self {
            handle,
            address: 0,
            bytes,
            done: Step::Created,
        };
        if let Err(failure) = memory.map_steps(driver, device) {
            // The first failure is the one to tell.
            let _ = memory.release(driver);
            return Err(failure);
        }
        Ok(memory)
    }

    fn map_steps(&mut self, driver: &Driver, device: CUdevice) -> CallResult<()> {
        let bytes = self.bytes as usize;
        let access = AccessDescription {
            location: location(device),
            flags: ACCESS_READ_WRITE,
        };
        // SAFETY: each call gets what the one before it made; places are writable.
        unsafe {
            call!(
                driver,
                cuMemAddressReserve(&raw mut self.address, bytes, 0, 0, 0)
            )?;
            self.done = Step::Reserved;
            call!(driver, cuMemMap(self.address, bytes, 0, self.handle, 0))?;
            self.done = Step::Mapped;
            call!(
                driver,
                cuMemSetAccess(self.address, bytes, &raw const access, 1)
            )
        }
    }

    /// Undoes what was made, last step first; tells the first failure. Nothing may be using the
    /// memory. Context current.
    pub fn release(self, driver: &Driver) -> CallResult<()> {
        let bytes = self.bytes as usize;
        let mut result = Ok(());
        // SAFETY: each step undoes what `done` says is there, once, since `self` is used up.
        unsafe {
            if self.done >= Step::Mapped {
                result = result.and(call!(driver, cuMemUnmap(self.address, bytes)));
            }
            if self.done >= Step::Reserved {
                result = result.and(call!(driver, cuMemAddressFree(self.address, bytes)));
            }
            result.and(call!(driver, cuMemRelease(self.handle)))
        }
    }

    /// The first byte, as this device addresses it.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// A new descriptor of the memory, for peers.
    pub fn export(&self, driver: &Driver, ordinal: u32) -> CallResult<ExportedHandle> {
        Ok(ExportedHandle {
            kind: ShareKind::VMM_FILE_DESCRIPTOR,
            device: ordinal,
            offset: 0,
            bytes: self.bytes,
            address: self.address,
            opaque: [0; 64],
            descriptor: descriptor(driver, self.handle)?.into_raw_fd(),
            reserved: 0,
        })
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
