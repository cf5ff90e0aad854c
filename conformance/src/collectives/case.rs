//! What a case of a collective is: plain data.

use crate::dtype::Dtype;
use crate::length::Length;
use serde::{Deserialize, Serialize};
use std::fmt;
use symmem::backend::abi::{CAPABILITY_COPY_ENGINE, Capabilities};
use symmem::{Algorithm, CollectiveOperation, ReduceOp};

/// One collective, checked on all members of a group together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CollectiveCase {
    /// What is done, and how.
    pub way: Way,
    /// Type of the elements.
    pub dtype: Dtype,
    /// How elements are reduced, where they are.
    pub reduction: Reduction,
    /// Elements: of a whole range, or of each member's part where an operation has parts.
    pub length: Length,
    /// Elements between a 256-byte boundary and the first element written.
    pub destination_offset: usize,
    /// Elements between a 256-byte boundary and the first element read, out of place.
    pub source_offset: usize,
    /// Whether source and destination are the same memory, where the operation has that.
    pub in_place: bool,
    /// How the call is made.
    pub mode: Mode,
    /// Who takes part.
    pub members: Members,
    /// Who made the stream.
    pub stream: StreamOwner,
    /// The channel; [`Mode::Concurrent`] uses the next one too.
    pub channel: u32,
    /// Blocks of the grid; 0 for the selector's choice.
    pub blocks: u32,
    /// What the elements are.
    pub values: Values,
    /// Seeds the data.
    pub seed: u64,
}

impl CollectiveCase {
    /// A case of a way with nothing special about it: of all ranks, out of place, aligned, of a few elements.
    pub(crate) fn plain(way: Way, dtype: Dtype, seed: u64) -> Self {
        Self {
            way,
            dtype,
            reduction: Reduction::Sum,
            length: Length::Elements(24),
            destination_offset: 0,
            source_offset: 0,
            in_place: false,
            mode: Mode::Eager,
            members: Members::All,
            stream: StreamOwner::Library,
            channel: 0,
            blocks: 0,
            values: Values::Finite,
            seed,
        }
    }

    /// What a device lacks to run this; `None` if nothing.
    pub fn missing(&self, capabilities: &Capabilities) -> Option<&'static str> {
        let has_engine = capabilities.flags & CAPABILITY_COPY_ENGINE != 0;
        (self.way.algorithm == AlgorithmName::CopyEngine && !has_engine)
            .then_some("the device has no copy engine")
    }
}

impl fmt::Display for CollectiveCase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{:?}", self.way, self.dtype)?;
        if self.way.operation.reduces() {
            write!(formatter, ".{:?}.{:?}", self.reduction, self.values)?;
        }
        write!(
            formatter,
            "/{}/+{}+{}{}/{:?}/{:?}/{:?}.{}",
            self.length,
            self.destination_offset,
            self.source_offset,
            if self.in_place { "/InPlace" } else { "" },
            self.mode,
            self.members,
            self.stream,
            self.channel,
        )?;
        if self.blocks > 0 {
            write!(formatter, "/{} blocks", self.blocks)?;
        }
        Ok(())
    }
}

/// An operation of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "documented at the methods of `Stream`")]
pub enum Collective {
    AllReduce,
    Reduce,
    ReduceScatter,
    AllGather,
    AllGatherV,
    Broadcast,
    AllToAll,
    AllToAllV,
    Gather,
    Scatter,
    /// Every member sends to the next and receives from the one before.
    Ring,
    /// Members send to each other by lot, all at once.
    Exchange,
}

impl Collective {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::AllReduce,
        Self::Reduce,
        Self::ReduceScatter,
        Self::AllGather,
        Self::AllGatherV,
        Self::Broadcast,
        Self::AllToAll,
        Self::AllToAllV,
        Self::Gather,
        Self::Scatter,
        Self::Ring,
        Self::Exchange,
    ];

    /// Whether elements of several ranks become one.
    pub fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::Reduce | Self::ReduceScatter)
    }

    /// Whether a range has a part for each member.
    pub fn has_parts(self) -> bool {
        !matches!(self, Self::AllReduce | Self::Reduce | Self::Broadcast)
    }
}

/// An operation and the algorithm that does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Way {
    /// What is done.
    pub operation: Collective,
    /// How.
    pub algorithm: AlgorithmName,
}

impl fmt::Display for Way {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}/{:?}", self.operation, self.algorithm)
    }
}

impl From<Collective> for CollectiveOperation {
    fn from(operation: Collective) -> Self {
        match operation {
            Collective::AllReduce => Self::AllReduce,
            Collective::Reduce => Self::Reduce,
            Collective::ReduceScatter => Self::ReduceScatter,
            Collective::AllGather => Self::AllGather,
            Collective::AllGatherV => Self::AllGatherV,
            Collective::Broadcast => Self::Broadcast,
            Collective::AllToAll => Self::AllToAll,
            Collective::AllToAllV => Self::AllToAllV,
            Collective::Gather => Self::Gather,
            Collective::Scatter => Self::Scatter,
            Collective::Ring | Collective::Exchange => Self::Exchange,
        }
    }
}

