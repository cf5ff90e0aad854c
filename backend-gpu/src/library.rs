//! Finds and opens a vendor's shared library.

use libloading::os::unix;
use std::ffi::{CStr, OsStr, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use symmem_core::backend::abi::Status;
pub use symmem_core::backend::file_of;
use symmem_core::backend::{CallResult, Failure};

/// Environment variable with the directories to search first, separated by colons.
pub const SEARCH_VARIABLE: &str = "SYMMEM_LIBRARY_PATH";

/// A shared library. Stays loaded until the process ends: its threads and callbacks make unloading unsafe.
pub struct Library(ManuallyDrop<unix::Library>);

impl Library {
    /// Opens a library: the first `soname` in the directories of [`SEARCH_VARIABLE`], else what the dynamic
    /// loader finds under that name, else the first file of `elsewhere` that exists. Blocks while the library's
    /// initializers run.
    ///
    /// A file that exists but cannot be loaded is an error and ends the search, because the user who names a
    /// directory wants that file.
    ///
    /// # Errors
    /// `LIBRARY_MISSING` with the library's name, the places searched, the `dlerror` text, and `advice`, an
    /// imperative phrase that says what to do.
    pub fn open(soname: &str, elsewhere: &[PathBuf], advice: &str) -> CallResult<Self> {
        Self::open_first(&[soname], elsewhere, advice)
    }

    /// Opens a library that has several names, best first, as [`Library::open`] does; searches each place for
    /// all names before the next place. A library that the process has already loaded takes precedence over
    /// what the loader would find, because two versions of one vendor library in a process do not know each
    /// other's memory and streams.
    ///
    /// # Errors
    /// As [`Library::open`].
    pub fn open_first(sonames: &[&str], elsewhere: &[PathBuf], advice: &str) -> CallResult<Self> {
        Self::open_accepted(sonames, elsewhere, advice, |_| true)
    }

    /// Opens a library as [`Library::open_first`] does, and goes on to the next place if it is not `accepted`.
    ///
    /// # Errors
    /// As [`Library::open`].
    pub fn open_accepted(
        sonames: &[&str],
        elsewhere: &[PathBuf],
        advice: &str,
        accepted: impl Fn(&Self) -> bool,
    ) -> CallResult<Self> {
        let directories = std::env::var_os(SEARCH_VARIABLE);
        for path in candidates(directories.as_deref(), sonames) {
            if path.exists() {
                let way = format!(" through {SEARCH_VARIABLE}");
                let library = Self::load(&path)
                    .map_err(|reason| missing(broken_text(&path, &way, &reason)))?;
                if accepted(&library) {
                    return Ok(library);
                }
            }
        }
        let mut loaded = sonames.iter().filter_map(|soname| Self::loaded(soname));
        if let Some(library) = loaded.find(&accepted) {
            return Ok(library);
        }
        let mut why = String::new();
        for soname in sonames {
            match Self::load(Path::new(soname)) {
                Ok(library) if accepted(&library) => return Ok(library),
                Ok(_) => why = format!("what the loader finds as {soname} is another library"),
                // Prefer the reason of a file that exists over "cannot open".
                Err(reason) => {
                    let absent = reason.starts_with(&format!("{soname}: cannot open"));
                    if why.is_empty() || !absent {
                        why = reason;
                    }
                }
            }
        }
        for path in elsewhere.iter().filter(|path| path.exists()) {
            let library = Self::open_file(path)?;
            if accepted(&library) {
                return Ok(library);
            }
        }
        Err(missing(format!(
            "{} cannot be loaded: {why}; {advice}, or name its directory in {SEARCH_VARIABLE}",
            sonames.join(" or ")
        )))
    }

    /// Opens the library of this file. Blocks while its initializers run.
    ///
    /// # Errors
    /// `LIBRARY_MISSING` with the file and the `dlerror` text.
    pub fn open_file(file: &Path) -> CallResult<Self> {
        Self::load(file).map_err(|reason| missing(broken_text(file, "", &reason)))
    }

    fn load(name: &Path) -> Result<Self, String> {
        // SAFETY: loading runs the library's initializers. The library is the vendor's own, or the user named
        // its directory, and both are trusted to be loadable.
        unsafe { unix::Library::open(Some(name), unix::RTLD_NOW | unix::RTLD_LOCAL) }
            .map(|library| Self(ManuallyDrop::new(library)))
            .map_err(|error| words(&error))
    }

    /// Returns a library that this process has already loaded under this file name or soname.
    fn loaded(soname: &str) -> Option<Self> {
        /// The value in glibc and musl on x86-64 and aarch64.
        const RTLD_NOLOAD: i32 = 4;
        let flags = unix::RTLD_NOW | unix::RTLD_LOCAL | RTLD_NOLOAD;
        // SAFETY: `RTLD_NOLOAD` loads nothing, so no initializer runs.
        let library = unsafe { unix::Library::open(Some(soname), flags) }.ok()?;
        Some(Self(ManuallyDrop::new(library)))
    }

    /// Returns the address of a symbol, or `None` if the library lacks it.
    pub fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the address is neither dereferenced nor called here.
        unsafe { self.0.get::<*mut c_void>(name.to_bytes_with_nul()) }
            .ok()
            .map(|symbol| symbol.as_raw_ptr())
            .filter(|address| !address.is_null())
    }

    /// Returns the address of a symbol, as [`Library::symbol`] does; `None` if `name` does not end with a zero byte.
    pub fn symbol_named(&self, name: &str) -> Option<*mut c_void> {
        self.symbol(CStr::from_bytes_with_nul(name.as_bytes()).ok()?)
    }
}

