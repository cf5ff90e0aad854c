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
    /// The file is a backend of this name, for another major version.
    #[error(
        "{path} has backend `{name}` for plugin ABI {found}, and this program needs plugin ABI {ABI_MAJOR}: use the plugin file of this program's symmem release, or rebuild it from that release"
    )]
    OtherMajor {
        /// The file.
        path: PathBuf,
        /// The backend.
        name: String,
        /// The major version in the name of the symbol that the file exports.
        found: u32,
    },
    /// The file has no symbol of a backend of this name.
    #[error(
        "{path} exports no `{symbol}`: it is no symmem backend, or one of another name; a plugin file is called libsymmem_NAME.so after its backend"
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
    /// The table says another major version than the name of the symbol that gave it.
    #[error(
        "the plugin's table has ABI version {found}, and this program needs {expected}: rebuild the plugin from this program's symmem release"
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
