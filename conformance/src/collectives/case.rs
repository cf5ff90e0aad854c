//! A collective as a case: plain data.

use crate::dtype::Dtype;
use crate::length::Length;
use serde::{Deserialize, Serialize};
use std::fmt;
use symmem::backend::abi::{CAPABILITY_COPY_ENGINE, Capabilities};
use symmem::{Algorithm, CollectiveOperation, ReduceOp};

/// One collective, checked on all members of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CollectiveCase {
    /// Operation and algorithm.
    #[serde(rename = "way")]
    pub variant: CollectiveVariant,
    /// Element type.
    pub dtype: Dtype,
    /// Reduction operator; ignored by operations that do not reduce.
    pub reduction: Reduction,
    /// Number of elements of a range, or of each member's part if the operation has parts.
    pub length: Length,
    /// Elements between a 256-byte boundary and the first element written.
    pub destination_offset: usize,
    /// Elements between a 256-byte boundary and the first element read by an out-of-place call.
    pub source_offset: usize,
    /// Whether the call is in place, if the operation has an in-place form.
    pub in_place: bool,
    /// Eager, captured or concurrent.
    pub mode: Mode,
    /// The ranks that take part.
    pub members: Members,
    /// Which operands are memory that only their rank knows.
    #[serde(default)]
    pub own: OwnMemory,
    /// Who created the stream.
    pub stream: StreamOwner,
    /// The channel; [`Mode::Concurrent`] also uses the next one.
    pub channel: u32,
    /// Blocks of the grid; 0 for the selector's choice.
    pub blocks: u32,
    /// Kind of element values in a reduction.
    pub values: Values,
    /// Seed of the data.
    pub seed: u64,
}

impl CollectiveCase {
    /// A simple case: all ranks, out of place, aligned, few elements.
    pub(crate) fn plain(variant: CollectiveVariant, dtype: Dtype, seed: u64) -> Self {
        Self {
            variant,
            dtype,
            reduction: Reduction::Sum,
            length: Length::Elements(24),
            destination_offset: 0,
            source_offset: 0,
            in_place: false,
            mode: Mode::Eager,
            members: Members::All,
            own: OwnMemory::Neither,
            stream: StreamOwner::Library,
            channel: 0,
            blocks: 0,
            values: Values::Finite,
            seed,
        }
    }

    /// Whether the library refuses this call of a group over nodes: a sum of narrow integers wraps within a node, before
    /// the average over all members divides it.
    pub(crate) fn wraps_between_nodes(&self) -> bool {
        self.variant.operation.reduces()
            && self.reduction == Reduction::Average
            && !self.dtype.is_float()
            && self.dtype.size() < 4
    }

    /// Returns why a device with these capabilities cannot run this case; `None` if it can.
    pub fn missing(&self, capabilities: &Capabilities) -> Option<&'static str> {
        let has_engine = capabilities.flags & CAPABILITY_COPY_ENGINE != 0;
        (self.variant.algorithm == AlgorithmName::CopyEngine && !has_engine)
            .then_some("the device has no copy engine")
    }
}

impl fmt::Display for CollectiveCase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{:?}", self.variant, self.dtype)?;
        if self.variant.operation.reduces() {
            write!(formatter, ".{:?}.{:?}", self.reduction, self.values)?;
        }
        write!(
            formatter,
            "/{}/+{}+{}{}{}/{:?}/{:?}/{:?}.{}",
            self.length,
            self.destination_offset,
            self.source_offset,
            if self.in_place { "/InPlace" } else { "" },
            self.own.suffix(),
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

/// A collective operation.
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
    /// Every member sends to the next member and receives from the previous one.
    Ring,
    /// An exchange of random messages between random members.
    Exchange,
}

impl Collective {
    /// All operations.
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

    /// Whether the operation reduces elements.
    pub fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::Reduce | Self::ReduceScatter)
    }

    /// Whether a range consists of one part per member.
    pub fn has_parts(self) -> bool {
        !matches!(self, Self::AllReduce | Self::Reduce | Self::Broadcast)
    }
}

/// An operation and its algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CollectiveVariant {
    /// The operation.
    pub operation: Collective,
    /// The algorithm.
    pub algorithm: AlgorithmName,
}

impl fmt::Display for CollectiveVariant {
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
    /// NCCL or RCCL, with buffers registered as symmetric windows.
    VendorWindows,
    Rendezvous,
    Multicast,
    MulticastOneShot,
    Lamport,
    LamportTwoShot,
    Pieces,
}

