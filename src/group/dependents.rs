//! When a stream's next kernel may start beside a collective.

use crate::backend::abi::DependentsCode;

/// When the kernel that follows a collective on its stream may start beside it, if it was launched as a dependent
/// (programmatic dependent launch). symmem's kernels are, on devices that can. A dependent waits for the end of this kernel
/// before it touches memory, so the results are the same; but until then its blocks take room on the device that kernels of
/// other streams may want.
///
/// Devices older than compute capability 9.0, AMD's, and the copy engine start nothing early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dependents {
    /// Once every peer has answered. The default: it hides the launch of the next kernel, and no peer still needs room here
    /// that the next kernel could take.
    #[default]
    WhenAnswered,
    /// When the collective's kernel ends. For a stream whose next kernel is large, while another stream's kernels
    /// should have the room.
    AtEnd,
    /// When the collective's kernel ends; and the collective itself starts after the end of the kernel before it, as after
    /// plain launches.
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
