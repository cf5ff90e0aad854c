//! What every entry of a table does around its call: no panic and no failure crosses as such.

use super::abi::{FailureRecord, Status};
use super::failure::{CallResult, Failure};
use std::any::Any;
use std::cell::RefCell;

/// An entry of a table; `None` where the plugin is older than the entry.
pub type TableEntry<F> = Option<F>;

thread_local! {
    /// Of this copy of core: a loaded plugin has its own, reached through its own table.
    static LAST_FAILURE: RefCell<Option<Failure>> = const { RefCell::new(None) };
}

/// Answers the caller of an entry: a failure or a caught panic becomes a status and this thread's record.
///
/// Entries catch panics by [`std::panic::catch_unwind`] themselves, so that no file lies between an entry and the
/// method that it calls.
///
/// # Safety
/// `out` is writable.
pub(super) unsafe fn answer<T>(
    out: *mut T,
    called: std::result::Result<CallResult<T>, Box<dyn Any + Send>>,
) -> Status {
    let failure = match called {
        Ok(Ok(value)) => {
            // SAFETY: the caller gives a writable place.
            unsafe { out.write(value) };
            return Status::OK;
        }
        Ok(Err(failure)) => failure,
        Err(payload) => Failure::new(Status::PANICKED, "backend", panic_text(payload.as_ref())),
    };
    // A failure must not read as success, whatever the backend put there.
    let status = if failure.status == Status::OK {
        Status::CALL_FAILED
    } else {
        failure.status
    };
    // During thread exit the slot may be gone; the status alone then has to do.
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
    // SAFETY: the caller gives a writable place.
    unsafe { out.write(record) };
}
