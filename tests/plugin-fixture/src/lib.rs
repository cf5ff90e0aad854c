//! A plugin file of backend `tiny` that works, or has the fault that `FIXTURE_FAULT` names: `null`, `magic`, `major` or
//! `truncated`. Under the name `next` it is a plugin for the next major version.

#[path = "../../../core/tests/tiny/mod.rs"]
#[allow(missing_docs, dead_code, reason = "shared with core's own tests")]
mod tiny;

use symmem_core::backend::BackendTable;

static GOOD: BackendTable = BackendTable::of::<tiny::Tiny>();

/// Returns the plugin table; the loader calls this function.
// SAFETY: no other library of this process has a backend of this name.
#[unsafe(no_mangle)]
pub extern "C" fn symmem_backend_tiny_v1() -> *const BackendTable {
    let mut table = GOOD;
    match std::env::var("FIXTURE_FAULT").as_deref() {
        Ok("null") => return std::ptr::null(),
        Ok("magic") => table.magic = *b"\x7fELF\x02\x01\x01\0",
        Ok("major") => table.abi_major += 1,
        Ok("truncated") => table.size /= 2,
        _ => {}
    }
    Box::leak(Box::new(table))
}

/// What a plugin for the next major version exports. Nothing calls it.
// SAFETY: no other library of this process has a backend of this name.
#[unsafe(no_mangle)]
pub extern "C" fn symmem_backend_next_v2() -> *const std::ffi::c_void {
    std::ptr::null()
}
