//! Loading a backend from a plugin file.

use super::load_error::LoadError;
use super::plugin::Tables;
use super::table::{ABI_MAJOR, BackendTable};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
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
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| {
        LoadError::NotLoadable {
            path: path.into(),
            reason: error.to_string(),
        }
    })?;
    let symbol = symbol_of(name, ABI_MAJOR);
    // SAFETY: a symbol of this name has this type, by the contract of `export_backend!`.
    let table = unsafe { library.get::<Entry>(symbol.as_bytes()) }
        .map(|entry| {
            // SAFETY: the entry takes nothing and only returns a static's address.
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

/// What a plugin file exports.
type Entry = unsafe extern "C" fn() -> *const BackendTable;

fn symbol_of(name: &str, major: u32) -> String {
    format!("symmem_backend_{name}_v{major}")
}

/// The newest other major version that a plugin file has its backend for.
fn other_major(library: &Library, name: &str) -> Option<u32> {
    // More than there will ever be; a look-up that fails takes about a microsecond.
    (1..=99).rev().find(|&major| {
        // SAFETY: the symbol is only looked for, never called.
        unsafe { library.get::<Entry>(symbol_of(name, major).as_bytes()) }.is_ok()
    })
}
