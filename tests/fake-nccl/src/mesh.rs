//! The meeting place of ranks: a memory file with a channel from each rank to each.

use crate::{Code, Result, driver};
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_void;
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes that a channel carries at once.
pub const CHUNK: usize = 16 << 10;
/// Most ranks of a communicator.
pub const MOST: usize = 64;
const HEADER: usize = 4096;
/// Byte of the header from which each rank has a word of [`Mesh::connect`].
const CONNECTIONS: usize = 2048;
const CHANNEL: usize = 128 + CHUNK;
const _: () = assert!(4 * (1 + 2 * MOST) <= CONNECTIONS && CONNECTIONS + 8 * MOST <= HEADER);
const MARK: &[u8; 8] = b"fakenccl";

/// Returns a fresh identifier: a mark, then the file's name.
pub fn identifier() -> Result<[u8; 128]> {
    let mut random = [0; 16];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|_| Code::SYSTEM_ERROR)?;
    let mut identifier = [0; 128];
    identifier[..8].copy_from_slice(MARK);
    identifier[8..24].copy_from_slice(&random);
    Ok(identifier)
}

fn path(identifier: &[u8; 128]) -> Result<PathBuf> {
    if identifier[..8] != *MARK {
        driver::violation("the identifier is not one that ncclGetUniqueId made");
        return Err(Code::INVALID_ARGUMENT);
    }
    let name: String = identifier[8..24]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Ok(std::env::temp_dir().join(format!("symmem-fake-nccl-{name}")))
}

/// The memory that all ranks share, mapped.
pub struct Mesh {
    base: *mut u8,
    bytes: usize,
    path: PathBuf,
    world: usize,
    rank: usize,
}

// SAFETY: the memory is accessed only through atomics, and through bytes whose access the atomics order.
unsafe impl Send for Mesh {}
// SAFETY: as above.
unsafe impl Sync for Mesh {}

impl Drop for Mesh {
    fn drop(&mut self) {
        self.forget_file();
        // SAFETY: `open` mapped this range, and no reference into it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.cast::<c_void>(), self.bytes) };
    }
}

impl Mesh {
    pub fn open(identifier: &[u8; 128], rank: usize, world: usize) -> Result<Self> {
        let path = path(identifier)?;
        let bytes = HEADER + world * world * CHANNEL;
        let map = || {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
            let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
            rustix::fs::ftruncate(&file, bytes as u64)?;
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping at an address that the kernel chooses overlaps no existing memory.
            unsafe { rustix::mm::mmap(null_mut(), bytes, access, MapFlags::SHARED, &file, 0) }
        };
        let base: *mut c_void = map().map_err(|_| Code::SYSTEM_ERROR)?;
        let mesh = Self {
            base: base.cast(),
            bytes,
            path,
            world,
            rank,
        };
        let known = mesh.word(0).swap(world as u32, Ordering::AcqRel);
        if known != 0 && known != world as u32 {
            driver::violation(&format!(
                "ranks disagree on the world size: {known} and {world}"
            ));
        }
        if mesh.word(1 + rank).swap(1, Ordering::AcqRel) != 0 {
            driver::violation(&format!("two processes join as rank {rank}"));
            return Err(Code::INVALID_USAGE);
        }
        Ok(mesh)
    }

    /// Returns a 32-bit word of the header: the world size, then a flag for each rank that joined, then each rank's
    /// meetings.
    fn word(&self, index: usize) -> &AtomicU32 {
        assert!(index <= 2 * MOST && 4 * index + 4 <= CONNECTIONS);
        // SAFETY: the word is inside the header, aligned, mapped as long as `self`, and accessed as an atomic only.
        unsafe { AtomicU32::from_ptr(self.base.add(4 * index).cast()) }
    }

    pub fn all_have_joined(&self) -> bool {
        (0..self.world).all(|rank| self.word(1 + rank).load(Ordering::Acquire) != 0)
    }

