//! What every exported function does first and last: count, trace, inject failures, catch panics.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, Once, PoisonError};

use crate::error::{Code, Result};
use crate::inject::Delay;
use crate::{contexts, inject, report};

static CALLS: AtomicU64 = AtomicU64::new(0);
static BY_SYMBOL: LazyLock<Mutex<HashMap<String, u64>>> = LazyLock::new(Mutex::default);
static TRACE: LazyLock<Option<File>> = LazyLock::new(|| {
    let path = std::env::var_os("FAKE_DEVICE_TRACE")?;
    File::options().create(true).append(true).open(path).ok()
});

thread_local! {
    static CURRENT: RefCell<String> = const { RefCell::new(String::new()) };
    static LAST_FAILURE: Cell<i32> = const { Cell::new(0) };
    static DELAY: Cell<Delay> = Cell::default();
}

/// Locks `mutex` even if another thread panicked with it: the tables are plain values that stay readable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of calls so far. Calls that name an error or look up symbols do not count.
pub(crate) fn calls() -> u64 {
    CALLS.load(Ordering::Relaxed)
}

/// Returns the number of calls of `symbol` so far, over all its version suffixes.
pub(crate) fn calls_of(symbol: &str) -> u64 {
    lock(&BY_SYMBOL)
        .get(base_name(symbol))
        .copied()
        .unwrap_or(0)
}

/// Strips the version suffix: `cuMemAlloc` for `cuMemAlloc_v2`.
pub fn base_name(symbol: &str) -> &str {
    match symbol.rsplit_once("_v") {
        Some((base, version)) if version.parse::<u32>().is_ok() => base,
        _ => symbol,
    }
}

/// Returns what this thread is doing, for reports: a call and its number, or a stream's work.
pub(crate) fn place() -> String {
    CURRENT
        .try_with(|place| place.borrow().clone())
        .unwrap_or_default()
}

/// Sets what this thread is doing, for reports.
pub(crate) fn set_place(place: String) {
    // A thread that is ending has lost its thread-local, and reports nothing more.
    let _ = CURRENT.try_with(|current| *current.borrow_mut() = place);
}

/// Whether a call only describes something. Such calls are not counted, so that `#n` walks over calls that can fail.
fn describes(symbol: &str) -> bool {
    [
        "GetErrorName",
        "GetErrorString",
        "GetProcAddress",
        "GetLastError",
    ]
    .iter()
    .any(|ending| base_name(symbol).ends_with(ending))
}

/// Whether an injected delay happens inside the call, after it has begun to use its arguments. That shows what other
/// threads take away meanwhile. These calls run the delay with [`delayed`].
fn delays_inside(symbol: &str) -> bool {
    ["AddDevice", "BindMem", "BindAddr", "MemMap"]
        .iter()
        .any(|ending| base_name(symbol).ends_with(ending))
}

/// Sleeps for the delay injected into this thread's call, once.
pub(crate) fn delayed() {
    DELAY.take().pass();
}

/// Whether a call releases something. An injected failure of such a call happens after its work, as with a driver that
/// reports an earlier asynchronous error. So an injected failure is itself no leak, unless the rule says `:undone`.
fn gives_back(symbol: &str) -> bool {
    let name = base_name(symbol);
    [
        "Free",
        "FreeHost",
        "Release",
        "Destroy",
        "Unmap",
        "Unregister",
        "Unbind",
        "CloseMemHandle",
        "Unload",
    ]
    .iter()
    .any(|ending| name.ends_with(ending))
}

/// Notes in the trace that a program looked up a function by name.
pub fn looked_up(name: &str) {
    trace(&format!("looked up {name}"));
}

/// Notes in the trace that a kernel was put on a stream.
pub fn launched(name: &str) {
    trace(&format!("launched {name}"));
}

fn trace(what: &str) {
    if let Some(mut file) = TRACE.as_ref() {
        let thread = rustix::thread::gettid().as_raw_nonzero();
        let line = format!("{} {thread} {what}\n", std::process::id());
        // A trace that cannot be written must not change what the traced program sees.
        let _ = file.write_all(line.as_bytes());
    }
}

