//! Finds and opens `libucp.so.0`.

use crate::environment;
use crate::load_error::LoadError;
use crate::table::Table;
use libloading::os::unix;
use std::ffi::{CStr, c_uint, c_void};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use symmem_core::backend::{check_shared_object, file_of};

/// Environment variable with the file to open instead of what the dynamic loader finds.
pub const LIBRARY_VARIABLE: &str = "SYMMEM_UCX_LIBRARY";
/// Environment variable with the directories to search before the dynamic loader does, as for the vendors' libraries.
const SEARCH_VARIABLE: &str = "SYMMEM_LIBRARY_PATH";
/// The oldest version of UCX that symmem supports.
const OLDEST: (u32, u32) = (1, 13);
const SONAME: &str = "libucp.so.0";

/// UCX's library. Stays loaded until the process ends, because its threads make unloading unsafe.
#[derive(Clone)]
pub struct Library(Arc<Loaded>);

struct Loaded {
    table: Table,
    path: PathBuf,
    version: String,
    _library: ManuallyDrop<unix::Library>,
}

impl Library {
    /// Opens the file named in [`LIBRARY_VARIABLE`], else `libucp.so.0` in a directory of `SYMMEM_LIBRARY_PATH`, else what
    /// the dynamic loader finds under that name. Blocks while its initializers run.
    ///
    /// UCX's signal handlers, its hooks in `mmap` and its messages on the terminal are turned off, unless the user has
    /// set `UCX_HANDLE_ERRORS`, `UCX_MEM_EVENTS` or `UCX_LOG_LEVEL`, or the process has loaded UCX before.
    ///
    /// # Errors
    /// [`LoadError`]: there is no such library, it is damaged, another library, or older than UCX 1.13.
    pub fn open() -> Result<Self, LoadError> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(file) = variable(LIBRARY_VARIABLE) {
            return Self::open_file(Path::new(&file));
        }
        let directories = variable(SEARCH_VARIABLE).unwrap_or_default();
        let mut files = std::env::split_paths(&directories)
            .filter(|directory| !directory.as_os_str().is_empty())
            .map(|directory| directory.join(SONAME));
        if let Some(file) = files.find(|file| file.exists()) {
            return Self::open_file(&file);
        }
        let library = load(Path::new(SONAME)).map_err(|reason| LoadError::NotFound { reason })?;
        Self::checked(library, Path::new(SONAME))
    }

    /// Opens this file. Blocks while its initializers run.
    ///
    /// # Errors
    /// As [`Library::open`].
    pub fn open_file(path: &Path) -> Result<Self, LoadError> {
        let unreadable = |source| LoadError::NotReadable {
            path: path.into(),
            source,
        };
        // For a name without a slash the loader would search its own path, and find another file than is checked here.
        let path = &*std::path::absolute(path).map_err(unreadable)?;
        // Opening a FIFO would block.
        if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(unreadable(std::io::Error::other("it is not a file")));
        }
        let file = File::open(path).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        check_shared_object(length, |buffer, offset| file.read_exact_at(buffer, offset)).map_err(
            |error| LoadError::NotASharedObject {
                path: path.into(),
                error,
            },
        )?;
        let library = load(path).map_err(|reason| LoadError::NotLoadable {
            path: path.into(),
            reason,
        })?;
        Self::checked(library, path)
    }

    /// Looks up the functions and checks the version.
    fn checked(library: unix::Library, path: &Path) -> Result<Self, LoadError> {
        let library = ManuallyDrop::new(library);
        let [major, minor, release] = version(&library, path)?;
        if (major, minor) < OLDEST {
            return Err(LoadError::TooOld {
                path: path.into(),
                version: format!("{major}.{minor}.{release}"),
            });
        }
        // SAFETY: the functions of UCP have had these signatures since the oldest version.
        let table = unsafe { Table::load(&library, path) }?;
        // SAFETY: the function returns a text that is never freed.
        let text = unsafe { CStr::from_ptr((table.ucp_get_version_string)()) };
        // Whoever let the loader search wants to know what it found.
        let file = file_of(table.ucp_get_version_string as *const c_void);
        let path = file.unwrap_or_else(|| path.into());
        tracing::debug!(path = %path.display(), version = ?text, "opened UCX");
        Ok(Self(Arc::new(Loaded {
            table,
            path,
            version: text.to_string_lossy().into_owned(),
            _library: library,
        })))
    }

    /// Returns the version, such as `1.13.1`.
    pub fn version(&self) -> &str {
        &self.0.version
    }

    /// Returns the file that was loaded.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Returns the optional functions that this version lacks.
    pub fn missing(&self) -> Vec<&'static str> {
        self.0.table.missing()
    }

    pub(crate) fn table(&self) -> &Table {
        &self.0.table
    }
}

/// Asks a library of UCP for its version: major, minor, release.
fn version(library: &unix::Library, path: &Path) -> Result<[c_uint; 3], LoadError> {
    type GetVersion = unsafe extern "C" fn(*mut c_uint, *mut c_uint, *mut c_uint);
    // SAFETY: a function of this name is UCP's, with this signature in all versions.
    let get = unsafe { library.get::<GetVersion>(b"ucp_get_version\0") };
    let get = get.map_err(|_| LoadError::MissingSymbol {
        path: path.into(),
        symbol: "ucp_get_version",
    })?;
    let [mut major, mut minor, mut release] = [0; 3];
    // SAFETY: the three numbers are writable.
    unsafe { get(&raw mut major, &raw mut minor, &raw mut release) };
    Ok([major, minor, release])
}

/// Loads a library; the error is the text of `dlerror`.
fn load(name: &Path) -> Result<unix::Library, String> {
    let flags = unix::RTLD_NOW | unix::RTLD_LOCAL;
    environment::with_options(|| {
        // SAFETY: loading runs UCX's initializers. The user has installed the library or named the file, and trusts it.
        unsafe { unix::Library::open(Some(name), flags) }
    })
    .map_err(|error| match std::error::Error::source(&error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    })
}
