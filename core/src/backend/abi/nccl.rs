//! NCCL and RCCL.

use super::collectives::{CollectiveOperationCode, ElementTypeCode, ReduceOpCode};
use super::handles::DeviceAddress;

/// Bit of [`LibraryDescription::flags`]: the library has symmetric windows.
pub const NCCL_WINDOWS: u32 = 1 << 0;
/// Bit: the library has a native all-to-all.
pub const NCCL_ALL_TO_ALL: u32 = 1 << 1;

/// A loaded library of the vendor: NCCL, RCCL, cuBLASLt or hipBLASLt.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LibraryDescription {
    /// The library's name, zero-padded.
    pub name: [u8; 16],
    /// The file that it was loaded from, zero-padded.
    pub file: [u8; 256],
    /// Version in the library's own numbering.
    pub version: u32,
    /// Bits [`NCCL_WINDOWS`] and [`NCCL_ALL_TO_ALL`].
    pub flags: u32,
}

/// The identifier with which ranks meet in NCCL or RCCL; one rank creates it and sends it to all.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NcclUniqueId {
    /// Opaque.
    pub bytes: [u8; 128],
}

/// One call of NCCL or RCCL.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct NcclCall {
    /// First byte sent.
    pub source: DeviceAddress,
    /// First byte received.
    pub destination: DeviceAddress,
    /// Number of elements, as the library's call counts them.
    pub count: u64,
    /// The operation. A single send or receive is [`CollectiveOperationCode::EXCHANGE`] with only a source or only a
    /// destination.
    pub operation: CollectiveOperationCode,
    /// Type of the elements.
    pub element: ElementTypeCode,
    /// Reduction operator; ignored by operations that do not reduce.
    pub reduce: ReduceOpCode,
    /// The root, or the peer of a send or receive.
    pub peer: u32,
}