/// [`Algorithm`] as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "documented at `Algorithm`")]
pub enum AlgorithmName {
    Automatic,
    Packets,
    PacketsTwoShot,
    OneShot,
    TwoShot,
    Push,
    Pull,
    Swap,
    CopyEngine,
    Vendor,
    /// The vendor's library over buffers that are its symmetric windows.
    VendorWindows,
    Rendezvous,
    Multicast,
    MulticastOneShot,
}

impl AlgorithmName {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Automatic,
        Self::Packets,
        Self::PacketsTwoShot,
        Self::OneShot,
        Self::TwoShot,
        Self::Push,
        Self::Pull,
        Self::Swap,
        Self::CopyEngine,
        Self::Vendor,
        Self::VendorWindows,
        Self::Rendezvous,
        Self::Multicast,
        Self::MulticastOneShot,
    ];

    /// Whether it runs as one of our kernels, with a grid of our choice.
    pub fn has_grid(self) -> bool {
        !matches!(self, Self::Automatic | Self::CopyEngine) && !self.is_vendor()
    }

    /// Whether it goes by multicast addresses, or as if.
    pub fn is_multicast(self) -> bool {
        matches!(self, Self::Multicast | Self::MulticastOneShot)
    }

    /// Whether sums may be in another order than ours, so that results are close and not the same.
    pub fn is_close(self) -> bool {
        self.is_vendor() || self.is_multicast()
    }

    /// Whether the vendor's library does it.
    pub fn is_vendor(self) -> bool {
        matches!(self, Self::Vendor | Self::VendorWindows)
    }
}

impl From<AlgorithmName> for Option<Algorithm> {
    fn from(name: AlgorithmName) -> Self {
        Some(match name {
            AlgorithmName::Automatic => return None,
            AlgorithmName::Packets => Algorithm::Ll,
            AlgorithmName::PacketsTwoShot => Algorithm::LlTwoShot,
            AlgorithmName::OneShot => Algorithm::OneShot,
            AlgorithmName::TwoShot => Algorithm::TwoShot,
            AlgorithmName::Push => Algorithm::Push,
            AlgorithmName::Pull => Algorithm::Pull,
            AlgorithmName::Swap => Algorithm::Swap,
            AlgorithmName::CopyEngine => Algorithm::CopyEngine,
            AlgorithmName::Vendor | AlgorithmName::VendorWindows => Algorithm::Nccl,
            AlgorithmName::Rendezvous => Algorithm::Rendezvous,
            AlgorithmName::Multicast => Algorithm::Multicast,
            AlgorithmName::MulticastOneShot => Algorithm::MulticastOneShot,
        })
    }
}

/// [`ReduceOp`] as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "documented at `ReduceOp`")]
pub enum Reduction {
    Sum,
    Average,
    Minimum,
    Maximum,
    Product,
}

impl Reduction {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Sum,
        Self::Average,
        Self::Minimum,
        Self::Maximum,
        Self::Product,
    ];
}

impl From<Reduction> for ReduceOp {
    fn from(reduction: Reduction) -> Self {
        match reduction {
            Reduction::Sum => Self::Sum,
            Reduction::Average => Self::Average,
            Reduction::Minimum => Self::Minimum,
            Reduction::Maximum => Self::Maximum,
            Reduction::Product => Self::Product,
        }
    }
}

/// How a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// Twice, with new data.
    Eager,
    /// Captured, replayed several times between eager calls, each time with new data.
    Captured,
    /// Two at once, each with its own stream, channel and data.
    Concurrent,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Eager, Self::Captured, Self::Concurrent];
}

/// Who takes part in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Members {
    /// All ranks.
    All,
    /// Even ranks in one group, odd ones in another.
    Halves,
    /// All but the first, numbered from the last; nobody in a world of one.
    RestReversed,
}

impl Members {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::All, Self::Halves, Self::RestReversed];

    /// What `rank` passes to a split: its colour and its key.
    pub fn choice(self, rank: usize, world: usize) -> (Option<u32>, u32) {
        match self {
            Self::All => (Some(0), rank as u32),
            Self::Halves => (Some(rank as u32 % 2), rank as u32),
            Self::RestReversed => ((rank > 0).then_some(7), (world - rank) as u32),
        }
    }
}

/// Who made the stream that a call is enqueued on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StreamOwner {
    /// The library.
    Library,
    /// The caller, who hands in the raw handle.
    Caller,
}

impl StreamOwner {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Library, Self::Caller];
}

/// What elements of a reduction are. Elements that are only moved are random bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Values {
    /// Random integers; floating point of so many magnitudes that the order of accumulation shows.
    Finite,
    /// Not a number, infinities, zeros of both signs, subnormal and the largest numbers among others.
    Special,
    /// Near 1, so that no order and no precision of accumulation overflows.
    Modest,
}

impl Values {
    /// Those that every result must be bit-identical for.
    pub const EXACT: [Self; 2] = [Self::Finite, Self::Special];
}
