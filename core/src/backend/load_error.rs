//! The error of loading a plugin.

use super::abi::Status;
use super::failure::Failure;
use super::table::ABI_MAJOR;
use std::path::PathBuf;

/// The reason why a plugin file cannot be used as a backend.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The dynamic loader refused the file.
    #[error("cannot load {path}: {reason}")]
    NotLoadable {
        /// The file.
        path: PathBuf,
        /// The loader's message.
        reason: String,
    },
    /// The file has this backend only for another major version of the plugin ABI.
    #[error(
        "{path} has backend `{name}` for plugin ABI {found}, and this program needs plugin ABI {ABI_MAJOR}; use the \
         plugin file of this program's symmem release, or rebuild it from that release"
    )]
    OtherMajor {
        /// The file.
        path: PathBuf,
        /// The backend's name.
        name: String,
        /// The major version in the name of the symbol that the file exports.
        found: u32,
    },
    /// The file does not export the symbol of a backend with this name.
    #[error(
        "{path} does not export `{symbol}`: it is not a symmem backend, or has another name; name a plugin file \
         libsymmem_NAME.so after its backend"
    )]
    NoSymbol {
        /// The file.
        path: PathBuf,
        /// The symbol that was looked up.
        symbol: String,
    },
    /// The exported function returned null.
    #[error("the plugin returned a null table; rebuild it with `export_backend!`")]
    NoTable,
    /// The table does not start with [`MAGIC`](super::MAGIC).
    #[error(
        "the plugin's table starts with {found:?}, not with symmem's magic bytes; use a file that is a symmem plugin"
    )]
    WrongMagic {
        /// The first bytes of the table.
        found: [u8; 8],
    },
    /// The table states another major version than the name of the symbol that returned it.
    #[error(
        "the plugin's table has ABI version {found}, and this program needs {expected}; rebuild the plugin from this \
         program's symmem release"
    )]
    WrongMajor {
        /// The plugin's version.
        found: u32,
        /// This program's version.
        expected: u32,
    },
    /// The table is shorter than that of any release.
    #[error(
        "the plugin's table has {found} bytes, and the smallest valid one has {least}: the file is damaged; install \
         or build it again"
    )]
    Truncated {
        /// The size that the table states, in bytes.
        found: usize,
        /// The size of the first version's table, in bytes.
        least: usize,
    },
}

impl LoadError {
    /// Converts to the failure that a probe report shows.
    pub fn to_failure(&self) -> Failure {
        Failure::new(Status::LIBRARY_MISSING, "load", self.to_string())
    }
}
