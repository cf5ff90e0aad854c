//! Puts, gets and signals.

use crate::handles::{buffer_of, stream_of, symmem_buffer, symmem_stream};
use crate::status::{Failure, invalid, run, symmem_status};
use std::ops::Range;

/// Returns a range of bytes.
fn bytes_from(offset: usize, bytes: usize) -> Result<Range<usize>, Failure> {
    let end = offset.checked_add(bytes);
    let end = end.ok_or_else(|| invalid(format!("{bytes} bytes from byte {offset} on")))?;
    Ok(offset..end)
}

/// Enqueues a copy of `bytes` bytes of this rank's `source` to `destination` at `peer`.
#[unsafe(no_mangle)]
pub extern "C" fn symmem_put(
    stream: *mut symmem_stream,
    peer: u32,
    destination: *mut symmem_buffer,
    destination_offset: usize,
    source: *mut symmem_buffer,
    source_offset: usize,
    bytes: usize,
) -> symmem_status {
    run("symmem_put", || {
        let (to, from) = (buffer_of(destination)?, buffer_of(source)?);
        let to = to.bytes.slice(bytes_from(destination_offset, bytes)?)?;
        let from = from.bytes.slice(bytes_from(source_offset, bytes)?)?;
        Ok(stream_of(stream)?.lock().put(peer as usize, to, from)?)
    })
}

/// Enqueues a copy of `bytes` bytes of `source` at `peer` to this rank's `destination`.
#[unsafe(no_mangle)]
pub extern "C" fn symmem_get(
    stream: *mut symmem_stream,
    peer: u32,
    destination: *mut symmem_buffer,
    destination_offset: usize,
    source: *mut symmem_buffer,
    source_offset: usize,
    bytes: usize,
) -> symmem_status {
    run("symmem_get", || {
        let (to, from) = (buffer_of(destination)?, buffer_of(source)?);
        let to = to.bytes.slice(bytes_from(destination_offset, bytes)?)?;
        let from = from.bytes.slice(bytes_from(source_offset, bytes)?)?;
        Ok(stream_of(stream)?.lock().get(peer as usize, to, from)?)
    })
}

/// symmem_put, then raises the peer's signal for this rank on `channel`, once the bytes are there.
#[unsafe(no_mangle)]
pub extern "C" fn symmem_put_signal(
    stream: *mut symmem_stream,
    peer: u32,
    destination: *mut symmem_buffer,
    destination_offset: usize,
    source: *mut symmem_buffer,
    source_offset: usize,
    bytes: usize,
    channel: u32,
) -> symmem_status {
    run("symmem_put_signal", || {
        let (to, from) = (buffer_of(destination)?, buffer_of(source)?);
        let to = to.bytes.slice(bytes_from(destination_offset, bytes)?)?;
        let from = from.bytes.slice(bytes_from(source_offset, bytes)?)?;
        let stream = stream_of(stream)?;
        Ok(stream.lock().put_signal(peer as usize, to, from, channel)?)
    })
}

/// Enqueues a wait for one signal of `peer` on `channel`, for at most the communicator's deadline.
#[unsafe(no_mangle)]
pub extern "C" fn symmem_wait_signal(
    stream: *mut symmem_stream,
    peer: u32,
    channel: u32,
) -> symmem_status {
    run("symmem_wait_signal", || {
        Ok(stream_of(stream)?
            .lock()
            .wait_signal(peer as usize, channel)?)
    })
}
