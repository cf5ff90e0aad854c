//! Memory that peers map: memfd objects.

use super::machine;
use crate::backend::abi::Status;
use crate::backend::{CallResult, Failure};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A shared mapping of a whole memfd object; unmapped on drop.
pub(crate) struct Mapping {
    /// Its first byte.
    pub(crate) base: u64,
    /// Its length.
    pub(crate) bytes: u64,
}

/// A memfd object of this rank.
pub(crate) struct Segment {
    /// Where this process has it.
    pub(crate) mapping: Mapping,
    /// What peers are sent to map it.
    pub(crate) file: OwnedFd,
}

/// What a [`RawAllocation`](crate::backend::abi::RawAllocation) names: a segment, or a registered range of one.
pub(crate) struct Allocation {
    /// The segment.
    pub(crate) segment: Arc<Segment>,
    /// Bytes from the segment's first byte to the range's.
    pub(crate) offset: u64,
}

/// The segments of an instance, so that registration can find them.
#[derive(Default)]
pub(crate) struct Segments(Mutex<Vec<Weak<Segment>>>);

/// Bytes of a page.
pub(crate) fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// A system call that failed, with what to do about it.
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
    /// Maps `bytes` of `file` and makes every page present, so that no transfer takes a fault and
    /// memory that does not exist is an error here rather than a SIGBUS later. Blocks for the time
    /// that zeroing takes.
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
    /// A fresh object of `bytes`, whole pages, mapped here.
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
    /// Lets registration find a segment as long as somebody holds it.
    pub(crate) fn add(&self, segment: &Arc<Segment>) {
        let mut segments = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        segments.retain(|known| known.strong_count() > 0);
        segments.push(Arc::downgrade(segment));
    }

    /// The segment that has all of a range, if there is one.
    pub(crate) fn find(&self, address: u64, bytes: u64) -> Option<Arc<Segment>> {
        let segments = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        segments.iter().filter_map(Weak::upgrade).find(|segment| {
            let Mapping { base, bytes: size } = segment.mapping;
            let offset = address.checked_sub(base);
            offset.is_some_and(|offset| offset <= size && bytes <= size - offset)
        })
    }
}
