//! NCCL and RCCL, through the C functions of `nccl.h`, which both libraries have.
//!
//! A backend finds and opens the file, with [`Library`]; the rest is the same for both and written here. Communicators
//! are non-blocking, so that a missing peer leaves a call that can be ended, not a stuck thread. Dangers:
//!
//! - A call on a non-blocking communicator may return while a thread of the library still works on it; the first call
//!   of each kind does, because it connects to peers. Until that is done nothing is on the stream, and no other call
//!   may be made. So [`Communicators::call`] and the end of a group poll until it is done. They return early once
//!   somebody aborts the communicator, for a dead peer or a deadline, and after [`PATIENCE`] at the latest.
//! - A thread may abort a communicator while another is in a call. That call is told, and gets [`GRACE`] to
//!   leave before the library frees anything. The library may still be at work when [`Communicators::abort`]
//!   returns: drain streams before memory is freed.
//! - The library keeps a communicator as long as a graph contains a captured call on it. Destroy the graphs
//!   first; otherwise destroying the communicator waits for them in vain.

mod calls;
mod communicators;
mod convert;
mod group;
mod progress;
mod table;

pub use communicators::Communicators;
pub use convert::version_text;
pub use table::{Code, Comm, IN_PROGRESS, SUCCESS, Stream, UniqueId};

use crate::library::{Library, file_of};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::time::Duration;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Failure, write_text};
use table::{CONFIG_VERSION, Table};

/// How long a call waits for the library to finish it. A last resort: normally the caller's own deadline aborts
/// the communicator before.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// How long an abort waits for calls in progress on other threads: many times the duration of a call, and less
/// than the second within which a peer's death must be reported.
pub const GRACE: Duration = Duration::from_millis(200);

/// An opened NCCL or RCCL.
pub struct NcclApi {
    table: Table,
    name: &'static str,
    windows_need: &'static str,
    version: u32,
}

impl NcclApi {
    /// Looks up the functions of an opened library. `name` is the library's name; `windows_need` is a phrase
    /// for errors that says what its symmetric windows require.
    ///
    /// # Errors
    /// `LIBRARY_MISSING` with the missing symbol or the version, if the library is too old or another one.
    ///
    /// # Safety
    /// The library has the functions of `nccl.h`, and they behave as it says.
    pub unsafe fn new(
        name: &'static str,
        windows_need: &'static str,
        library: &Library,
    ) -> CallResult<Self> {
        // SAFETY: the caller says that the library has the functions of `nccl.h`.
        let table = unsafe { Table::load(library) }.map_err(|symbol| {
            Failure::new(
                Status::LIBRARY_MISSING,
                "dlsym",
                format!(
                    "the library found as {name} has no symbol {symbol}; install {} or newer",
                    version_text(CONFIG_VERSION)
                ),
            )
        })?;
        let mut this = Self {
            table,
            name,
            windows_need,
            version: 0,
        };
        let mut version: c_int = 0;
        // SAFETY: the out-pointer is writable.
        this.check("ncclGetVersion", unsafe {
            (this.table.ncclGetVersion)(&raw mut version)
        })?;
        this.version = u32::try_from(version).unwrap_or(0);
        if this.version < CONFIG_VERSION {
            return Err(Failure::new(
                Status::LIBRARY_MISSING,
                "ncclGetVersion",
                format!(
                    "{name} is version {}, whose communicators cannot be aborted safely; install {} or \
                     newer",
                    version_text(this.version),
                    version_text(CONFIG_VERSION)
                ),
            ));
        }
        Ok(this)
    }

    /// Returns the library's own version number.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the file that the library was loaded from.
    pub fn file(&self) -> Option<PathBuf> {
        file_of(self.table.ncclGetVersion as *const c_void)
    }

    /// Returns the library's features, as bits [`NCCL_WINDOWS`] and [`NCCL_ALL_TO_ALL`].
    pub fn flags(&self) -> u32 {
        let table = &self.table;
        let windows =
            table.ncclCommWindowRegister.is_some() && table.ncclCommWindowDeregister.is_some();
        let all_to_all = table.ncclAlltoAll.is_some();
        u32::from(windows) * NCCL_WINDOWS + u32::from(all_to_all) * NCCL_ALL_TO_ALL
    }

    /// Returns the description for the plugin table.
    pub fn description(&self) -> LibraryDescription {
        let mut description = LibraryDescription {
            name: [0; 16],
            file: [0; 256],
            version: self.version,
            flags: self.flags(),
        };
        write_text(&mut description.name, self.name);
        let file = self.file().map(|file| file.display().to_string());
        write_text(&mut description.file, &file.unwrap_or_default());
        description
    }

    /// Returns a new unique identifier, under which ranks create a communicator.
    ///
    /// # Errors
    /// The library's failure.
    pub fn identifier(&self) -> CallResult<NcclUniqueId> {
        let mut identifier = UniqueId([0; 128]);
        // SAFETY: the out-pointer is writable.
        self.check("ncclGetUniqueId", unsafe {
            (self.table.ncclGetUniqueId)(&raw mut identifier)
        })?;
        Ok(NcclUniqueId {
            bytes: identifier.0,
        })
    }

    fn check(&self, call: &str, code: Code) -> CallResult<()> {
        match code {
            SUCCESS => Ok(()),
            _ => Err(self.failure(call, code, std::ptr::null_mut())),
        }
    }

    /// Describes a failed call with the library's own text. `comm` may be null.
    #[cold]
    fn failure(&self, call: &str, code: Code, comm: Comm) -> Failure {
        // SAFETY: the function accepts any number.
        let meaning = text(unsafe { (self.table.ncclGetErrorString)(code) });
        // SAFETY: `comm` is a live communicator or null; the function accepts both.
        let last = self
            .table
            .ncclGetLastError
            .map(|last| unsafe { last(comm) });
        let mut message = meaning.unwrap_or_else(|| format!("error {code}"));
        if let Some(last) = last.and_then(text).filter(|last| !last.is_empty()) {
            message.push_str(" (");
            message.push_str(last.trim());
            message.push(')');
        }
        message.push_str("; ");
        message.push_str(advice(code));
        let status = match code {
            // ncclInvalidArgument, ncclInvalidUsage
            4 | 5 => Status::INVALID_ARGUMENT,
            _ => Status::CALL_FAILED,
        };
        Failure::of_call(status, call, code, message)
    }
}

/// Returns what to do about an `ncclResult_t`.
fn advice(code: Code) -> &'static str {
    match code {
        // ncclSystemError
        2 => {
            "run with NCCL_DEBUG=WARN for details; a container often needs a larger /dev/shm (--shm-size)"
        }
        // ncclRemoteError
        6 => "another rank failed or ended: see its messages",
        // ncclInvalidArgument, ncclInvalidUsage
        4 | 5 => "ranks may disagree about the call; run with NCCL_DEBUG=WARN for details",
        _ => "run with NCCL_DEBUG=WARN for details",
    }
}

/// Copies a text of the library.
fn text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the library returns zero-terminated texts that stay valid.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

// Miri opens no libraries and isolates files.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_library_without_a_symbol_is_told_with_it() {
        let library = Library::open("libc.so.6", &[], "").expect("the C library");
        // SAFETY: no function is called, since already the first look-up fails.
        let failure = unsafe { NcclApi::new("NCCL", "", &library) }.err();
        let failure = failure.expect("no such library");
        assert_eq!(failure.status, Status::LIBRARY_MISSING);
        for word in ["NCCL", "ncclGetVersion", "2.18.0"] {
            assert!(failure.message.contains(word), "{}", failure.message);
        }
    }
}
