//! NVIDIA's driver, opened at run time.
//!
//! Types come from `cudarc::driver::sys`; calls do not. cudarc's own loader tries `libcuda.so` (the
//! toolkit's link stub, on many machines) before `libcuda.so.1` and panics where a library or a
//! symbol is missing. A program that merely might use a GPU has to survive both, with a typed
//! failure, so every call goes through our own [`Table`], looked up once in `libcuda.so.1`.

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

/// The driver's library: never `libcuda.so`, which a toolkit puts there for linking.
pub const SONAME: &str = "libcuda.so.1";

/// What to do where the library is missing.
const ADVICE: &str = "install NVIDIA's driver, pass it into the container (--gpus all)";

/// Calls a function of the driver's table by its name and makes its result a [`CallResult`].
///
/// Expands to an unsafe call: it stands inside the caller's `unsafe` block, whose comment says why
/// the arguments are right.
macro_rules! call {
    ($driver:expr, $name:ident($($argument:expr),* $(,)?)) => {
        $driver.check(stringify!($name), ($driver.table.$name)($($argument),*))
    };
}
pub(crate) use call;

/// The initialised driver of this process.
pub struct Driver {
    library: Library,
    /// Its functions.
    pub table: Table,
    /// CUDA version that the driver supports: 1000 × major + 10 × minor.
    pub version: u32,
}

static DRIVER: OnceLock<CallResult<Driver>> = OnceLock::new();

impl Driver {
    /// The driver, opened and initialised by the first call; later calls return what that one found.
    ///
    /// # Errors
    /// `LIBRARY_MISSING` or `NO_DEVICE`, with the library, symbol, version or call that is wrong
    /// and what to do.
    pub fn get() -> CallResult<&'static Self> {
        DRIVER
            .get_or_init(Self::start)
            .as_ref()
            .map_err(Clone::clone)
    }

    fn start() -> CallResult<Self> {
        let library = Library::open(SONAME, &[], ADVICE)?;
        // SAFETY: the library is the driver.
        let table =
            unsafe { Table::load(&library) }.map_err(|symbol| missing_symbol(&library, symbol))?;
        let mut driver = Self {
            library,
            table,
            version: 0,
        };
        // SAFETY: the flags must be 0.
        let code = unsafe { (driver.table.cuInit)(0) };
        if code != constants::result::SUCCESS {
            return Err(driver.start_failure("cuInit", code));
        }
        let mut version = 0;
        // SAFETY: the place is writable.
        let code = unsafe { (driver.table.cuDriverGetVersion)(&raw mut version) };
        if code != constants::result::SUCCESS {
            return Err(driver.start_failure("cuDriverGetVersion", code));
        }
        driver.version = u32::try_from(version).unwrap_or(0);
        Ok(driver)
    }

    /// The library, for functions that are not in the table.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// The file that the driver was loaded from.
    pub fn file(&self) -> Option<PathBuf> {
        library::file_of(self.table.cuInit as *const c_void)
    }

    /// Makes a call's result a failure that names it, unless it succeeded.
    #[inline]
    pub fn check(&self, call: &'static str, code: Code) -> CallResult<()> {
        if code == constants::result::SUCCESS {
            Ok(())
        } else {
            Err(self.failure(call, code))
        }
    }

    /// As [`Driver::check`] where "not yet" is an answer: 1 for success, 0 for not ready.
    #[inline]
    pub fn check_ready(&self, call: &'static str, code: Code) -> CallResult<bool> {
        match code {
            constants::result::SUCCESS => Ok(true),
            constants::result::NOT_READY => Ok(false),
            _ => Err(self.failure(call, code)),
        }
    }
}

/// A version as people write it.
pub fn version_text(version: u32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn missing_symbol(library: &Library, symbol: &str) -> Failure {
    let version = library.symbol(c"cuDriverGetVersion").and_then(|address| {
        // SAFETY: the driver's function of this name has this signature in every version.
        let function = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int) -> Code>(address)
        };
        let mut version = 0;
        // SAFETY: the place is writable.
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
        // Some library that every process can open and that is no driver.
        let library = Library::open("libc.so.6", &[], "").expect("the C library");
        // SAFETY: nothing is called: the first look-up already fails.
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
