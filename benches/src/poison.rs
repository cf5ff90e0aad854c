//! Memory set to a byte that no result is.

use super::{BenchError, Result};
use symmem::backend::Device;
use symmem::backend::abi::RawStream;
use symmem::{Communicator, Element, Stream, SymmetricBuffer};

/// Sets the first `elements` of this rank's copy of a buffer to a byte. Blocks.
///
/// # Errors
/// [`symmem::Error::OutOfRange`] for more elements than there are; the backend's.
pub(crate) fn poison<T: Element>(
    communicator: &Communicator,
    buffer: &SymmetricBuffer<T>,
    elements: usize,
    byte: u8,
    stream: &Stream,
) -> Result<()> {
    let bytes = (buffer.slice(..elements)?.len() * size_of::<T>()) as u64;
    let address = buffer.local().address();
    // SAFETY: the range is inside the buffer, which lives until the stream is synchronized below; any bytes are
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
