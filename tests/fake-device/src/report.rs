//! The report: what the program under test did wrong, and what it has not released.

use std::fs::File;
use std::io::Write;
use std::sync::Mutex;

use crate::call::{calls, lock, place};
use crate::driver::{self, Kind};
use crate::inject::rank;

static VIOLATIONS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Reports that the program under test broke a rule.
pub fn violation(text: String) {
    let line = format!("{}: {text}", place());
    if std::env::var_os("FAKE_DEVICE_LOUD").is_some() {
        eprintln!("fake device: {line}");
    }
    lock(&VIOLATIONS).push(line);
}

/// Returns the report: a line `violation: …` for each broken rule, then a line `live: KIND COUNT` for each kind of
/// object that is not released.
pub fn text() -> String {
    let mut text = String::new();
    for violation in lock(&VIOLATIONS).iter() {
        text += &format!("violation: {violation}\n");
    }
    for &kind in Kind::ALL {
        let live = driver::live(kind);
        if live > 0 {
            text += &format!("live: {} {live}\n", kind.name());
        }
    }
    text
}

/// Makes the process append the report to `FAKE_DEVICE_REPORT` when it exits.
pub(crate) fn write_at_exit() {
    unsafe extern "C" {
        fn atexit(callback: extern "C" fn()) -> i32;
    }
    extern "C" fn write() {
        let Some(path) = std::env::var_os("FAKE_DEVICE_REPORT") else {
            return;
        };
        let rank = rank().unwrap_or_else(|| "-".into());
        let head = format!(
            "process {} rank {rank} calls {}\n",
            std::process::id(),
            calls()
        );
        let text = format!("{head}{}", text());
        // One write, so that ranks that exit together do not mix lines. A failure cannot be reported here; the test
        // that reads the file will miss the line.
        if let Ok(mut file) = File::options().create(true).append(true).open(path) {
            let _ = file.write_all(text.as_bytes());
        }
    }
    // SAFETY: `write` has the type that atexit takes, and stays loaded: this object is linked, or was opened by a
    // program that never unloads driver libraries.
    unsafe { atexit(write) };
}

/// Copies the report's text to `buffer`, truncated to `length`, and returns the full length.
///
/// # Safety
/// `buffer` is null, or writable for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_device_report(buffer: *mut u8, length: usize) -> usize {
    let text = text();
    if !buffer.is_null() {
        let bytes = text.len().min(length);
        // SAFETY: the caller promises `length` writable bytes, and `text` is this function's own.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), buffer, bytes) };
    }
    text.len()
}

/// Returns how many objects of a [`Kind`] are live; `u64::MAX` for an unknown kind.
#[unsafe(no_mangle)]
pub extern "C" fn fake_device_live(kind: u32) -> u64 {
    Kind::ALL
        .get(kind as usize)
        .map_or(u64::MAX, |kind| driver::live(*kind))
}

/// Returns the number of calls so far. Calls that name an error or look up symbols do not count.
#[unsafe(no_mangle)]
pub extern "C" fn fake_device_calls() -> u64 {
    calls()
}

/// Returns how many rules have been broken so far.
#[unsafe(no_mangle)]
pub extern "C" fn fake_device_violations() -> u64 {
    lock(&VIOLATIONS).len() as u64
}

/// Discards the violations reported so far, for a test that broke a rule on purpose.
#[unsafe(no_mangle)]
pub extern "C" fn fake_device_clear_violations() {
    lock(&VIOLATIONS).clear();
}
