//! The trait that a backend's author implements; [`super::BackendTable::of`] turns it into a table.

use super::abi::*;
use super::failure::CallResult;
use super::{
    CollectiveKernels, Device, Gemm, Multicast, NcclCollectives, RemoteAccess, Signals,
    SymmetricMemory,
};

/// The functions of a backend before a device is open, and the type of an open device.
pub trait Implementation: 'static {
    /// An open device, with the eight traits of the contract.
    type Instance: Device
        + SymmetricMemory
        + RemoteAccess
        + Signals
        + CollectiveKernels
        + NcclCollectives
        + Gemm
        + Multicast
        + Send
        + Sync
        + 'static;
    /// The backend's name, as in `SYMMEM_BACKEND`.
    const NAME: &'static str;
    /// Returns the number of devices. Fails with `NO_DEVICE` or `LIBRARY_MISSING`, and the reason, if the backend
    /// cannot start.
    fn device_count() -> CallResult<u32>;
    /// Describes a device without opening it.
    fn describe_device(ordinal: u32) -> CallResult<DeviceDescription>;
    /// Returns lines of `key=value`: the library files in use, their versions, and other state worth reporting.
    fn describe_libraries() -> String;
    /// Returns row `index` of the selector table of this backend's devices, or `None` past the last row: what
    /// [`CollectiveKernels::collective_row`] of an open device returns.
    fn selector_row(index: u32) -> Option<CollectiveRow>;
    /// Opens a device for one rank.
    fn open(options: &OpenOptions) -> CallResult<Self::Instance>;
}
