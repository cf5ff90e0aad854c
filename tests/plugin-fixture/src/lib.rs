//! A plugin file of backend `tiny` that works, or has the fault that `FIXTURE_FAULT` names, one of those in `faulty`.
//! Under the name `next` it is a plugin for the next major version.

#[path = "../../../core/tests/tiny/mod.rs"]
#[allow(missing_docs, dead_code, reason = "shared with core's own tests")]
mod tiny;

use std::ptr;
use symmem_core::backend::{BackendTable, DeviceTable, SignalsTable};

static GOOD: BackendTable = BackendTable::of::<tiny::Tiny>();

/// An address where nothing can be read: the first page is never mapped.
const NOWHERE: usize = 64;

/// Returns the plugin table; the loader calls this function.
// SAFETY: no other library of this process has a backend of this name.
#[unsafe(no_mangle)]
pub extern "C" fn symmem_backend_tiny_v1() -> *const BackendTable {
    faulty(
        std::env::var("FIXTURE_FAULT")
            .as_deref()
            .unwrap_or_default(),
    )
}

#[expect(
    clippy::missing_transmute_annotations,
    reason = "the types are those of the table's entries, which are long"
)]
fn faulty(fault: &str) -> *const BackendTable {
    let mut table = GOOD;
    // SAFETY: the pointer is to the whole table of a static.
    let mut device: DeviceTable = unsafe { *table.device };
    let data = (&raw const GOOD).cast::<()>();
    match fault {
        "null" => return ptr::null(),
        "unreadable" => return ptr::without_provenance(NOWHERE),
        "misaligned" => return data.wrapping_byte_add(4).cast(),
        "magic" => table.magic = *b"\x7fELF\x02\x01\x01\0",
        "major" => table.abi_major += 1,
        "truncated" => table.size /= 2,
        "size" => table.size += 8,
        // SAFETY: the loader must not call the entry.
        "entry" => table.open = Some(unsafe { std::mem::transmute::<*const (), _>(data) }),
        "part" => table.signals = ptr::without_provenance::<SignalsTable>(NOWHERE),
        "part_size" => device.size = 1 << 40,
        "part_entry" => {
            // SAFETY: the loader must not call the entry.
            device.launch = Some(unsafe { std::mem::transmute::<*const (), _>(data) });
        }
        _ => {}
    }
    table.device = Box::leak(Box::new(device));
    Box::leak(Box::new(table))
}

/// What a plugin for the next major version exports. Nothing calls it.
// SAFETY: no other library of this process has a backend of this name.
#[unsafe(no_mangle)]
pub extern "C" fn symmem_backend_next_v2() -> *const std::ffi::c_void {
    std::ptr::null()
}
