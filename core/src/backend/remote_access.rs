//! Moving bytes.

use super::abi::*;
use super::failure::CallResult;
use enum_dispatch::enum_dispatch;

/// Put and get, by copy engine or by kernel, as the row says.
#[enum_dispatch]
pub trait RemoteAccess {
    /// Moves bytes on the stream, then gives the signal if there is one: whoever sees the signal
    /// with acquire order sees the bytes. Kernel methods are capturable; a copy engine with a signal
    /// is capturable if the signal has an epoch.
    ///
    /// # Safety
    /// Both ranges and the signal's words are live until the stream has passed this point. The
    /// ranges do not overlap.
    unsafe fn transfer(&self, transfer: &Transfer, stream: RawStream) -> CallResult<()>;

    /// Moves rows of bytes by the copy engine, between any two addresses that the device knows. Capturable.
    ///
    /// # Safety
    /// Both matrices are live until the stream has passed this point. They do not overlap.
    unsafe fn transfer_rows(&self, copy: &RowsCopy, stream: RawStream) -> CallResult<()>;
}
