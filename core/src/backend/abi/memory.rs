//! Memory that ranks share, and the handles by which peers map it.

use super::forms::open_enum;
use super::handles::{DeviceAddress, RawAllocation, RawMapping};

open_enum!(
    /// A way to share memory with a peer. Ways are tried in the order in which the backend lists them.
    ShareKindCode {
        /// A file descriptor that is mapped as ordinary memory (host backend).
        MEMORY_FILE = 1,
        /// A handle of the virtual memory management API, exported as a POSIX file descriptor.
        VMM_FILE_DESCRIPTOR = 2,
        /// The vendor's legacy IPC handle: 64 bytes that name the base of the allocation.
        LEGACY_IPC = 3,
        /// The plain address, for ranks that are threads of one process.
        SAME_PROCESS = 4,
        /// A dma-buf of the allocation's address range, which is imported as external memory (HIP).
        ADDRESS_RANGE = 5,
    }
);

/// An allocation that peers can map.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedAllocation {
    /// The allocation's handle in later calls.
    pub handle: RawAllocation,
    /// The address of its first byte on this device.
    pub address: DeviceAddress,
    /// Size in bytes, rounded up to the granularity.
    pub bytes: u64,
}

/// The data that a peer needs to map an allocation. Ranks send it to each other, with the descriptor beside it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ExportedHandle {
    /// The kind of sharing that made it.
    pub kind: ShareKindCode,
    /// The exporter's device ordinal, for [`ShareKindCode::SAME_PROCESS`].
    pub device: u32,
    /// Bytes from the base of the shared object to the first exported byte.
    pub offset: u64,
    /// Size of the whole shared object, in bytes.
    pub bytes: u64,
    /// The exporter's address of the first exported byte, for [`ShareKindCode::SAME_PROCESS`].
    pub address: u64,
    /// The vendor's opaque handle, for [`ShareKindCode::LEGACY_IPC`].
    pub opaque: [u8; 64],
    /// A file descriptor that the holder of this struct owns, or −1.
    pub descriptor: i32,
    /// Zero.
    pub reserved: u32,
}

/// A peer's memory, mapped into this process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedMapping {
    /// The mapping's handle for [`crate::backend::SymmetricMemory::unmap`].
    pub handle: RawMapping,
    /// The peer's first byte as this device addresses it.
    pub address: DeviceAddress,
}
