//! The part of the fake libraries that talks to the fake GPU runtime, and their injected failures.
//!
//! A fake library is a shared object that finds the runtime as a program does. This crate has what all fake libraries
//! share. The runtime's side is `fake-device`'s `library.rs`.

#![allow(missing_docs, reason = "the runtime documents these functions")]

mod inject;

pub use inject::{Calls, number, variable};

use std::ffi::{CStr, c_int, c_void};
use std::sync::LazyLock;
use symmem_gpu::library::Library;

/// There is no fake runtime, or it has returned an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

pub type Result<T = ()> = std::result::Result<T, Refused>;

/// A function that runs on a stream's thread; see the runtime's `library.rs`.
pub type Run = unsafe extern "C" fn(data: *const c_void, runner: *const c_void) -> c_int;

/// Declares the functions of the runtime's library and looks them up.
macro_rules! functions {
    ($( $field:ident = $name:literal: $type:ty; )*) => {
        struct Runtime {
            $( $field: $type, )*
        }

        impl Runtime {
            fn load(library: &Library) -> Option<Self> {
                Some(Self {
                    $( $field: {
                        let name = concat!($name, "\0").as_bytes();
                        let address = library.symbol(CStr::from_bytes_with_nul(name).ok()?)?;
                        // SAFETY: the fake runtime's function of this name has this type.
                        unsafe { std::mem::transmute::<*mut c_void, $type>(address) }
                    }, )*
                })
            }
        }
    };
}

type Submit = unsafe extern "C" fn(u64, Run, *const c_void, *const [u64; 2], usize) -> c_int;

functions! {
    submit = "fake_device_submit": Submit;
    submit_alone = "fake_device_submit_alone": Submit;
    copy = "fake_device_copy": unsafe extern "C" fn(*const c_void, u64, *mut u8, u64, u32) -> c_int;
    is_dead = "fake_device_is_dead": unsafe extern "C" fn(*const c_void) -> u32;
    violation = "fake_device_violation": unsafe extern "C" fn(*const u8, usize);
    waits_for_all = "fake_device_waits_for_all": unsafe extern "C" fn(*const u8, usize);
    context = "fake_device_context": unsafe extern "C" fn() -> u64;
    set_context = "fake_device_set_context": unsafe extern "C" fn(u64) -> c_int;
    is_mapping = "fake_device_is_mapping": unsafe extern "C" fn(u64) -> u32;
}

/// The vendor of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    Nvidia,
    Amd,
}

/// The libraries that can be a fake runtime.
const RUNTIMES: [(&str, Vendor); 4] = [
    ("libcuda.so.1", Vendor::Nvidia),
    ("libamdhip64.so.7", Vendor::Amd),
    ("libamdhip64.so.6", Vendor::Amd),
    ("libamdhip64.so.5", Vendor::Amd),
];

/// The first of them that is a fake. A real runtime on this machine lacks the fake's functions and is skipped.
static RUNTIME: LazyLock<Option<(Runtime, Vendor)>> = LazyLock::new(|| {
    RUNTIMES.iter().find_map(|(name, vendor)| {
        let library = Library::open(name, &[], "use the fake runtime").ok()?;
        Some((Runtime::load(&library)?, *vendor))
    })
});

/// Returns the vendor of this process's runtime.
pub fn vendor() -> Vendor {
    RUNTIME
        .as_ref()
        .map_or(Vendor::Nvidia, |(_, vendor)| *vendor)
}

fn runtime() -> Result<&'static Runtime> {
    let found = RUNTIME.as_ref().ok_or(Refused)?;
    Ok(&found.0)
}

fn check(code: c_int) -> Result {
    match code {
        0 => Ok(()),
        _ => Err(Refused),
    }
}

/// Reports that the program under test broke a rule.
pub fn violation(text: &str) {
    match runtime() {
        // SAFETY: the pointer and the length are those of a live text.
        Ok(runtime) => unsafe { (runtime.violation)(text.as_ptr(), text.len()) },
        Err(_) => eprintln!("{text}"),
    }
}

/// Announces an action that can wait for all work of the device.
pub fn waits_for_all(what: &str) {
    if let Ok(runtime) = runtime() {
        // SAFETY: the pointer and the length are those of a live text.
        unsafe { (runtime.waits_for_all)(what.as_ptr(), what.len()) };
    }
}

/// Returns the context that is current on this thread.
pub fn current_context() -> Result<u64> {
    // SAFETY: the function takes no arguments.
    match unsafe { (runtime()?.context)() } {
        0 => {
            violation("no context is current");
            Err(Refused)
        }
        context => Ok(context),
    }
}

/// Makes a context current on this thread.
pub fn set_context(context: u64) -> Result {
    // SAFETY: the runtime checks the handle.
    check(unsafe { (runtime()?.set_context)(context) })
}

/// Whether an address lies in memory that VMM mapped.
pub fn is_virtual_memory(address: u64) -> Result<bool> {
    // SAFETY: the runtime only looks the address up.
    Ok(unsafe { (runtime()?.is_mapping)(address) } != 0)
}

/// Puts a function, which may wait for peers, on a stream. `ranges` is all memory that it touches.
///
/// # Safety
/// `run` may be called with `data` any number of times, on another thread.
pub unsafe fn submit(stream: u64, run: Run, data: *const c_void, ranges: &[[u64; 2]]) -> Result {
    let submit = runtime()?.submit;
    // SAFETY: the caller promises that `run` may be called with `data`; the ranges are readable.
    check(unsafe { submit(stream, run, data, ranges.as_ptr(), ranges.len()) })
}

/// Like [`submit`], for work that waits for no peer.
///
/// # Safety
/// As [`submit`].
pub unsafe fn submit_alone(
    stream: u64,
    run: Run,
    data: *const c_void,
    ranges: &[[u64; 2]],
) -> Result {
    let submit = runtime()?.submit_alone;
    // SAFETY: the caller promises that `run` may be called with `data`; the ranges are readable.
    check(unsafe { submit(stream, run, data, ranges.as_ptr(), ranges.len()) })
}

/// The runtime's functions for use within a submitted function.
#[derive(Clone, Copy)]
pub struct Runner(pub *const c_void);

impl Runner {
    pub fn read(self, address: u64, bytes: usize) -> Result<Vec<u8>> {
        let mut data = vec![0; bytes];
        self.copy(address, &mut data, 0)?;
        Ok(data)
    }

    pub fn write(self, address: u64, data: &mut [u8]) -> Result {
        self.copy(address, data, 1)
    }

    fn copy(self, address: u64, data: &mut [u8], to_device: u32) -> Result {
        if data.is_empty() {
            return Ok(());
        }
        let (host, bytes) = (data.as_mut_ptr(), data.len() as u64);
        // SAFETY: the runner is the one that this call was given, and `data` is exclusively borrowed.
        check(unsafe { (runtime()?.copy)(self.0, address, host, bytes, to_device) })
    }

    pub fn is_dead(self) -> bool {
        // SAFETY: the runner is the one that this call was given.
        runtime().is_ok_and(|runtime| unsafe { (runtime.is_dead)(self.0) } != 0)
    }
}

/// Registers a function that runs when the process exits, before the runtime writes its report.
pub fn at_exit(report: extern "C" fn()) {
    unsafe extern "C" {
        fn atexit(callback: extern "C" fn()) -> c_int;
    }
    // Exit handlers run in reverse order, and the runtime registered its report before this.
    // SAFETY: a plain function of the type that atexit takes, in a library that stays loaded.
    let _ = unsafe { atexit(report) };
}
