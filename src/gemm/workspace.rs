//! The device resources of an operation: memory that peers write, side streams, prepared GEMMs.
//!
//! All are made with the operation, since making them can make the driver wait for the device or allocate,
//! which no call may wait for. They are released like a module: once no graph holds them and this rank's
//! streams are idle.

use crate::gemm::prepared::PreparedGemms;
use crate::gemm::side_streams::CallStreams;
use crate::rank::allocation::Allocation;
use crate::rank::driver::Driver;
use crate::rank::release::{Held, Progress, Resource};
use crate::rank::sequence::Sequence;
use std::sync::Arc;

/// The device resources of an operation.
#[derive(Default)]
pub(crate) struct Workspace {
    /// The gathered `A`, if the caller provides no buffer.
    pub(super) gathered: Option<Arc<Allocation>>,
    /// All ranks' shards, one behind the other, for algorithms that gather them as blocks first.
    pub(super) staging: Option<Arc<Allocation>>,
    /// The partial sums of the tiles that several blocks multiply; `None` if there are none. Only this rank uses its own.
    pub(super) partials: Option<Arc<Allocation>>,
    /// Words with which peers signal arrivals; `None` if no step waits for a peer.
    pub(super) signals: Option<Arc<Allocation>>,
    pub(super) streams: CallStreams,
    pub(super) gemms: PreparedGemms,
    /// The sequence of the operation's calls.
    pub(super) sequence: Arc<Sequence>,
}

impl Resource for Workspace {
    /// Releases this rank's own resources once nothing runs, as modules are unloaded: the library may wait for
    /// the device. The memory, which peers may still use, and the streams are returned, to be released in turn.
    fn release(&self, driver: &Driver, quiet: bool, unheld: bool) -> Progress {
        if !quiet || !unheld {
            return Progress::Waits;
        }
        let mut next: Vec<Held> = self.gemms.release(driver).into_iter().collect();
        next.extend(self.streams.release(driver));
        for memory in [&self.gathered, &self.staging, &self.partials, &self.signals] {
            next.extend(memory.iter().map(|memory| memory.clone() as Held));
        }
        Progress::Released(next)
    }
}
