//! Symmetric buffers.

use crate::handles::{
    Buffer, buffer_of, optional, out, rank_of, symmem_buffer, symmem_communicator,
};
use crate::handles::{stream_of, symmem_stream, take_buffer};
use crate::segments::SEGMENTS;
use crate::status::{invalid, run, symmem_status};
use std::ffi::c_void;
use symmem::DeviceAddress;

/// Allocates a buffer of `bytes` zeroed bytes at every rank. All ranks call it, in the same order; blocks until they have.
///
/// @param buffer Where to store the buffer. End it by symmem_buffer_free, or by symmem_buffer_drop.
///
/// # Safety
/// `buffer` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symmem_buffer_allocate(
    communicator: *mut symmem_communicator,
    bytes: usize,
    buffer: *mut *mut symmem_buffer,
) -> symmem_status {
    run("symmem_buffer_allocate", || {
        // SAFETY: guaranteed by the caller.
        let place = unsafe { out(buffer, "buffer") }?;
        let bytes = rank_of(communicator)?.communicator.allocate(&[bytes])?;
        place.write(Buffer { bytes }.into());
        Ok(())
    })
}

/// Makes memory of the caller symmetric: `bytes` bytes at `address` on this rank's device, which may differ between ranks. All
/// ranks call it, in the same order; blocks until they have. Nothing may write the first 64 bytes meanwhile, which the ranks
/// compare. Memory of symmem_alloc stays until the buffer is gone, whenever
/// symmem_free is called. Collectives also take memory that is not registered.
///
/// # Safety
/// Other memory stays allocated until the buffer was freed; `buffer` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symmem_buffer_register(
    communicator: *mut symmem_communicator,
    address: *mut c_void,
    bytes: usize,
    buffer: *mut *mut symmem_buffer,
) -> symmem_status {
    run("symmem_buffer_register", || {
        // SAFETY: guaranteed by the caller.
        let place = unsafe { out(buffer, "buffer") }?;
        let rank = rank_of(communicator)?;
        let address = DeviceAddress(address.addr() as u64);
        let bytes = match SEGMENTS.find(address) {
            Some((segment, offset)) => rank.communicator.rendezvous(&segment, offset, &[bytes])?,
            // SAFETY: guaranteed by the caller.
            None => unsafe { rank.communicator.register(address, &[bytes]) }?,
        };
        place.write(Buffer { bytes }.into());
        Ok(())
    })
}

/// Frees a buffer. All ranks call it, in the same order; blocks until they have and this rank's streams are idle. The handle is
/// gone then, even after a failure, as after symmem_buffer_drop.
#[unsafe(no_mangle)]
pub extern "C" fn symmem_buffer_free(buffer: *mut symmem_buffer) -> symmem_status {
    run("symmem_buffer_free", || {
        Ok(take_buffer(buffer)?.bytes.free()?)
    })
}

/// Gives a buffer up without waiting for the other ranks, also when the communicator has failed. It stays mapped until all have.
#[unsafe(no_mangle)]
pub extern "C" fn symmem_buffer_drop(buffer: *mut symmem_buffer) -> symmem_status {
    run("symmem_buffer_drop", || take_buffer(buffer).map(drop))
}

/// Stores the address of a rank's copy of a buffer, as this rank's device reaches it, and its length. Either pointer may be
/// null.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symmem_buffer_address(
    buffer: *mut symmem_buffer,
    rank: u32,
    address: *mut *mut c_void,
    bytes: *mut usize,
) -> symmem_status {
    run("symmem_buffer_address", || {
        let found = buffer_of(buffer)?;
        let view = found.bytes.peer(rank as usize)?;
        // SAFETY: guaranteed by the caller.
        if let Some(address) = unsafe { optional(address) } {
            address.write(view.as_ptr().cast());
        }
        // SAFETY: guaranteed by the caller.
        if let Some(bytes) = unsafe { optional(bytes) } {
            bytes.write(view.len());
        }
        Ok(())
    })
}

/// Copies from the host into this rank's copy of a buffer, from byte `offset` on, after the stream's earlier work. Blocks until
/// the bytes are there.
///
/// # Safety
/// `data` is null or has `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symmem_buffer_write(
    stream: *mut symmem_stream,
    buffer: *mut symmem_buffer,
    offset: usize,
    data: *const c_void,
    bytes: usize,
) -> symmem_status {
    run("symmem_buffer_write", || {
        let (stream, buffer) = (stream_of(stream)?, buffer_of(buffer)?);
        if bytes == 0 {
            return Ok(());
        }
        if data.is_null() {
            return Err(invalid("data is null"));
        }
        // SAFETY: not null, and guaranteed by the caller.
        let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), bytes) };
        Ok(buffer.bytes.write(&stream.lock(), offset, data)?)
    })
}

/// Copies from this rank's copy of a buffer, from byte `offset` on, to the host, after the stream's earlier work. Blocks until
/// the bytes are there.
///
/// # Safety
/// `data` is null or has room for `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symmem_buffer_read(
    stream: *mut symmem_stream,
    buffer: *mut symmem_buffer,
    offset: usize,
    data: *mut c_void,
    bytes: usize,
) -> symmem_status {
    run("symmem_buffer_read", || {
        let (stream, buffer) = (stream_of(stream)?, buffer_of(buffer)?);
        if bytes == 0 {
            return Ok(());
        }
        if data.is_null() {
            return Err(invalid("data is null"));
        }
        // SAFETY: not null, and guaranteed by the caller.
        unsafe { data.cast::<u8>().write_bytes(0, bytes) };
        // SAFETY: as above, and initialized.
        let data = unsafe { std::slice::from_raw_parts_mut(data.cast::<u8>(), bytes) };
        Ok(buffer.bytes.read(&stream.lock(), offset, data)?)
    })
}
