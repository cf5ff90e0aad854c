//! Handles that cross the table: addresses of objects that the backend owns.
//!
//! Streams, events and graphs are reference-counted, because queued work shares them; other objects are boxed.

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
            format!("{handle:#x} is not a handle of the host backend; pass one that is still live"),
        ));
    }
    Ok(pointer)
}

/// Converts a box into a handle that owns it.
pub(crate) fn give<T>(value: Box<T>) -> u64 {
    Box::into_raw(value).expose_provenance() as u64
}

/// Takes ownership back.
///
/// # Safety
/// `handle` is 0 or came from [`give`] of this type, and is not used again.
pub(crate) unsafe fn take<T>(handle: u64, call: &str) -> CallResult<Box<T>> {
    // SAFETY: the pointer came from `give` of this type and is not used again, as this function requires.
    Ok(unsafe { Box::from_raw(pointer(handle, call)?) })
}

/// Borrows the object of a handle.
///
/// # Safety
/// `handle` is 0 or came from [`give`] of this type, and stays live for `'a`.
pub(crate) unsafe fn borrow<'a, T>(handle: u64, call: &str) -> CallResult<&'a T> {
    // SAFETY: the pointer came from `give` of this type and stays live, as this function requires.
    Ok(unsafe { &*pointer(handle, call)? })
}

/// Converts one reference count into a handle.
pub(crate) fn give_shared<T>(value: Arc<T>) -> u64 {
    Arc::into_raw(value).expose_provenance() as u64
}

/// Takes the reference count back.
///
/// # Safety
/// `handle` is 0 or came from [`give_shared`] of this type, and is not used again.
pub(crate) unsafe fn take_shared<T>(handle: u64, call: &str) -> CallResult<Arc<T>> {
    // SAFETY: the pointer came from `give_shared` of this type and is not used again, as this function requires.
    Ok(unsafe { Arc::from_raw(pointer(handle, call)?) })
}

/// Borrows a shared object without changing its reference count.
///
/// # Safety
/// `handle` is 0 or came from [`give_shared`] of this type, and stays live while the result is.
pub(crate) unsafe fn borrow_shared<T>(handle: u64, call: &str) -> CallResult<ManuallyDrop<Arc<T>>> {
    // SAFETY: the pointer came from `give_shared` of this type and stays live; the count is never dropped.
    Ok(ManuallyDrop::new(unsafe {
        Arc::from_raw(pointer(handle, call)?)
    }))
}
