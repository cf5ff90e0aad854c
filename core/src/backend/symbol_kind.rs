//! Whether an exported symbol is a function.

use libloading::os::unix::Library;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

/// The C library's `Dl_info`. Only its size counts here.
#[repr(C)]
struct Information([*const c_void; 4]);

/// A symbol as in the file: `Elf64_Sym`.
#[repr(C)]
struct Symbol {
    name: u32,
    /// The type is in the lower four bits.
    information: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

type DlAddr1 = unsafe extern "C" fn(
    *const c_void,
    *mut MaybeUninit<Information>,
    *mut *const Symbol,
    c_int,
) -> c_int;

/// Asks `dladdr1` for the symbol as in the file.
const SYMBOL: c_int = 1;
const FUNCTION: u8 = 2;
/// A function that chooses another one, which the loader has resolved.
const INDIRECT_FUNCTION: u8 = 10;

/// Returns whether the exported symbol at this address is a function. Some linkers put constants beside code, where the
/// mapping's permissions do not tell. Returns true if the C library cannot tell: only glibc has `dladdr1`.
pub(super) fn is_function(address: *const c_void) -> bool {
    // SAFETY: glibc gives a function of this name this type; see dladdr(3).
    let Ok(dladdr1) = (unsafe { Library::this().get::<DlAddr1>(b"dladdr1\0") }) else {
        return true;
    };
    let mut information = MaybeUninit::uninit();
    let mut symbol: *const Symbol = ptr::null();
    // SAFETY: both results are writable. The function compares the address and does not follow it.
    let found = unsafe { dladdr1(address, &raw mut information, &raw mut symbol, SYMBOL) };
    if found == 0 || symbol.is_null() {
        // No symbol is there: the function that an indirect one has chosen may have none.
        return true;
    }
    // SAFETY: the symbol lies in the table of a library that is never unloaded.
    let kind = unsafe { (*symbol).information } & 0xf;
    matches!(kind, FUNCTION | INDIRECT_FUNCTION)
}
