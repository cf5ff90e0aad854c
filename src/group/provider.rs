//! Who does a collective: our kernels, or NCCL and RCCL.

/// Who does a collective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provider {
    /// Ours, and the vendor's library where we have nothing better.
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
