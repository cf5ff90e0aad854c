//! cuBLASLt and hipBLASLt. Both have the same functions behind their own prefix, and other numbers for the same
//! things.
//!
//! A backend finds and opens its library and describes how it differs ([`Dialect`]); the rest is written once,
//! here. Both libraries are column-major, and symmem's matrices are row-major, so they get the transposed GEMM
//! `Cᵀ[n, m] = Bᵀ[n, k] · Aᵀ[k, m]`: their first matrix is symmem's `B`, and the bias along their rows is
//! symmem's bias along columns.
//!
//! Danger: a library loads a kernel when that is first used, which may wait for the device. Whoever prepares a
//! GEMM therefore runs each heuristic candidate once while no kernel waits for a peer. This includes the
//! candidate for unaligned operands, which replaces any other candidate for such operands.

mod heuristic;
mod prepared_gemm;
mod prepared_gemms;
mod table;

pub use heuristic::RESULT_WORDS;
pub use prepared_gemms::PreparedGemms;

use crate::library::{Library, file_of};
use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Failure, write_text};
use table::{Code, Object, Table, find};

/// Names and numbers of cuBLASLt or hipBLASLt.
pub struct Dialect {
    /// The library's name.
    pub name: &'static str,
    /// Prefix of its function names.
    pub prefix: &'static str,
    /// Divisors of the version number: the first gives the major part, the second, applied to the remainder,
    /// the minor part.
    pub version_units: [u32; 2],
    /// Whether `GetVersion` takes a handle of the library; else it takes no arguments.
    pub version_of_instance: bool,
    /// The first version with these numbers and structs; 0 if the library's file name implies it.
    pub least_version: u32,
    /// Compute type with f32 accumulation.
    pub compute_f32: c_int,
    /// Data type of [`ElementTypeCode::F32`].
    pub f32: c_int,
    /// Data type of [`ElementTypeCode::F16`].
    pub f16: c_int,
    /// Data type of [`ElementTypeCode::BF16`].
    pub bf16: c_int,
    /// Data type of [`ElementTypeCode::F8_E4M3`].
    pub f8_e4m3: c_int,
    /// Value that transposes a matrix.
    pub transposed: c_int,
    /// Operation attribute: [`Dialect::transposed`] or not, for the first matrix.
    pub transpose_first: c_int,
    /// Operation attribute: the epilogue.
    pub epilogue: c_int,
    /// Epilogue that adds a bias to each column.
    pub epilogue_bias: u32,
    /// Operation attribute: the bias's address.
    pub bias_pointer: c_int,
    /// Operation attribute: the address of the factor of the first matrix; null for 1.
    pub scale_of_first: c_int,
    /// Operation attribute: the bias's data type; `None` if it defaults to the result's.
    pub bias_element: Option<c_int>,
    /// Preference attribute: the largest workspace, in bytes.
    pub most_workspace: c_int,
    /// Preference attributes: the least alignment of each of the four matrices, in bytes; `None` if the
    /// library's kernels take any alignment.
    pub alignments: Option<[c_int; 4]>,
    /// Preference attribute: the allowed split-K reduction schemes, and the mask of those that accumulate in
    /// f32; `None` if the library has no others. Without it, partial sums may be rounded in between
    /// (`2026-11-22-selftest-products-before-2xh200`).
    pub partial_sums: Option<(c_int, u32)>,
    /// Size of the algorithm struct (`cublasLtMatmulAlgo_t`, `hipblasLtMatmulAlgo_t`) in 64-bit words.
    pub algorithm_words: usize,
    /// Meaning of its status codes, and what to do about each.
    pub codes: &'static [(Code, Status, &'static str)],
}

/// The `GetVersion` function, by signature.
enum Version {
    Plain(unsafe extern "C" fn() -> usize),
    OfInstance(unsafe extern "C" fn(Object, *mut c_int) -> Code),
}

/// An opened cuBLASLt or hipBLASLt.
pub struct BlasLtApi {
    table: Table,
    version: Version,
    dialect: &'static Dialect,
}

impl BlasLtApi {
    /// Looks up the functions of an opened library.
    ///
    /// # Errors
    /// `LIBRARY_MISSING` with the name of the missing function.
    ///
    /// # Safety
    /// The library has the functions of its vendor's header under this prefix, and they behave as the header says.
    pub unsafe fn new(dialect: &'static Dialect, library: &Library) -> CallResult<Self> {
        let lacks = |function: String| {
            Failure::new(
                Status::LIBRARY_MISSING,
                "dlsym",
                format!(
                    "the library found as {} has no symbol {function}; install it again, or name the \
                     directory of another in {}",
                    dialect.name,
                    crate::library::SEARCH_VARIABLE
                ),
            )
        };
        let version = find(library, dialect.prefix, "GetVersion").map_err(lacks)?;
        // SAFETY: the caller says that the library is the vendor's, whose `GetVersion` has the type that its
        // dialect names.
        let version = unsafe {
            match dialect.version_of_instance {
                false => Version::Plain(std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn() -> usize,
                >(version)),
                true => Version::OfInstance(std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(Object, *mut c_int) -> Code,
                >(version)),
            }
        };
        // SAFETY: the caller says that the library is the vendor's.
        let table = unsafe { Table::load(library, dialect.prefix) }.map_err(lacks)?;
        Ok(Self {
            table,
            version,
            dialect,
        })
    }

