//! Registers memory of the caller, if the runtime can share its kind.

use super::plain;
use super::vmm::{Handle, VirtualMemoryManagement, descriptor, unsupported};
use crate::current::Ordinal;
use crate::describe::device_memory_type;
use crate::runtime::constants::pointer_attribute::*;
use crate::runtime::constants::result::{INVALID_VALUE, NOT_SUPPORTED};
use crate::runtime::{Runtime, hip};
use rustix::fd::{FromRawFd, IntoRawFd, OwnedFd};
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::{DeviceAddress, ExportedHandle, ShareKindCode, Status};
use symmem_gpu::memory::{Place, Span, not_shareable};

/// A registered range.
pub struct Registration {
    kind: ShareKindCode,
    span: Span,
}

/// What the runtime reports about a pointer.
#[derive(Clone, Copy)]
struct Pointer {
    device_memory: bool,
    managed: bool,
    ordinal: u32,
    /// Whether it was allocated by virtual memory management.
    physical: bool,
}

impl Registration {
    /// Checks that a range is memory of this device that `kind` can share. Device current.
    pub fn inspect(
        device: Ordinal,
        vmm: Option<&VirtualMemoryManagement>,
        kind: ShareKindCode,
        address: DeviceAddress,
        bytes: u64,
    ) -> CallResult<Self> {
        let physical = vmm.map_or(Ok(None), |vmm| vmm.behind(address.0))?;
        let checked = check(device, kind, address, bytes, physical);
        if let (Some(vmm), Some(physical)) = (vmm, physical) {
            let released = vmm.let_go(physical);
            let span = checked?;
            released?;
            return Ok(Self { kind, span });
        }
        let span = checked?;
        // Fails now rather than at the rendezvous if the runtime cannot export it.
        let tried = plain::export(device, kind, &span)?;
        // SAFETY: the export made this descriptor, and nobody else has it.
        drop((tried.descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(tried.descriptor) }));
        Ok(Self { kind, span })
    }

    /// Returns a peer's handle for the range. Device current.
    pub fn export(
        &self,
        device: Ordinal,
        vmm: Option<&VirtualMemoryManagement>,
    ) -> CallResult<ExportedHandle> {
        if self.kind != ShareKindCode::VMM_FILE_DESCRIPTOR {
            return plain::export(device, self.kind, &self.span);
        }
        let vmm = vmm.ok_or_else(unsupported)?;
        let physical = vmm.behind(self.span.base)?.ok_or_else(unsupported)?;
        let exported = descriptor(device.runtime, physical);
        let released = vmm.let_go(physical);
        // If releasing failed, this closes the new descriptor.
        let exported = exported?;
        released?;
        Ok(ExportedHandle {
            descriptor: exported.into_raw_fd(),
            ..self.span.handle(self.kind, device.number)
        })
    }
}

/// Returns the range within its allocation if `kind` can share it. `physical` is the physical memory behind it,
/// if any.
fn check(
    device: Ordinal,
    kind: ShareKindCode,
    address: DeviceAddress,
    bytes: u64,
    physical: Option<Handle>,
) -> CallResult<Span> {
    let runtime = device.runtime;
    let pointer = Pointer {
        device_memory: attribute(runtime, address, MEMORY_TYPE)? == device_memory_type(runtime),
        managed: attribute(runtime, address, IS_MANAGED)? & 0xff != 0,
        ordinal: attribute(runtime, address, DEVICE_ORDINAL)?,
        physical: physical.is_some(),
    };
    if let Some(reason) = pointer.refusal(device.number, kind) {
        return Err(not_shareable(address, reason));
    }
    if let Some(physical) = physical {
        // A trial export, whose descriptor is closed at once.
        descriptor(runtime, physical).map_err(|failure| {
            if failure.status == Status::NOT_READY {
                return failure;
            }
            let reason = format!("it was created without a shareable handle ({failure})");
            not_shareable(address, &reason)
        })?;
    }
    let (mut base, mut size) = (0, 0);
    let (base_place, size_place) = (&raw mut base, &raw mut size);
    // SAFETY: both out-pointers are writable.
    unsafe {
        hip!(
            runtime,
            hipMemGetAddressRange(base_place, size_place, address.0)
        )
    }?;
    Span::new(address, bytes, base, size as u64)
}

