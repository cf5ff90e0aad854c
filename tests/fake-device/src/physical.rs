//! Physical memory, which is files that processes can share, and the device addresses that name it.
//!
//! The host can never load from a device address: addresses come from one arena without access, and the bytes are
//! mapped a second time at addresses that only the fake's streams use. So a program that reads a device pointer on the
//! host crashes, as with a GPU. Memory that is freed under a running operation stays readable to that operation while
//! the mistake is reported.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, LazyLock, Mutex, Weak};

use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::call::lock;
use crate::devices::configuration;
use crate::error::{Code, Result};
use crate::ledger;

/// What memory was created for, which decides how it can be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Memory with addresses; shared by legacy IPC handles.
    Allocation,
    /// VMM memory for export; shared by file descriptors.
    Exportable,
    /// VMM memory without a handle type; cannot be shared.
    Private,
}

impl Use {
    fn name(self) -> &'static str {
        match self {
            Self::Allocation => "allocation",
            Self::Exportable => "exportable",
            Self::Private => "private",
        }
    }
}

/// Memory of a physical device, mapped for the fake's own use.
pub(crate) struct Physical {
    file: OwnedFd,
    pointer: *mut u8,
    pub bytes: usize,
    /// The physical device.
    pub device: usize,
    pub made_for: Use,
    /// Whether it is uncached.
    pub uncached: bool,
    /// Identifies the memory in every process.
    pub inode: u64,
    charged: bool,
}

// SAFETY: the mapping belongs to this object and lives as long. Its contents are accessed only through raw pointers,
// and synchronization is the duty of the program under test, as on a GPU.
unsafe impl Send for Physical {}
// SAFETY: as for `Send`.
unsafe impl Sync for Physical {}

/// Suffix in the file name of uncached memory.
const UNCACHED: &str = "-uncached";

/// Every piece of memory of this process, so that an import finds memory that this process already has.
static KNOWN: LazyLock<Mutex<Vec<Weak<Physical>>>> = LazyLock::new(Mutex::default);

impl Physical {
    /// Creates zeroed memory on a physical device.
    pub fn create(device: usize, bytes: usize, made_for: Use, uncached: bool) -> Result<Arc<Self>> {
        ledger::charge(device, bytes as u64)?;
        let name = format!(
            "fake-device/{device}/{}{}",
            made_for.name(),
            if uncached { UNCACHED } else { "" }
        );
        let made = memfd_create(name, MemfdFlags::CLOEXEC)
            .and_then(|file| ftruncate(&file, bytes as u64).map(|()| file))
            .map_err(|_| Code::OPERATING_SYSTEM)
            .and_then(|file| Self::map(file, device, bytes, (made_for, uncached), true));
        if made.is_err() {
            ledger::refund(device, bytes as u64);
        }
        made
    }

    /// Opens memory that this or another process made, from a descriptor.
    ///
    /// Fails if the descriptor is not of a fake's memory, or if the memory was made for none of these uses.
    pub fn open(file: BorrowedFd<'_>, uses: &[Use]) -> Result<Arc<Self>> {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let link = link
            .map_err(|_| Code::INVALID_VALUE)?
            .to_string_lossy()
            .into_owned();
        let mut parts = link
            .strip_prefix("/memfd:fake-device/")
            .ok_or(Code::INVALID_VALUE)?
            .split('/');
        let device = parts
            .next()
            .and_then(|d| d.parse().ok())
            .ok_or(Code::INVALID_VALUE)?;
        let made = parts.next().ok_or(Code::INVALID_VALUE)?;
        let made_for = uses
            .iter()
            .find(|made_for| made.starts_with(made_for.name()))
            .ok_or(Code::INVALID_VALUE)?;
        let stat = fstat(file).map_err(|_| Code::INVALID_VALUE)?;
        if let Some(known) = Self::known(stat.st_ino) {
            return Ok(known);
        }
        let file = file
            .try_clone_to_owned()
            .map_err(|_| Code::OPERATING_SYSTEM)?;
        let what = (*made_for, made.contains(UNCACHED));
        Self::map(file, device, stat.st_size as usize, what, false)
    }

