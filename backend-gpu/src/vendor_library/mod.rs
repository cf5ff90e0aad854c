//! The vendor's library of collectives, by the C functions of `nccl.h`, which all vendors' have.
//!
//! A backend finds and opens the file, with [`Library`]; everything else is the same on both and
//! stands here. Communicators are non-blocking, so that a peer that never comes leaves a call that
//! can be ended, not a thread that cannot. What bites:
//!
//! - A call on such a communicator may return while a thread of the library still works on it (the
//!   first of its kind does: it connects to peers). Until that is done nothing is on the stream yet,
//!   and no other call may be made. So [`Communicators::call`] and the end of a group wait for it,
//!   polling; they come back when a peer's death or a deadline has the communicator aborted, and at
//!   the latest after [`PATIENCE`].
//! - A communicator may be aborted while another thread is in a call. The call is told, and given
//!   [`GRACE`] to leave, before the library frees anything. The library may still be at it when
//!   [`Communicators::abort`] returns: drain streams before memory goes.
//! - The library keeps a communicator for as long as a graph has a captured call of it. Destroy the
//!   graphs first; else its end waits for them, in vain.

mod calls;
mod communicators;
mod convert;
mod group;
mod progress;
mod table;

pub use communicators::Communicators;
pub use convert::version_text;

use crate::library::{Library, file_of};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::time::Duration;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Failure, write_text};
use table::{CONFIG_VERSION, Code, Comm, SUCCESS, Table, UniqueId};

/// How long a call waits for what it began, if nobody ends the communicator before. A last resort:
/// the caller's own deadline is meant to abort it.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// How long an abort waits for calls under way on other threads: many times what one takes, and less
/// than the second in which a peer's death is to be told.
pub const GRACE: Duration = Duration::from_millis(200);

/// The library, opened.
pub struct VendorLibrary {
    table: Table,
    name: &'static str,
    windows_need: &'static str,
    version: u32,
}

impl VendorLibrary {
    /// Takes its functions from an opened library. `name` is the vendor's for it; `windows_need` says what
    /// its symmetric windows take, for whom one is refused.
    ///
    /// # Errors
    /// `LIBRARY_MISSING` where the library is too old or another one, with the symbol or version.
    ///
    /// # Safety
    /// The library has the functions of `nccl.h` and behaves as it says.
    pub unsafe fn new(
        name: &'static str,
        windows_need: &'static str,
        library: &Library,
    ) -> CallResult<Self> {
        // SAFETY: the caller's word.
        let table = unsafe { Table::load(library) }.map_err(|symbol| {
            Failure::new(
                Status::LIBRARY_MISSING,
                "dlsym",
                format!(
                    "the library that was found as {name} has no symbol {symbol}; install {} or newer",
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
        // SAFETY: the place is writable.
        this.check("ncclGetVersion", unsafe {
            (this.table.ncclGetVersion)(&raw mut version)
        })?;
        this.version = u32::try_from(version).unwrap_or(0);
        if this.version < CONFIG_VERSION {
            return Err(Failure::new(
                Status::LIBRARY_MISSING,
                "ncclGetVersion",
                format!(
                    "{name} is {}; {} or newer is needed: its communicators cannot be aborted safely \
                     before",
                    version_text(this.version),
                    version_text(CONFIG_VERSION)
                ),
            ));
        }
        Ok(this)
    }

    /// The version, as the library numbers it.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The file it was loaded from.
    pub fn file(&self) -> Option<PathBuf> {
        file_of(self.table.ncclGetVersion as *const c_void)
    }

    /// `VENDOR_*`.
    pub fn flags(&self) -> u32 {
        let table = &self.table;
        let windows =
            table.ncclCommWindowRegister.is_some() && table.ncclCommWindowDeregister.is_some();
        let all_to_all = table.ncclAlltoAll.is_some();
        u32::from(windows) * VENDOR_WINDOWS + u32::from(all_to_all) * VENDOR_ALL_TO_ALL
    }

    /// What crosses the table.
    pub fn description(&self) -> VendorDescription {
        let mut description = VendorDescription {
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

    /// A fresh identifier under which ranks meet.
    ///
    /// # Errors
    /// The library's.
    pub fn identifier(&self) -> CallResult<VendorIdentifier> {
        let mut identifier = UniqueId([0; 128]);
        // SAFETY: the place is writable.
        self.check("ncclGetUniqueId", unsafe {
            (self.table.ncclGetUniqueId)(&raw mut identifier)
        })?;
        Ok(VendorIdentifier {
            bytes: identifier.0,
        })
    }

    fn check(&self, call: &str, code: Code) -> CallResult<()> {
        match code {
            SUCCESS => Ok(()),
            _ => Err(self.failure(call, code, std::ptr::null_mut())),
        }
    }

    /// A failed call, with what the library says about it. `comm` may be null.
    #[cold]
    fn failure(&self, call: &str, code: Code, comm: Comm) -> Failure {
        // SAFETY: the library takes any number.
        let meaning = text(unsafe { (self.table.ncclGetErrorString)(code) });
        // SAFETY: a live communicator or null, for both of which the library has a text.
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

/// What to do about `ncclResult_t`.
fn advice(code: Code) -> &'static str {
    match code {
        // ncclSystemError
        2 => "look at NCCL_DEBUG=WARN; a container often needs a larger /dev/shm (--shm-size)",
        // ncclRemoteError
        6 => "another rank failed or ended: look at its messages",
        // ncclInvalidArgument, ncclInvalidUsage
        4 | 5 => "ranks may disagree about the call; NCCL_DEBUG=WARN says more",
        _ => "NCCL_DEBUG=WARN says more",
    }
}

/// A copy of a text of the library's.
fn text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the library gives zero-terminated texts that stay.
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
        // SAFETY: nothing is called: the first look-up already fails.
        let failure = unsafe { VendorLibrary::new("NCCL", "", &library) }.err();
        let failure = failure.expect("no such library");
        assert_eq!(failure.status, Status::LIBRARY_MISSING);
        for word in ["NCCL", "ncclGetVersion", "2.18.0"] {
            assert!(failure.message.contains(word), "{}", failure.message);
        }
    }
}
