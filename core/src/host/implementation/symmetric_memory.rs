//! Symmetric memory of the host backend.

use crate::backend::abi::*;
use crate::backend::{CallResult, Failure, SymmetricMemory};
use crate::host::backend::HostBackend;
use crate::host::handle;
use crate::host::segments::{Allocation, Mapping, Segment, page_size, system_failure};
use rustix::fs::SealFlags;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::sync::Arc;

fn only_memory_files(kind: ShareKindCode, call: &str) -> CallResult<()> {
    if kind == ShareKindCode::MEMORY_FILE {
        return Ok(());
    }
    Err(Failure::new(
        Status::UNSUPPORTED,
        call,
        format!(
            "the host backend shares memory only as MEMORY_FILE, not as {}; use MEMORY_FILE",
            kind.name()
        ),
    ))
}

fn at_least_one_byte(bytes: u64, call: &str) -> CallResult<()> {
    if bytes > 0 {
        return Ok(());
    }
    Err(Failure::new(
        Status::INVALID_ARGUMENT,
        call,
        "0 bytes were asked for; ask for at least 1",
    ))
}

impl SymmetricMemory for HostBackend {
    fn allocate(&self, kind: ShareKindCode, bytes: u64) -> CallResult<SharedAllocation> {
        only_memory_files(kind, "allocate")?;
        at_least_one_byte(bytes, "allocate")?;
        let bytes = bytes.checked_next_multiple_of(page_size()).ok_or_else(|| {
            Failure::new(
                Status::OUT_OF_MEMORY,
                "allocate",
                format!("{bytes} bytes are more than the address space; allocate less"),
            )
        })?;
        let segment = Arc::new(Segment::create(bytes)?);
        self.segments.add(&segment);
        let address = DeviceAddress(segment.mapping.base);
        let allocation = Allocation { segment, offset: 0 };
        Ok(SharedAllocation {
            handle: RawAllocation(handle::give(Box::new(allocation))),
            address,
            bytes,
        })
    }

    unsafe fn register(
        &self,
        kind: ShareKindCode,
        address: DeviceAddress,
        bytes: u64,
    ) -> CallResult<SharedAllocation> {
        only_memory_files(kind, "register")?;
        at_least_one_byte(bytes, "register")?;
        let segment = self.segments.find(address.0, bytes).ok_or_else(|| {
            Failure::new(
                Status::UNSUPPORTED,
                "register",
                format!(
                    "the {bytes} bytes at {:#x} are private memory of this process, which no peer can map; allocate them through symmem or ask for a staged copy",
                    address.0
                ),
            )
        })?;
        let offset = address.0 - segment.mapping.base;
        let allocation = Allocation { segment, offset };
        Ok(SharedAllocation {
            handle: RawAllocation(handle::give(Box::new(allocation))),
            address,
            bytes,
        })
    }

    unsafe fn free(&self, allocation: RawAllocation) -> CallResult<()> {
        // SAFETY: the caller gives up a live allocation. The last allocation of a segment frees it.
        drop(unsafe { handle::take::<Allocation>(allocation.0, "free")? });
        Ok(())
    }

    unsafe fn export(&self, allocation: RawAllocation) -> CallResult<ExportedHandle> {
        // SAFETY: the caller passes a live allocation.
        let allocation = unsafe { handle::borrow::<Allocation>(allocation.0, "export")? };
        let segment = &allocation.segment;
        let file = rustix::io::fcntl_dupfd_cloexec(&segment.file, 0).map_err(|error| {
            system_failure(
                "fcntl(F_DUPFD_CLOEXEC)",
                error,
                "raise the limit on open files (ulimit -n)",
            )
        })?;
        Ok(ExportedHandle {
            kind: ShareKindCode::MEMORY_FILE,
            device: 0,
            offset: allocation.offset,
            bytes: segment.mapping.bytes,
            address: segment.mapping.base + allocation.offset,
            opaque: [0; 64],
            descriptor: file.into_raw_fd(),
            reserved: 0,
        })
    }

    unsafe fn import(&self, handle: &ExportedHandle) -> CallResult<SharedMapping> {
        only_memory_files(handle.kind, "import")?;
        at_least_one_byte(handle.bytes, "import")?;
        let invalid = |message: String| Failure::new(Status::INVALID_ARGUMENT, "import", message);
        if handle.descriptor < 0 {
            return Err(invalid(
                "the peer's handle came without its file descriptor; send it with SCM_RIGHTS"
                    .into(),
            ));
        }
        if handle.offset >= handle.bytes {
            return Err(invalid(format!(
                "the handle's offset {} lies outside its {} bytes; the message was damaged",
                handle.offset, handle.bytes
            )));
        }
        // SAFETY: the descriptor is the caller's and stays open during this call.
        let file = unsafe { BorrowedFd::borrow_raw(handle.descriptor) };
        let size = rustix::fs::fstat(file)
            .map_err(|error| {
                system_failure("fstat", error, "pass an open descriptor from the peer")
            })?
            .st_size as u64;
        // The size and the seal together ensure that no page of the mapping can vanish.
        let sealed =
            rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if size < handle.bytes || !sealed {
            return Err(invalid(format!(
                "descriptor {} is not a peer's shared memory of {} bytes (it has {size}, sealed: {sealed}); pass the \
                 descriptor that the peer exported",
                file.as_raw_fd(),
                handle.bytes
            )));
        }
        let mapping = Mapping::new(file, handle.bytes)?;
        let address = DeviceAddress(mapping.base + handle.offset);
        Ok(SharedMapping {
            handle: RawMapping(self::handle::give(Box::new(mapping))),
            address,
        })
    }

    unsafe fn unmap(&self, mapping: RawMapping) -> CallResult<()> {
        // SAFETY: the caller gives up a live mapping that no work uses.
        drop(unsafe { handle::take::<Mapping>(mapping.0, "unmap")? });
        Ok(())
    }

    fn allocate_signals(&self, kind: ShareKindCode, bytes: u64) -> CallResult<SharedAllocation> {
        // Processors' caches are coherent, so ordinary memory is good enough.
        self.allocate(kind, bytes)
    }
}
