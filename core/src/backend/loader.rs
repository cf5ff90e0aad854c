//! Loading a backend from a plugin file.

use super::load_error::LoadError;
use super::plugin::Tables;
use super::table::{ABI_MAJOR, BackendTable};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::path::Path;

/// Loads the backend `name` from `path`.
///
/// The library is never unloaded, because its threads, thread-locals and driver callbacks cannot be removed safely.
///
/// # Errors
/// Returns a [`LoadError`] that says what is wrong with the file.
///
/// # Safety
/// Loading a file runs its initializers, so the caller must trust the file.
pub unsafe fn load(path: &Path, name: &str) -> Result<Tables, LoadError> {
    // SAFETY: the caller trusts the file, whose initializers run here.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| {
        LoadError::NotLoadable {
            path: path.into(),
            reason: error.to_string(),
        }
    })?;
    let symbol = symbol_of(name, ABI_MAJOR);
    // SAFETY: `export_backend!` gives a symbol of this name this type, and the caller trusts the file.
    let table = unsafe { library.get::<Entry>(symbol.as_bytes()) }
        .map(|entry| {
            // SAFETY: the function takes no argument and only returns the address of a static.
            unsafe { entry() }
        })
        .map_err(|_| match other_major(&library, name) {
            Some(found) => LoadError::OtherMajor {
                path: path.into(),
                name: name.into(),
                found,
            },
            None => LoadError::NoSymbol {
                path: path.into(),
                symbol,
            },
        });
    std::mem::forget(library);
    // SAFETY: the table is a static of a library that is never unloaded.
    unsafe { Tables::read(table?) }
}

/// Type of the function that a plugin file exports.
type Entry = unsafe extern "C" fn() -> *const BackendTable;

fn symbol_of(name: &str, major: u32) -> String {
    format!("symmem_backend_{name}_v{major}")
}

/// Returns the newest other major version for which the file exports this backend.
fn other_major(library: &Library, name: &str) -> Option<u32> {
    // 99 exceeds any version to come; a failed look-up takes about a microsecond.
    (1..=99).rev().find(|&major| {
        // SAFETY: the symbol is only looked up, never called.
        unsafe { library.get::<Entry>(symbol_of(name, major).as_bytes()) }.is_ok()
    })
}
