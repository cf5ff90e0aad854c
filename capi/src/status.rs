//! Status codes, and the message of a failure.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use symmem::{Error, ErrorKind};

/// The result of a function. Later versions may add codes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum symmem_status {
    /// No failure.
    SYMMEM_OK = 0,
    /// An argument is invalid: null, out of range, or a handle that is not live.
    SYMMEM_INVALID_ARGUMENT = 1,
    /// A call to the driver, the runtime, NCCL or RCCL failed.
    SYMMEM_BACKEND = 2,
    /// A device has too little memory left.
    SYMMEM_OUT_OF_MEMORY = 3,
    /// Ranks differ in a call, its arguments, the world or the version.
    SYMMEM_MISMATCH = 4,
    /// A wait passed its deadline.
    SYMMEM_TIMEOUT = 5,
    /// A rank's process ended. symmem_rebuild continues without it.
    SYMMEM_PEER_DIED = 6,
    /// A rank failed and reported it; its own error has the cause.
    SYMMEM_PEER_FAILED = 7,
    /// A rank left in good order while others still called.
    SYMMEM_PEER_LEFT = 8,
    /// This rank called symmem_abort.
    SYMMEM_ABORTED = 9,
    /// This process is a fork of the one that made the communicator, which it cannot use.
    SYMMEM_FORKED = 10,
    /// The device, the backend or this version does not support the operation.
    SYMMEM_UNSUPPORTED = 11,
    /// Peers cannot map the caller's memory, or a device.
    SYMMEM_NOT_SHAREABLE = 12,
    /// There is no such device, or no backend can start.
    SYMMEM_NO_DEVICE = 13,
    /// An environment variable has an unusable value.
    SYMMEM_ENVIRONMENT = 14,
    /// The ranks cannot meet.
    SYMMEM_RENDEZVOUS = 15,
    /// The operating system refused a call, or a failure of another kind; see the message.
    SYMMEM_SYSTEM = 16,
    /// A fault in symmem itself. Please report it with the message.
    SYMMEM_INTERNAL = 17,
}

use symmem_status as Status;

/// Why a function fails.
pub enum Failure {
    /// The library's error.
    Library(Error),
    /// An argument that C lets through and Rust would not.
    Argument(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

/// Returns the failure of an invalid argument.
pub fn invalid(message: impl Into<String>) -> Failure {
    Failure::Argument(message.into())
}

impl Failure {
    fn status(&self) -> Status {
        let Self::Library(error) = self else {
            return Status::SYMMEM_INVALID_ARGUMENT;
        };
        match error.kind() {
            ErrorKind::Backend => Status::SYMMEM_BACKEND,
            ErrorKind::OutOfMemory => Status::SYMMEM_OUT_OF_MEMORY,
            ErrorKind::Mismatch => Status::SYMMEM_MISMATCH,
            ErrorKind::Timeout => Status::SYMMEM_TIMEOUT,
            ErrorKind::PeerDied => Status::SYMMEM_PEER_DIED,
            ErrorKind::PeerFailed => Status::SYMMEM_PEER_FAILED,
            ErrorKind::PeerLeft => Status::SYMMEM_PEER_LEFT,
            ErrorKind::Aborted => Status::SYMMEM_ABORTED,
            ErrorKind::Forked => Status::SYMMEM_FORKED,
            ErrorKind::InvalidArgument => Status::SYMMEM_INVALID_ARGUMENT,
            ErrorKind::Unsupported => Status::SYMMEM_UNSUPPORTED,
            ErrorKind::NotShareable | ErrorKind::PeerUnreachable => Status::SYMMEM_NOT_SHAREABLE,
            ErrorKind::NoSuchDevice | ErrorKind::NoBackend => Status::SYMMEM_NO_DEVICE,
            ErrorKind::Environment => Status::SYMMEM_ENVIRONMENT,
            ErrorKind::Bootstrap => Status::SYMMEM_RENDEZVOUS,
            // The enumeration may grow.
            _ => Status::SYMMEM_SYSTEM,
        }
    }
}

/// The last failure of a thread.
struct Last {
    message: CString,
    peer: i32,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::new(Last {
        message: CString::default(),
        peer: -1,
    });
}

/// Does the work of a function: keeps the message of a failure, or of a panic, and returns the status.
pub fn run(name: &'static str, work: impl FnOnce() -> Result<(), Failure>) -> Status {
    // Handles are looked up by each call, and the objects behind them stay consistent: the library's own locks are not
    // poisoned by a panic.
    let outcome = catch_unwind(AssertUnwindSafe(work));
    let (status, message, peer) = match outcome {
        Ok(Ok(())) => return Status::SYMMEM_OK,
        Ok(Err(failure)) => {
            let status = failure.status();
            match failure {
                Failure::Argument(message) => (status, format!("{name}: {message}"), None),
                Failure::Library(error) => {
                    let mut message = error.to_string();
                    let mut cause = std::error::Error::source(&error);
                    while let Some(error) = cause {
                        let text = error.to_string();
                        if !message.contains(&text) {
                            message = format!("{message}: {text}");
                        }
                        cause = error.source();
                    }
                    (status, message, error.peer())
                }
            }
        }
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            let message = format!("{name} panicked: {}", text.unwrap_or("no message"));
            (Status::SYMMEM_INTERNAL, message, None)
        }
    };
    let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
    let peer = peer.and_then(|peer| i32::try_from(peer).ok()).unwrap_or(-1);
    // A call from a destructor of another thread-local value leaves no message.
    let _ = LAST.try_with(|last| *last.borrow_mut() = Last { message, peer });
    status
}

/// Returns the message of this thread's last failure, or an empty text. Valid until the thread's next failure. Never null.
#[unsafe(no_mangle)]
pub extern "C" fn symmem_last_error() -> *const c_char {
    let message = LAST.try_with(|last| last.borrow().message.as_ptr());
    message.unwrap_or(c"".as_ptr())
}

/// Returns the rank that this thread's last failure concerns, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn symmem_last_error_peer() -> i32 {
    LAST.try_with(|last| last.borrow().peer).unwrap_or(-1)
}
