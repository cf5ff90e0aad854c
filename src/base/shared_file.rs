//! Host memory that ranks share by an unnamed file, which none of them can shrink.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::{Errno, Result};
use rustix::mm::{MapFlags, ProtFlags};

/// A shared file, mapped here for as long as the value lives.
pub struct SharedFile {
    pointer: *mut u8,
    bytes: usize,
    file: OwnedFd,
}

// SAFETY: a mapping belongs to the process, not to a thread; users synchronize their accesses.
unsafe impl Send for SharedFile {}
// SAFETY: as above.
unsafe impl Sync for SharedFile {}

/// Creates a file of `bytes` zeroes and seals its size. `name` shows in /proc only.
///
/// # Errors
/// The operating system's errors.
pub fn create(name: &str, bytes: usize) -> Result<OwnedFd> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file)
}

impl SharedFile {
    /// Maps a file that a peer may have made.
    ///
    /// # Errors
    /// `INVAL` if the file is shorter than `bytes` or can be shrunk: an access past its end would end the
    /// process with SIGBUS. The operating system's errors.
    pub fn map(file: OwnedFd, bytes: usize) -> Result<Self> {
        let sealed = rustix::fs::fcntl_get_seals(&file)?.contains(SealFlags::SHRINK);
        if !sealed || (rustix::fs::fstat(&file)?.st_size as u64) < bytes as u64 {
            return Err(Errno::INVAL);
        }
        // SAFETY: a new mapping at an address that the kernel chooses.
        let pointer = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )?
        };
        Ok(Self {
            pointer: pointer.cast(),
            bytes,
            file,
        })
    }

    /// Returns the address of the first byte, aligned to a page. Peers write the bytes: only atomic access is
    /// sound.
    pub fn pointer(&self) -> *mut u8 {
        self.pointer
    }

    /// Returns the file descriptor to hand to other ranks.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this size; users hold the value while they use the bytes.
        // Failure would only leave the mapping.
        let _ = unsafe { rustix::mm::munmap(self.pointer.cast(), self.bytes) };
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_short_or_could_be_shortened_is_refused() {
        let short = create("test", 100).unwrap();
        assert_eq!(SharedFile::map(short, 101).err(), Some(Errno::INVAL));
        let open = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&open, 4096).unwrap();
        let refused = SharedFile::map(open, 4096).err();
        assert_eq!(refused, Some(Errno::INVAL));
    }

    #[test]
    fn nobody_can_shrink_what_others_map() {
        let file = create("test", 4096).unwrap();
        assert_eq!(rustix::fs::ftruncate(&file, 0), Err(Errno::PERM));
        assert!(SharedFile::map(file, 4096).is_ok());
    }
}
