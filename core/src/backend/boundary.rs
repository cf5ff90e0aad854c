//! What every entry of a table does around its call: no panic and no failure crosses as such.

use super::abi::{FailureRecord, Status};
use super::failure::{CallResult, Failure};
use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An entry of a table; `None` where the plugin is older than the entry.
pub type TableEntry<F> = Option<F>;

thread_local! {
    /// Of this copy of core: a loaded plugin has its own, reached through its own table.
    static LAST_FAILURE: RefCell<Option<Failure>> = const { RefCell::new(None) };
}

/// Runs a method behind the table: a failure or a panic becomes a status and this thread's record.
///
/// # Safety
/// `out` is writable.
pub(super) unsafe fn enter<T>(out: *mut T, call: impl FnOnce() -> CallResult<T>) -> Status {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
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
