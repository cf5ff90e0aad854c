//! A transfer as a case.

use super::dtype::Dtype;
use super::engine::{Engine, MethodName};
use super::length::Length;
use serde::{Deserialize, Serialize};
use std::fmt;
use symmem::SignalPlacement;

/// A transfer between ranks, or a related operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TransferCase {
    /// The operation to check.
    pub operation: Operation,
    /// Senders and receivers.
    pub traffic: Traffic,
    /// Element type.
    pub dtype: Dtype,
    /// Number of elements per transfer.
    pub length: Length,
    /// Elements between a 256-byte boundary and the first element written.
    pub destination_offset: usize,
    /// Elements between a 256-byte boundary and the first element read.
    pub source_offset: usize,
    /// Transfer method and geometry.
    pub engine: Engine,
    /// Placement of the communicator's signals.
    pub placement: Placement,
    /// Seeds the data.
    pub seed: u64,
}

impl TransferCase {
    /// Whether it names an engine, and so needs kernels, for traffic between nodes. `nodes` has the node of each rank.
    pub(super) fn needs_kernels(&self, nodes: &[usize]) -> bool {
        let crosses = |rank: usize| {
            let targets = self.traffic.targets(rank, nodes.len());
            targets.iter().any(|target| nodes[*target] != nodes[rank])
        };
        self.engine.method != MethodName::Automatic && (0..nodes.len()).any(crosses)
    }

    /// Returns a case of a sample for ranks on several nodes: most name no engine between nodes.
    pub fn over_nodes(self) -> Self {
        /// One in this many keeps the engine, and is skipped by name.
        const KEPT: u64 = 8;
        let keeps = self.traffic == Traffic::Own || self.seed.is_multiple_of(KEPT);
        Self {
            engine: if keeps {
                self.engine
            } else {
                Engine::AUTOMATIC
            },
            ..self
        }
    }
}

impl fmt::Display for TransferCase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:?}/{:?}/{:?}/{}/+{}+{}/{}/{:?}",
            self.operation,
            self.traffic,
            self.dtype,
            self.length,
            self.destination_offset,
            self.source_offset,
            self.engine,
            self.placement,
        )
    }
}

/// The operation that a case checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Operation {
    /// A put, complete after `synchronize` and a host barrier.
    Put,
    /// A get of data that the peer wrote before a host barrier.
    Get,
    /// A put with signal, visible after the peer's wait; twice, with new data.
    PutSignal,
    /// A put, visible after a device barrier; twice, with new data.
    Barrier,
    /// Put with signal, wait and barrier, captured and replayed several times between eager rounds.
    Replay,
    /// Several streams at once, each with its own channel and data.
    Streams,
    /// One stream and several channels, waited for in reverse order.
    Channels,
    /// Host writes to the local copy, and reads from it.
    HostCopy,
    /// Calls that must fail with a given error and leave the communicator working.
    Refusals,
    /// Registration of memory that the caller owns; a staged copy if it cannot be shared.
    Registration,
}

impl Operation {
    /// The operations that move data between ranks and use every parameter of a case.
    pub const TRANSFERS: [Self; 7] = [
        Self::Put,
        Self::Get,
        Self::PutSignal,
        Self::Barrier,
        Self::Replay,
        Self::Streams,
        Self::Channels,
    ];
}

/// Senders and receivers of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Traffic {
    /// Each rank to itself.
    Own,
    /// Each rank to the next.
    Ring,
    /// Each rank to every rank, itself included.
    AllPairs,
}

impl Traffic {
    /// All patterns.
    pub const ALL: [Self; 3] = [Self::Own, Self::Ring, Self::AllPairs];

    /// Returns the ranks that `rank` puts to.
    pub fn targets(self, rank: usize, world: usize) -> Vec<usize> {
        match self {
            Self::Own => vec![rank],
            Self::Ring => vec![(rank + 1) % world],
            Self::AllPairs => (0..world).collect(),
        }
    }

    /// Returns the ranks that put to `rank`.
    pub fn givers(self, rank: usize, world: usize) -> Vec<usize> {
        match self {
            Self::Own => vec![rank],
            Self::Ring => vec![(rank + world - 1) % world],
            Self::AllPairs => (0..world).collect(),
        }
    }
}

/// [`SignalPlacement`] as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Placement {
    /// In memory of the rank that waits.
    Device,
    /// In host memory that the ranks share.
    Host,
}

impl Placement {
    /// All placements.
    pub const ALL: [Self; 2] = [Self::Device, Self::Host];
}

impl From<Placement> for SignalPlacement {
    fn from(placement: Placement) -> Self {
        match placement {
            Placement::Device => Self::Device,
            Placement::Host => Self::Host,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_puts_to_whom_reads_the_same_from_both_ends() {
        for world in [1, 2, 3, 8] {
            for traffic in Traffic::ALL {
                for rank in 0..world {
                    for target in traffic.targets(rank, world) {
                        assert!(traffic.givers(target, world).contains(&rank));
                    }
                }
            }
        }
    }
}
