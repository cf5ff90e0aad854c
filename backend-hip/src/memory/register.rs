//! Taking memory that the caller allocated, where the runtime can share memory of its kind.

use super::plain;
use super::vmm::{Handle, VirtualMemoryManagement, descriptor, unsupported};
use crate::current::Ordinal;
use crate::describe::device_memory_type;
use crate::runtime::constants::pointer_attribute::*;
use crate::runtime::constants::result::{INVALID_VALUE, NOT_SUPPORTED};
use crate::runtime::{Runtime, hip};
use rustix::fd::IntoRawFd;
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::{DeviceAddress, ExportedHandle, ShareKind};
use symmem_gpu::memory::{Span, not_shareable};

/// A caller's memory.
pub struct Registration {
    kind: ShareKind,
    span: Span,
}

/// Whose memory a pointer is.
#[derive(Clone, Copy)]
struct Pointer {
    device_memory: bool,
    managed: bool,
    ordinal: u32,
    /// By virtual-memory management.
    physical: bool,
}

impl Registration {
    /// Checks that `bytes` at `address` are memory of this device that `kind` can share. Device current.
    pub fn inspect(
        device: Ordinal,
        vmm: Option<&VirtualMemoryManagement>,
        kind: ShareKind,
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
        // Prove now, not at the rendezvous, that there is a handle of it.
        plain::export(device, kind, &span)?;
        Ok(Self { kind, span })
    }

    /// What a peer needs. Device current.
    pub fn export(
        &self,
        device: Ordinal,
        vmm: Option<&VirtualMemoryManagement>,
    ) -> CallResult<ExportedHandle> {
        if self.kind != ShareKind::VMM_FILE_DESCRIPTOR {
            return plain::export(device, self.kind, &self.span);
        }
        let vmm = vmm.ok_or_else(unsupported)?;
        let physical = vmm.behind(self.span.base)?.ok_or_else(unsupported)?;
        let exported = descriptor(device.runtime, physical);
        let released = vmm.let_go(physical);
        // Closed again where the other failed.
        let exported = exported?;
        released?;
        Ok(ExportedHandle {
            descriptor: exported.into_raw_fd(),
            ..self.span.handle(self.kind, device.number)
        })
    }
}

/// The object that the range lies in, if it can be shared. `physical` is what is behind it.
fn check(
    device: Ordinal,
    kind: ShareKind,
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
        // It can be exported: proved now, and the descriptor closed.
        descriptor(runtime, physical).map_err(|failure| {
            let reason = format!("it was created without a handle for other processes ({failure})");
            not_shareable(address, &reason)
        })?;
    }
    let (mut base, mut size) = (0, 0);
    let (base_place, size_place) = (&raw mut base, &raw mut size);
    // SAFETY: both places are writable.
    unsafe {
        hip!(
            runtime,
            hipMemGetAddressRange(base_place, size_place, address.0)
        )
    }?;
    Span::new(address, bytes, base, size as u64)
}

impl Pointer {
    /// Why the memory cannot be shared by this kind, if so.
    fn refusal(self, device: u32, kind: ShareKind) -> Option<&'static str> {
        let by_descriptor = kind == ShareKind::VMM_FILE_DESCRIPTOR;
        if self.managed {
            Some("it is managed memory, which moves between devices; allocate it with hipMalloc")
        } else if !self.device_memory {
            Some("it is not device memory; copy through a buffer of your own communicator instead")
        } else if self.ordinal != device {
            Some("it is on another device; register it with the rank that has that device open")
        } else if self.physical && !by_descriptor {
            Some(
                "memory of hipMemCreate has no inter-process handle; choose the kind \
                 VMM_FILE_DESCRIPTOR or allocate it with hipMalloc",
            )
        } else if !self.physical && by_descriptor {
            Some("it was not created with hipMemCreate; choose another kind")
        } else {
            None
        }
    }
}

/// Reads an attribute of a pointer; one that does not apply to it reads as zero.
fn attribute(runtime: &Runtime, address: DeviceAddress, attribute: u32) -> CallResult<u32> {
    // Room for the widest: a runtime may write an attribute wider than the one asked for.
    let mut room = [0_u32; 4];
    let place = room.as_mut_ptr().cast();
    // SAFETY: no attribute asked for here is wider than the place.
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
        let (ipc, vmm) = (ShareKind::LEGACY_IPC, ShareKind::VMM_FILE_DESCRIPTOR);
        let refusal = |pointer: Pointer, kind| pointer.refusal(1, kind).unwrap_or("taken");
        assert_eq!(refusal(PLAIN, ipc), "taken");
        assert!(refusal(PLAIN, vmm).contains("another kind"));
        let physical = Pointer {
            physical: true,
            ..PLAIN
        };
        assert_eq!(refusal(physical, vmm), "taken");
        assert!(refusal(physical, ipc).contains("hipMemCreate"));
        assert!(refusal(physical, ShareKind::SAME_PROCESS).contains("hipMemCreate"));
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