/// Returns the paths to try before the dynamic loader, in order.
fn candidates(directories: Option<&OsStr>, sonames: &[&str]) -> Vec<PathBuf> {
    directories
        .map(|list| {
            std::env::split_paths(list)
                .filter(|directory| !directory.as_os_str().is_empty())
                .flat_map(|directory| sonames.iter().map(move |soname| directory.join(soname)))
                .collect()
        })
        .unwrap_or_default()
}

/// Returns the `dlerror` text, which is the source of the error.
fn words(error: &libloading::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}

fn missing(message: String) -> Failure {
    Failure::new(Status::LIBRARY_MISSING, "dlopen", message)
}

fn broken_text(path: &Path, way: &str, reason: &str) -> String {
    format!(
        "{} was found{way} and cannot be loaded: {reason}; replace the file, or name the directory \
         of a good one in {SEARCH_VARIABLE}",
        path.display()
    )
}

/// Returns the package directories of the active Python, best first: of the active virtual or Conda
/// environment, else of the `python3` on the path, then of the user. Does not start the interpreter.
///
/// Vendor libraries are also distributed as Python packages, whose directories the loader does not search.
pub fn python_packages() -> Vec<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].map(|name| variable(name).map(PathBuf::from));
    let path = variable("PATH").unwrap_or_default();
    // An empty element of a search path is ignored: it does not stand for the working directory.
    let found = std::env::split_paths(&path)
        .find(|directory| !directory.as_os_str().is_empty() && directory.join("python3").exists());
    let user = variable("HOME").map(|home| Path::new(&home).join(".local"));
    let prefixes = active
        .into_iter()
        .flatten()
        // `prefix/bin` has the interpreter.
        .chain(found.and_then(|directory| directory.parent().map(Path::to_owned)))
        .chain(user);
    prefixes
        .flat_map(|prefix| packages_below(&prefix))
        .collect()
}

/// Returns the package directories under a Python prefix, newest Python first.
fn packages_below(prefix: &Path) -> Vec<PathBuf> {
    let library = prefix.join("lib");
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir(&library)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let version = name.to_str()?.strip_prefix("python3")?;
            // Debian's own packages lie in `python3`, without a minor version.
            let minor = version.strip_prefix('.').unwrap_or("0");
            Some((minor.parse().ok()?, entry.path()))
        })
        .collect();
    versions.sort_by_key(|(minor, _)| std::cmp::Reverse(*minor));
    versions
        .into_iter()
        .flat_map(|(_, path)| [path.join("site-packages"), path.join("dist-packages")])
        .filter(|path| path.is_dir())
        .collect()
}

// Miri opens no libraries and isolates files.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn directories_of_the_variable_come_in_their_order_and_only_with_the_sonames() {
        let found = candidates(Some(OsStr::new("/a:/b/c::")), &["libx.so.7", "libx.so.6"]);
        let expected = [
            "/a/libx.so.7",
            "/a/libx.so.6",
            "/b/c/libx.so.7",
            "/b/c/libx.so.6",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
        assert!(candidates(None, &["libx.so.7"]).is_empty());
    }

    #[test]
    fn a_missing_library_says_where_to_put_it() {
        let soname = "libsymmem_that_is_nowhere.so.1";
        let failure = Library::open(soname, &["/nowhere/x".into()], "install it").err();
        let failure = failure.expect("no such library exists");
        assert_eq!(failure.status, Status::LIBRARY_MISSING);
        for word in [soname, SEARCH_VARIABLE, "install it, or"] {
            assert!(failure.message.contains(word), "{}", failure.message);
        }
    }

    #[test]
    fn of_several_names_the_one_that_the_process_has_loaded_comes_first() {
        // Every process has loaded the second; the first is installed beside it, and no process has loaded it.
        let names = ["libresolv.so.2", "libc.so.6"];
        let library = Library::open_first(&names, &[], "").expect("the C library");
        let own = c"__loc_aton";
        assert!(library.symbol(own).is_none() && library.symbol(c"malloc").is_some());
        let other = Library::open(names[0], &[], "").expect("a part of the C library");
        assert!(other.symbol(own).is_some());
    }

    #[test]
    fn a_broken_file_is_named_and_nothing_behind_it_is_tried() {
        let directory = scratch("broken");
        let file = directory.join("libbroken.so.1");
        std::fs::write(&file, "no library").expect("a file");
        let elsewhere = [file.clone(), "libc.so.6".into()];
        let failure = Library::open("libsymmem_that_is_nowhere.so.1", &elsewhere, "").err();
        let message = failure.expect("the file is broken").message;
        assert!(message.contains(file.to_str().expect("text")), "{message}");
        assert!(message.contains("was found and cannot be loaded"));
        let text = broken_text(&file, " through the variable", "too short");
        assert!(text.contains("was found through the variable") && text.contains("too short"));
        std::fs::remove_dir_all(directory).expect("ours");
    }

    #[test]
    fn packages_of_the_newest_python_come_first_and_only_where_they_are() {
        let prefix = scratch("packages");
        for path in [
            "python3.9/site-packages",
            "python3.12/site-packages",
            "python3/dist-packages",
            "python3.13",
            "python2.7/site-packages",
            "python3.x/site-packages",
        ] {
            std::fs::create_dir_all(prefix.join("lib").join(path)).expect("a directory");
        }
        let found = packages_below(&prefix);
        let below = |path: &str| prefix.join("lib").join(path);
        assert_eq!(
            found,
            [
                below("python3.12/site-packages"),
                below("python3.9/site-packages"),
                below("python3/dist-packages")
            ]
        );
        assert!(packages_below(&prefix.join("nowhere")).is_empty());
        std::fs::remove_dir_all(prefix).expect("ours");
    }

    fn scratch(name: &str) -> PathBuf {
        let name = format!("symmem-library-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("a directory");
        directory
    }
}