/// Returns where an address is.
pub fn place(runtime: &Runtime, address: DeviceAddress) -> CallResult<Place> {
    if attribute(runtime, address, IS_MANAGED)? & 0xff != 0 {
        return Ok(Place::Managed);
    }
    match attribute(runtime, address, MEMORY_TYPE)? == device_memory_type(runtime) {
        true => Ok(Place::Device(attribute(runtime, address, DEVICE_ORDINAL)?)),
        false => Ok(Place::Elsewhere),
    }
}

impl Pointer {
    /// Returns the reason why `kind` cannot share the memory, if any.
    fn refusal(self, device: u32, kind: ShareKindCode) -> Option<&'static str> {
        let by_descriptor = kind == ShareKindCode::VMM_FILE_DESCRIPTOR;
        if self.managed {
            Some("it is managed memory, which moves between devices; allocate it with hipMalloc")
        } else if !self.device_memory {
            Some("it is not device memory; copy it to a buffer of the communicator instead")
        } else if self.ordinal != device {
            Some("it is on another device; register it with the rank that has that device open")
        } else if self.physical && !by_descriptor {
            Some(
                "memory of hipMemCreate has no inter-process handle; choose the kind \
                 VMM_FILE_DESCRIPTOR, or allocate it with hipMalloc",
            )
        } else if !self.physical && by_descriptor {
            Some("it was not created with hipMemCreate; choose another kind")
        } else {
            None
        }
    }
}

/// Returns an attribute of a pointer; zero if it does not apply.
fn attribute(runtime: &Runtime, address: DeviceAddress, attribute: u32) -> CallResult<u32> {
    // A runtime may write more bytes than the attribute's documented width.
    let mut room = [0_u32; 4];
    let place = room.as_mut_ptr().cast();
    // SAFETY: the buffer is at least as wide as any attribute that is read here.
    let code = unsafe { (runtime.table.hipPointerGetAttribute)(place, attribute, address.0) };
    if code == INVALID_VALUE || code == NOT_SUPPORTED {
        runtime.forget_last_error();
        return Ok(0);
    }
    runtime.check("hipPointerGetAttribute", code)?;
    Ok(room[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Pointer = Pointer {
        device_memory: true,
        managed: false,
        ordinal: 1,
        physical: false,
    };

    #[test]
    fn each_kind_of_memory_that_cannot_be_shared_is_refused_with_its_reason() {
        let (ipc, vmm) = (
            ShareKindCode::LEGACY_IPC,
            ShareKindCode::VMM_FILE_DESCRIPTOR,
        );
        let refusal = |pointer: Pointer, kind| pointer.refusal(1, kind).unwrap_or("taken");
        assert_eq!(refusal(PLAIN, ipc), "taken");
        assert!(refusal(PLAIN, vmm).contains("another kind"));
        let physical = Pointer {
            physical: true,
            ..PLAIN
        };
        assert_eq!(refusal(physical, vmm), "taken");
        assert!(refusal(physical, ipc).contains("hipMemCreate"));
        assert!(refusal(physical, ShareKindCode::SAME_PROCESS).contains("hipMemCreate"));
        let elsewhere = Pointer {
            ordinal: 0,
            ..PLAIN
        };
        assert!(refusal(elsewhere, ipc).contains("another device"));
        let managed = Pointer {
            managed: true,
            ..PLAIN
        };
        assert!(refusal(managed, ipc).contains("managed"));
        let host = Pointer {
            device_memory: false,
            ..PLAIN
        };
        assert!(refusal(host, ipc).contains("not device memory"));
    }
}
