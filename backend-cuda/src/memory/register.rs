//! Taking memory that the caller allocated, where the driver can share memory of its kind.

use super::{legacy, vmm};
use crate::driver::constants::result::INVALID_VALUE;
use crate::driver::constants::{MEMORY_TYPE_DEVICE, pointer_attribute};
use crate::driver::{Driver, call};
use cudarc::driver::sys::{CUdevice, CUmemGenericAllocationHandle};
use rustix::fd::IntoRawFd;
use std::ptr::with_exposed_provenance_mut;
use symmem_core::backend::abi::{DeviceAddress, ExportedHandle, ShareKind, Status};
use symmem_core::backend::{CallResult, Failure};
use symmem_gpu::memory::{Span, not_shareable};

/// A caller's memory: the whole object and where the registered range starts in it.
pub struct Registration {
    kind: ShareKind,
    span: Span,
}

/// Whose memory a pointer is.
struct Pointer {
    memory_type: u32,
    managed: bool,
    device: CUdevice,
    pooled: bool,
    legacy: bool,
}

impl Registration {
    /// Checks that `bytes` at `address` are memory of this device that `kind` can share. Context
    /// current.
    pub fn inspect(
        driver: &Driver,
        device: CUdevice,
        kind: ShareKind,
        address: DeviceAddress,
        bytes: u64,
    ) -> CallResult<Self> {
        let pointer = Pointer::inspect(driver, address)?;
        if let Some(reason) = pointer.refusal(device, kind) {
            return Err(not_shareable(address, reason));
        }
        let (mut base, mut size) = (0, 0);
        // SAFETY: both places are writable.
        unsafe {
            call!(
                driver,
                cuMemGetAddressRange_v2(&raw mut base, &raw mut size, address.0)
            )
        }?;
        let span = Span::new(address, bytes, base, size as u64)?;
        let registration = Self { kind, span };
        if kind == ShareKind::VMM_FILE_DESCRIPTOR {
            // Prove now, not at the rendezvous, that it can be exported; the descriptor is closed.
            registration.descriptor(driver)?;
        }
        Ok(registration)
    }

    /// What a peer needs. Context current.
    pub fn export(&self, driver: &Driver, ordinal: u32) -> CallResult<ExportedHandle> {
        if self.kind != ShareKind::VMM_FILE_DESCRIPTOR {
            return legacy::export(driver, ordinal, self.kind, &self.span);
        }
        Ok(ExportedHandle {
            descriptor: self.descriptor(driver)?.into_raw_fd(),
            ..self.span.handle(self.kind, ordinal)
        })
    }

    /// A new descriptor of the physical memory behind the range.
    fn descriptor(&self, driver: &Driver) -> CallResult<rustix::fd::OwnedFd> {
        let mut handle: CUmemGenericAllocationHandle = 0;
        let pointer = with_exposed_provenance_mut(self.span.base as usize);
        // SAFETY: the place is writable; the driver checks the address.
        unsafe {
            call!(
                driver,
                cuMemRetainAllocationHandle(&raw mut handle, pointer)
            )
        }
        .map_err(|failure| {
            explain(
                failure,
                DeviceAddress(self.span.base),
                "it was not allocated with cuMemCreate",
            )
        })?;
        let descriptor = vmm::descriptor(driver, handle).map_err(|failure| {
            explain(
                failure,
                DeviceAddress(self.span.base),
                "it was created without CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR",
            )
        });
        // SAFETY: retained above, once.
        let released = unsafe { call!(driver, cuMemRelease(handle)) };
        let descriptor = descriptor?;
        released?;
        Ok(descriptor)
    }
}

impl Pointer {
    fn inspect(driver: &Driver, address: DeviceAddress) -> CallResult<Self> {
        use pointer_attribute::*;
        let memory_type = attribute::<u32>(driver, address, MEMORY_TYPE)?;
        if memory_type != MEMORY_TYPE_DEVICE {
            return Err(not_shareable(
                address,
                "it is not device memory; copy through a buffer of your own communicator instead",
            ));
        }
        Ok(Self {
            memory_type,
            managed: attribute::<u8>(driver, address, IS_MANAGED)? != 0,
            device: attribute(driver, address, DEVICE_ORDINAL)?,
            pooled: attribute::<u64>(driver, address, MEMPOOL_HANDLE)? != 0,
            legacy: attribute::<u8>(driver, address, IS_LEGACY_CUDA_IPC_CAPABLE)? != 0,
        })
    }

