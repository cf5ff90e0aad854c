//! The wrapper around every table entry: no panic and no Rust error crosses the table.

use super::abi::{FailureRecord, Status};
use super::failure::{CallResult, Failure};
use std::any::Any;
use std::cell::RefCell;

/// An entry of a table; `None` if the plugin is older than the entry.
pub type TableEntry<F> = Option<F>;

thread_local! {
    /// Each copy of core has its own: a loaded plugin's is read through the plugin's own table.
    static LAST_FAILURE: RefCell<Option<Failure>> = const { RefCell::new(None) };
}

/// Ends an entry: writes the result to `out`, or stores a failure or caught panic for `last_failure` and returns its
/// status.
///
/// Each entry calls [`std::panic::catch_unwind`] itself, so that no other frame lies between it and the backend's
/// method.
///
/// # Safety
/// `out` is valid for a write of `T`.
pub(super) unsafe fn answer<T>(
    out: *mut T,
    called: std::result::Result<CallResult<T>, Box<dyn Any + Send>>,
) -> Status {
    let failure = match called {
        Ok(Ok(value)) => {
            // SAFETY: `out` is valid for a write, which this function's caller guarantees.
            unsafe { out.write(value) };
            return Status::OK;
        }
        Ok(Err(failure)) => failure,
        Err(payload) => Failure::new(Status::PANICKED, "backend", panic_text(payload.as_ref())),
    };
    // A failure must not read as success, even if the backend gave it the status `OK`.
    let status = if failure.status == Status::OK {
        Status::CALL_FAILED
    } else {
        failure.status
    };
    // During thread exit the slot may be gone; the caller then gets only the status.
    let _ = LAST_FAILURE.try_with(|slot| slot.replace(Some(failure)));
    status
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| text.to_string())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into());
    format!("the backend panicked: {text}; this is a bug in the backend, please report it")
}

pub(super) unsafe extern "C" fn last_failure(out: *mut FailureRecord) {
    let record = LAST_FAILURE
        .try_with(|slot| slot.take())
        .ok()
        .flatten()
        .unwrap_or_else(|| Failure::new(Status::OK, "", "no failure recorded on this thread"))
        .to_record();
    // SAFETY: the table's contract requires `out` to be valid for a write.
    unsafe { out.write(record) };
}
