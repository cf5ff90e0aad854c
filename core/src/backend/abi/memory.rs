//! Memory that ranks share, and how it is handed over.

use super::forms::open_enum;
use super::handles::{DeviceAddress, RawAllocation, RawMapping};

open_enum!(
    /// A way to hand memory to a peer. Strategies are tried in the order that the backend lists them.
    ShareKind {
        /// A file descriptor that maps as ordinary memory (host backend).
        MEMORY_FILE = 1,
        /// Virtual-memory-management handle exported as a POSIX file descriptor.
        VMM_FILE_DESCRIPTOR = 2,
        /// The vendor's legacy inter-process handle: 64 bytes to the allocation's base.
        LEGACY_IPC = 3,
        /// The plain address: only between ranks that are threads of one process.
        SAME_PROCESS = 4,
    }
);

/// Memory allocated to be shared.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedAllocation {
    /// Names it in later calls.
    pub handle: RawAllocation,
    /// Its first byte on this device.
    pub address: DeviceAddress,
    /// Bytes, after rounding up to the granularity.
    pub bytes: u64,
}

/// What a peer needs to map an allocation. Travels between ranks; a descriptor travels beside it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ExportedHandle {
    /// The strategy that made it.
    pub kind: ShareKind,
    /// The exporter's device ordinal (used by [`ShareKind::SAME_PROCESS`]).
    pub device: u32,
    /// From the shared object's base to the first byte meant.
    pub offset: u64,
    /// Bytes of the whole shared object.
    pub bytes: u64,
    /// The exporter's own address of the first byte meant ([`ShareKind::SAME_PROCESS`]).
    pub address: u64,
    /// The vendor's opaque handle ([`ShareKind::LEGACY_IPC`]).
    pub opaque: [u8; 64],
    /// A file descriptor the receiver of this struct owns, or −1.
    pub descriptor: i32,
    /// Zero.
    pub reserved: u32,
}

/// A peer's memory, mapped here.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedMapping {
    /// Names it in [`crate::backend::SymmetricMemory::unmap`].
    pub handle: RawMapping,
    /// The peer's first byte as this device addresses it.
    pub address: DeviceAddress,
}
