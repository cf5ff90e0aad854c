//! Address ranges of allocations as file descriptors (dma-bufs), imported as external memory.
//!
//! An import holds the memory and maps it at one address. Destroying it unmaps it.

use std::os::fd::{BorrowedFd, IntoRawFd};
use std::sync::Arc;

use rustix::io::fcntl_dupfd_cloexec;

use crate::allocations::new_identity;
use crate::call::put;
use crate::capture;
use crate::devices::{ordinal_of, reaches};
use crate::driver::{Kind, dangling, driver, new_handle};
use crate::error::{Code, Result};
use crate::memory::{Backing, Range};
use crate::physical::{Physical, Use, fresh_addresses};
use crate::report::violation;
use crate::streams;

/// Exports are whole blocks of this size.
const BLOCK: u64 = 2 << 20;

/// Imported memory, and the address at which it is mapped.
pub(crate) struct External {
    memory: Arc<Physical>,
    mapped: Option<u64>,
}

/// Returns a file descriptor of the allocation at `address`, which must be exported whole.
pub fn export(out: Option<&mut i32>, address: u64, bytes: usize) -> Result {
    let driver = driver()?;
    driver.current()?;
    let range = driver.memory.find(address);
    let Some((range, memory)) = range.and_then(|range| match &range.backing {
        Backing::Allocation(memory) => Some((range, memory)),
        _ => None,
    }) else {
        violation(format!(
            "{address:#x} is not an allocation, so it has no dma-buf"
        ));
        return Err(Code::INVALID_VALUE);
    };
    let whole = range.base == address && range.bytes == bytes as u64;
    if !whole || !range.bytes.is_multiple_of(BLOCK) || out.is_none() {
        violation(format!(
            "{bytes} bytes at {address:#x} are exported: a dma-buf has a whole allocation of whole blocks"
        ));
        return Err(Code::INVALID_VALUE);
    }
    let copy = fcntl_dupfd_cloexec(memory.file(), 3).map_err(|_| Code::OPERATING_SYSTEM)?;
    put(out, copy.into_raw_fd())
}

/// Imports memory from a file descriptor, which the caller keeps.
///
/// # Safety
/// The descriptor is open during the call.
pub unsafe fn import(out: Option<&mut u64>, descriptor: i32, bytes: u64) -> Result {
    let mut driver = driver()?;
    driver.current()?;
    capture::forbid(&mut driver)?;
    if descriptor < 0 || out.is_none() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller keeps it open during the call.
    let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let memory = Physical::open(file, &[Use::Allocation]).inspect_err(|_| {
        violation(format!(
            "descriptor {descriptor} does not refer to an exported range"
        ));
    })?;
    if memory.bytes as u64 != bytes {
        violation(format!(
            "{bytes} bytes are imported of memory that has {}",
            memory.bytes
        ));
        return Err(Code::INVALID_VALUE);
    }
    let handle = new_handle(Kind::ExternalMemory);
    let external = External {
        memory,
        mapped: None,
    };
    driver.externals.insert(handle, external);
    put(out, handle)
}

/// Maps imported memory.
pub fn map(out: Option<&mut u64>, handle: u64, offset: u64, bytes: u64) -> Result {
    let mut driver = driver()?;
    let context = driver.current()?;
    let device = driver.healthy(context)?.device;
    let external = driver.externals.get(&handle);
    let external = external.ok_or_else(|| dangling(Kind::ExternalMemory, handle))?;
    let memory = external.memory.clone();
    if offset != 0 || bytes != memory.bytes as u64 || external.mapped.is_some() || out.is_none() {
        return Err(Code::INVALID_VALUE);
    }
    if !ordinal_of(memory.device).is_none_or(|owner| reaches(device, owner)) {
        return Err(Code::PEER_ACCESS_UNSUPPORTED);
    }
    let base = fresh_addresses(bytes, BLOCK)?;
    let range = Range {
        base,
        bytes,
        context,
        identity: new_identity(),
        backing: Backing::Ipc {
            memory,
            references: 1,
        },
    };
    driver.memory.ranges.insert(base, range);
    if let Some(external) = driver.externals.get_mut(&handle) {
        external.mapped = Some(base);
    }
    put(out, base)
}

/// Gives up imported memory and its mapping.
pub fn destroy(handle: u64) -> Result {
    let mut driver = driver()?;
    driver.current()?;
    let external = driver.externals.remove(&handle);
    let external = external.ok_or_else(|| dangling(Kind::ExternalMemory, handle))?;
    if let Some(base) = external.mapped {
        streams::report_use(&driver, base, external.memory.bytes as u64, "unmapped");
        driver.memory.ranges.remove(&base);
    }
    Ok(())
}
