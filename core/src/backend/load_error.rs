//! Why a plugin cannot be used.

use super::abi::Status;
use super::failure::Failure;
use super::table::ABI_MAJOR;
use std::path::PathBuf;

/// Why a plugin file is not a backend.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The loader refused the file.
    #[error("cannot load {path}: {reason}")]
    NotLoadable {
        /// The file.
        path: PathBuf,
        /// The loader's words.
        reason: String,
    },
    /// The file has no symbol of this version.
    #[error(
        "{path} exports no `{symbol}`: it is no symmem backend of ABI version {ABI_MAJOR}, or one of another name"
    )]
    NoSymbol {
        /// The file.
        path: PathBuf,
        /// What was looked up.
        symbol: String,
    },
    /// The entry gave nothing.
    #[error("the plugin gives no table")]
    NoTable,
    /// Not a table at all.
    #[error("the plugin's table starts with {found:?}, not with symmem's magic bytes")]
    WrongMagic {
        /// Its first bytes.
        found: [u8; 8],
    },
    /// Another major version.
    #[error(
        "the plugin has ABI version {found}, this program {expected}; rebuild the plugin from the same release"
    )]
    WrongMajor {
        /// The plugin's.
        found: u32,
        /// This build's.
        expected: u32,
    },
    /// Shorter than any released table.
    #[error(
        "the plugin's table has {found} bytes where {least} are the least; the file is damaged"
    )]
    Truncated {
        /// Bytes it claims.
        found: usize,
        /// Bytes of the first version.
        least: usize,
    },
}

impl LoadError {
    /// As a backend's failure to start, for probe reports.
    pub fn to_failure(&self) -> Failure {
        Failure::new(Status::LIBRARY_MISSING, "load", self.to_string())
    }
}
