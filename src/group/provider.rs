//! Providers of collectives: symmem, or NCCL and RCCL.

/// The provider of a collective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provider {
    /// symmem's kernels and copy engines; or NCCL (on AMD, RCCL) if it is open and a tuning row names it.
    #[default]
    Automatic,
    /// symmem's kernels and copy engines only.
    Symmem,
    /// NCCL or RCCL only, on any symmetric memory.
    Nccl,
    /// NCCL or RCCL only, on its communicator with symmetric windows. Buffers that were not registered with it
    /// are moved as by [`Provider::Nccl`].
    NcclWindows,
}
