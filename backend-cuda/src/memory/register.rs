//! Registers memory that the caller allocated, if the driver can share memory of its kind.

use super::{legacy, vmm};
use crate::driver::constants::result::INVALID_VALUE;
use crate::driver::constants::{MEMORY_TYPE_DEVICE, pointer_attribute};
use crate::driver::{Code, Driver, call};
use cudarc::driver::sys::{CUdevice, CUmemGenericAllocationHandle};
use rustix::fd::IntoRawFd;
use std::ptr::with_exposed_provenance_mut;
use symmem_core::backend::abi::{DeviceAddress, ExportedHandle, ShareKindCode, Status};
use symmem_core::backend::{CallResult, Failure};
use symmem_gpu::memory::{Place, Span, not_shareable};

/// A caller's memory: the driver's whole allocation, and the registered range in it.
pub struct Registration {
    kind: ShareKindCode,
    span: Span,
}

/// Attributes of a pointer.
struct Pointer {
    memory_type: u32,
    managed: bool,
    device: CUdevice,
    pooled: bool,
    legacy: bool,
}

impl Registration {
    /// Checks that `bytes` bytes at `address` are memory of this device that `kind` can share. Context current.
    pub fn inspect(
        driver: &Driver,
        device: CUdevice,
        kind: ShareKindCode,
        address: DeviceAddress,
        bytes: u64,
    ) -> CallResult<Self> {
        let pointer = Pointer::inspect(driver, address)?;
        if let Some(reason) = pointer.refusal(device, kind) {
            return Err(not_shareable(address, reason));
        }
        let (mut base, mut size) = (0, 0);
        // SAFETY: both out-pointers are writable.
        unsafe {
            call!(
                driver,
                cuMemGetAddressRange_v2(&raw mut base, &raw mut size, address.0)
            )
        }?;
        let span = Span::new(address, bytes, base, size as u64)?;
        let registration = Self { kind, span };
        if kind == ShareKindCode::VMM_FILE_DESCRIPTOR {
            // Check now, not at the rendezvous, that the driver can export it. This closes the descriptor.
            registration.descriptor(driver)?;
        }
        Ok(registration)
    }

    /// Returns the handle with which a peer maps the range. Context current.
    pub fn export(&self, driver: &Driver, ordinal: u32) -> CallResult<ExportedHandle> {
        if self.kind != ShareKindCode::VMM_FILE_DESCRIPTOR {
            return legacy::export(driver, ordinal, self.kind, &self.span);
        }
        Ok(ExportedHandle {
            descriptor: self.descriptor(driver)?.into_raw_fd(),
            ..self.span.handle(self.kind, ordinal)
        })
    }

    /// Exports a new file descriptor of the physical memory behind the range.
    fn descriptor(&self, driver: &Driver) -> CallResult<rustix::fd::OwnedFd> {
        let mut handle: CUmemGenericAllocationHandle = 0;
        let pointer = with_exposed_provenance_mut(self.span.base as usize);
        // SAFETY: the out-pointer is writable, and the driver checks the address.
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
        // SAFETY: the handle was retained once, above.
        let released = unsafe { call!(driver, cuMemRelease(handle)) };
        let descriptor = descriptor?;
        released?;
        Ok(descriptor)
    }
}

/// Returns where an address is. One call of the driver, since every collective on memory of the caller asks.
pub fn place(driver: &Driver, address: DeviceAddress) -> CallResult<Place> {
    use pointer_attribute::*;
    let asked = [MEMORY_TYPE, DEVICE_ORDINAL, IS_MANAGED];
    let mut rooms = [NOTHING; 3];
    let values = rooms.each_mut().map(|room| room.as_mut_ptr().cast());
    // SAFETY: three attributes are asked, and each has a buffer, wider than any of them.
    let code = unsafe {
        (driver.table.cuPointerGetAttributes)(
            asked.len() as u32,
            asked.as_ptr(),
            values.as_ptr(),
            address.0,
        )
    };
    known("cuPointerGetAttributes", driver, code)?;
    let [kind, ordinal, managed] = rooms.map(|[low, _]| low);
    Ok(match (kind as u32, managed) {
        (MEMORY_TYPE_DEVICE, _) => Place::Device(ordinal as u32),
        (_, 0) => Place::Elsewhere,
        // Managed memory that is on the host just now counts as the host's.
        _ => Place::Managed,
    })
}

