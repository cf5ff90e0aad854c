//! Bytes of the caller's, lent for one call.

/// A range of bytes that the caller lends for one call: contents of a module, a name, a kernel's arguments.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ByteSlice {
    /// The first byte; may be null if there are none.
    pub first: *const u8,
    /// Bytes; may be 0.
    pub length: u64,
}
