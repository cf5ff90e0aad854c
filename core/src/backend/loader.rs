//! Loading a backend from a plugin file.

use super::abi::Status;
use super::failure::Failure;
use super::plugin::Tables;
use super::table::{ABI_MAJOR, BackendTable};
use std::path::{Path, PathBuf};

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

/// Loads the backend `name` from `path`.
///
/// The library stays loaded for the life of the program: its threads, thread-locals and driver
/// callbacks cannot be taken back safely.
///
/// # Errors
/// [`LoadError`] says what is wrong with the file. Nothing panics.
///
/// # Safety
/// Loading a file runs its initialisers: it must be one that the caller trusts.
pub unsafe fn load(path: &Path, name: &str) -> Result<Tables, LoadError> {
    // SAFETY: the caller trusts the file.
    let library = unsafe {
        libloading::os::unix::Library::open(
            Some(path),
            libloading::os::unix::RTLD_NOW | libloading::os::unix::RTLD_LOCAL,
        )
    }
    .map_err(|error| LoadError::NotLoadable {
        path: path.into(),
        reason: error.to_string(),
    })?;
    let symbol = format!("symmem_backend_{name}_v{ABI_MAJOR}");
    // SAFETY: a symbol of this name has this type, by the contract of `export_backend!`.
    let table =
        unsafe { library.get::<unsafe extern "C" fn() -> *const BackendTable>(symbol.as_bytes()) }
            .map(|entry| {
                // SAFETY: the entry takes nothing and only returns a static's address.
                unsafe { entry() }
            })
            .map_err(|_| LoadError::NoSymbol {
                path: path.into(),
                symbol,
            });
    std::mem::forget(library);
    // SAFETY: the table is a static of a library that is never unloaded.
    unsafe { Tables::read(table?) }
}
