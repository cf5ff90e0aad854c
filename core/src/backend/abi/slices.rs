//! Bytes that the caller lends for one call.

/// A range of bytes that the caller lends for one call: a module's contents, a name, or a kernel's arguments.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ByteSlice {
    /// The first byte; may be null if `length` is 0.
    pub first: *const u8,
    /// Size in bytes; may be 0.
    pub length: u64,
}
