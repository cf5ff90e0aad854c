//! Finding and opening a vendor's shared library.

use std::ffi::{CStr, OsStr, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use symmem_core::backend::abi::Status;
use symmem_core::backend::{CallResult, Failure};

use libloading::os::unix;

/// The variable that lists directories to search first, separated by colons.
pub const SEARCH_VARIABLE: &str = "SYMMEM_LIBRARY_PATH";

/// A shared library that stays loaded for the life of the program: its threads and callbacks
/// cannot be taken back safely.
pub struct Library(ManuallyDrop<unix::Library>);

impl Library {
    /// Opens the first `soname` in the directories of [`SEARCH_VARIABLE`], else what the dynamic
    /// loader finds under that name.
    ///
    /// A file that is there but cannot be loaded is an error, not a reason to look further: who
    /// names a directory wants that file.
    ///
    /// # Errors
    /// `LIBRARY_MISSING` names the library, where it was looked for and the loader's words.
    pub fn open(soname: &str) -> CallResult<Self> {
        let directories = std::env::var_os(SEARCH_VARIABLE);
        let found = candidates(directories.as_deref(), soname)
            .into_iter()
            .find(|path| path.exists());
        let name = found.as_deref().unwrap_or(Path::new(soname));
        // SAFETY: loading runs the library's initialisers; it is the vendor's own, or the one the
        // user pointed to.
        unsafe { unix::Library::open(Some(name), unix::RTLD_NOW | unix::RTLD_LOCAL) }
            .map(|library| Self(ManuallyDrop::new(library)))
            .map_err(|error| {
                Failure::new(
                    Status::LIBRARY_MISSING,
                    "dlopen",
                    missing_text(soname, found.as_deref(), &error.to_string()),
                )
            })
    }

    /// The address of a symbol, if the library has it.
    pub fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the address is not dereferenced here, and nothing is called.
        unsafe { self.0.get::<*mut c_void>(name.to_bytes_with_nul()) }
            .ok()
            .map(|symbol| symbol.as_raw_ptr())
            .filter(|address| !address.is_null())
    }
}

/// Where `soname` is looked for before the loader is asked, in order.
fn candidates(directories: Option<&OsStr>, soname: &str) -> Vec<PathBuf> {
    directories
        .map(|list| {
            std::env::split_paths(list)
                .filter(|directory| !directory.as_os_str().is_empty())
                .map(|directory| directory.join(soname))
                .collect()
        })
        .unwrap_or_default()
}

fn missing_text(soname: &str, found: Option<&Path>, reason: &str) -> String {
    match found {
        Some(path) => format!(
            "{} was found through {SEARCH_VARIABLE} and cannot be loaded: {reason}; replace the \
             file or take its directory out of the variable",
            path.display()
        ),
        None => format!(
            "{soname} cannot be loaded: {reason}; install NVIDIA's driver, pass it into the \
             container (--gpus all), or name its directory in {SEARCH_VARIABLE}"
        ),
    }
}

/// The file that the code at `address` was mapped from.
pub fn file_of(address: *const c_void) -> Option<PathBuf> {
    mapped_file(
        &std::fs::read_to_string("/proc/self/maps").ok()?,
        address as u64,
    )
}

/// Finds `address` in the text of `/proc/<pid>/maps`.
fn mapped_file(maps: &str, address: u64) -> Option<PathBuf> {
    maps.lines().find_map(|line| {
        // start-end permissions offset device inode path
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let range = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
        let path = fields.nth(4)?.trim_start();
        (range.contains(&address) && path.starts_with('/')).then(|| path.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_the_variable_come_in_their_order_and_only_with_the_soname() {
        assert_eq!(
            candidates(Some(OsStr::new("/a:/b/c::")), "libcuda.so.1"),
            [
                PathBuf::from("/a/libcuda.so.1"),
                PathBuf::from("/b/c/libcuda.so.1")
            ]
        );
        assert!(candidates(None, "libcuda.so.1").is_empty());
    }

    #[test]
    fn a_missing_library_says_where_to_put_it() {
        let failure = Library::open("libsymmem_that_is_nowhere.so.1").err();
        let failure = failure.expect("no such library exists");
        assert_eq!(failure.status, Status::LIBRARY_MISSING);
        for word in [
            "libsymmem_that_is_nowhere.so.1",
            SEARCH_VARIABLE,
            "--gpus all",
        ] {
            assert!(failure.message.contains(word), "{}", failure.message);
        }
    }

    #[test]
    fn a_broken_file_is_named_with_the_way_it_was_found() {
        let text = missing_text(
            "libcuda.so.1",
            Some(Path::new("/x/libcuda.so.1")),
            "too short",
        );
        assert!(text.contains("/x/libcuda.so.1") && text.contains("too short"));
        assert!(text.contains(SEARCH_VARIABLE));
    }

    #[test]
    fn an_address_is_traced_to_its_file() {
        let maps = "\
7f00-8000 r-xp 00000000 08:01 42   /usr/lib/lib with space.so.1
8000-9000 rw-p 00000000 00:00 0 \n9000-a000 rw-p 00000000 00:00 0   [heap]\n";
        let file = PathBuf::from("/usr/lib/lib with space.so.1");
        assert_eq!(mapped_file(maps, 0x7f10), Some(file));
        assert_eq!(mapped_file(maps, 0x8000), None);
        assert_eq!(mapped_file(maps, 0x9000), None);
    }

    #[test]
    fn this_very_function_is_in_this_very_program() {
        let here = this_very_function_is_in_this_very_program as *const c_void;
        let program = std::env::current_exe().and_then(std::fs::canonicalize).ok();
        assert_eq!(file_of(here), program);
    }
}
