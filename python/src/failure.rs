//! Failures, and the exceptions that they become.

use pyo3::prelude::*;
use symmem::{Error, ErrorKind};

/// Why a call fails.
pub enum Failure {
    /// The library's error.
    Library(Error),
    /// An argument that Python lets through and Rust would not, and the rank, once it is known.
    Argument {
        rank: Option<usize>,
        message: String,
    },
    /// Ranks differ, as this rank has noticed.
    Mismatch {
        rank: usize,
        peer: usize,
        message: String,
    },
    /// An exception of a call into Python.
    Python(PyErr),
}

impl Failure {
    /// Returns the message.
    pub fn message(&self) -> String {
        match self {
            Self::Library(error) => message(error),
            Self::Argument { message, .. } | Self::Mismatch { message, .. } => message.clone(),
            Self::Python(error) => error.to_string(),
        }
    }

    /// Returns the failure with the number of the rank whose call it is.
    pub fn of_rank(self, number: usize) -> Self {
        match self {
            Self::Argument { message, .. } => Self::Argument {
                rank: Some(number),
                message,
            },
            other => other,
        }
    }
}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Failure>;

/// Returns the failure of an invalid argument.
pub fn invalid(message: impl Into<String>) -> Failure {
    Failure::Argument {
        rank: None,
        message: message.into(),
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

/// Returns the class in `symmem.errors` of a kind of error.
fn class(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Backend => "BackendError",
        ErrorKind::OutOfMemory => "OutOfMemory",
        ErrorKind::Mismatch => "Mismatch",
        ErrorKind::Timeout => "Timeout",
        ErrorKind::PeerDied => "PeerDied",
        ErrorKind::PeerFailed => "PeerFailed",
        ErrorKind::PeerLeft => "PeerLeft",
        ErrorKind::Aborted => "Aborted",
        ErrorKind::Forked => "Forked",
        ErrorKind::InvalidArgument => "InvalidArgument",
        ErrorKind::Unsupported => "Unsupported",
        ErrorKind::NotShareable => "NotShareable",
        ErrorKind::PeerUnreachable => "PeerUnreachable",
        ErrorKind::NoSuchDevice => "NoSuchDevice",
        ErrorKind::NoBackend => "NoBackend",
        ErrorKind::Environment => "BadEnvironment",
        ErrorKind::Bootstrap => "RendezvousError",
        ErrorKind::System => "SystemFailure",
        // The enumeration may grow.
        _ => "Error",
    }
}

/// Returns the message of an error and of its causes.
fn message(error: &Error) -> String {
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        cause = error.source();
    }
    message
}

/// Makes an exception of `symmem.errors`.
fn exception(
    class: &str,
    message: String,
    rank: Option<usize>,
    peer: Option<usize>,
) -> PyResult<PyErr> {
    Python::attach(|python| {
        let class = python.import("symmem.errors")?.getattr(class)?;
        let value = class.call1((message,))?;
        value.setattr("rank", rank)?;
        value.setattr("peer", peer)?;
        Ok(PyErr::from_value(value))
    })
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        let made = match failure {
            Failure::Library(error) => {
                let class = class(error.kind());
                exception(class, message(&error), error.rank(), error.peer())
            }
            Failure::Argument { rank, message } => {
                exception("InvalidArgument", message, rank, None)
            }
            Failure::Mismatch {
                rank,
                peer,
                message,
            } => exception("Mismatch", message, Some(rank), Some(peer)),
            Failure::Python(error) => Ok(error),
        };
        // What kept the exception from being made is an exception, too.
        made.unwrap_or_else(|error| error)
    }
}
