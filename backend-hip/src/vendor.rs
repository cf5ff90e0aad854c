//! RCCL: finding it. What it does is the same as NCCL's, and stands in core.

use crate::runtime::{Runtime, open_library};
use std::sync::OnceLock;
use symmem_core::backend::CallResult;
use symmem_gpu::vendor_library::VendorLibrary;

/// The library's name for the loader.
pub const SONAME: &str = "librccl.so.1";

/// What RCCL's symmetric windows take (its change log, releases 7.11 to 10).
const WINDOWS_NEED: &str = "2.28 or newer has them, of memory by virtual-memory management and with \
                            NCCL_CUMEM_ENABLE=1";

static LIBRARY: OnceLock<CallResult<VendorLibrary>> = OnceLock::new();

/// RCCL, opened by the first call.
///
/// # Errors
/// `LIBRARY_MISSING`, or what keeps the runtime itself from starting.
pub fn library() -> CallResult<&'static VendorLibrary> {
    let opened = LIBRARY.get_or_init(|| {
        // Where there is no runtime there is no use for it, and the reason is the runtime's.
        Runtime::get()?;
        let advice = "install RCCL (ROCm's package rccl)";
        let library = open_library(&[SONAME], advice)?;
        // SAFETY: a file of this name is RCCL.
        unsafe { VendorLibrary::new("RCCL", WINDOWS_NEED, &library) }
    });
    opened.as_ref().map_err(Clone::clone)
}

/// Whether RCCL needs `HSA_NO_SCRATCH_RECLAIM=1` with this version of ROCm on this architecture: before
/// 6.4, and on gfx90a again from 7.13 on (RCCL's change log). It reads the variable when the runtime
/// starts, so it can only be told to the user.
pub fn needs_scratch(version: u32, architecture: u32) -> bool {
    const VERSION_6_4: u32 = 60_400_000;
    const VERSION_7_13: u32 = 71_300_000;
    version < VERSION_6_4 || (architecture == 910 && version >= VERSION_7_13)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_memory_is_to_be_kept_for_old_releases_and_for_gfx90a_with_new_ones() {
        assert!(needs_scratch(60_300_000, 942));
        assert!(!needs_scratch(60_400_000, 910));
        assert!(!needs_scratch(71_300_000, 942));
        assert!(needs_scratch(71_300_000, 910));
    }
}
