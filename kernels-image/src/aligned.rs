//! Byte buffers aligned as an ELF loader may expect.

use std::ops::{Deref, DerefMut};

/// Alignment in bytes: a cache line.
const ALIGNMENT: usize = 64;

/// Bytes whose address is a multiple of 64. Moving the value does not move them.
#[derive(Debug)]
pub struct AlignedBytes {
    /// The bytes, and the padding that aligns them.
    storage: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBytes {
    /// Returns `length` zero bytes.
    pub fn zeroed(length: usize) -> Self {
        let storage = vec![0; length + ALIGNMENT - 1];
        let start = storage.as_ptr().addr().wrapping_neg() % ALIGNMENT;
        Self {
            storage,
            start,
            length,
        }
    }
}

impl From<&[u8]> for AlignedBytes {
    fn from(bytes: &[u8]) -> Self {
        let mut copy = Self::zeroed(bytes.len());
        copy.copy_from_slice(bytes);
        copy
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.storage[self.start..][..self.length]
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..][..self.length]
    }
}
