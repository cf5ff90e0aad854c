//! The error of loading a plugin.

use super::abi::Status;
use super::failure::Failure;
use super::shared_object::ObjectError;
use super::table::ABI_MAJOR;
use super::table_error::TableError;
use std::io;
use std::path::PathBuf;

/// The reason why a plugin file cannot be used as a backend. Every text names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file could not be examined.
    #[error(
        "{}: {call} failed: {source}; name a file that exists and that this user may read",
        path.display()
    )]
    NotReadable {
        /// The file.
        path: PathBuf,
        /// The system call.
        call: &'static str,
        /// The operating system's reason.
        source: io::Error,
    },
    /// There is something else under the file's name.
    #[error("{} is {found}, not a file; name a plugin file", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// Every user of the machine may replace the file.
    #[error(
        "{} is not loaded: every user may write {} (mode {mode:o}); run `chmod o-w {}`, or set \
         SYMMEM_PLUGIN_WORLD_WRITABLE=1 if you trust every user of this machine",
        path.display(), place.display(), place.display()
    )]
    WorldWritable {
        /// The file.
        path: PathBuf,
        /// The file or its directory, which every user may write.
        place: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file is not a whole shared object for this machine.
    #[error(
        "{} cannot be loaded: {error}; build or install the plugin for this machine again",
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
        "{} cannot be loaded: dlopen: {reason}; install what it needs, or build it again",
        path.display()
    )]
    NotLoadable {
        /// The file.
        path: PathBuf,
        /// The text of `dlerror`.
        reason: String,
    },
    /// The file has this backend only for another major version of the plugin ABI.
    #[error(
        "{} has backend `{name}` for plugin ABI {found}, and this program needs plugin ABI {ABI_MAJOR} (dlsym: \
         {reason}); use the plugin file of this program's symmem release, or rebuild it from that release",
        path.display()
    )]
    OtherMajor {
        /// The file.
        path: PathBuf,
        /// The backend's name.
        name: String,
        /// The major version in the name of the symbol that the file exports.
        found: u32,
        /// The text of `dlerror` for the symbol of this program's version.
        reason: String,
    },
    /// The file does not export the symbol of a backend with this name.
    #[error(
        "{} does not export `{symbol}` (dlsym: {reason}): it is not a symmem backend, or has another name; name a \
         plugin file libsymmem_NAME.so after its backend",
        path.display()
    )]
    NoSymbol {
        /// The file.
        path: PathBuf,
        /// The symbol that was looked up.
        symbol: String,
        /// The text of `dlerror`.
        reason: String,
    },
    /// The file exports the symbol of a backend, but as data or without a type.
    #[error(
        "{} exports `{symbol}`, which is not a function; rebuild it with `export_backend!`",
        path.display()
    )]
    NotAFunction {
        /// The file.
        path: PathBuf,
        /// The symbol.
        symbol: String,
    },
    /// The pointers of the table cannot be checked, because the kernel does not list this process's mappings.
    #[error(
        "{}: its table cannot be checked: reading /proc/self/maps failed: {source}; mount /proc",
        path.display()
    )]
    NoMappings {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The table that the file exports cannot be used.
    #[error("{}: {error}", path.display())]
    BadTable {
        /// The file.
        path: PathBuf,
        /// The fault.
        #[source]
        error: TableError,
    },
}

impl LoadError {
    /// Converts to the failure that a probe report shows.
    pub fn to_failure(&self) -> Failure {
        Failure::new(Status::LIBRARY_MISSING, "load", self.to_string())
    }
}
