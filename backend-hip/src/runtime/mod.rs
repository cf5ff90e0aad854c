//! AMD's runtime, opened at run time.
//!
//! Every call goes through our own [`Table`], looked up once, so that a program that merely might use a
//! GPU survives a missing library, a missing symbol and a missing device, each with a failure that says
//! which. Versions differ where `version` is asked: see its uses.

pub mod compiler;
pub mod constants;
mod errors;
mod node;
pub mod structs;
pub mod table;

pub use table::{Code, Table};

use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use symmem_core::backend::abi::Status;
use symmem_core::backend::{CallResult, Failure};
use symmem_gpu::library::{self, Library, python_packages};

/// The runtime's names for the loader, newest first.
pub const SONAMES: [&str; 3] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"];

/// What to do where the library is missing.
const ADVICE: &str = "install AMD's ROCm runtime, or set ROCM_PATH where it lies elsewhere";

/// Version 5.5, from which on device memory can be uncached, as signals need it.
const VERSION_5_5: u32 = 50_500_000;
/// Version 7.1, from which on a file descriptor is imported by value.
pub const VERSION_7_1: u32 = 70_100_000;
/// Version 7.2, from which on physical memory can be uncached.
pub const VERSION_7_2: u32 = 70_200_000;
/// Version 7.14, from which on a handle that was asked for by its address counts as held (rocm-systems 2696).
pub const VERSION_7_14: u32 = 71_400_000;
/// Version 6.1, from which on a copy can be kept off the compute units.
pub const VERSION_6_1: u32 = 60_100_000;
/// Version 6, from which on a pointer's memory type has another number.
pub const VERSION_6: u32 = 60_000_000;

/// Calls a function of the runtime by its name and makes its result a [`CallResult`].
///
/// Expands to an unsafe call: it stands inside the caller's `unsafe` block, whose comment says why the
/// arguments are right.
macro_rules! hip {
    ($runtime:expr, $name:ident($($argument:expr),* $(,)?)) => {
        $runtime.check(stringify!($name), ($runtime.table.$name)($($argument),*))
    };
}
pub(crate) use hip;

/// The initialised runtime of this process.
pub struct Runtime {
    /// Its functions.
    pub table: Table,
    /// HIP's version: major × 10⁷ + minor × 10⁵ + patch.
    pub version: u32,
    /// What it says of the driver below it, in the same form.
    pub driver_version: u32,
}

static RUNTIME: OnceLock<CallResult<Runtime>> = OnceLock::new();

/// The file that was opened, also where it could not serve.
static FILE: OnceLock<PathBuf> = OnceLock::new();

/// The file that was opened as the runtime, also where it could not serve; `None` before [`Runtime::get`]
/// and where there is none.
pub fn found() -> Option<&'static Path> {
    FILE.get().map(PathBuf::as_path)
}

impl Runtime {
    /// The runtime, opened and initialised by the first call; later calls return what that one found.
    ///
    /// # Errors
    /// `LIBRARY_MISSING` or `NO_DEVICE`, with the library, symbol, version or call that is wrong and what to do.
    pub fn get() -> CallResult<&'static Self> {
        let started = RUNTIME.get_or_init(Self::start);
        started.as_ref().map_err(Clone::clone)
    }

    fn start() -> CallResult<Self> {
        let library = open_library(&SONAMES, ADVICE)?;
        if let Some(file) = file_of(&library) {
            // Set once: only the first call comes here.
            let _ = FILE.set(file);
        }
        // SAFETY: a file of these names is AMD's runtime.
        let table =
            unsafe { Table::load(&library) }.map_err(|symbol| missing_symbol(&library, symbol))?;
        let mut runtime = Self {
            table,
            version: 0,
            driver_version: 0,
        };
        // SAFETY: the flags must be 0.
        unsafe { hip!(runtime, hipInit(0)) }.map_err(node::explain)?;
        runtime.version = version(&runtime, "hipRuntimeGetVersion")?;
        if runtime.version < VERSION_5_5 {
            return Err(Failure::new(
                Status::LIBRARY_MISSING,
                "hipRuntimeGetVersion",
                format!(
                    "AMD's runtime is {}; 5.5 or newer is needed, which has uncached memory for signals: \
                     update ROCm",
                    version_text(runtime.version)
                ),
            ));
        }
        runtime.driver_version = version(&runtime, "hipDriverGetVersion")?;
        Ok(runtime)
    }

    /// How many devices the visibility variables leave; at least one.
    pub fn device_count(&self) -> CallResult<u32> {
        let mut count = 0;
        // SAFETY: the place is writable.
        unsafe { hip!(self, hipGetDeviceCount(&raw mut count)) }.map_err(node::explain)?;
        if count > 0 {
            return Ok(count as u32);
        }
        let none = "the runtime works and shows no device; look at HIP_VISIBLE_DEVICES, \
                    ROCR_VISIBLE_DEVICES and amd-smi";
        Err(node::explain(Failure::new(
            Status::NO_DEVICE,
            "hipGetDeviceCount",
            none,
        )))
    }

    /// The file that the runtime was loaded from.
    pub fn file(&self) -> Option<PathBuf> {
        library::file_of(self.table.hipInit as *const c_void)
    }

    /// Makes a call's result a failure that names it, unless it succeeded.
    #[inline]
    pub fn check(&self, call: &'static str, code: Code) -> CallResult<()> {
        match code {
            constants::result::SUCCESS => Ok(()),
            _ => Err(self.failure(call, code)),
        }
    }

    /// As [`Runtime::check`] where "not yet" is an answer: 1 for success, 0 for not ready.
    #[inline]
    pub fn check_ready(&self, call: &'static str, code: Code) -> CallResult<bool> {
        if code == constants::result::NOT_READY {
            self.forget_last_error();
            return Ok(false);
        }
        self.check(call, code).map(|()| true)
    }
}