/// Runs one exported function and returns its result as a C error number.
pub fn enter(symbol: &'static str, body: impl FnOnce() -> Result) -> i32 {
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(report::write_at_exit);
    let number = if describes(symbol) {
        calls()
    } else {
        CALLS.fetch_add(1, Ordering::Relaxed) + 1
    };
    *lock(&BY_SYMBOL)
        .entry(base_name(symbol).to_owned())
        .or_default() += 1;
    let outer = place();
    set_place(format!("{symbol} (call {number})"));
    DELAY.set(inject::delay(symbol, false));
    let late = inject::delay(symbol, true);
    if !delays_inside(symbol) {
        delayed();
    }
    inject::die(symbol, false);
    let result = match inject::failure(symbol, describes(symbol)) {
        Some((code, undone)) => {
            let done = if gives_back(symbol) && !undone {
                guarded(symbol, body)
            } else {
                Ok(())
            };
            if code.is_sticky() {
                contexts::lose_current(code);
            }
            done.and(Err(code))
        }
        None => guarded(symbol, body),
    };
    // The call may have failed before it reached its delay.
    delayed();
    late.pass();
    inject::die(symbol, true);
    let code = result.err().map_or(0, |code| code.0);
    if code != 0 && !describes(symbol) {
        LAST_FAILURE.set(code);
    }
    trace(&format!("#{number} {symbol} = {code}"));
    set_place(outer);
    code
}

fn guarded(symbol: &'static str, body: impl FnOnce() -> Result) -> Result {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        report::violation(format!("the fake itself panicked in {symbol}"));
        Err(Code::UNKNOWN)
    })
}

/// Returns the error of this thread's last failed call and resets it.
pub fn take_last_failure() -> Result {
    match LAST_FAILURE.replace(0) {
        0 => Ok(()),
        code => Err(Code(code)),
    }
}

/// Writes `value` through a required out parameter.
pub fn put<T>(out: Option<&mut T>, value: T) -> Result {
    *out.ok_or(Code::INVALID_VALUE)? = value;
    Ok(())
}

/// Writes `value` through an optional out parameter.
pub fn put_optional<T>(out: Option<&mut T>, value: T) {
    if let Some(out) = out {
        *out = value;
    }
}

/// Defines a vendor's functions.
///
/// Each becomes an exported C function under every name listed. References stand for C pointers (`Option` for those
/// that may be null), so a body needs `unsafe` only for arrays and host buffers. The crate that uses this macro defines
/// a function `admit`; every call passes its name to `admit` first.
#[macro_export]
#[allow(
    clippy::crate_in_macro_def,
    reason = "`admit` belongs to the crate that uses the macro"
)]
macro_rules! api {
    ($(fn [$($name:ident),+] $arguments:tt $body:block)*) => {
        $($( $crate::api!(@one $name $arguments $body); )+)*
    };
    (unsafe; $(fn [$($name:ident),+] $arguments:tt $body:block)*) => {
        $($( $crate::api!(@unsafe $name $arguments $body); )+)*
    };
    (@one $name:ident ($($argument:ident : $type:ty),* $(,)?) $body:block) => {
        #[doc = concat!("The vendor's `", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub extern "C" fn $name($($argument: $type),*) -> i32 {
            $crate::call::enter(stringify!($name), || -> $crate::error::Result {
                crate::admit(stringify!($name))?;
                $body
            })
        }
    };
    (@unsafe $name:ident ($($argument:ident : $type:ty),* $(,)?) $body:block) => {
        #[doc = concat!("The vendor's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// Host pointers and arrays are valid for the lengths that go with them, as the vendor asks,
        /// until the work that uses them has run.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> i32 {
            $crate::call::enter(stringify!($name), || -> $crate::error::Result {
                crate::admit(stringify!($name))?;
                $body
            })
        }
    };
}
