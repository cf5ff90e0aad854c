//! The environment in which UCX's initializers run.
//!
//! `libucs` reads its global options when it is loaded, and by default installs handlers for SIGSEGV, SIGBUS, SIGILL,
//! SIGFPE and SIGHUP, and patches `mmap` and its kin. Only environment variables turn this off. `setenv` is no way to
//! set them: it may free the array that another thread's `getenv` walks. This module shows the process a longer copy
//! of the array while the library loads, and frees neither.

use std::ffi::{CString, OsStr, c_char};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

/// Options for a library inside of someone else's process; what the user has set takes precedence.
pub const OPTIONS: [(&str, &str); 6] = [
    // The program's own handlers stay.
    ("UCX_HANDLE_ERRORS", "none"),
    ("UCX_ERROR_SIGNALS", ""),
    ("UCX_DEBUG_SIGNO", "0"),
    // symmem registers memory before use and releases it before it is unmapped: no hooks in `mmap` are needed.
    ("UCX_MEM_EVENTS", "no"),
    // A status that matters becomes a typed error.
    ("UCX_LOG_LEVEL", "fatal"),
    // No thread that serves a file system for debugging.
    ("UCX_VFS_ENABLE", "n"),
];

unsafe extern "C" {
    /// The C library's pointer to the array of `NAME=value` texts.
    static mut environ: *mut *mut c_char;
}

/// One at a time, so that the arrays are put back in order.
static TURN: Mutex<()> = Mutex::new(());

/// Runs `load` while the environment has [`OPTIONS`] too. The texts and the array are leaked, a few KiB a call, because
/// another thread may have read their addresses.
pub fn with_options<T>(load: impl FnOnce() -> T) -> T {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the address of a static of the C library. It is only accessed atomically here.
    let array = unsafe { AtomicPtr::from_ptr(&raw mut environ) };
    let before = array.load(Ordering::Acquire);
    let entries = entries();
    let ours = entries.as_mut_ptr();
    // Another thread that has set a variable meanwhile keeps its array; the library then loads without the options.
    let shown = array
        .compare_exchange(before, ours, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok();
    let copy = entries.to_vec();
    let result = load();
    // A variable that was set meanwhile is in our array, or in one made from it: that one stays.
    if shown && *entries == *copy {
        let _ = array.compare_exchange(ours, before, Ordering::AcqRel, Ordering::Relaxed);
    }
    result
}

/// Returns a copy of the environment with the options that the user has not set, and the null at its end.
fn entries() -> &'static mut [*mut c_char] {
    // The standard library reads the variables under its own lock.
    let present: Vec<_> = std::env::vars_os().collect();
    let missing = OPTIONS
        .iter()
        .filter(|(name, _)| !present.iter().any(|(there, _)| there == OsStr::new(name)))
        .map(|(name, value)| format!("{name}={value}").into_bytes());
    let own = present.iter().map(|(name, value)| {
        let mut text = name.clone().into_vec();
        text.push(b'=');
        text.extend_from_slice(value.as_bytes());
        text
    });
    let texts = own
        .chain(missing)
        .filter_map(|text| CString::new(text).ok());
    let entries: Vec<_> = texts
        .map(CString::into_raw)
        .chain([ptr::null_mut()])
        .collect();
    entries.leak()
}