    /// Why the memory cannot be shared by this kind, if so.
    fn refusal(&self, device: CUdevice, kind: ShareKind) -> Option<&'static str> {
        let legacy = kind != ShareKind::VMM_FILE_DESCRIPTOR;
        if self.memory_type != MEMORY_TYPE_DEVICE {
            Some("it is not device memory")
        } else if self.managed {
            Some("it is managed memory, which moves between devices; allocate it with cuMemAlloc")
        } else if self.device != device {
            Some("it is on another device; register it with the rank that has that device open")
        } else if self.pooled {
            Some(
                "it came from a stream-ordered pool (cuMemAllocAsync), whose memory has no handle \
                 of its own; allocate it with cuMemAlloc",
            )
        } else if legacy && !self.legacy {
            Some(
                "the driver has no inter-process handle for it, as for memory of cuMemCreate; \
                 choose the kind VMM_FILE_DESCRIPTOR or allocate it with cuMemAlloc",
            )
        } else {
            None
        }
    }
}

/// Reads one attribute of a pointer; one that does not apply to it reads as zero.
fn attribute<T: Copy + Default>(
    driver: &Driver,
    address: DeviceAddress,
    attribute: u32,
) -> CallResult<T> {
    // Some attributes are written as 32-bit numbers by one driver and as single bytes by another:
    // give the driver room for the widest, and read the low bytes, which both platforms put first.
    let mut room = [0_u64; 2];
    // SAFETY: no attribute asked for here is wider than the place.
    let code = unsafe {
        (driver.table.cuPointerGetAttribute)(room.as_mut_ptr().cast(), attribute, address.0)
    };
    // An address that the driver does not know, or an attribute it has not: the value stays zero.
    if code != INVALID_VALUE {
        driver.check("cuPointerGetAttribute", code)?;
    }
    const { assert!(size_of::<T>() <= 16) };
    // SAFETY: T is a plain integer no larger than the place; every bit pattern is a value of it.
    Ok(unsafe { room.as_ptr().cast::<T>().read() })
}

/// A refusal by the driver, with what it means here.
fn explain(failure: Failure, address: DeviceAddress, reason: &str) -> Failure {
    if failure.vendor_code != INVALID_VALUE as i32 && failure.status != Status::UNSUPPORTED {
        return failure;
    }
    let refusal = not_shareable(address, reason);
    Failure {
        status: Status::UNSUPPORTED,
        message: format!("{} ({})", refusal.message, failure.message),
        ..failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Pointer = Pointer {
        memory_type: MEMORY_TYPE_DEVICE,
        managed: false,
        device: 1,
        pooled: false,
        legacy: true,
    };

    #[test]
    fn each_kind_of_memory_that_cannot_be_shared_is_refused_with_its_reason() {
        let vmm = ShareKind::VMM_FILE_DESCRIPTOR;
        let refusal = |pointer: Pointer, kind| pointer.refusal(1, kind).unwrap_or("taken");
        assert_eq!(refusal(GOOD, ShareKind::LEGACY_IPC), "taken");
        let managed = Pointer {
            managed: true,
            ..GOOD
        };
        assert!(refusal(managed, vmm).contains("managed"));
        let elsewhere = Pointer { device: 0, ..GOOD };
        assert!(refusal(elsewhere, vmm).contains("another device"));
        let pooled = Pointer {
            pooled: true,
            ..GOOD
        };
        assert!(refusal(pooled, vmm).contains("cuMemAllocAsync"));
        let no_handle = || Pointer {
            legacy: false,
            ..GOOD
        };
        assert!(refusal(no_handle(), ShareKind::SAME_PROCESS).contains("cuMemCreate"));
        assert_eq!(refusal(no_handle(), vmm), "taken");
    }
}