impl AlgorithmName {
    /// All algorithms.
    pub const ALL: [Self; 17] = [
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
        Self::Lamport,
        Self::LamportTwoShot,
        Self::Pieces,
    ];

    /// Whether it runs as a symmem kernel, so that a call can set the grid size.
    pub fn has_grid(self) -> bool {
        !matches!(self, Self::Automatic | Self::CopyEngine) && !self.is_nccl()
    }

    /// Whether it uses multicast addresses, real or emulated.
    pub fn is_multicast(self) -> bool {
        matches!(self, Self::Multicast | Self::MulticastOneShot)
    }

    /// Whether it may add in another order than the reference, so that results are close but not bit-identical.
    pub fn is_close(self) -> bool {
        self.is_nccl() || self.is_multicast()
    }

    /// Whether NCCL or RCCL runs it.
    pub fn is_nccl(self) -> bool {
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
            AlgorithmName::Lamport => Algorithm::Lamport,
            AlgorithmName::LamportTwoShot => Algorithm::LamportTwoShot,
            AlgorithmName::Pieces => Algorithm::Pieces,
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
    /// All operators.
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

/// How a case makes its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// Twice, with new data.
    Eager,
    /// Captured and replayed several times between eager calls, each round with new data.
    Captured,
    /// Two calls at once, each with its own stream, channel and data.
    Concurrent,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Eager, Self::Captured, Self::Concurrent];
}

/// The ranks that take part in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Members {
    /// All ranks.
    All,
    /// Even ranks in one group, odd ranks in another.
    Halves,
    /// All ranks except rank 0, in reverse order; no rank in a world of one.
    RestReversed,
    /// All ranks in reverse order.
    Reversed,
}

impl Members {
    /// The choices of members that cases are generated for.
    pub const ALL: [Self; 3] = [Self::All, Self::Halves, Self::RestReversed];

    /// Returns the color and the key that `rank` passes to `split`.
    pub fn choice(self, rank: usize, world: usize) -> (Option<u32>, u32) {
        match self {
            Self::All => (Some(0), rank as u32),
            Self::Halves => (Some(rank as u32 % 2), rank as u32),
            Self::RestReversed => ((rank > 0).then_some(7), (world - rank) as u32),
            Self::Reversed => (Some(3), (world - rank) as u32),
        }
    }
}

/// Which operands of a call are a [`symmem::DeviceSlice`], at an address that differs from rank to rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OwnMemory {
    /// Both are of symmetric buffers.
    #[default]
    Neither,
    Source,
    Destination,
    Both,
    /// At each rank another of the last three.
    Differing,
}

impl OwnMemory {
    /// All choices.
    pub const ALL: [Self; 5] = [
        Self::Neither,
        Self::Source,
        Self::Destination,
        Self::Both,
        Self::Differing,
    ];
    /// Number of elements by which the addresses of two ranks differ at most.
    pub const MOST_SHIFT: usize = 7;

    /// Returns whether destination and source of a member are such memory.
    pub fn of(self, member: usize) -> (bool, bool) {
        match self {
            Self::Neither => (false, false),
            Self::Source => (false, true),
            Self::Destination => (true, false),
            Self::Both => (true, true),
            Self::Differing => [(true, true), (false, true), (true, false)][member % 3],
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::Neither => "",
            Self::Source => "/OwnSource",
            Self::Destination => "/OwnDestination",
            Self::Both => "/Own",
            Self::Differing => "/OwnDiffering",
        }
    }
}

/// Who created the stream that a call is enqueued on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StreamOwner {
    /// The library.
    Library,
    /// The caller, who passes the raw handle.
    Caller,
}

impl StreamOwner {
    /// All owners.
    pub const ALL: [Self; 2] = [Self::Library, Self::Caller];
}

/// Kind of element values in a reduction. Operations that do not reduce use random bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Values {
    /// Random integers; floating-point numbers of such different magnitudes that the order of accumulation
    /// changes the result.
    Finite,
    /// Like `Finite`, with NaN, infinities, zeros of both signs, subnormal and largest numbers mixed in.
    Special,
    /// Floating-point magnitudes from 1 to 2 and small integers, so that no order and no precision of
    /// accumulation overflows.
    Modest,
}

impl Values {
    /// The kinds for algorithms whose results must be bit-identical to the reference.
    pub const EXACT: [Self; 2] = [Self::Finite, Self::Special];
}
