//! Puts, gets and signals.

use crate::collectives::symmem_operand;
use crate::handles::{buffer_of, stream_of, symmem_buffer, symmem_stream};
use crate::status::{Failure, run, symmem_status};
use symmem::{Queue, Slice};

/// Enqueues the transfer that `verb` makes of `bytes` bytes of two buffers, each from an offset on.
fn enqueue(
    stream: *mut symmem_stream,
    (destination, to): (*mut symmem_buffer, usize),
    (source, from): (*mut symmem_buffer, usize),
    bytes: usize,
    verb: impl FnOnce(&Queue, Slice<'_, u8>, Slice<'_, u8>) -> symmem::Result<()>,
) -> Result<(), Failure> {
    let (destination, source) = (buffer_of(destination)?, buffer_of(source)?);
    let (to, from) = (destination.slice(to, bytes)?, source.slice(from, bytes)?);
    let stream = stream_of(stream)?;
    Ok(verb(&stream.lock(), to, from)?)
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
        let to = (destination, destination_offset);
        let from = (source, source_offset);
        enqueue(stream, to, from, bytes, |queue, to, from| {
            queue.put(peer as usize, to, from)
        })
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
        let to = (destination, destination_offset);
        let from = (source, source_offset);
        enqueue(stream, to, from, bytes, |queue, to, from| {
            queue.get(peer as usize, to, from)
        })
    })
}

/// Sends `bytes` bytes of a buffer, or of any memory of this rank's device, to `peer`, which must receive them. They may be
/// overwritten once the stream has passed the call.
///
/// # Safety
/// An address is of memory on this rank's device, with as many bytes, until the stream has passed the work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symmem_send(
    stream: *mut symmem_stream,
    peer: u32,
    source: symmem_operand,
    bytes: usize,
) -> symmem_status {
    run("symmem_send", || {
        let stream = stream_of(stream)?;
        let (rank, buffer) = (stream.rank()?, source.buffer()?);
        // SAFETY: guaranteed by the caller.
        let from = unsafe { source.elements::<u8>(&rank, buffer.as_deref(), bytes, "source")? };
        Ok(stream.lock().send(peer as usize, from)?)
    })
}

/// Receives `bytes` bytes that `peer` sends, into a buffer or any memory of this rank's device.
///
/// # Safety
/// An address is of memory on this rank's device, with as many bytes, until the stream has passed the work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symmem_recv(
    stream: *mut symmem_stream,
    peer: u32,
    destination: symmem_operand,
    bytes: usize,
) -> symmem_status {
    run("symmem_recv", || {
        let stream = stream_of(stream)?;
        let (rank, buffer) = (stream.rank()?, destination.buffer()?);
        // SAFETY: guaranteed by the caller.
        let to =
            unsafe { destination.elements::<u8>(&rank, buffer.as_deref(), bytes, "destination")? };
        Ok(stream.lock().recv(peer as usize, to)?)
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
        let to = (destination, destination_offset);
        let from = (source, source_offset);
        enqueue(stream, to, from, bytes, |queue, to, from| {
            queue.put_signal(peer as usize, to, from, channel)
        })
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