    /// Returns the file that the library was loaded from.
    pub fn file(&self) -> Option<PathBuf> {
        file_of(self.table.multiply as *const c_void)
    }

    /// Returns the library's own version number. If only a handle can be asked, creates and destroys one on the
    /// current device, which must be idle.
    ///
    /// # Errors
    /// The library's failure; `LIBRARY_MISSING` if it is too old.
    pub fn version(&self) -> CallResult<u32> {
        if let Version::Plain(_) = self.version {
            return self.version_of(std::ptr::null_mut());
        }
        let instance = self.instance()?;
        let version = self.version_of(instance);
        // SAFETY: the handle was created above and is not used again.
        let ended = self.check("Destroy", unsafe { (self.table.destroy)(instance) });
        version.and_then(|version| ended.map(|()| version))
    }

    /// Returns a version number as text, such as `12.4.5`.
    pub fn version_text(&self, version: u32) -> String {
        let [major, minor] = self.dialect.version_units;
        format!(
            "{}.{}.{}",
            version / major,
            version % major / minor,
            version % minor
        )
    }

    /// Creates a handle of the library on the current device.
    fn instance(&self) -> CallResult<Object> {
        let mut instance = std::ptr::null_mut();
        // SAFETY: the out-pointer is writable.
        self.check("Create", unsafe { (self.table.create)(&raw mut instance) })?;
        Ok(instance)
    }

    /// Returns the version if the dialect's numbers hold for it. `instance` is live, or unused by this dialect.
    fn version_of(&self, instance: Object) -> CallResult<u32> {
        let version = match self.version {
            // SAFETY: the function takes no arguments.
            Version::Plain(ask) => u32::try_from(unsafe { ask() }).unwrap_or(0),
            Version::OfInstance(ask) => {
                let mut version: c_int = 0;
                // SAFETY: the caller passes a live handle; the out-pointer is writable.
                self.check("GetVersion", unsafe { ask(instance, &raw mut version) })?;
                u32::try_from(version).unwrap_or(0)
            }
        };
        if version >= self.dialect.least_version {
            return Ok(version);
        }
        Err(Failure::new(
            Status::LIBRARY_MISSING,
            self.name_of("GetVersion"),
            format!(
                "{} is version {}; install {} or newer, whose enumeration values symmem uses",
                self.dialect.name,
                self.version_text(version),
                self.version_text(self.dialect.least_version)
            ),
        ))
    }

    /// Returns the description for the plugin table. `instance` is live.
    fn description(&self, instance: Object) -> CallResult<LibraryDescription> {
        let mut description = LibraryDescription {
            name: [0; 16],
            file: [0; 256],
            version: self.version_of(instance)?,
            flags: 0,
        };
        write_text(&mut description.name, self.dialect.name);
        let file = self.file().map(|file| file.display().to_string());
        write_text(&mut description.file, &file.unwrap_or_default());
        Ok(description)
    }

    fn name_of(&self, function: &str) -> String {
        format!("{}{function}", self.dialect.prefix)
    }

    /// Turns a status code into a result.
    #[inline]
    fn check(&self, function: &str, code: Code) -> CallResult<()> {
        match code {
            0 => Ok(()),
            _ => Err(self.failure(function, code)),
        }
    }

    #[cold]
    fn failure(&self, function: &str, code: Code) -> Failure {
        let known = self.dialect.codes.iter().find(|known| known.0 == code);
        let (status, message) = known.map_or(
            (
                Status::CALL_FAILED,
                "a status code that its header does not list",
            ),
            |&(_, status, message)| (status, message),
        );
        Failure::of_call(status, self.name_of(function), code, message)
    }
}

// Miri opens no libraries.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    const DIALECT: Dialect = Dialect {
        name: "Products",
        prefix: "products",
        version_units: [100_000, 100],
        version_of_instance: true,
        least_version: 0,
        compute_f32: 0,
        f32: 0,
        f16: 0,
        bf16: 0,
        f8_e4m3: 0,
        transposed: 0,
        transpose_first: 0,
        epilogue: 0,
        epilogue_bias: 0,
        bias_pointer: 0,
        scale_of_first: 0,
        bias_element: None,
        most_workspace: 0,
        alignments: None,
        partial_sums: None,
        algorithm_words: 1,
        codes: &[],
    };

    #[test]
    fn a_library_without_a_function_is_told_with_it() {
        let library = Library::open("libc.so.6", &[], "").expect("the C library");
        // SAFETY: no function is called, since already the first look-up fails.
        let failure = unsafe { BlasLtApi::new(&DIALECT, &library) }.err();
        let failure = failure.expect("no such library");
        assert_eq!(failure.status, Status::LIBRARY_MISSING);
        for word in ["Products", "productsGetVersion", "SYMMEM_LIBRARY_PATH"] {
            assert!(failure.message.contains(word), "{}", failure.message);
        }
    }
}
