//! Streams.

use crate::handles::{
    OnStream, out, rank_of, stream_of, symmem_communicator, symmem_stream, take_stream,
};
use crate::status::{run, symmem_status};
use std::time::Duration;

/// Makes a stream on this rank's device.
///
/// # Safety
/// `stream` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symmem_stream_create(
    communicator: *mut symmem_communicator,
    stream: *mut *mut symmem_stream,
) -> symmem_status {
    run("symmem_stream_create", || {
        // SAFETY: guaranteed by the caller.
        let place = unsafe { out(stream, "stream") }?;
        let rank = rank_of(communicator)?;
        place.write(OnStream::new(rank.communicator.stream()?, &rank).into());
        Ok(())
    })
}

/// Takes a stream of the caller: a CUstream, cudaStream_t or hipStream_t, as a number; 0 is the device's default stream. It is
/// not destroyed with the handle.
///
/// # Safety
/// The stream belongs to this rank's device, and lives until the handle was destroyed after all its work was done; `stream`
/// is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symmem_stream_wrap(
    communicator: *mut symmem_communicator,
    native: u64,
    stream: *mut *mut symmem_stream,
) -> symmem_status {
    run("symmem_stream_wrap", || {
        // SAFETY: guaranteed by the caller.
        let place = unsafe { out(stream, "stream") }?;
        let rank = rank_of(communicator)?;
        // SAFETY: guaranteed by the caller.
        let wrapped = unsafe { rank.communicator.stream_from_raw(native) };
        place.write(OnStream::new(wrapped, &rank).into());
        Ok(())
    })
}

/// Stores the stream's number in the driver's API.
///
/// # Safety
/// `native` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symmem_stream_native(
    stream: *mut symmem_stream,
    native: *mut u64,
) -> symmem_status {
    run("symmem_stream_native", || {
        // SAFETY: guaranteed by the caller.
        let place = unsafe { out(native, "native") }?;
        place.write(stream_of(stream)?.lock().raw());
        Ok(())
    })
}

/// Blocks until the stream's work is done, or until the communicator fails. Calls of other threads on the same stream wait
/// meanwhile.
///
/// @param deadline_ms How long to wait at most; 0: as long as the work's own waits take.
#[unsafe(no_mangle)]
pub extern "C" fn symmem_stream_synchronize(
    stream: *mut symmem_stream,
    deadline_ms: u64,
) -> symmem_status {
    run("symmem_stream_synchronize", || {
        let stream = stream_of(stream)?;
        let stream = stream.lock();
        match deadline_ms {
            0 => stream.synchronize()?,
            _ => stream.synchronize_within(Duration::from_millis(deadline_ms))?,
        }
        Ok(())
    })
}

/// Gives a stream up. Its work goes on.
#[unsafe(no_mangle)]
pub extern "C" fn symmem_stream_destroy(stream: *mut symmem_stream) -> symmem_status {
    run("symmem_stream_destroy", || take_stream(stream).map(drop))
}
