//! What the program under test did wrong, and what it has not given back.

use std::fs::File;
use std::io::Write;
use std::sync::Mutex;

use crate::call::{calls, lock, place};
use crate::driver::{self, Kind};
use crate::inject::rank;

static VIOLATIONS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Record that the program under test broke a rule.
pub fn violation(text: String) {
    let line = format!("{}: {text}", place());
    if std::env::var_os("FAKE_DEVICE_LOUD").is_some() {
        eprintln!("fake device: {line}");
    }
    lock(&VIOLATIONS).push(line);
}

/// The report: a line `violation: …` for each broken rule, then a line `live: KIND COUNT` for each
/// kind of thing that is not given back.
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

/// Append the report to `FAKE_DEVICE_REPORT` when the process exits.
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
        // One write, so that ranks that exit together do not mix lines. A process on its way out
        // has nobody to tell if this fails; the test that reads the file will miss the line.
        if let Ok(mut file) = File::options().create(true).append(true).open(path) {
            let _ = file.write_all(text.as_bytes());
        }
    }
    // SAFETY: `write` is a plain function of the type atexit takes, and stays loaded: the object
    // is linked or was opened by a program that never unloads driver libraries.
    unsafe { atexit(write) };
}

/// Copy the report's text to `buffer`, as much as `length` holds; the full length comes back.
///
/// # Safety
/// `buffer` is null, or writable for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_device_report(buffer: *mut u8, length: usize) -> usize {
    let text = text();
    if !buffer.is_null() {
        let bytes = text.len().min(length);
        // SAFETY: the caller promises `length` writable bytes, and `text` is ours.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), buffer, bytes) };
    }
    text.len()
}

/// How many of a kind are live (see [`Kind`]); `u64::MAX` for a kind there is not.
#[unsafe(no_mangle)]
pub extern "C" fn fake_device_live(kind: u32) -> u64 {
    Kind::ALL
        .get(kind as usize)
        .map_or(u64::MAX, |kind| driver::live(*kind))
}

/// Calls made so far; naming an error and looking up symbols do not count.
#[unsafe(no_mangle)]
pub extern "C" fn fake_device_calls() -> u64 {
    calls()
}

/// How many rules have been broken so far.
#[unsafe(no_mangle)]
pub extern "C" fn fake_device_violations() -> u64 {
    lock(&VIOLATIONS).len() as u64
}

/// Forget the violations recorded so far: for a test that broke a rule on purpose.
#[unsafe(no_mangle)]
pub extern "C" fn fake_device_clear_violations() {
    lock(&VIOLATIONS).clear();
}