impl Pointer {
    fn inspect(driver: &Driver, address: DeviceAddress) -> CallResult<Self> {
        use pointer_attribute::*;
        let memory_type = attribute(driver, address, MEMORY_TYPE)? as u32;
        if memory_type != MEMORY_TYPE_DEVICE {
            return Err(not_shareable(
                address,
                "it is not device memory; copy it into a buffer of this communicator instead",
            ));
        }
        Ok(Self {
            memory_type,
            managed: attribute(driver, address, IS_MANAGED)? != 0,
            device: attribute(driver, address, DEVICE_ORDINAL)? as CUdevice,
            pooled: attribute(driver, address, MEMPOOL_HANDLE)? != 0,
            legacy: attribute(driver, address, IS_LEGACY_CUDA_IPC_CAPABLE)? != 0,
        })
    }

    /// Returns why this kind cannot share the memory; `None` if it can.
    fn refusal(&self, device: CUdevice, kind: ShareKindCode) -> Option<&'static str> {
        let legacy = kind != ShareKindCode::VMM_FILE_DESCRIPTOR;
        if self.memory_type != MEMORY_TYPE_DEVICE {
            Some("it is not device memory")
        } else if self.managed {
            Some("it is managed memory, which moves between devices; allocate it with cuMemAlloc")
        } else if self.device != device {
            Some("it is on another device; register it with the rank that has that device open")
        } else if self.pooled {
            Some(
                "it came from a stream-ordered pool (cuMemAllocAsync), which has no handle for single \
                 allocations; allocate it with cuMemAlloc",
            )
        } else if legacy && !self.legacy {
            Some(
                "the driver has no inter-process handle for it, as for all memory of cuMemCreate; \
                 choose the kind VMM_FILE_DESCRIPTOR, or allocate it with cuMemAlloc",
            )
        } else {
            None
        }
    }
}

/// Reads an attribute of a pointer; zero if the attribute does not apply.
fn attribute(driver: &Driver, address: DeviceAddress, attribute: u32) -> CallResult<u64> {
    let mut room = NOTHING;
    // SAFETY: no attribute queried here is wider than the buffer.
    let code = unsafe {
        (driver.table.cuPointerGetAttribute)(room.as_mut_ptr().cast(), attribute, address.0)
    };
    known("cuPointerGetAttribute", driver, code)?;
    Ok(room[0])
}

/// A buffer for an attribute. Some drivers write one as a 32-bit number, others as one byte. The buffer has room for the
/// widest, and the low bytes come first on all supported platforms.
const NOTHING: [u64; 2] = [0; 2];

/// Checks the code of a call for attributes. For an unknown address or attribute, the value stays zero.
fn known(call: &'static str, driver: &Driver, code: Code) -> CallResult<()> {
    match code {
        INVALID_VALUE => Ok(()),
        _ => driver.check(call, code),
    }
}

/// Adds to a refusal of the driver what it means for registering.
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
        let vmm = ShareKindCode::VMM_FILE_DESCRIPTOR;
        let refusal = |pointer: Pointer, kind| pointer.refusal(1, kind).unwrap_or("taken");
        assert_eq!(refusal(GOOD, ShareKindCode::LEGACY_IPC), "taken");
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
        assert!(refusal(no_handle(), ShareKindCode::SAME_PROCESS).contains("cuMemCreate"));
        assert_eq!(refusal(no_handle(), vmm), "taken");
    }
}
