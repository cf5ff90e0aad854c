//! `libhiprtc.so`, AMD's run-time compiler, whose functions older releases have in `libamdhip64.so`.

use std::ffi::{c_char, c_int, c_void};

/// `hiprtcResult`.
pub type Code = c_int;
/// `hiprtcProgram`.
pub type Program = *mut c_void;

symmem_core::symbol_table! {
    /// The compiler's functions.
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
