//! A transfer as a case.

use super::dtype::Dtype;
use super::engine::Engine;
use super::length::Length;
use serde::{Deserialize, Serialize};
use std::fmt;
use symmem::SignalPlacement;

/// Data moved between ranks, or what goes with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TransferCase {
    /// What is checked.
    pub operation: Operation,
    /// Between whom.
    pub traffic: Traffic,
    /// Type of the elements.
    pub dtype: Dtype,
    /// How many elements move.
    pub length: Length,
    /// Elements between a 256-byte boundary and the first element written.
    pub destination_offset: usize,
    /// Elements between a 256-byte boundary and the first element read.
    pub source_offset: usize,
    /// How they move.
    pub engine: Engine,
    /// Where the communicator's signals live.
    pub placement: Placement,
    /// Seeds the data.
    pub seed: u64,
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

/// What a case checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Operation {
    /// Put, complete after `synchronize` and a host barrier.
    Put,
    /// Get of what the peer had written before a host barrier.
    Get,
    /// Put with signal, visible after the peer's wait; twice, with new data.
    PutSignal,
    /// Put, visible after a device barrier; twice, with new data.
    Barrier,
    /// Put with signal, wait and barrier, captured, replayed several times between eager rounds.
    Replay,
    /// Several streams at once, each with its own channel and data.
    Streams,
    /// One stream, several channels, waited for in the reverse order.
    Channels,
    /// Host elements written into the local copy and read from it.
    HostCopy,
    /// Calls that must be refused, with which error, and that nothing is lost by them.
    Refusals,
    /// Memory that the caller owns: registered, or refused by type and staged.
    Registration,
}

impl Operation {
    /// Those that move data between ranks, for which every parameter of a case matters.
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

/// Who moves data to whom.
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
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Own, Self::Ring, Self::AllPairs];

    /// To whom `rank` puts.
    pub fn targets(self, rank: usize, world: usize) -> Vec<usize> {
        match self {
            Self::Own => vec![rank],
            Self::Ring => vec![(rank + 1) % world],
            Self::AllPairs => (0..world).collect(),
        }
    }

    /// Who puts to `rank`.
    pub fn givers(self, rank: usize, world: usize) -> Vec<usize> {
        match self {
            Self::Own => vec![rank],
            Self::Ring => vec![(rank + world - 1) % world],
            Self::AllPairs => (0..world).collect(),
        }
    }
}

/// Where a communicator's signals live: [`SignalPlacement`] as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Placement {
    /// In memory of the rank that waits.
    Device,
    /// In host memory that the ranks share.
    Host,
}

impl Placement {
    /// All of them.
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
