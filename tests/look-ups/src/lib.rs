//! A `dlsym` and a `dlvsym` that record the names they are asked for; see the README.

use std::ffi::{CStr, OsString, c_char, c_void};
use std::sync::LazyLock;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::write;

mod loader;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

static DLSYM: LazyLock<Option<Dlsym>> = LazyLock::new(|| {
    let found = loader::function(c"dlsym")?;
    // SAFETY: the loader's function of this name has this type.
    Some(unsafe { std::mem::transmute::<*mut c_void, Dlsym>(found) })
});

static DLVSYM: LazyLock<Option<Dlvsym>> = LazyLock::new(|| {
    let found = loader::function(c"dlvsym")?;
    // SAFETY: the loader's function of this name has this type.
    Some(unsafe { std::mem::transmute::<*mut c_void, Dlvsym>(found) })
});

static FILE: LazyLock<Option<OsString>> =
    LazyLock::new(|| std::env::var_os("SYMMEM_TEST_LOOK_UPS"));

/// Records a name. This must not look up any function itself, so it writes the file by system calls.
fn record(name: &CStr) {
    let Some(path) = FILE.as_ref() else { return };
    let mut line = std::process::id().to_string().into_bytes();
    line.push(b' ');
    line.extend(name.to_bytes());
    line.push(b'\n');
    let flags = OFlags::CREATE | OFlags::APPEND | OFlags::WRONLY | OFlags::CLOEXEC;
    let written = open(path, flags, Mode::RUSR | Mode::WUSR).and_then(|file| write(&file, &line));
    if written != Ok(line.len()) {
        // An incomplete record proves nothing.
        std::process::abort();
    }
}

/// The loader's `dlsym`, with a record of each call.
///
/// # Safety
/// As for the loader's `dlsym`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    if !name.is_null() {
        // SAFETY: the caller promises a zero-terminated name.
        record(unsafe { CStr::from_ptr(name) });
    }
    match *DLSYM {
        // SAFETY: the caller promises what the loader's function asks for.
        Some(dlsym) => unsafe { dlsym(handle, name) },
        None => std::process::abort(),
    }
}

/// The loader's `dlvsym`, with a record of each call.
///
/// # Safety
/// As for the loader's `dlvsym`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    if !name.is_null() {
        // SAFETY: the caller promises a zero-terminated name.
        record(unsafe { CStr::from_ptr(name) });
    }
    match *DLVSYM {
        // SAFETY: the caller promises what the loader's function asks for.
        Some(dlvsym) => unsafe { dlvsym(handle, name, version) },
        None => std::process::abort(),
    }
}
