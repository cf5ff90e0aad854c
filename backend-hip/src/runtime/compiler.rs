//! `libhiprtc.so`, AMD's run-time compiler. Older releases have its functions in `libamdhip64.so`.

use super::open_library;
use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;
use symmem_core::backend::abi::Status;
use symmem_core::backend::{CallResult, Failure};
use symmem_gpu::library::file_of;

/// File names of the compiler, newest first.
pub const SONAMES: [&str; 3] = ["libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5"];
/// File names of runtimes that may contain it. Searched separately, since one of them may be loaded already.
const WITHIN: [&str; 2] = ["libamdhip64.so.6", "libamdhip64.so.5"];

/// `hiprtcResult`.
pub type Code = c_int;
/// `hiprtcProgram`.
pub type Program = *mut c_void;

symmem_gpu::symbol_table! {
    /// Functions of the compiler.
    pub struct Table {
        required {
            hiprtcVersion(major: *mut c_int, minor: *mut c_int) -> Code;
            hiprtcGetErrorString(code: Code) -> *const c_char;
            hiprtcCreateProgram(
                program: *mut Program, source: *const c_char, name: *const c_char,
                count: c_int, headers: *const *const c_char, names: *const *const c_char,
            ) -> Code;
            hiprtcCompileProgram(program: Program, count: c_int, options: *const *const c_char) -> Code;
            hiprtcGetProgramLogSize(program: Program, bytes: *mut usize) -> Code;
            hiprtcGetProgramLog(program: Program, log: *mut c_char) -> Code;
            hiprtcGetCodeSize(program: Program, bytes: *mut usize) -> Code;
            hiprtcGetCode(program: Program, code: *mut c_char) -> Code;
            hiprtcDestroyProgram(program: *mut Program) -> Code;
        }
        optional {}
    }
}

/// The opened compiler.
pub struct Compiler {
    /// Its functions.
    pub table: Table,
    /// Version, such as `7.1`.
    pub version: String,
}

static COMPILER: OnceLock<CallResult<Compiler>> = OnceLock::new();

impl Compiler {
    /// Returns the compiler; the first call opens it.
    ///
    /// # Errors
    /// `LIBRARY_MISSING`, with the places searched and what to do.
    pub fn get() -> CallResult<&'static Self> {
        COMPILER
            .get_or_init(Self::open)
            .as_ref()
            .map_err(Clone::clone)
    }

    fn open() -> CallResult<Self> {
        let advice = "install ROCm's package hiprtc";
        let library = open_library(&SONAMES, advice)
            .or_else(|failure| open_library(&WITHIN, advice).map_err(|_| failure))?;
        // SAFETY: libraries of these names are AMD's, and have AMD's compiler functions or none.
        let table = unsafe { Table::load(&library) }.map_err(|symbol| {
            let reason = format!("the library found has no symbol {symbol}; {advice}");
            Failure::new(Status::LIBRARY_MISSING, "dlsym", reason)
        })?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both out-pointers are writable.
        let code = unsafe { (table.hiprtcVersion)(&raw mut major, &raw mut minor) };
        let version = match code {
            0 => format!("{major}.{minor}"),
            _ => "unknown".into(),
        };
        Ok(Self { table, version })
    }

    /// Returns the file that the compiler was loaded from.
    pub fn file(&self) -> Option<PathBuf> {
        file_of(self.table.hiprtcVersion as *const c_void)
    }
}
