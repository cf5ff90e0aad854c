//! Fills memory with a byte that no correct result contains.

use super::{BenchError, Result};
use symmem::backend::Device;
use symmem::backend::abi::RawStream;
use symmem::{Communicator, Element, Stream, SymmetricBuffer};

/// Sets every byte of the first `elements` in this rank's copy of a buffer. Blocks.
///
/// # Errors
/// [`symmem::Error::OutOfRange`] if the buffer has fewer elements; any error of the backend.
pub(crate) fn poison<T: Element>(
    communicator: &Communicator,
    buffer: &SymmetricBuffer<T>,
    elements: usize,
    byte: u8,
    stream: &Stream,
) -> Result<()> {
    let bytes = (buffer.slice(..elements)?.len() * size_of::<T>()) as u64;
    let address = buffer.local().address();
    // SAFETY: the range is inside the buffer, which lives until the stream is synchronized below; any bytes are valid
    // elements.
    let set = unsafe {
        let backend = communicator.backend();
        backend.memory_set(address, byte, bytes, RawStream(stream.raw()))
    };
    set.map_err(|failure| BenchError::Backend {
        rank: communicator.rank(),
        operation: "poisoning a buffer",
        failure,
    })?;
    Ok(stream.synchronize()?)
}