fn version(runtime: &Runtime, call: &'static str) -> CallResult<u32> {
    let table = &runtime.table;
    let ask = match call {
        "hipDriverGetVersion" => table.hipDriverGetVersion,
        _ => table.hipRuntimeGetVersion,
    };
    let mut version = 0;
    // SAFETY: the place is writable.
    runtime.check(call, unsafe { ask(&raw mut version) })?;
    Ok(u32::try_from(version).unwrap_or(0))
}

/// A version as people write it: `7.1.25424`.
pub fn version_text(version: u32) -> String {
    let (major, minor) = (version / 10_000_000, version / 100_000 % 100);
    format!("{major}.{minor}.{}", version % 100_000)
}

/// Opens one of ROCm's libraries, which has several names, best first: the one that the program has
/// loaded, as PyTorch loads the release that it was built for, else the first that is found.
///
/// # Errors
/// As [`Library::open`].
pub fn open_library(sonames: &[&str], advice: &str) -> CallResult<Library> {
    let toolkit = std::env::var_os("ROCM_PATH").map(PathBuf::from);
    let files = files_of(sonames, toolkit.as_deref(), &python_packages());
    Library::open_first(sonames, &files, advice)
}

/// Where a library of ROCm's lies outside the loader's directories: in the toolkit, then among Python's
/// packages (AMD's own, then those that PyTorch brings, whose files have no version in their names).
fn files_of(sonames: &[&str], toolkit: Option<&Path>, packages: &[PathBuf]) -> Vec<PathBuf> {
    let toolkit = toolkit.filter(|path| !path.as_os_str().is_empty());
    let roots = toolkit.into_iter().chain([Path::new("/opt/rocm")]);
    let within = packages.iter().flat_map(|package| {
        ["_rocm_sdk_core/lib", "_rocm_sdk_libraries/lib"].map(|directory| package.join(directory))
    });
    let directories = roots.map(|root| root.join("lib")).chain(within);
    let versioned =
        directories.flat_map(|directory| sonames.iter().map(move |soname| directory.join(soname)));
    let plain = packages.iter().flat_map(|package| {
        let names = sonames.iter().filter_map(|soname| soname.split_once(".so"));
        names.map(|(name, _)| package.join("torch/lib").join(format!("{name}.so")))
    });
    versioned.chain(plain).collect()
}

/// The file behind a library, by a function that every version has.
fn file_of(library: &Library) -> Option<PathBuf> {
    let address = library
        .symbol(c"hipInit")
        .or_else(|| library.symbol(c"hipGetDeviceCount"))?;
    library::file_of(address)
}

fn missing_symbol(library: &Library, symbol: &str) -> Failure {
    let known = library.symbol(c"hipRuntimeGetVersion").and_then(|address| {
        // SAFETY: the runtime's function of this name has this signature in every version.
        let ask = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int) -> Code>(address)
        };
        let mut version = 0;
        // SAFETY: the place is writable.
        (unsafe { ask(&raw mut version) } == 0).then_some(version as u32)
    });
    let file = file_of(library).map_or("libamdhip64".into(), |file| file.display().to_string());
    let advice = match known {
        Some(version) if version >= VERSION_5_5 => "which should have it: install ROCm again",
        _ => "and 5.5 or newer is needed: update ROCm",
    };
    Failure::new(
        Status::LIBRARY_MISSING,
        "dlsym",
        format!(
            "{file} has no symbol {symbol}; its version is {}, {advice}",
            known.map_or("unknown".into(), version_text),
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_people_write_them() {
        assert_eq!(version_text(50_221_153), "5.2.21153");
        assert_eq!(version_text(VERSION_7_1 + 25_424), "7.1.25424");
        assert_eq!(version_text(71_400_000), "7.14.0");
    }

    #[test]
    fn a_library_without_a_symbol_is_told_with_the_symbol() {
        // Some library that every process can open and that is no runtime of AMD's.
        let library = Library::open("libc.so.6", &[], "").expect("the C library");
        // SAFETY: nothing is called: the first look-up already fails.
        let symbol = unsafe { Table::load(&library) }.err().expect("not AMD's");
        assert_eq!(symbol, "hipInit");
        let failure = missing_symbol(&library, symbol);
        assert_eq!(failure.status, Status::LIBRARY_MISSING);
        assert!(failure.message.contains("hipInit") && failure.message.contains("unknown"));
    }

    #[test]
    fn the_toolkit_comes_before_packages_and_an_empty_variable_names_nothing() {
        let packages = ["/venv".into()];
        let names = ["libx.so.7", "libx.so.6"];
        let found = files_of(&names, Some(Path::new("/rocm")), &packages);
        let first = [
            "/rocm/lib/libx.so.7",
            "/rocm/lib/libx.so.6",
            "/opt/rocm/lib/libx.so.7",
        ];
        assert_eq!(found[..3], first.map(PathBuf::from));
        assert_eq!(
            found[4],
            PathBuf::from("/venv/_rocm_sdk_core/lib/libx.so.7")
        );
        let last = PathBuf::from("/venv/torch/lib/libx.so");
        assert_eq!(found.last(), Some(&last));
        let found = files_of(&names[..1], Some(Path::new("")), &[]);
        assert_eq!(found, [PathBuf::from("/opt/rocm/lib/libx.so.7")]);
    }
}
