//! An allocator for frameworks that ask for two C functions. Its memory is this rank's alone until ranks make buffers of parts
//! of it: symmem_buffer_register takes any address in it.

use crate::handles::{Rank, rank_on};
use crate::status::{invalid, run, symmem_status};
use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use symmem::{DeviceAddress, Segments};

/// What was allocated and not freed.
pub static SEGMENTS: Segments<Rank> = Segments::new();

/// Allocates `bytes` zeroed bytes on the device with this number, by a communicator that this process has there: of several by
/// one that has not failed, of a GPU rather than of the host. For allocators that take a C function, such as
/// torch.cuda.memory.CUDAPluggableAllocator; `stream` is not used. Not collective. Returns null after a failure, whose
/// message symmem_last_error has.
#[unsafe(no_mangle)]
pub extern "C" fn symmem_alloc(bytes: isize, device: c_int, _stream: *mut c_void) -> *mut c_void {
    let mut address = 0;
    let status = run("symmem_alloc", || {
        let bytes = usize::try_from(bytes).map_err(|_| invalid(format!("{bytes} bytes")))?;
        let rank = u32::try_from(device).ok().and_then(rank_on);
        let rank = rank.ok_or_else(|| {
            invalid(format!(
                "this process has no communicator on device {device}; call symmem_init first"
            ))
        })?;
        let memory = rank.communicator.allocate_local(bytes)?;
        address = SEGMENTS.add(memory, &rank).0 as usize;
        Ok(())
    });
    match status {
        symmem_status::SYMMEM_OK => with_exposed_provenance_mut(address),
        _ => null_mut(),
    }
}

/// Frees what symmem_alloc returned; null is ignored. The memory goes once no buffer is made of it any more, and `stream` and
/// the communicator's streams are idle, so the call does not wait for a peer while the communicator lives. Other streams have
/// passed their work on the memory by the time of the call. Only symmem_last_error shows a failure.
///
/// # Safety
/// `stream` is null, for the default stream, or a stream of the device that lives until its work is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symmem_free(
    address: *mut c_void,
    _bytes: isize,
    _device: c_int,
    stream: *mut c_void,
) {
    let _ = run("symmem_free", || {
        if address.is_null() {
            return Ok(());
        }
        let freed = SEGMENTS.take(DeviceAddress(address.addr() as u64));
        let (memory, rank) = freed.ok_or_else(|| {
            invalid(format!(
                "{address:p} was not returned by symmem_alloc, or is freed"
            ))
        })?;
        if let Some(rank) = rank {
            // A framework frees what its kernels may still use. The communicator asks this stream, too, until it is idle.
            // SAFETY: guaranteed by the caller.
            let stream = unsafe { rank.communicator.stream_from_raw(stream.addr() as u64) };
            drop(memory);
            drop(stream);
        }
        Ok(())
    });
}
