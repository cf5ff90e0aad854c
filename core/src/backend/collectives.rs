//! Operations of all ranks together.

use super::abi::*;
use super::failure::CallResult;
use enum_dispatch::enum_dispatch;

/// The kernels of collectives.
#[enum_dispatch]
pub trait Collectives {
    /// Holds the stream until every rank's stream has reached its barrier of the same number. Work
    /// before it at any rank is visible after it at every rank. Capturable.
    ///
    /// # Safety
    /// All words, the abort word and the record are live until the stream has passed this point.
    unsafe fn barrier(&self, barrier: &Barrier, stream: RawStream) -> CallResult<()>;
}
