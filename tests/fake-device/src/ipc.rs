//! Legacy IPC handles: 64 bytes that refer to an allocation of another process.
//!
//! A handle names the process and its file descriptor, so it opens only while the exporter lives and has not freed the
//! memory. A mapping that is already open outlives both.

use std::os::fd::AsFd;
use std::os::fd::AsRawFd;

use rustix::fs::fstat;

use crate::allocations::new_identity;
use crate::call::put;
use crate::capture;
use crate::devices::{ordinal_of, reaches};
use crate::driver::{Kind, driver};
use crate::error::{Code, Result};
use crate::memory::{Backing, Range};
use crate::physical::{Physical, Use, fresh_addresses, open_descriptor_of};
use crate::report::violation;
use crate::streams;

/// A handle in C layout.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IpcHandle(pub [u8; 64]);

impl Default for IpcHandle {
    fn default() -> Self {
        Self([0; 64])
    }
}

const MAGIC: u64 = u64::from_le_bytes(*b"fakeipc1");
/// The only flag that exists, and it is required.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

impl IpcHandle {
    fn new(descriptor: i32, inode: u64) -> Self {
        let mut handle = Self::default();
        let words = [MAGIC, std::process::id().into(), descriptor as u64, inode];
        for (place, word) in handle.0.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        handle
    }

    fn word(&self, index: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.0[index * 8..index * 8 + 8]);
        u64::from_le_bytes(word)
    }
}

/// Maps an allocation of another process.
pub fn open(out: Option<&mut u64>, handle: IpcHandle, flags: u32) -> Result {
    let mut driver = driver()?;
    let context = driver.current()?;
    capture::forbid(&mut driver)?;
    if flags != LAZY_ENABLE_PEER_ACCESS || handle.word(0) != MAGIC || out.is_none() {
        return Err(Code::INVALID_VALUE);
    }
    let (process, inode) = (handle.word(1) as u32, handle.word(3));
    if process == std::process::id() {
        violation("an IPC handle was opened in the process that made it".into());
        return Err(Code::INVALID_CONTEXT);
    }
    let again = driver
        .memory
        .ranges
        .values_mut()
        .find_map(|range| match &mut range.backing {
            Backing::Ipc { memory, references }
                if memory.inode == inode && range.context == context =>
            {
                *references += 1;
                Some(range.base)
            }
            _ => None,
        });
    if let Some(base) = again {
        return put(out, base);
    }
    let file = open_descriptor_of(process, handle.word(2) as i32)?;
    // The descriptor's number may refer to another file by now.
    if fstat(&file).map_err(|_| Code::INVALID_VALUE)?.st_ino != inode {
        return Err(Code::INVALID_VALUE);
    }
    let memory = Physical::open(file.as_fd(), &[Use::Allocation])?;
    let device = driver.healthy(context)?.device;
    if !ordinal_of(memory.device).is_none_or(|owner| reaches(device, owner)) {
        return Err(Code::PEER_ACCESS_UNSUPPORTED);
    }
    let bytes = memory.bytes as u64;
    let base = fresh_addresses(bytes, 2 << 20)?;
    let backing = Backing::Ipc {
        memory,
        references: 1,
    };
    let range = Range {
        base,
        bytes,
        context,
        identity: new_identity(),
        backing,
    };
    driver.memory.ranges.insert(base, range);
    put(out, base)
}

/// Returns a handle by which other processes can open an allocation.
pub fn export(out: Option<&mut IpcHandle>, address: u64) -> Result {
    let driver = driver()?;
    driver.current()?;
    let range = driver.memory.find(address);
    match range.map(|range| &range.backing) {
        // A handle always refers to the allocation's base; the caller must send the offset.
        Some(Backing::Allocation(memory)) => {
            put(out, IpcHandle::new(memory.file().as_raw_fd(), memory.inode))
        }
        _ => {
            violation(format!(
                "{address:#x} is not an allocation, so it has no IPC handle"
            ));
            Err(Code::INVALID_VALUE)
        }
    }
}

/// Undoes one [`open`].
pub fn close(address: u64) -> Result {
    let mut driver = driver()?;
    driver.current()?;
    let range = driver
        .memory
        .ranges
        .get_mut(&address)
        .filter(|range| range.kind() == Kind::IpcMapping);
    let Some(Range {
        bytes,
        backing: Backing::Ipc { references, .. },
        ..
    }) = range
    else {
        violation(format!(
            "{address:#x} is not, or no longer, an opened IPC handle"
        ));
        return Err(Code::INVALID_VALUE);
    };
    *references -= 1;
    if *references == 0 {
        let bytes = *bytes;
        streams::report_use(&driver, address, bytes, "closed");
        driver.memory.ranges.remove(&address);
    }
    Ok(())
}
