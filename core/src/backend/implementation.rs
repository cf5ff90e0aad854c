//! What a backend's author writes, and [`super::BackendTable::of`] makes a table of.

use super::abi::*;
use super::failure::CallResult;
use super::{
    Collectives, Device, Gemm, Multicast, RemoteAccess, Signals, SymmetricMemory, VendorCollectives,
};

/// What a backend gives before a device is open, and the type of an open one.
pub trait Implementation: 'static {
    /// An open device, with the eight traits of the contract.
    type Instance: Device
        + SymmetricMemory
        + RemoteAccess
        + Signals
        + Collectives
        + VendorCollectives
        + Gemm
        + Multicast
        + Send
        + Sync
        + 'static;
    /// The name that `SYMMEM_BACKEND` selects it by.
    const NAME: &'static str;
    /// How many devices there are. `NO_DEVICE` or `LIBRARY_MISSING`, with the reason, if it cannot start.
    fn device_count() -> CallResult<u32>;
    /// Describes a device without opening it.
    fn describe_device(ordinal: u32) -> CallResult<DeviceDescription>;
    /// Lines of `key=value`: library files taken, their versions, state worth reporting.
    fn describe_libraries() -> String;
    /// Opens a device for one rank.
    fn open(options: &OpenOptions) -> CallResult<Self::Instance>;
}
