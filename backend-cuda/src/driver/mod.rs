//! NVIDIA's driver, opened at run time.
//!
//! Types come from `cudarc::driver::sys`; calls do not. cudarc's own loader tries `libcuda.so` (on many
//! machines the toolkit's link stub) before `libcuda.so.1`, and panics if a library or symbol is missing. A
//! program that might use a GPU must get a typed failure in both cases, so every call goes through [`Table`],
//! which is looked up once in `libcuda.so.1`.

pub mod constants;
mod errors;
pub mod structs;
mod table;

pub use table::{Code, Table};

use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;
use symmem_core::backend::abi::Status;
use symmem_core::backend::{CallResult, Failure};
use symmem_gpu::library::{self, Library};

/// File name of the driver library; never `libcuda.so`, which is the toolkit's link stub.
pub const SONAME: &str = "libcuda.so.1";

/// What to do if the library is missing.
const ADVICE: &str = "install NVIDIA's driver, pass it into the container (--gpus all)";

/// Calls a function of the driver's table by name and turns its result into a [`CallResult`].
///
/// Expands to an unsafe call. The caller's `unsafe` block has the comment that says why the arguments are right.
macro_rules! call {
    ($driver:expr, $name:ident($($argument:expr),* $(,)?)) => {
        $driver.check(stringify!($name), ($driver.table.$name)($($argument),*))
    };
}
pub(crate) use call;

/// The initialized driver of this process.
pub struct Driver {
    library: Library,
    /// Its functions.
    pub table: Table,
    /// CUDA version that the driver supports: 1000 × major + 10 × minor.
    pub version: u32,
}

static DRIVER: OnceLock<CallResult<Driver>> = OnceLock::new();

impl Driver {
    /// Returns the driver. The first call opens and initializes it; later calls return the same result.
    ///
    /// # Errors
    /// `LIBRARY_MISSING` or `NO_DEVICE`, with the library, symbol, version or call at fault and what to do.
    pub fn get() -> CallResult<&'static Self> {
        DRIVER
            .get_or_init(Self::start)
            .as_ref()
            .map_err(Clone::clone)
    }

    fn start() -> CallResult<Self> {
        let library = Library::open(SONAME, &[], ADVICE)?;
        // SAFETY: a library of this name is NVIDIA's driver.
        let table =
            unsafe { Table::load(&library) }.map_err(|symbol| missing_symbol(&library, symbol))?;
        let mut driver = Self {
            library,
            table,
            version: 0,
        };
        // SAFETY: `cuInit` accepts flags of 0.
        let code = unsafe { (driver.table.cuInit)(0) };
        if code != constants::result::SUCCESS {
            return Err(driver.start_failure("cuInit", code));
        }
        let mut version = 0;
        // SAFETY: the out-pointer is writable.
        let code = unsafe { (driver.table.cuDriverGetVersion)(&raw mut version) };
        if code != constants::result::SUCCESS {
            return Err(driver.start_failure("cuDriverGetVersion", code));
        }
        driver.version = u32::try_from(version).unwrap_or(0);
        Ok(driver)
    }

    /// Returns the library, for functions outside of the table.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// Returns the file that the driver was loaded from.
    pub fn file(&self) -> Option<PathBuf> {
        library::file_of(self.table.cuInit as *const c_void)
    }

    /// Turns a result code into a result whose failure names the call.
    #[inline]
    pub fn check(&self, call: &'static str, code: Code) -> CallResult<()> {
        if code == constants::result::SUCCESS {
            Ok(())
        } else {
            Err(self.failure(call, code))
        }
    }

    /// Turns a result code into a result, as [`Driver::check`] does; `Ok(false)` for "not ready".
    #[inline]
    pub fn check_ready(&self, call: &'static str, code: Code) -> CallResult<bool> {
        match code {
            constants::result::SUCCESS => Ok(true),
            constants::result::NOT_READY => Ok(false),
            _ => Err(self.failure(call, code)),
        }
    }
}

/// Returns a version number as text, such as `12.4`.
pub fn version_text(version: u32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn missing_symbol(library: &Library, symbol: &str) -> Failure {
    let version = library.symbol(c"cuDriverGetVersion").and_then(|address| {
        // SAFETY: the driver's function of this name has this signature in all versions.
        let function = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int) -> Code>(address)
        };
        let mut version = 0;
        // SAFETY: the out-pointer is writable.
        (unsafe { function(&raw mut version) } == 0).then_some(version as u32)
    });
    Failure::new(
        Status::LIBRARY_MISSING,
        "dlsym",
        format!(
            "{SONAME} has no symbol {symbol}; its version is {}, and 12.0 or newer is needed: \
             update the driver",
            version.map_or("unknown".into(), version_text),
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_people_write_them() {
        assert_eq!(version_text(12040), "12.4");
        assert_eq!(version_text(13010), "13.1");
    }

    #[test]
    fn a_library_without_a_symbol_is_told_with_symbol_and_version() {
        // A library that every process can open and that is not the driver.
        let library = Library::open("libc.so.6", &[], "").expect("the C library");
        // SAFETY: no function is called, since already the first look-up fails.
        let symbol = unsafe { Table::load(&library) }
            .err()
            .expect("not a driver");
        assert_eq!(symbol, "cuInit");
        let failure = missing_symbol(&library, symbol);
        assert_eq!(failure.status, Status::LIBRARY_MISSING);
        assert!(failure.message.contains("cuInit") && failure.message.contains("unknown"));
    }

    #[test]
    fn no_symbol_of_multicast_is_in_the_table_that_is_always_filled() {
        let source = include_str!("table.rs");
        assert!(!source.to_lowercase().contains(concat!("multi", "cast")));
    }
}
