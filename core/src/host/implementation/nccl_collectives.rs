//! The host backend has neither NCCL nor RCCL.

use crate::backend::WithoutNcclCollectives;
use crate::host::backend::HostBackend;

impl WithoutNcclCollectives for HostBackend {
    const REASON: &'static str =
        "the host backend has neither NCCL nor RCCL; use `Provider::Symmem`";
}
