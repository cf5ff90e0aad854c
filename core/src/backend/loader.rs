//! Loading a backend from a plugin file.

use super::load_error::LoadError;
use super::plugin::Tables;
use super::table::{ABI_MAJOR, BackendTable};
use std::path::Path;

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
