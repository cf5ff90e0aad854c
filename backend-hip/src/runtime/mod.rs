//! AMD's HIP runtime, opened at run time.
//!
//! Every call goes through [`Table`], which is looked up once. A program that might use a GPU thus survives a missing
//! library, symbol or device, with a failure that names it. The uses of `version` show where versions differ.

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

/// File names of the runtime, newest first.
pub const SONAMES: [&str; 3] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"];

/// Advice for a missing library.
const ADVICE: &str = "install AMD's ROCm runtime, 5.7 or newer, set ROCM_PATH to its directory";

/// Version 5.7, the oldest whose uncached device memory is trusted; signals need it. The flag exists from 5.5 on, but RCCL
/// uses it from 5.7.31920 on (the condition of `HIP_UNCACHED_MEMORY` in its `CMakeLists.txt`), and polls such memory as
/// this backend does.
const VERSION_5_7: u32 = 50_700_000;
/// Version 7.1, the first that imports a file descriptor by value.
pub const VERSION_7_1: u32 = 70_100_000;
/// Version 7.2, the first with uncached physical memory.
pub const VERSION_7_2: u32 = 70_200_000;
/// Version 7.14, the first in which `hipMemRetainAllocationHandle` takes a reference (rocm-systems 2696).
pub const VERSION_7_14: u32 = 71_400_000;
/// Version 6.1, the first with copies that use no compute units.
pub const VERSION_6_1: u32 = 60_100_000;
/// Version 6, which changed the values of pointer memory types.
pub const VERSION_6: u32 = 60_000_000;

/// Calls a function of the runtime by name, and turns its code into a [`CallResult`].
///
/// The expansion is an unsafe call. The `unsafe` block around it has the comment on the arguments.
macro_rules! hip {
    ($runtime:expr, $name:ident($($argument:expr),* $(,)?)) => {
        $runtime.check(stringify!($name), ($runtime.table.$name)($($argument),*))
    };
}
pub(crate) use hip;

/// The runtime, initialized for this process.
pub struct Runtime {
    /// Its functions.
    pub table: Table,
    /// HIP version: major × 10⁷ + minor × 10⁵ + patch.
    pub version: u32,
    /// Version that the runtime reports for the driver, in the same form.
    pub driver_version: u32,
}

static RUNTIME: OnceLock<CallResult<Runtime>> = OnceLock::new();

/// The file that was opened, even if it is unusable.
static FILE: OnceLock<PathBuf> = OnceLock::new();

/// Returns the file that was opened as the runtime, even if it is unusable; `None` before [`Runtime::get`], and
/// if no file was found.
pub fn found() -> Option<&'static Path> {
    FILE.get().map(PathBuf::as_path)
}

