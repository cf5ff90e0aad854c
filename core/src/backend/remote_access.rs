//! Put and get.

use super::abi::*;
use super::failure::CallResult;
use enum_dispatch::enum_dispatch;

/// Put and get, by the copy engine or a kernel, as the row of the transfer table says.
#[enum_dispatch]
pub trait RemoteAccess {
    /// Enqueues a transfer, followed by its signal if it has one. A reader that sees the signal with acquire order
    /// sees the bytes. Transfers by kernel are capturable. A transfer by the copy engine with a signal is capturable
    /// only if the signal has an epoch on the device.
    ///
    /// # Safety
    /// Both ranges and the signal's words are live until the stream has passed this point. The ranges do not overlap.
    unsafe fn transfer(&self, transfer: &Transfer, stream: RawStream) -> CallResult<()>;

    /// Enqueues a copy of rows by the copy engine, between any two addresses that the device can reach. Capturable.
    ///
    /// # Safety
    /// Both matrices are live until the stream has passed this point and do not overlap.
    unsafe fn transfer_rows(&self, copy: &RowsCopy, stream: RawStream) -> CallResult<()>;
}
