//! What became of a call.

use super::forms::open_enum;

open_enum!(
    /// What became of a call through the table. Anything but `OK` has a [`FailureRecord`].
    Status {
        /// It worked.
        OK = 0,
        /// The vendor's call failed; the record has its name and number.
        CALL_FAILED = 1,
        /// No memory of that kind is left on this device.
        OUT_OF_MEMORY = 2,
        /// The backend, the device or the driver cannot do this.
        UNSUPPORTED = 3,
        /// An argument is outside what the contract allows.
        INVALID_ARGUMENT = 4,
        /// There is no such device.
        NO_DEVICE = 5,
        /// A library or a symbol in it is missing.
        LIBRARY_MISSING = 6,
        /// This device cannot address that peer's memory.
        PEER_UNREACHABLE = 7,
        /// The backend panicked; the panic was caught at the table.
        PANICKED = 8,
        /// Work submitted earlier failed, and the device's context is lost.
        CONTEXT_LOST = 9,
    }
);

/// What went wrong in the last failed call of this thread.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FailureRecord {
    /// The status that the call returned.
    pub status: Status,
    /// The vendor's error number, 0 if there is none.
    pub vendor_code: i32,
    /// The failing call as the vendor spells it, UTF-8, zero-padded.
    pub call: [u8; 64],
    /// What it said and what to do about it, UTF-8, zero-padded.
    pub message: [u8; 952],
}
