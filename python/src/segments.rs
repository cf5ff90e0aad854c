//! An allocator for PyTorch's `MemPool`, which asks for two C functions.

use crate::failure::{Result, invalid};
use crate::rank::{self, Rank};
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::Arc;
use symmem::{DeviceAddress, Segments};

/// What was allocated and not freed.
pub static SEGMENTS: Segments<Rank> = Segments::new();

thread_local! {
    static FAILURE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Returns why this thread's last allocation failed, once.
#[pyo3::pyfunction]
pub fn take_allocation_failure() -> Option<String> {
    FAILURE.take()
}

/// Returns a communicator that has a GPU open and has not failed.
fn rank_on(device: c_int) -> Result<Arc<Rank>> {
    let is_there = |rank: &Arc<Rank>| {
        let communicator = &rank.communicator;
        let ordinal = i64::from(communicator.device().ordinal);
        !rank.is_host() && ordinal == i64::from(device) && communicator.check().is_ok()
    };
    let found = rank::all().into_iter().find(is_there);
    found.ok_or_else(|| {
        invalid(format!(
            "no communicator has GPU {device}: call symmem.init() first"
        ))
    })
}

/// Allocates `bytes` bytes on a GPU on which this process has a communicator. Returns null after a failure.
#[unsafe(no_mangle)]
pub extern "C" fn symmem_alloc(bytes: isize, device: c_int, _stream: *mut c_void) -> *mut c_void {
    let allocate = || {
        let bytes = usize::try_from(bytes).map_err(|_| invalid(format!("{bytes} bytes")))?;
        let rank = rank_on(device)?;
        let memory = rank.communicator.allocate_local(bytes)?;
        Result::Ok(SEGMENTS.add(memory, &rank))
    };
    match allocate() {
        Ok(address) => with_exposed_provenance_mut(address.0 as usize),
        Err(failure) => {
            FAILURE.set(Some(failure.message()));
            null_mut()
        }
    }
}

/// Frees what [`symmem_alloc`] returned; anything else is ignored. The memory goes once no buffer is made of it any more, and
/// `stream` and the communicator's streams are idle.
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
    let address = DeviceAddress(address.addr() as u64);
    if let Some((memory, Some(rank))) = SEGMENTS.take(address) {
        // PyTorch frees what its kernels may still use. The communicator asks this stream, too, until it is idle.
        // SAFETY: guaranteed by the caller.
        let stream = unsafe { rank.communicator.stream_from_raw(stream.addr() as u64) };
        drop(memory);
        drop(stream);
    }
}
