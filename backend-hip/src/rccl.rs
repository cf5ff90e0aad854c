//! RCCL: how it is found; `symmem_gpu::nccl` has the calls.

use crate::runtime::{Runtime, open_library};
use std::sync::OnceLock;
use symmem_core::backend::CallResult;
use symmem_gpu::nccl::NcclApi;

/// File name of the library.
pub const SONAME: &str = "librccl.so.1";

/// Phrase for errors: requirements of RCCL's symmetric windows (its change log, releases 7.11 to 10).
const WINDOWS_NEED: &str = "they need RCCL 2.28 or newer, memory of kind VMM_FILE_DESCRIPTOR, and \
                            NCCL_CUMEM_ENABLE=1";

static LIBRARY: OnceLock<CallResult<NcclApi>> = OnceLock::new();

/// Returns RCCL; the first call opens it.
///
/// # Errors
/// `LIBRARY_MISSING`, or the failure that keeps the runtime from starting.
pub fn library() -> CallResult<&'static NcclApi> {
    let opened = LIBRARY.get_or_init(|| {
        // Without a runtime RCCL is useless, so its failure is the one to report.
        Runtime::get()?;
        let advice = "install RCCL (ROCm's package rccl)";
        let library = open_library(&[SONAME], advice)?;
        // SAFETY: libraries of this name are RCCL.
        unsafe { NcclApi::new("RCCL", WINDOWS_NEED, &library) }
    });
    opened.as_ref().map_err(Clone::clone)
}

/// Returns whether RCCL needs `HSA_NO_SCRATCH_RECLAIM=1` with this ROCm version and architecture: before 6.4,
/// and on gfx90a again from 7.13 on (RCCL's change log). The runtime reads the variable when it starts, so
/// symmem can only advise the user to set it.
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
