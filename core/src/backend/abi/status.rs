//! The outcome of a call.

use super::forms::open_enum;

open_enum!(
    /// The outcome of a call through the table. Every value except `OK` comes with a [`FailureRecord`].
    Status {
        /// The call succeeded.
        OK = 0,
        /// A vendor call failed; the record has its name and error number.
        CALL_FAILED = 1,
        /// No memory of that kind is left on this device.
        OUT_OF_MEMORY = 2,
        /// The backend, the device or the driver does not support the call.
        UNSUPPORTED = 3,
        /// An argument is outside the range that the contract allows.
        INVALID_ARGUMENT = 4,
        /// There is no such device.
        NO_DEVICE = 5,
        /// A library, or a symbol in it, is missing.
        LIBRARY_MISSING = 6,
        /// This device cannot address that peer's memory.
        PEER_UNREACHABLE = 7,
        /// The backend panicked; the panic was caught at the table.
        PANICKED = 8,
        /// Work submitted earlier failed, and the device's context is lost.
        CONTEXT_LOST = 9,
        /// The vendor cannot make the call yet; the same call may succeed later.
        NOT_READY = 10,
    }
);

/// The last failed call of this thread.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FailureRecord {
    /// The status that the call returned.
    pub status: Status,
    /// The vendor's error number, 0 if there is none.
    pub vendor_code: i32,
    /// Name of the failed call, UTF-8, zero-padded: the vendor's, or the contract's method.
    pub call: [u8; 64],
    /// What the call reported and what to do about it, UTF-8, zero-padded.
    pub message: [u8; 952],
}
