//! Work that another fake library puts on a stream, as NCCL does with its kernels.
//!
//! The library passes a function, which runs in stream order on the stream's thread, once for each submission or graph
//! launch. The other functions here are what it may call meanwhile.

use std::ffi::c_void;
use std::fmt;

use crate::contexts;
use crate::driver::{Kind, driver, state};
use crate::error::{Code, Result};
use crate::memory::{Engine, Range};
use crate::report::violation;
use crate::streams;
use crate::work::{Runner, Work};

/// A library's function. It gets the data that it was submitted with, and a runner to pass to the functions here. It
/// returns 0, or the error that loses the device.
pub type Run = unsafe extern "C" fn(data: *const c_void, runner: *const c_void) -> i32;

/// A piece of work.
#[derive(Clone)]
pub(crate) struct LibraryWork {
    run: Run,
    /// A pointer that only the library interprets.
    data: usize,
    /// The memory that it touches: addresses, with lengths in bytes.
    pub ranges: Vec<(u64, u64)>,
    /// Whether it can wait for a peer.
    pub waits: bool,
}

impl fmt::Debug for LibraryWork {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "library's work on {:x?}", self.ranges)
    }
}

impl LibraryWork {
    pub fn run(&self, runner: &Runner) -> Result {
        let runner = std::ptr::from_ref(runner).cast();
        // SAFETY: the library promised that its function may be called with this data for as long as the process lives.
        match unsafe { (self.run)(self.data as *const c_void, runner) } {
            0 => Ok(()),
            code => Err(Code(code)),
        }
    }
}

/// Puts a library's function on a stream. `ranges` is `count` pairs of address and length: everything the function
/// touches.
///
/// # Safety
/// `run` may be called with `data` from another thread, any number of times; the pairs are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_device_submit(
    stream: u64,
    run: Run,
    data: *const c_void,
    ranges: *const [u64; 2],
    count: usize,
) -> i32 {
    // SAFETY: the caller promises what this function's Safety section asks for.
    unsafe { submit(stream, run, data, ranges, count, true) }
}

/// Like [`fake_device_submit`], for work that waits for no peer.
///
/// # Safety
/// As [`fake_device_submit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_device_submit_alone(
    stream: u64,
    run: Run,
    data: *const c_void,
    ranges: *const [u64; 2],
    count: usize,
) -> i32 {
    // SAFETY: the caller promises what this function's Safety section asks for.
    unsafe { submit(stream, run, data, ranges, count, false) }
}

/// # Safety
/// As [`fake_device_submit`].
unsafe fn submit(
    stream: u64,
    run: Run,
    data: *const c_void,
    ranges: *const [u64; 2],
    count: usize,
    waits: bool,
) -> i32 {
    let submit = || {
        let ranges = match count {
            0 => Vec::new(),
            // SAFETY: the caller promises `count` readable pairs.
            _ => unsafe { std::slice::from_raw_parts(ranges, count) }
                .iter()
                .map(|&[address, bytes]| (address, bytes))
                .collect(),
        };
        let data = data.expose_provenance();
        let work = LibraryWork {
            run,
            data,
            ranges,
            waits,
        };
        streams::submit(&mut *driver()?, stream, Work::Library(work)).map(drop)
    };
    submit().err().map_or(0, |code: Code| code.0)
}

/// Announces that a library does something that may wait for all work of this thread's context. Reports a violation if
/// some of that work can wait for a peer.
///
/// # Safety
/// `text`, which describes the action, is readable for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_device_waits_for_all(text: *const u8, length: usize) {
    let Ok(locked) = driver() else { return };
    if let Some(stream) = streams::waiting(&locked, contexts::top()) {
        // SAFETY: the caller promises that `text` is readable for `length` bytes.
        let text = String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(text, length) });
        violation(format!(
            "{text} waits for stream {stream:#x}, which can wait for a peer"
        ));
    }
}

/// Copies between device and host memory from within a library's function, to the device if `to_device` is 1.
///
/// # Safety
/// `runner` is the pointer that the function was given; `host` is readable and writable for `bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_device_copy(
    runner: *const c_void,
    device: u64,
    host: *mut u8,
    bytes: u64,
    to_device: u32,
) -> i32 {
    // SAFETY: the caller promises that `runner` is the pointer that its function was given, which is a live `Runner`.
    let runner = unsafe { &*runner.cast::<Runner>() };
    let host = host.expose_provenance() as u64;
    let (to, from) = if to_device == 1 {
        (device, host)
    } else {
        (host, device)
    };
    runner
        .copy(to, from, bytes, Engine::Copy)
        .err()
        .map_or(0, |code| code.0)
}

/// Returns 1 if the stream's context has been lost or released, so that the function should return.
///
/// # Safety
/// As [`fake_device_copy`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_device_is_dead(runner: *const c_void) -> u32 {
    // SAFETY: the caller promises that `runner` is the pointer that its function was given, which is a live `Runner`.
    let runner = unsafe { &*runner.cast::<Runner>() };
    runner
        .dead
        .load(std::sync::atomic::Ordering::Acquire)
        .into()
}

/// Reports that the program under test broke a rule of the library.
///
/// # Safety
/// `text` is readable for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_device_violation(text: *const u8, length: usize) {
    // SAFETY: the caller promises that `text` is readable for `length` bytes.
    let text = unsafe { std::slice::from_raw_parts(text, length) };
    violation(String::from_utf8_lossy(text).into_owned());
}

/// Returns this thread's context, or 0. A library sets the same context in threads that continue a call beside the
/// caller.
#[unsafe(no_mangle)]
pub extern "C" fn fake_device_context() -> u64 {
    contexts::top()
}

/// Makes a context this thread's current one.
#[unsafe(no_mangle)]
pub extern "C" fn fake_device_set_context(context: u64) -> i32 {
    contexts::set_current(context)
        .err()
        .map_or(0, |code| code.0)
}

/// Returns 1 if an address lies in memory that VMM mapped there.
#[unsafe(no_mangle)]
pub extern "C" fn fake_device_is_mapping(address: u64) -> u32 {
    let range_is_mapping = |range: &Range| range.kind() == Kind::Mapping;
    state()
        .memory
        .find(address)
        .is_some_and(range_is_mapping)
        .into()
}
