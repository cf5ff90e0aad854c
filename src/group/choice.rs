//! The selector's query and its answer.

use crate::backend::abi::*;
use crate::base::names;
use crate::group::provider::Provider;

/// A query to the selector: the properties of a call.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// The operation.
    pub operation: CollectiveOperationCode,
    /// Element type; ignored by operations that do not reduce.
    pub element: ElementTypeCode,
    /// Reduction operator; ignored by operations that do not reduce.
    pub reduce: ReduceOpCode,
    /// Ranks in the group.
    pub world: u32,
    /// Size in bytes, counted as in [`CollectiveRow::bytes`].
    pub bytes: u64,
    /// Whether source and destination are the same memory.
    pub in_place: bool,
    /// Whether source and destination are memory that only this rank knows.
    pub own_memory: bool,
    /// Whether a communicator of NCCL is open and has these ranks.
    pub nccl: bool,
    /// Whether the multicast object reaches the slots and both ranges at all members.
    pub multicast: bool,
    /// Channels of the inbox for a pushed reduction; 0 also if its ranges do not start at multiples of 16
    /// bytes.
    pub push_channels: u32,
    /// Most bytes that a member may send to another in Lamport packets, by as many launches as they take; 0 if the channel
    /// has no inbox for them.
    pub lamport_bytes: u64,
}

impl Query {
    /// Returns the most bytes that a member sends to another in Lamport packets.
    pub fn sent_bytes(&self, algorithm: AlgorithmCode) -> u64 {
        let world = u64::from(self.world);
        match self.operation {
            CollectiveOperationCode::REDUCE_SCATTER
            | CollectiveOperationCode::ALL_GATHER
            | CollectiveOperationCode::ALL_TO_ALL
            | CollectiveOperationCode::GATHER
            | CollectiveOperationCode::SCATTER => self.bytes / world,
            // A share, and the result of one.
            _ if algorithm == AlgorithmCode::LAMPORT_TWO_SHOT => {
                self.bytes.div_ceil(world).saturating_mul(2)
            }
            _ => self.bytes,
        }
    }
}

/// The caller's constraints on a choice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Constraints {
    /// The algorithm; [`AlgorithmCode::AUTOMATIC`] for the table's.
    pub algorithm: AlgorithmCode,
    /// `None` for the table's value.
    pub blocks: Option<u32>,
    /// Whether fewer than the named blocks may be chosen if the device has no room for them; otherwise that is an error.
    pub fewer_blocks: bool,
    /// `None` for the table's value.
    pub threads: Option<u32>,
    /// `None` for the table's value.
    pub concurrent: Option<u32>,
    /// The provider.
    pub provider: Provider,
}

/// The selector's choice for a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The algorithm; never [`AlgorithmCode::AUTOMATIC`].
    pub(crate) algorithm: AlgorithmCode,
    /// Blocks of the grid; 0 if no kernel takes part. With the copy engine, a kernel may copy this rank's own part.
    pub blocks: u32,
    /// Threads of a block; 0 if no kernel takes part.
    pub threads: u32,
    /// Copies under way at once. 0 starts all of a kernel's copies at once, and lets the size decide with the
    /// copy engine.
    pub concurrent: u32,
}

impl Choice {
    /// Returns the algorithm.
    pub fn algorithm(&self) -> names::Algorithm {
        // The selector knows no other algorithms: rows that name others are refused.
        names::Algorithm::of(self.algorithm).unwrap_or(names::Algorithm::Push)
    }
}
