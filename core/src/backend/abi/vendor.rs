//! The vendor's library of collectives.

use super::collectives::{CollectiveOperation, ElementType, ReduceOperation};
use super::handles::DeviceAddress;

/// The vendor's library has symmetric windows.
pub const VENDOR_WINDOWS: u32 = 1 << 0;
/// It has an all-to-all of its own.
pub const VENDOR_ALL_TO_ALL: u32 = 1 << 1;

/// The vendor's library of collectives.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VendorDescription {
    /// The vendor's name for it, zero-padded.
    pub name: [u8; 16],
    /// The file it was loaded from, zero-padded.
    pub file: [u8; 256],
    /// As the library numbers it.
    pub version: u32,
    /// `VENDOR_*`.
    pub flags: u32,
}

/// What ranks need to meet in the vendor's library; made by one, given to all.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VendorIdentifier {
    /// Opaque.
    pub bytes: [u8; 128],
}

/// One call of the vendor's library.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct VendorCall {
    /// What is sent.
    pub source: DeviceAddress,
    /// What is received.
    pub destination: DeviceAddress,
    /// Elements, as the vendor's call counts them.
    pub count: u64,
    /// The operation. A lone send or receipt is [`CollectiveOperation::EXCHANGE`] with only a source
    /// or only a destination.
    pub operation: CollectiveOperation,
    /// What the elements are.
    pub element: ElementType,
    /// How they become one, where they do.
    pub reduce: ReduceOperation,
    /// The root, or the peer of a send or receipt.
    pub peer: u32,
}
