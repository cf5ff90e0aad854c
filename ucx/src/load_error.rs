//! The error of opening UCX.

use std::path::PathBuf;
use symmem_core::backend::ObjectError;

/// The reason why UCX cannot be used in this process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No library of this name was found.
    #[error(
        "libucp.so.0 (UCX) was not found: {reason}; install it (`apt install libucx0`), or name the file in \
         SYMMEM_UCX_LIBRARY, for example libucx/lib/libucp.so.0 of the Python package libucx-cu12"
    )]
    NotFound {
        /// The text of `dlerror`.
        reason: String,
    },
    /// The file that `SYMMEM_UCX_LIBRARY` names could not be read.
    #[error(
        "{}: {source}; let SYMMEM_UCX_LIBRARY name the file libucp.so.0, which this user may read",
        path.display()
    )]
    NotReadable {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The file is not a whole shared object for this machine.
    #[error(
        "{} cannot be loaded: {error}; install UCX again, or let SYMMEM_UCX_LIBRARY name another file",
        path.display()
    )]
    NotASharedObject {
        /// The file.
        path: PathBuf,
        /// The fault.
        #[source]
        error: ObjectError,
    },
    /// The dynamic loader refused the file.
    #[error(
        "{} cannot be loaded: dlopen: {reason}; install UCX again, or let SYMMEM_UCX_LIBRARY name another file",
        path.display()
    )]
    NotLoadable {
        /// The file.
        path: PathBuf,
        /// The text of `dlerror`.
        reason: String,
    },
    /// The library lacks a function that symmem needs.
    #[error(
        "{} has no function `{symbol}`: it is not libucp of UCX 1.13 or later; let SYMMEM_UCX_LIBRARY name that \
         file, or unset it",
        path.display()
    )]
    MissingSymbol {
        /// The file.
        path: PathBuf,
        /// The function.
        symbol: &'static str,
    },
    /// The library is older than symmem supports.
    #[error(
        "{} is UCX {version}, and symmem needs UCX 1.13 or later; install a newer one, or let SYMMEM_UCX_LIBRARY \
         name it",
        path.display()
    )]
    TooOld {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: String,
    },
}
