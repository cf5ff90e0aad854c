//! Handles that cross the boundary: addresses of what the backend owns.
//!
//! Streams, events and graphs are shared with queued work, so they are counted; the rest is boxed.

use crate::backend::abi::Status;
use crate::backend::{CallResult, Failure};
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;

fn pointer<T>(handle: u64, call: &str) -> CallResult<*mut T> {
    let pointer: *mut T = ptr::with_exposed_provenance_mut(handle as usize);
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(Failure::new(
            Status::INVALID_ARGUMENT,
            call,
            format!("{handle:#x} is no handle of the host backend"),
        ));
    }
    Ok(pointer)
}

/// Gives ownership of a box away.
pub(crate) fn give<T>(value: Box<T>) -> u64 {
    Box::into_raw(value).expose_provenance() as u64
}

/// Takes it back.
///
/// # Safety
/// `handle` is 0 or came from [`give`] of this type, and is not used again.
pub(crate) unsafe fn take<T>(handle: u64, call: &str) -> CallResult<Box<T>> {
    // SAFETY: the caller's word.
    Ok(unsafe { Box::from_raw(pointer(handle, call)?) })
}

/// Looks at it.
///
/// # Safety
/// `handle` is 0 or came from [`give`] of this type, and stays live for `'a`.
pub(crate) unsafe fn borrow<'a, T>(handle: u64, call: &str) -> CallResult<&'a T> {
    // SAFETY: the caller's word.
    Ok(unsafe { &*pointer(handle, call)? })
}

/// Gives one count of shared state away.
pub(crate) fn give_shared<T>(value: Arc<T>) -> u64 {
    Arc::into_raw(value).expose_provenance() as u64
}

/// Takes it back.
///
/// # Safety
/// `handle` is 0 or came from [`give_shared`] of this type, and is not used again.
pub(crate) unsafe fn take_shared<T>(handle: u64, call: &str) -> CallResult<Arc<T>> {
    // SAFETY: the caller's word.
    Ok(unsafe { Arc::from_raw(pointer(handle, call)?) })
}

/// Uses it without taking a count.
///
/// # Safety
/// `handle` is 0 or came from [`give_shared`] of this type, and stays live while the result is.
pub(crate) unsafe fn borrow_shared<T>(handle: u64, call: &str) -> CallResult<ManuallyDrop<Arc<T>>> {
    // SAFETY: the caller's word; the count is not given back.
    Ok(ManuallyDrop::new(unsafe {
        Arc::from_raw(pointer(handle, call)?)
    }))
}
