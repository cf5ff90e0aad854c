//! The memory of the process, and that which peers map: memfds.

use super::machine;
use crate::backend::abi::{DeviceAddress, Status};
use crate::backend::{CallResult, Failure};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags};
use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A shared mapping of a whole memfd, unmapped on drop.
pub(crate) struct Mapping {
    /// Address of the first byte.
    pub(crate) base: u64,
    /// Length in bytes.
    pub(crate) bytes: u64,
}

/// A memfd of this rank.
pub(crate) struct Segment {
    /// The mapping in this process.
    pub(crate) mapping: Mapping,
    /// The descriptor that is sent to peers.
    pub(crate) file: OwnedFd,
}

/// The object of a [`RawAllocation`](crate::backend::abi::RawAllocation): a segment, or a registered range of one.
pub(crate) struct Allocation {
    /// The segment.
    pub(crate) segment: Arc<Segment>,
    /// Bytes from the start of the segment to the start of the range.
    pub(crate) offset: u64,
}

/// The segments of an instance, in which registration finds a range.
#[derive(Default)]
pub(crate) struct Segments(Mutex<Vec<Weak<Segment>>>);

/// Returns the size of a page, in bytes.
pub(crate) fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// Checks that memory is mapped, which is all that a process can ask of its addresses without touching them.
///
/// # Errors
/// `INVALID_ARGUMENT` if it is not.
pub(crate) fn check_mapped(address: DeviceAddress, bytes: u64) -> CallResult<()> {
    let page = page_size();
    let begin = address.0 - address.0 % page;
    let length = (address.0 - begin).saturating_add(bytes);
    if bytes == 0 {
        return Ok(());
    }
    let start = std::ptr::with_exposed_provenance_mut(begin as usize);
    // SAFETY: the kernel writes no memory for this flag, on which it does nothing but look for the mappings.
    unsafe { rustix::mm::msync(start, length as usize, MsyncFlags::ASYNC) }.map_err(|error| {
        Failure::of_call(
            Status::INVALID_ARGUMENT,
            "msync",
            error.raw_os_error(),
            format!("there is no memory of {bytes} bytes at {:#x}", address.0),
        )
    })
}

/// Returns the failure of a system call, with advice.
pub(crate) fn system_failure(call: &str, error: Errno, advice: &str) -> Failure {
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
    /// Maps `bytes` of `file` and populates every page, so that no transfer takes a page fault, and missing memory is
    /// an error here and not a later SIGBUS. Blocks while the kernel zeroes the pages.
    pub(crate) fn new(file: BorrowedFd<'_>, bytes: u64) -> CallResult<Self> {
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
                &format!("mapping {bytes} bytes; raise the limit on address space (ulimit -v)"),
            )
        })?;
        let mapping = Self {
            base: base.expose_provenance() as u64,
            bytes,
        };
        // Asks for huge pages, which the administrator may allow for shared memory. A refusal only costs speed.
        // SAFETY: the advice is for this fresh mapping and changes no contents.
        let _ = unsafe { rustix::mm::madvise(base, bytes as usize, Advice::LinuxHugepage) };
        // SAFETY: the advice is for this fresh mapping, and populating it writes nothing.
        match unsafe { rustix::mm::madvise(base, bytes as usize, Advice::LinuxPopulateWrite) } {
            // Linux before 5.14 does not know this advice; pages are then populated at the first access.
            Ok(()) | Err(Errno::INVAL) => Ok(mapping),
            Err(error) => Err(Failure::of_call(
                Status::OUT_OF_MEMORY,
                "madvise(MADV_POPULATE_WRITE)",
                error.raw_os_error(),
                format!("{error}; {bytes} bytes of shared memory are not available: allocate less"),
            )),
        }
    }

    fn pointer(&self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.base as usize)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value made the mapping, and no user of its address is left. The call fails only for a range
        // that was never mapped.
        let _ = unsafe { rustix::mm::munmap(self.pointer(), self.bytes as usize) };
    }
}

impl Segment {
    /// Creates a memfd of `bytes`, a multiple of the page size, and maps it.
    pub(crate) fn create(bytes: u64) -> CallResult<Self> {
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
        // A peer that shrank the memfd would kill this process with SIGBUS.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(|error| {
            system_failure(
                "fcntl(F_ADD_SEALS)",
                error,
                "this kernel cannot seal a memfd; use Linux 3.17 or newer",
            )
        })?;
        let mapping = Mapping::new(file.as_fd(), bytes)?;
        Ok(Self { mapping, file })
    }
}

impl Segments {
    /// Adds a segment, which registration can find while it is alive.
    pub(crate) fn add(&self, segment: &Arc<Segment>) {
        let mut segments = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        segments.retain(|known| known.strong_count() > 0);
        segments.push(Arc::downgrade(segment));
    }

    /// Returns the segment that contains the whole range, if there is one.
    pub(crate) fn find(&self, address: u64, bytes: u64) -> Option<Arc<Segment>> {
        let segments = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        segments.iter().filter_map(Weak::upgrade).find(|segment| {
            let Mapping { base, bytes: size } = segment.mapping;
            let offset = address.checked_sub(base);
            offset.is_some_and(|offset| offset <= size && bytes <= size - offset)
        })
    }
}