impl Runtime {
    /// Returns the runtime. The first call opens and initializes it, and later calls return its result.
    ///
    /// # Errors
    /// `LIBRARY_MISSING` or `NO_DEVICE`: names the library, symbol, version or call at fault, and what to do.
    pub fn get() -> CallResult<&'static Self> {
        let started = RUNTIME.get_or_init(Self::start);
        started.as_ref().map_err(Clone::clone)
    }

    fn start() -> CallResult<Self> {
        let library = open_library(&SONAMES, ADVICE)?;
        if let Some(file) = file_of(&library) {
            // Only the first call gets here, so this cannot fail.
            let _ = FILE.set(file);
        }
        // SAFETY: libraries of these names are AMD's runtime.
        let table =
            unsafe { Table::load(&library) }.map_err(|symbol| missing_symbol(&library, symbol))?;
        let mut runtime = Self {
            table,
            version: 0,
            driver_version: 0,
        };
        // SAFETY: flags of 0 are valid.
        unsafe { hip!(runtime, hipInit(0)) }.map_err(node::explain)?;
        runtime.version = version(&runtime, "hipRuntimeGetVersion")?;
        if runtime.version < VERSION_5_7 {
            return Err(Failure::new(
                Status::LIBRARY_MISSING,
                "hipRuntimeGetVersion",
                format!(
                    "AMD's runtime is version {}; 5.7 or newer is needed, whose uncached memory \
                     can hold signals: update ROCm",
                    version_text(runtime.version)
                ),
            ));
        }
        runtime.driver_version = version(&runtime, "hipDriverGetVersion")?;
        Ok(runtime)
    }

    /// Returns the number of visible devices, at least one.
    ///
    /// # Errors
    /// `NO_DEVICE` if there is none; the runtime's failure.
    pub fn device_count(&self) -> CallResult<u32> {
        let mut count = 0;
        // SAFETY: the out-pointer is writable.
        unsafe { hip!(self, hipGetDeviceCount(&raw mut count)) }.map_err(node::explain)?;
        if count > 0 {
            return Ok(count as u32);
        }
        let none = "the runtime works but shows no device; check HIP_VISIBLE_DEVICES, \
                    ROCR_VISIBLE_DEVICES and amd-smi";
        Err(node::explain(Failure::new(
            Status::NO_DEVICE,
            "hipGetDeviceCount",
            none,
        )))
    }

    /// Returns the file that the runtime was loaded from.
    pub fn file(&self) -> Option<PathBuf> {
        library::file_of(self.table.hipInit as *const c_void)
    }

    /// Turns an error code into a result that names the call.
    #[inline]
    pub fn check(&self, call: &'static str, code: Code) -> CallResult<()> {
        match code {
            constants::result::SUCCESS => Ok(()),
            _ => Err(self.failure(call, code)),
        }
    }

    /// Turns an error code into a result, with `Ok(false)` for "not ready".
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
    // SAFETY: the out-pointer is writable.
    runtime.check(call, unsafe { ask(&raw mut version) })?;
    Ok(u32::try_from(version).unwrap_or(0))
}

/// Returns a version as text, such as `7.1.25424`.
pub fn version_text(version: u32) -> String {
    let (major, minor) = (version / 10_000_000, version / 100_000 % 100);
    format!("{major}.{minor}.{}", version % 100_000)
}

/// Opens a ROCm library that has several names, best first. Prefers one that the process has already loaded, as
/// PyTorch loads the release that it was built for.
///
/// # Errors
/// As [`Library::open`].
pub fn open_library(sonames: &[&str], advice: &str) -> CallResult<Library> {
    let toolkit = std::env::var_os("ROCM_PATH").map(PathBuf::from);
    let files = files_of(sonames, toolkit.as_deref(), &python_packages());
    Library::open_first(sonames, &files, advice)
}

/// Returns the files to try outside of the loader's directories: in the toolkit, then in Python packages (AMD's
/// own, then PyTorch's, whose file names have no version).
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

/// Returns the file of a library, located by a function that every version has.
fn file_of(library: &Library) -> Option<PathBuf> {
    let address = library
        .symbol(c"hipInit")
        .or_else(|| library.symbol(c"hipGetDeviceCount"))?;
    library::file_of(address)
}

fn missing_symbol(library: &Library, symbol: &str) -> Failure {
    let known = library.symbol(c"hipRuntimeGetVersion").and_then(|address| {
        // SAFETY: in every version the runtime's function of this name has this signature.
        let ask = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int) -> Code>(address)
        };
        let mut version = 0;
        // SAFETY: the out-pointer is writable.
        (unsafe { ask(&raw mut version) } == 0).then_some(version as u32)
    });
    let file = file_of(library).map_or("libamdhip64".into(), |file| file.display().to_string());
    let advice = match known {
        Some(version) if version >= VERSION_5_7 => "which should have it; install ROCm again",
        _ => "and 5.7 or newer is needed; update ROCm",
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
        // A library that is always there and is not AMD's runtime.
        let library = Library::open("libc.so.6", &[], "").expect("the C library");
        // SAFETY: the first look-up fails, so no function is called.
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
