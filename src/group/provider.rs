//! Providers of collectives: symmem, or NCCL and RCCL.

/// The provider of a collective. In a group that spans nodes, of the legs between nodes: stages inside a node are symmem's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provider {
    /// symmem's kernels and copy engines; or NCCL (on AMD, RCCL) if it is open and a tuning row names it. Between nodes,
    /// NCCL or RCCL for legs of at least 256 KiB, if it is open and has the call; else UCX.
    #[default]
    Automatic,
    /// symmem's kernels and copy engines only; between nodes, UCX only.
    Symmem,
    /// NCCL or RCCL only, on any symmetric memory. Between nodes, calls that it does not carry are refused.
    Nccl,
    /// NCCL or RCCL only, on its communicator with symmetric windows. Buffers that were not registered with it
    /// are moved as by [`Provider::Nccl`]. Refused in groups that span nodes.
    NcclWindows,
}
