//! Who does a collective: our kernels, or NCCL and RCCL.

/// Who does a collective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provider {
    /// Our kernels, or the vendor's library where the table of measurements names it or we have no kernel.
    #[default]
    Automatic,
    /// Ours only.
    Own,
    /// The vendor's library only, over whatever memory.
    Vendor,
    /// The vendor's library only, over its communicator with symmetric windows; buffers that were not
    /// registered with it are moved as [`Provider::Vendor`] does.
    VendorWindows,
}
