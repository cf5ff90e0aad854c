//! When a stream's next kernel may start beside a collective.

use crate::backend::abi::DependentsCode;

/// When the stream's next kernel may start beside a collective's, if it is launched as a dependent (programmatic dependent
/// launch).
///
/// symmem launches its kernels as dependents on NVIDIA devices of compute capability 9.0 and later, if the driver is of
/// CUDA 12.3 or later. Each waits for the end of the kernel before it, then touches memory, so results do not depend on this
/// choice. A program that launches its own kernels as dependents must let them wait too (`griddepcontrol.wait`). While a
/// dependent waits, its blocks take room on the device that kernels of other streams may want.
///
/// Kernels of other devices start after the end of the one before. NCCL and RCCL decide for themselves. The choice also does
/// not reach kernels of one block that signal and wait: the barrier of all ranks without multicast, also around copies by
/// the copy engine, and the steps between these copies. Nor does it reach the kernel that copies a rank's own part beside
/// the copy engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dependents {
    /// Once every block of the collective has heard from every peer's block that it waits for. This hides the launch of the
    /// next kernel. By then the peers' blocks that the collective still needs are running, so the next kernel takes no room
    /// that they need. Sends and receives, and Lamport packets that no small kernel carries, let the next kernel start
    /// only when they end.
    #[default]
    WhenAnswered,
    /// When the collective's kernel ends. For a stream whose next kernel is large, if another stream's kernels should have
    /// the room.
    AtEnd,
    /// When the collective's kernel ends. The collective itself starts after the end of the kernel before it, and each of
    /// its kernels after the end of the one before, as after plain launches.
    Never,
}

impl From<Dependents> for DependentsCode {
    fn from(dependents: Dependents) -> Self {
        match dependents {
            Dependents::WhenAnswered => Self::ANSWERED,
            Dependents::AtEnd => Self::ENDED,
            Dependents::Never => Self::NEVER,
        }
    }
}