    /// Returns the memory with an inode, if this process already has it.
    pub fn known(inode: u64) -> Option<Arc<Self>> {
        let known = lock(&KNOWN);
        let mut here = known.iter().filter_map(Weak::upgrade);
        here.find(|memory| memory.inode == inode)
    }

    fn map(
        file: OwnedFd,
        device: usize,
        bytes: usize,
        (made_for, uncached): (Use, bool),
        charged: bool,
    ) -> Result<Arc<Self>> {
        let inode = fstat(&file).map_err(|_| Code::OPERATING_SYSTEM)?.st_ino;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps no existing memory.
        let pointer = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                MapFlags::SHARED,
                &file,
                0,
            )
        }
        .map_err(|_| Code::OPERATING_SYSTEM)?
        .cast();
        let memory = Arc::new(Self {
            file,
            pointer,
            bytes,
            device,
            made_for,
            uncached,
            inode,
            charged,
        });
        let mut known = lock(&KNOWN);
        known.retain(|memory| memory.strong_count() > 0);
        known.push(Arc::downgrade(&memory));
        Ok(memory)
    }

    /// Returns the address of byte `offset` for the fake's own use.
    pub fn at(&self, offset: usize) -> *mut u8 {
        assert!(
            offset <= self.bytes,
            "{offset} is behind the {} bytes",
            self.bytes
        );
        // SAFETY: the offset was just checked to be in the mapping or at its end.
        unsafe { self.pointer.add(offset) }
    }

    /// Returns the file that holds the memory.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and no pointer into it outlives the references to
        // this object.
        let unmapped = unsafe { munmap(self.pointer.cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
        if self.charged {
            ledger::refund(self.device, self.bytes as u64);
        }
    }
}

/// Pinned host memory, which the host and the devices access at the same address.
pub(crate) struct Pages {
    pub pointer: *mut u8,
    pub bytes: usize,
}

// SAFETY: as for `Physical`.
unsafe impl Send for Pages {}
// SAFETY: as for `Physical`.
unsafe impl Sync for Pages {}

impl Pages {
    /// Creates zeroed pages.
    pub fn create(bytes: usize) -> Result<Arc<Self>> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps no existing memory.
        let pointer =
            unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) }
                .map_err(|_| Code::OUT_OF_MEMORY)?
                .cast();
        Ok(Arc::new(Self { pointer, bytes }))
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `create` with this length, and this was the last reference to it.
        let unmapped = unsafe { munmap(self.pointer.cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// The addresses for device memory: reserved once, without access, and never reused, so that a freed address never
/// refers to something else.
struct Arena {
    start: u64,
    next: u64,
    end: u64,
}

static ARENA: LazyLock<Mutex<Arena>> = LazyLock::new(|| {
    // Reserve as much as the address space allows: 16 TiB with 47-bit addresses, otherwise less.
    for shift in (36..=44).rev() {
        let bytes = 1usize << shift;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps no existing memory.
        let base =
            unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), flags) };
        if let Ok(base) = base {
            return Mutex::new(Arena {
                start: base as u64,
                next: base as u64,
                end: base as u64 + bytes as u64,
            });
        }
    }
    Mutex::new(Arena {
        start: 0,
        next: 0,
        end: 0,
    })
});

/// Returns fresh, aligned addresses, followed by an unused gap of the configured size.
pub(crate) fn fresh_addresses(bytes: u64, alignment: u64) -> Result<u64> {
    let mut arena = lock(&ARENA);
    let base = arena.next.next_multiple_of(alignment);
    let end = base
        .checked_add(bytes)
        .and_then(|end| end.checked_add(configuration().gap))
        .ok_or(Code::OUT_OF_MEMORY)?;
    if end > arena.end {
        return Err(Code::OUT_OF_MEMORY);
    }
    arena.next = end;
    Ok(base)
}

/// Whether an address is in the arena: a device address, or a former one.
pub(crate) fn is_device_address(address: u64) -> bool {
    let arena = lock(&ARENA);
    (arena.start..arena.end).contains(&address)
}

/// Opens another process's descriptor in this process.
pub(crate) fn open_descriptor_of(process: u32, descriptor: i32) -> Result<OwnedFd> {
    let path = format!("/proc/{process}/fd/{descriptor}");
    let file = File::options()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|_| Code::INVALID_VALUE)?;
    Ok(file.into())
}
