//! Memory for the abort word and the wait record, which kernels and the watcher look at.

use crate::backend::abi::{HostMemory, Status};
use crate::backend::{Backend, CallResult, Device, Failure};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;

/// Bytes of the memory: a page, of which the two need less.
pub fn bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Maps a page of zeros and registers it with the device.
///
/// It is not memory of the driver's: a program may reset the device or end the driver while it has a communicator, and then
/// the watcher would read what is not mapped any more. It is shared, since after a fork a private page would be copied when
/// this process writes to it, and the device would keep the old one.
///
/// # Errors
/// The operating system's or the backend's.
pub fn allocate(backend: &Backend) -> CallResult<HostMemory> {
    let bytes = rustix::param::page_size();
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let page = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::SHARED) };
    let page = page.map_err(|error| {
        Failure::new(
            Status::OUT_OF_MEMORY,
            "mmap",
            format!("mapping {bytes} bytes: {error}"),
        )
    })?;
    let address = page.expose_provenance() as u64;
    // SAFETY: mapped above, and unmapped only after it is unregistered.
    unsafe { backend.host_register(address, bytes as u64) }.inspect_err(|_| {
        // SAFETY: mapped above, and nobody else has it.
        let _ = unsafe { munmap(page, bytes) };
    })
}

/// Gives the page back; it stays mapped if the device may still use it.
///
/// # Errors
/// The backend's.
///
/// # Safety
/// `words` came from [`allocate`], and neither host nor device uses it again.
pub unsafe fn free(backend: &Backend, words: HostMemory) -> CallResult<()> {
    // SAFETY: guaranteed by the caller.
    unsafe { backend.host_unregister(words.host) }?;
    let page = std::ptr::with_exposed_provenance_mut::<c_void>(words.host as usize);
    // SAFETY: mapped by `allocate` with these bytes, and not registered any more.
    let _ = unsafe { munmap(page, words.bytes as usize) };
    Ok(())
}
