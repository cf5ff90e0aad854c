//! Failures: a code for the program and a message for whoever asks.

use crate::abi::{self, Code, SUCCESS};
use crate::reentry;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use symmem::ErrorKind;

/// A failure of this library, or of NCCL, which has its own message.
#[derive(Debug)]
pub struct Failure {
    pub code: Code,
    /// Empty for a failure of NCCL.
    pub message: String,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.message.as_str() {
            "" => {
                let text = abi::text(self.code).to_string_lossy();
                write!(formatter, "NCCL's error {}: {text}", self.code)
            }
            message => formatter.write_str(message),
        }
    }
}

/// Returns the failure of NCCL's code, if it is one.
pub fn of_nccl(code: Code) -> Result<(), Failure> {
    match code {
        SUCCESS => Ok(()),
        _ => Err(Failure::new(code, "")),
    }
}

impl From<symmem::Error> for Failure {
    fn from(error: symmem::Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Backend | ErrorKind::OutOfMemory => abi::UNHANDLED_CUDA_ERROR,
            ErrorKind::InvalidArgument => abi::INVALID_ARGUMENT,
            ErrorKind::Mismatch
            | ErrorKind::Unsupported
            | ErrorKind::NoSuchDevice
            | ErrorKind::NoBackend
            | ErrorKind::Environment
            | ErrorKind::Forked => abi::INVALID_USAGE,
            ErrorKind::PeerDied
            | ErrorKind::PeerFailed
            | ErrorKind::PeerLeft
            | ErrorKind::Timeout
            | ErrorKind::Aborted => abi::REMOTE_ERROR,
            _ => abi::SYSTEM_ERROR,
        };
        Self::new(code, chain(&error))
    }
}

/// Returns the messages of an error and of its causes, each once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        cause = error.source();
    }
    message
}

/// The message of the process's last failure, as NCCL has one for all threads; empty if NCCL has it. A text stays where it is
/// for good, since any thread may read it.
static LAST: Mutex<&'static CStr> = Mutex::new(c"");

/// Does the work of an exported function: keeps the message of a failure, or of a panic, and returns the code.
pub fn run(name: &str, work: impl FnOnce() -> Result<(), Failure>) -> Code {
    let _entered = reentry::enter();
    // What the tables hold stays whole: no lock is held across a call that may panic half-way through a change.
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return SUCCESS,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            let text = text.unwrap_or("no message");
            Failure::new(abi::INTERNAL_ERROR, format!("{name} panicked: {text}"))
        }
    };
    keep(&failure.message);
    failure.code
}

/// Keeps a message as the last; an empty one says that NCCL has it.
pub fn keep(message: &str) {
    let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if **last != *message {
        *last = match message.is_empty() {
            true => c"",
            false => Box::leak(message.into_boxed_c_str()),
        };
    }
}

/// Returns the last message, or `None` if NCCL has it.
pub fn last() -> Option<*const c_char> {
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    (!last.is_empty()).then(|| last.as_ptr())
}
