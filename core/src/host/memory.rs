//! Memory that peers map: memfd objects.

use super::{HostBackend, handle, machine};
use crate::backend::abi::*;
use crate::backend::{CallResult, Failure, SymmetricMemory};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A shared mapping of a whole memfd object; unmapped on drop.
struct Mapping {
    base: u64,
    bytes: u64,
}

/// A memfd object of this rank.
struct Segment {
    mapping: Mapping,
    file: OwnedFd,
}

/// What a [`RawAllocation`] names: a segment, or a registered range of one.
struct Allocation {
    segment: Arc<Segment>,
    offset: u64,
}

/// The segments of an instance, so that registration can find them.
#[derive(Default)]
pub(super) struct Segments(Mutex<Vec<Weak<Segment>>>);

/// Bytes of a page.
pub(super) fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

fn system_failure(call: &str, error: Errno, advice: &str) -> Failure {
    let status = match error {
        Errno::NOMEM | Errno::NOSPC | Errno::FBIG => Status::OUT_OF_MEMORY,
        _ => Status::CALL_FAILED,
    };
    Failure::of_call(
        status,
        call,
        error.raw_os_error(),
        format!("{error}; {advice}"),
    )
}

impl Mapping {
    /// Maps `bytes` of `file` and makes every page present, so that no transfer takes a fault and
    /// memory that does not exist is an error here rather than a SIGBUS later. Blocks for the time
    /// that zeroing takes.
    fn new(file: BorrowedFd<'_>, bytes: u64) -> CallResult<Self> {
        // SAFETY: the kernel chooses the address, so no existing mapping is touched.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes as usize,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
        }
        .map_err(|error| {
            system_failure(
                "mmap",
                error,
                &format!("mapping {bytes} bytes; raise the limit on address space"),
            )
        })?;
        let mapping = Self {
            base: base.expose_provenance() as u64,
            bytes,
        };
        // Where the administrator lets shared memory have huge pages on request, ask. A refusal
        // costs speed only.
        // SAFETY: advice on our own fresh mapping, which changes no contents.
        let _ = unsafe { rustix::mm::madvise(base, bytes as usize, Advice::LinuxHugepage) };
        // SAFETY: as above; populating writes nothing.
        match unsafe { rustix::mm::madvise(base, bytes as usize, Advice::LinuxPopulateWrite) } {
            // Linux before 5.14 does not know it: pages come at the first touch.
            Ok(()) | Err(Errno::INVAL) => Ok(mapping),
            Err(error) => Err(Failure::of_call(
                Status::OUT_OF_MEMORY,
                "madvise(MADV_POPULATE_WRITE)",
                error.raw_os_error(),
                format!("{error}; no {bytes} bytes of shared memory are left, allocate less"),
            )),
        }
    }

    fn pointer(&self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.base as usize)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: we made this mapping, and whoever gave its address up uses it no more. It fails
        // only for a range that was never mapped.
        let _ = unsafe { rustix::mm::munmap(self.pointer(), self.bytes as usize) };
    }
}

impl Segment {
    fn create(bytes: u64) -> CallResult<Self> {
        let free = machine::memory()?.free;
        if bytes > free {
            return Err(Failure::new(
                Status::OUT_OF_MEMORY,
                "memfd_create",
                format!(
                    "{bytes} bytes of shared memory were asked for and {free} are free on this host; allocate less or run fewer ranks"
                ),
            ));
        }
        let file =
            rustix::fs::memfd_create("symmem", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .map_err(|error| {
                    system_failure(
                        "memfd_create",
                        error,
                        "raise the limit on open files (ulimit -n)",
                    )
                })?;
        rustix::fs::ftruncate(&file, bytes).map_err(|error| {
            system_failure("ftruncate", error, "allocate less shared memory at once")
        })?;
        // A peer that could shrink the object could kill us with SIGBUS.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(|error| {
            system_failure(
                "fcntl(F_ADD_SEALS)",
                error,
                "this kernel cannot seal a memfd",
            )
        })?;
        let mapping = Mapping::new(file.as_fd(), bytes)?;
        Ok(Self { mapping, file })
    }
}

impl Segments {
    fn add(&self, segment: &Arc<Segment>) {
        let mut segments = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        segments.retain(|known| known.strong_count() > 0);
        segments.push(Arc::downgrade(segment));
    }

    fn find(&self, address: u64, bytes: u64) -> Option<Arc<Segment>> {
        let segments = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        segments.iter().filter_map(Weak::upgrade).find(|segment| {
            let Mapping { base, bytes: size } = segment.mapping;
            let offset = address.checked_sub(base);
            offset.is_some_and(|offset| offset <= size && bytes <= size - offset)
        })
    }
}

fn only_memory_files(kind: ShareKind, call: &str) -> CallResult<()> {
    if kind == ShareKind::MEMORY_FILE {
        return Ok(());
    }
    Err(Failure::new(
        Status::UNSUPPORTED,
        call,
        format!(
            "the host backend shares memory by MEMORY_FILE only, not by {}",
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
    fn allocate(&self, kind: ShareKind, bytes: u64) -> CallResult<SharedAllocation> {
        only_memory_files(kind, "allocate")?;
        at_least_one_byte(bytes, "allocate")?;
        let bytes = bytes.checked_next_multiple_of(page_size()).ok_or_else(|| {
            Failure::new(
                Status::OUT_OF_MEMORY,
                "allocate",
                format!("{bytes} bytes are more than any address space has"),
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
        kind: ShareKind,
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
        // SAFETY: the caller gives up a live allocation. Its segment goes with the last of them.
        drop(unsafe { handle::take::<Allocation>(allocation.0, "free")? });
        Ok(())
    }

    unsafe fn export(&self, allocation: RawAllocation) -> CallResult<ExportedHandle> {
        // SAFETY: the caller names a live allocation.
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
            kind: ShareKind::MEMORY_FILE,
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
        // SAFETY: the descriptor is the caller's and open through this call.
        let file = unsafe { BorrowedFd::borrow_raw(handle.descriptor) };
        let size = rustix::fs::fstat(file)
            .map_err(|error| system_failure("fstat", error, "the peer's descriptor is not open"))?
            .st_size as u64;
        // Both together prove that no page of the mapping can vanish.
        let sealed =
            rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if size < handle.bytes || !sealed {
            return Err(invalid(format!(
                "descriptor {} is not a peer's shared memory of {} bytes (it has {size}, sealed: {sealed})",
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

    fn allocate_signals(&self, kind: ShareKind, bytes: u64) -> CallResult<SharedAllocation> {
        // Processors' caches are coherent: all memory will do.
        self.allocate(kind, bytes)
    }
}