    /// Arrives at the next meeting and returns its number.
    pub fn come(&self) -> u32 {
        self.word(1 + MOST + self.rank)
            .fetch_add(1, Ordering::AcqRel)
            + 1
    }

    pub fn all_have_come(&self, meeting: u32) -> bool {
        let came = |rank| self.word(1 + MOST + rank).load(Ordering::Acquire);
        (0..self.world).all(|rank| came(rank) >= meeting)
    }

    /// Returns the word with a bit for each rank that `rank` connects to.
    fn connections(&self, rank: usize) -> &AtomicU64 {
        assert!(rank < MOST);
        // SAFETY: the word is inside the header, behind those of `word`, aligned, mapped as long as `self`, and
        // accessed as an atomic only.
        unsafe { AtomicU64::from_ptr(self.base.add(CONNECTIONS + 8 * rank).cast()) }
    }

    /// Returns which of `peers` (a bit for each rank) this rank has not begun to connect to.
    pub fn unconnected(&self, peers: u64) -> u64 {
        peers & !self.connections(self.rank).load(Ordering::Acquire)
    }

    /// Begins to connect to `peers`.
    pub fn connect(&self, peers: u64) {
        self.connections(self.rank)
            .fetch_or(peers, Ordering::AcqRel);
    }

    /// Whether each of `peers` connects to this rank too.
    pub fn are_connected(&self, peers: u64) -> bool {
        let connects = |rank| self.connections(rank).load(Ordering::Acquire) >> self.rank & 1 == 1;
        (0..self.world).all(|rank| peers >> rank & 1 == 0 || connects(rank))
    }

    /// Removes the file's name. Every rank that needs the file has it open.
    pub fn forget_file(&self) {
        let _ = std::fs::remove_file(&self.path);
    }

    /// Returns the channel from one rank to another.
    pub fn channel(&self, from: usize, to: usize) -> Channel<'_> {
        assert!(from < self.world && to < self.world);
        let at = HEADER + (from * self.world + to) * CHANNEL;
        Channel {
            // SAFETY: the channel is inside the mapping.
            base: unsafe { self.base.add(at) },
            mesh: std::marker::PhantomData,
        }
    }
}

/// Room for one chunk at a time, filled by one rank and emptied by another.
pub struct Channel<'mesh> {
    base: *mut u8,
    mesh: std::marker::PhantomData<&'mesh Mesh>,
}

impl Channel<'_> {
    fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: the first 128 bytes of a channel are such words: aligned, and accessed as atomics only.
        unsafe { AtomicU64::from_ptr(self.base.add(8 * index).cast()) }
    }

    fn data(&self) -> *mut u8 {
        // SAFETY: a channel has room for a chunk behind its words.
        unsafe { self.base.add(128) }
    }

    fn is_full(&self) -> bool {
        self.word(0).load(Ordering::Acquire) != self.word(1).load(Ordering::Acquire)
    }

    /// Puts a chunk of a message of `total` bytes into the channel; returns false if it is full.
    pub fn put(&self, chunk: &[u8], total: usize) -> bool {
        assert!(chunk.len() <= CHUNK);
        if self.is_full() {
            return false;
        }
        self.word(2).store(total as u64, Ordering::Relaxed);
        // SAFETY: the channel has room for a chunk, and is this rank's until it is marked full.
        unsafe {
            self.data()
                .copy_from_nonoverlapping(chunk.as_ptr(), chunk.len())
        };
        self.word(0).fetch_add(1, Ordering::Release);
        true
    }

    /// Takes a chunk of a message, if there is one, and returns the bytes of the whole message.
    pub fn take(&self, into: &mut [u8]) -> Option<usize> {
        if !self.is_full() {
            return None;
        }
        let total = self.word(2).load(Ordering::Relaxed) as usize;
        // SAFETY: the chunk is this rank's until it is marked empty.
        unsafe {
            self.data()
                .copy_to_nonoverlapping(into.as_mut_ptr(), into.len())
        };
        self.word(1).fetch_add(1, Ordering::Release);
        Some(total)
    }
}
