//! The host backend has no vendor, and so no vendor's library.

use crate::backend::WithoutVendorCollectives;
use crate::host::backend::HostBackend;

impl WithoutVendorCollectives for HostBackend {
    const REASON: &'static str =
        "the host backend has no vendor, and so no vendor's library; use symmem's own algorithms";
}
