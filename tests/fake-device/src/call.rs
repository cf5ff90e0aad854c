//! What every exported function goes through: counting, tracing, injected failures, panics.

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

/// Lock `mutex`, also after a panic elsewhere: the tables are plain values that stay readable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls made so far. Naming an error and looking up symbols do not count.
pub(crate) fn calls() -> u64 {
    CALLS.load(Ordering::Relaxed)
}

/// Calls made so far to `symbol`, whatever its version suffix.
pub(crate) fn calls_of(symbol: &str) -> u64 {
    lock(&BY_SYMBOL)
        .get(base_name(symbol))
        .copied()
        .unwrap_or(0)
}

/// `cuMemAlloc` for `cuMemAlloc_v2`.
pub fn base_name(symbol: &str) -> &str {
    match symbol.rsplit_once("_v") {
        Some((base, version)) if version.parse::<u32>().is_ok() => base,
        _ => symbol,
    }
}

/// Where this thread is, for reports: a call and its number, or a stream's work.
pub(crate) fn place() -> String {
    CURRENT
        .try_with(|place| place.borrow().clone())
        .unwrap_or_default()
}

/// Say where this thread is, for reports.
pub(crate) fn set_place(place: String) {
    // A thread that is ending has no place any more, and nobody left to tell.
    let _ = CURRENT.try_with(|current| *current.borrow_mut() = place);
}

/// Calls that only describe things: not counted, so that `#n` walks over what can really fail.
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

/// Calls whose injected delay comes once they have begun to use what they were given, which shows what is
/// taken from under them. They say when that is, by [`delayed`].
fn delays_inside(symbol: &str) -> bool {
    ["AddDevice", "BindMem", "BindAddr", "MemMap"]
        .iter()
        .any(|ending| base_name(symbol).ends_with(ending))
}

/// Be as slow as the call on this thread is to be, once.
pub(crate) fn delayed() {
    DELAY.take().pass();
}

/// Calls that give something back. When told to fail they do their work first, as a driver that
/// reports an earlier asynchronous error does; so an injected failure is never itself a leak, unless it is
/// told to leave that undone.
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

/// Note in the trace that a program asked for a function by its name.
pub fn looked_up(name: &str) {
    trace(&format!("looked up {name}"));
}

/// Note in the trace that a kernel was given to a stream.
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

/// Run one exported function; its number for C comes back.
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
    // One that failed before it came to that.
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

/// What this thread's last failing call came to, which is asked once.
pub fn take_last_failure() -> Result {
    match LAST_FAILURE.replace(0) {
        0 => Ok(()),
        code => Err(Code(code)),
    }
}

/// Write `value` through an out parameter, which the driver requires.
pub fn put<T>(out: Option<&mut T>, value: T) -> Result {
    *out.ok_or(Code::INVALID_VALUE)? = value;
    Ok(())
}

/// Write `value` through an out parameter that may be left out.
pub fn put_optional<T>(out: Option<&mut T>, value: T) {
    if let Some(out) = out {
        *out = value;
    }
}

/// A vendor's functions.
///
/// Each becomes an exported C function under every name listed. References stand for C pointers
/// (`Option` for those that may be null), so a body needs `unsafe` only for arrays and host buffers.
/// The crate that uses this has a function `admit`, which every call of that name goes through first.
#[macro_export]
#[allow(clippy::crate_in_macro_def, reason = "`admit` is the using crate's")]
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
