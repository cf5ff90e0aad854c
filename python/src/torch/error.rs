//! Why the operators could not be registered, and why a call failed.

use crate::failure::{Failure, invalid};
use std::fmt;

/// Why PyTorch's functions could not be used.
#[derive(Debug)]
pub enum LoadError {
    /// The library is not loaded in this process, or the path is wrong.
    Library {
        /// The path that Python gave.
        path: String,
        /// What the loader said.
        reason: String,
    },
    /// PyTorch has no such function.
    MissingSymbol {
        /// Name of the C function.
        symbol: &'static str,
        /// The first PyTorch release that has it.
        since: &'static str,
    },
    /// PyTorch refused a registration. It writes the reason to standard error.
    Refused {
        /// Name of the C function that failed.
        function: &'static str,
        /// The operator or dispatch key.
        name: String,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library { path, reason } => {
                write!(
                    f,
                    "PyTorch's library {path} is not loaded in this process: {reason}; import torch first"
                )
            }
            Self::MissingSymbol { symbol, since } => {
                write!(
                    f,
                    "this PyTorch has no function {symbol}; install PyTorch {since} or later"
                )
            }
            Self::Refused { function, name } => write!(
                f,
                "PyTorch refused to register {name} ({function} failed; the reason is on standard error); \
                 is another copy of this extension loaded?"
            ),
        }
    }
}

impl std::error::Error for LoadError {}

/// Why one call of an operator failed.
pub enum CallError {
    /// A tensor or number does not fit.
    Argument(String),
    /// The collective cannot work on this element type.
    ElementType(String),
    /// A function of PyTorch failed.
    Torch {
        /// Name of the C function.
        function: &'static str,
        /// What PyTorch said; only PyTorch 2.13 and later tell.
        reason: Option<String>,
    },
    /// The call failed.
    Enqueue(Failure),
    /// A bug: Rust code panicked.
    Panic(String),
}

impl CallError {
    /// Returns what Python is told, if that is an exception of symmem's.
    pub fn into_failure(self) -> Option<Failure> {
        match self {
            Self::Argument(message) | Self::ElementType(message) => Some(invalid(message)),
            Self::Enqueue(failure) => Some(failure),
            Self::Torch { .. } | Self::Panic(_) => None,
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument(message) | Self::ElementType(message) => f.write_str(message),
            Self::Enqueue(failure) => f.write_str(&failure.message()),
            Self::Torch {
                function,
                reason: Some(reason),
            } => write!(f, "{function} failed: {reason}"),
            Self::Torch {
                function,
                reason: None,
            } => {
                write!(
                    f,
                    "{function} failed; PyTorch wrote the reason to standard error"
                )
            }
            Self::Panic(message) => write!(f, "internal error, please report it: {message}"),
        }
    }
}
