//! Loading a backend from a plugin file.

use super::load_error::LoadError;
use super::plugin::Tables;
use super::plugin_file::{self, WorldWritable};
use super::pointers::Pointers;
use super::symbol_kind::is_function;
use super::table::{ABI_MAJOR, BackendTable};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::error::Error as _;
use std::ffi::c_void;
use std::io;
use std::mem::ManuallyDrop;
use std::path::Path;

/// Loads the backend `name` from `path`. Blocks while the file's initializers run.
///
/// The file is checked before the dynamic loader maps it, and the table before its first entry is called: a text, a
/// directory, a truncated file, a plugin for another machine or one with wrong pointers is an error and no signal. A
/// file that is damaged inside its segments can still end the process.
///
/// The library is never unloaded, because its threads, thread-locals and driver callbacks cannot be removed safely.
///
/// # Errors
/// Returns a [`LoadError`] with the file and what is wrong with it.
///
/// # Safety
/// Loading a file runs its initializers, so the caller must trust the file.
pub unsafe fn load(
    path: &Path,
    name: &str,
    world_writable: WorldWritable,
) -> Result<Tables, LoadError> {
    // For a name without a slash the loader would search its own path, and find another file than is checked here.
    let path = &*std::path::absolute(path).map_err(|source| LoadError::NotReadable {
        path: path.into(),
        call: "getcwd",
        source,
    })?;
    plugin_file::check(path, world_writable)?;
    // SAFETY: the caller trusts the file, whose initializers run here.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    let library = library.map_err(|error| LoadError::NotLoadable {
        path: path.into(),
        reason: dlerror(&error),
    })?;
    let library = ManuallyDrop::new(library);
    let entry = entry(&library, path, name)?;
    // SAFETY: `entry` is a function of the symbol's name, to which `export_backend!` gives this type: it takes no
    // argument and only returns the address of a static. The caller trusts the file.
    let table = unsafe { entry() };
    // The table may lie in memory that the call allocated.
    let pointers = mappings(path)?;
    // SAFETY: the pointers are checked before they are followed. What the table points to belongs to a library that is
    // never unloaded.
    unsafe { Tables::read_checked(table, &pointers) }.map_err(|error| LoadError::BadTable {
        path: path.into(),
        error,
    })
}

/// Type of the function that a plugin file exports.
type Entry = unsafe extern "C" fn() -> *const BackendTable;

/// Returns the function that the file exports for this backend and this ABI, after checking that it is a function.
fn entry(library: &Library, path: &Path, name: &str) -> Result<Entry, LoadError> {
    let symbol = symbol_of(name, ABI_MAJOR);
    let address = look_up(library, &symbol).map_err(|reason| match other_major(library, name) {
        Some(found) => LoadError::OtherMajor {
            path: path.into(),
            name: name.into(),
            found,
            reason,
        },
        None => LoadError::NoSymbol {
            path: path.into(),
            symbol: symbol.clone(),
            reason,
        },
    })?;
    if !mappings(path)?.is_code(address.cast()) || !is_function(address) {
        return Err(LoadError::NotAFunction {
            path: path.into(),
            symbol,
        });
    }
    // SAFETY: the address is not null, since code lies there. `export_backend!` gives a symbol of this name this type,
    // and the caller of `load` trusts the file.
    Ok(unsafe { std::mem::transmute::<*const c_void, Entry>(address) })
}

fn mappings(path: &Path) -> Result<Pointers, LoadError> {
    Pointers::of_this_process().map_err(|source: io::Error| LoadError::NoMappings {
        path: path.into(),
        source,
    })
}

fn symbol_of(name: &str, major: u32) -> String {
    format!("symmem_backend_{name}_v{major}")
}

/// Returns the address of a symbol, which may be null, or the text of `dlerror`.
fn look_up(library: &Library, symbol: &str) -> Result<*const c_void, String> {
    // SAFETY: the address is neither dereferenced nor called here.
    unsafe { library.get::<*const c_void>(symbol.as_bytes()) }
        .map(|found| found.as_raw_ptr().cast_const())
        .map_err(|error| dlerror(&error))
}

/// Returns the newest other major version for which the file exports this backend.
fn other_major(library: &Library, name: &str) -> Option<u32> {
    // 99 exceeds any version to come; a failed look-up takes about a microsecond.
    (1..=99)
        .rev()
        .find(|&major| look_up(library, &symbol_of(name, major)).is_ok())
}

/// Returns the text of `dlerror`, which is the source of the error.
fn dlerror(error: &libloading::Error) -> String {
    match error.source() {
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}
