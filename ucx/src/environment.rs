//! The environment in which UCX is loaded and set up.
//!
//! `libucs` reads its global options when it is loaded, and by default installs handlers for SIGSEGV, SIGBUS, SIGILL,
//! SIGFPE and SIGHUP, and patches `mmap` and its kin. Only environment variables turn this off. `setenv` is no way to
//! set them: it may free the array that another thread's `getenv` walks. This module shows the process a longer copy
//! of the array during a call, and frees neither.

use std::ffi::{CString, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

/// Options for a library inside of someone else's process. What the user has set takes precedence.
const OPTIONS: [(&str, &str); 7] = [
    // The program's own handlers stay.
    ("UCX_HANDLE_ERRORS", "none"),
    ("UCX_ERROR_SIGNALS", ""),
    ("UCX_DEBUG_SIGNO", "0"),
    // symmem registers memory before use and releases it before it is unmapped: no hooks in `mmap` are needed.
    ("UCX_MEM_EVENTS", "no"),
    // A status that matters becomes a typed error.
    ("UCX_LOG_LEVEL", "fatal"),
    // Making an endpoint must not block until the kernel gives a connection up, which takes two minutes behind a firewall
    // that drops packets.
    ("UCX_TCP_CONN_NB", "y"),
    // No thread that serves a file system for debugging.
    ("UCX_VFS_ENABLE", "n"),
];

/// Sizes of the pieces in which UCX sends over TCP. With its default of 8 KiB a put has a third of the bandwidth. A
/// piece must fit the receiver's: a user who sets one of them sets both.
const PIECES: [(&str, &str); 2] = [
    ("UCX_TCP_TX_SEG_SIZE", "256k"),
    ("UCX_TCP_RX_SEG_SIZE", "256k"),
];

unsafe extern "C" {
    /// The C library's pointer to the array of `NAME=value` texts.
    static mut environ: *mut *mut c_char;
}

type Variables = Vec<(OsString, OsString)>;

/// A copy of an environment with the options. Never freed, because another thread may have read its addresses.
struct Copied {
    original: Variables,
    entries: &'static mut [*mut c_char],
}

// SAFETY: the texts are immutable, and the array belongs to whoever holds the lock of `NEWEST`, and to readers.
unsafe impl Send for Copied {}

/// The newest copy. The lock also lets one call at a time change the environment, so that it is put back in order.
static NEWEST: Mutex<Option<Copied>> = Mutex::new(None);

/// Calls `load` while the environment has the options too. Leaks a copy of the environment, a few KiB, if it has changed
/// since the last call.
pub fn with_options<T>(load: impl FnOnce() -> T) -> T {
    let mut newest = NEWEST.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the address of a static of the C library. It is only accessed atomically here.
    let array = unsafe { AtomicPtr::from_ptr(&raw mut environ) };
    let before = array.load(Ordering::Acquire);
    // The standard library reads the variables under its own lock.
    let original: Variables = std::env::vars_os().collect();
    let copied = match newest.take() {
        Some(copied) if copied.original == original => copied,
        _ => Copied {
            entries: entries(&original),
            original,
        },
    };
    let ours = copied.entries.as_mut_ptr();
    // Another thread that has set a variable meanwhile keeps its array; the options are missing then.
    let shown = array
        .compare_exchange(before, ours, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok();
    let unchanged = copied.entries.to_vec();
    let result = load();
    // A variable that was set meanwhile is in our array, or in one made from it: that one stays.
    if *copied.entries == *unchanged {
        if shown {
            let _ = array.compare_exchange(ours, before, Ordering::AcqRel, Ordering::Relaxed);
        }
        *newest = Some(copied);
    }
    result
}

/// Returns an array of these variables and of the options that are not among them, and the null at its end.
fn entries(variables: &Variables) -> &'static mut [*mut c_char] {
    let present = |name: &str| variables.iter().any(|one| one.0 == OsStr::new(name));
    let pieces = match PIECES.iter().any(|(name, _)| present(name)) {
        true => &[][..],
        false => &PIECES,
    };
    let missing = OPTIONS.iter().filter(|(name, _)| !present(name));
    let own = variables
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let added = missing.chain(pieces);
    let added = added.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let texts = own
        .chain(added)
        .filter_map(|(name, value)| CString::new([name, b"=", value].concat()).ok());
    let entries: Vec<_> = texts
        .map(CString::into_raw)
        .chain([ptr::null_mut()])
        .collect();
    entries.leak()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn names(variables: &[(&str, &str)]) -> Vec<String> {
        let variables = variables.iter().map(|one| (one.0.into(), one.1.into()));
        let entries = entries(&variables.collect());
        let (last, texts) = entries.split_last().expect("the null");
        assert!(last.is_null());
        let texts = texts.iter().map(|&text| {
            // SAFETY: made from C strings, which are never freed.
            unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned()
        });
        texts.collect()
    }

    #[test]
    fn what_the_user_has_set_is_not_replaced() {
        let all = names(&[("A", "1"), ("UCX_LOG_LEVEL", "info")]);
        assert_eq!(all[..2], ["A=1", "UCX_LOG_LEVEL=info"]);
        assert_eq!(all.len(), 2 + OPTIONS.len() - 1 + PIECES.len());
        assert!(all.iter().any(|one| one == "UCX_HANDLE_ERRORS=none"));
    }

    #[test]
    fn a_user_who_sets_one_size_of_pieces_sets_both() {
        let all = names(&[("UCX_TCP_RX_SEG_SIZE", "64k")]);
        let sizes: Vec<_> = all.iter().filter(|one| one.contains("SEG_SIZE")).collect();
        assert_eq!(sizes, ["UCX_TCP_RX_SEG_SIZE=64k"]);
    }

    /// Returns the process's variables while no other test shows the options.
    fn variables() -> Variables {
        let _alone = NEWEST.lock();
        std::env::vars_os().collect()
    }

    #[test]
    fn the_environment_is_back_after_the_call_also_if_the_options_are_shown_again() {
        let before = variables();
        for _ in 0..2 {
            let during = with_options(|| std::env::var("UCX_HANDLE_ERRORS"));
            assert_eq!(during.as_deref(), Ok("none"));
            assert_eq!(variables(), before);
        }
    }
}
