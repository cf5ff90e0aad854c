//! Delivery of what other nodes send into this rank's memory.

use crate::backend::Failure;
use crate::backend::abi::{DeviceAddress, WordOperation};

/// Writes into this rank's memory on behalf of ranks of other nodes. Called by the thread that progresses the network.
pub trait Delivery: Send {
    /// Writes bytes.
    ///
    /// # Errors
    /// The backend's.
    ///
    /// # Safety
    /// The bytes at `address` are in a registered allocation of this rank.
    unsafe fn write(&mut self, address: DeviceAddress, data: &[u8]) -> Result<(), Failure>;

    /// Raises the word of `source`'s signals on `channel`, behind all earlier writes.
    ///
    /// # Errors
    /// The backend's.
    fn signal(&mut self, channel: u32, source: usize, value: u32) -> Result<(), Failure>;

    /// Updates a word, behind all earlier writes, and returns its earlier value.
    ///
    /// # Errors
    /// The backend's; an error for a number that names no operation.
    ///
    /// # Safety
    /// The word is in a registered allocation of this rank.
    unsafe fn update(&mut self, operation: WordOperation) -> Result<u64, Failure>;
}

/// Delivery into memory that the host addresses as the device does.
pub struct HostDelivery<W> {
    /// Returns the address of the word of a rank's signals on a channel.
    word: W,
}

impl<W: Fn(u32, usize) -> DeviceAddress + Send> HostDelivery<W> {
    /// Takes the function that returns the address of the word of a rank's signals on a channel.
    ///
    /// # Safety
    /// The words are signal words in host memory, and live as long as the value.
    pub unsafe fn new(word: W) -> Self {
        Self { word }
    }
}

impl<W: Fn(u32, usize) -> DeviceAddress + Send> Delivery for HostDelivery<W> {
    unsafe fn write(&mut self, address: DeviceAddress, data: &[u8]) -> Result<(), Failure> {
        let to = std::ptr::with_exposed_provenance_mut::<u8>(address.0 as usize);
        // SAFETY: guaranteed by the caller; UCX's buffer is not in it.
        unsafe { to.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        Ok(())
    }

    fn signal(&mut self, channel: u32, source: usize, value: u32) -> Result<(), Failure> {
        // SAFETY: guaranteed to `new`.
        unsafe { symmem_core::host::raise_signal((self.word)(channel, source), value) };
        Ok(())
    }

    unsafe fn update(&mut self, operation: WordOperation) -> Result<u64, Failure> {
        let mut old = 0_u64;
        let operation = WordOperation {
            result: DeviceAddress((&raw mut old).expose_provenance() as u64),
            ..operation
        };
        // SAFETY: the caller guarantees the word; the result is this function's.
        unsafe { symmem_core::host::update_word(&operation)? };
        // SAFETY: written by address above, which the compiler does not see.
        Ok(unsafe { (&raw const old).read_volatile() })
    }
}
