//! Functions that run when the process exits.

use std::ffi::c_int;
use std::sync::{Mutex, Once, PoisonError};

/// What runs at the exit.
#[derive(Default)]
struct AtExit {
    /// In the order in which they were added.
    functions: Vec<fn()>,
    /// The process that added the first. A fork inherits them, but it has neither the communicators nor their threads.
    process: u32,
}

static AT_EXIT: Mutex<AtExit> = Mutex::new(AtExit {
    functions: Vec::new(),
    process: 0,
});

/// Makes the process call a function when it exits, once, however often this is called for it.
pub fn at_exit(function: fn()) {
    let mut added = AT_EXIT.lock().unwrap_or_else(PoisonError::into_inner);
    if added.functions.is_empty() {
        added.process = std::process::id();
    }
    let is_same = |known: &fn()| std::ptr::fn_addr_eq(*known, function);
    if !added.functions.iter().any(is_same) {
        added.functions.push(function);
    }
    drop(added);
    unsafe extern "C" {
        // Of the C library.
        fn atexit(function: extern "C" fn()) -> c_int;
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function lives as long as this library, which stays loaded. If there is no room for it, nothing runs.
        unsafe { atexit(run_all) };
    });
}

extern "C" fn run_all() {
    let added = std::mem::take(&mut *AT_EXIT.lock().unwrap_or_else(PoisonError::into_inner));
    if added.process != std::process::id() {
        return;
    }
    for function in added.functions {
        // A panic cannot leave a function that C calls.
        let _ = std::panic::catch_unwind(function);
    }
}
