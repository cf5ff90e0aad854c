//! How an operator reports an error: by a C++ exception that PyTorch throws on its behalf.
//!
//! The text lives in a thread-local variable. So no Rust value is alive in the frames that the exception unwinds, and
//! Python can ask afterwards which kind of error it was.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_char};

use super::error::CallError;
use super::symbols::Symbols;
use crate::failure::Failure;

#[cfg(panic = "abort")]
compile_error!(
    "an operator's error unwinds through Rust frames, which panic = \"abort\" turns into the process's end"
);

thread_local! {
    static TEXT: RefCell<CString> = RefCell::new(CString::default());
    static FAILURE: Cell<Option<Failure>> = const { Cell::new(None) };
}

/// Remembers why a call of `operator` failed. The text's address is valid until this thread's next failure.
#[cold]
pub fn remember(operator: &str, error: CallError) -> *const c_char {
    let text = format!("symmem::{operator}: {error}").replace('\0', " ");
    let text = CString::new(text).unwrap_or_default();
    FAILURE.set(error.into_failure());
    TEXT.with_borrow_mut(|place| {
        *place = text;
        place.as_ptr()
    })
}

/// Takes this thread's last failure, if it is one of symmem's.
pub fn take() -> Option<Failure> {
    FAILURE.take()
}

/// What a panic said.
#[cold]
pub fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("panic without a message").to_owned()
}

/// Throws a C++ exception, which PyTorch turns into a Python RuntimeError with this text.
///
/// # Safety
///
/// `text` must be a string that ends with NUL. No frame between here and PyTorch may have a value to drop.
#[cold]
pub unsafe fn throw(symbols: &Symbols, text: *const c_char) -> ! {
    // SAFETY: all strings end with NUL; PyTorch copies `text`. The exception leaves through frames whose ABI permits
    // unwinding.
    unsafe { (symbols.check)(false, c"symmem".as_ptr(), c"symmem".as_ptr(), 0, text) };
    // Not reached: the function throws whenever its first argument is false.
    std::process::abort()
}
