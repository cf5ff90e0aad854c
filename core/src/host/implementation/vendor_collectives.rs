//! The host backend has neither NCCL nor RCCL.

use crate::backend::WithoutVendorCollectives;
use crate::host::backend::HostBackend;

impl WithoutVendorCollectives for HostBackend {
    const REASON: &'static str =
        "the host backend has neither NCCL nor RCCL; use symmem's own algorithms";
}
