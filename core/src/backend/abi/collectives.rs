//! Collectives: their names, the memory by which ranks keep in step, what their kernels take.

use super::forms::open_enum;
use super::handles::DeviceAddress;
use super::limits::MAX_RANKS;
use super::signals::Watch;

open_enum!(
    /// What an element of a reduction is. Half precision and narrower accumulate in f32.
    ElementType {
        /// Signed, 8 bits.
        I8 = 1,
        /// Unsigned, 8 bits.
        U8 = 2,
        /// Signed, 16 bits.
        I16 = 3,
        /// Unsigned, 16 bits.
        U16 = 4,
        /// Signed, 32 bits.
        I32 = 5,
        /// Unsigned, 32 bits.
        U32 = 6,
        /// Signed, 64 bits.
        I64 = 7,
        /// Unsigned, 64 bits.
        U64 = 8,
        /// IEEE half precision.
        F16 = 9,
        /// The upper half of an f32.
        BF16 = 10,
        /// IEEE single precision.
        F32 = 11,
        /// IEEE double precision.
        F64 = 12,
        /// 8 bits, 4 of exponent, no infinities (OCP E4M3).
        F8_E4M3 = 13,
        /// 8 bits, 5 of exponent (OCP E5M2).
        F8_E5M2 = 14,
    }
);

impl ElementType {
    /// Bytes of one element; 0 for a type from a newer version.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::I8 | Self::U8 | Self::F8_E4M3 | Self::F8_E5M2 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::BF16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
            _ => 0,
        }
    }
}

open_enum!(
    /// How elements of all ranks become one. Always in rank order, so that every algorithm gives the
    /// same bits.
    ReduceOperation {
        /// Integers wrap.
        SUM = 1,
        /// The sum, divided by the number of ranks before it is rounded; integers towards zero.
        AVERAGE = 2,
        /// NaN if any is NaN.
        MINIMUM = 3,
        /// NaN if any is NaN.
        MAXIMUM = 4,
        /// Integers wrap.
        PRODUCT = 5,
    }
);

open_enum!(
    /// An operation of a group of ranks.
    CollectiveOperation {
        /// Nobody goes on before all are here.
        BARRIER = 1,
        /// One rank's elements to all.
        BROADCAST = 2,
        /// Every rank's elements to all, in rank order.
        ALL_GATHER = 3,
        /// The same with a count for each rank.
        ALL_GATHER_V = 4,
        /// The ranks' elements, reduced, to one rank.
        REDUCE = 5,
        /// Reduced, a part to each rank.
        REDUCE_SCATTER = 6,
        /// Reduced, to all.
        ALL_REDUCE = 7,
        /// A part from each to each.
        ALL_TO_ALL = 8,
        /// The same with counts for each pair.
        ALL_TO_ALL_V = 9,
        /// Every rank's elements to one, in rank order.
        GATHER = 10,
        /// A part of one rank's elements to each.
        SCATTER = 11,
        /// Sends and receives, done at once.
        EXCHANGE = 12,
        /// A product of matrices whose `A` is gathered.
        ALL_GATHER_GEMM = 13,
    }
);

open_enum!(
    /// How a collective is done. Not every algorithm fits every operation.
    Algorithm {
        /// Let the selector choose by operation, size and world.
        AUTOMATIC = 0,
        /// Packets that carry their flag (the LL protocol): no barrier, twice the bytes. One-shot.
        PACKETS = 1,
        /// Packets twice: a reduce-scatter, then an all-gather of its results.
        PACKETS_TWO_SHOT = 2,
        /// Between two barriers every rank pulls all it needs and reduces it itself.
        ONE_SHOT = 3,
        /// Between two barriers every rank pulls and reduces its part and pushes it to all; a
        /// broadcast scatters, then gathers.
        TWO_SHOT = 4,
        /// Between two barriers every rank stores to its peers.
        PUSH = 5,
        /// Between two barriers every rank loads from its peers.
        PULL = 6,
        /// Copies by the copy engine, each step when the neighbour has finished the one before it. In an
        /// all-reduce it gathers, once a kernel has reduced each rank's share.
        COPY_ENGINE = 7,
        /// The vendor's library.
        VENDOR = 8,
        /// The receiver loads from the sender once both are there ([`CollectiveOperation::EXCHANGE`]).
        RENDEZVOUS = 9,
        /// Between two barriers the parts of each pair of ranks change places; each rank swaps half of
        /// them. An all-to-all in place, and nothing else.
        SWAP = 10,
        /// Between two barriers every rank loads its share from a multicast address, reduced on the way,
        /// and stores it to one: a reduction in two shots, where every rank wants the result. An operation
        /// that only reduces, or only hands out, does half of it.
        MULTICAST = 11,
        /// Between two barriers every rank loads all it needs from a multicast address, reduced on the
        /// way. Never in place.
        MULTICAST_ONE_SHOT = 12,
    }
);

impl Algorithm {
    /// Whether it goes by multicast addresses, or as if.
    pub const fn is_multicast(self) -> bool {
        matches!(self, Self::MULTICAST | Self::MULTICAST_ONE_SHOT)
    }
}

open_enum!(
    /// A family of kernels behind collectives.
    CollectiveKernel {
        /// [`MoveArguments`].
        MOVE = 1,
        /// [`PacketArguments`].
        PACKETS = 2,
        /// [`ReduceArguments`].
        REDUCE = 3,
        /// [`ReducePacketArguments`].
        REDUCE_PACKETS = 4,
        /// [`ExchangeArguments`].
        EXCHANGE = 5,
        /// [`MoveArguments`], each destination swapped with its source.
        SWAP = 6,
        /// [`ReducePushArguments`].
        REDUCE_PUSH = 7,
        /// [`MulticastArguments`](super::MulticastArguments) that reduce.
        MULTICAST_REDUCE = 8,
        /// [`MulticastArguments`](super::MulticastArguments) that do not: bytes are bytes.
        MULTICAST_MOVE = 9,
    }
);

/// Blocks that a collective's grid can have: a slot for each.
pub const SLOT_BLOCKS: u32 = 320;
/// Bytes of a block's slot; see [`CollectiveGroup`] for what is in it.
pub const SLOT_BYTES: u64 = 4096;
/// Blocks that a grid of packets can have: a region for each.
pub const PACKET_BLOCKS: u32 = 64;
/// In a slot, the counters that only their owner uses, 32 bits each: barriers, uses of packets,
/// sends, receipts.
pub const SLOT_COUNTERS: u64 = 0;
/// In a slot, a 32-bit word for each member, which that member raises at barriers.
pub const SLOT_WORDS: u64 = 128;
/// In a slot, a 32-bit word for each member, which that member raises when it has received.
pub const SLOT_RECEIVED: u64 = 512;
/// In a slot, 32 bytes for each member: four packets of 8 bytes in which it announces what it sends.
pub const SLOT_ANNOUNCEMENTS: u64 = 1024;

/// From one word of a channel of [`ReducePushArguments`] to the next.
pub const PUSH_WORD_STRIDE: u64 = 32;
/// Pieces start at multiples of this behind them.
pub const PUSH_PIECES_ALIGNMENT: u64 = 128;
/// Threads of a pair of warps, where warps are smallest; where they are larger a grid has fewer channels.
pub const PUSH_PAIR_THREADS: u32 = 64;
/// Threads of a block that pushes are a multiple of this: a pair of warps on every device that there is.
pub const PUSH_THREAD_STEP: u32 = 128;

/// The ranks of one collective call, and the memory by which they keep in step.
///
/// Each member has *slots*, zeroed before the first call: [`SLOT_BLOCKS`] of [`SLOT_BYTES`], then
/// [`PACKET_BLOCKS`] regions of `packet_bytes` each. Block `b` of a grid uses slot and region `b` and
/// talks to block `b` of its peers only, which have the same grid; so there is no barrier within a
/// grid, and every block reaches every barrier. A region has two halves, used in turn, of `world`
/// inboxes; the inbox of member `p` in half `h` is at
/// `(h * world + p) * packet_capacity`, with `packet_capacity = packet_bytes / 2 / world`, rounded
/// down to 16.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CollectiveGroup {
    /// Abort word, record and deadline; its rank is that of the communicator.
    pub watch: Watch,
    /// Each member's slots, as this device addresses them; this rank's own among them.
    pub slots: [DeviceAddress; MAX_RANKS],
    /// Bytes of a block's region for packets.
    pub packet_bytes: u64,
    /// This rank's number in the group.
    pub rank: u32,
    /// Ranks in the group.
    pub world: u32,
    /// The channel (for the record).
    pub slot: u32,
    /// The operation (for the record).
    pub operation: CollectiveOperation,
    /// The communicator's number of each member (for the record).
    pub members: [u8; MAX_RANKS],
}

/// Copies, or swaps, between two barriers of a group: every member has reached the call before the first
/// byte moves, and every member's bytes are where they belong, and visible, when the call ends. In a swap
/// the sources are written as well, so no two swaps of the group have a byte in common.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MoveArguments {
    /// Who takes part.
    pub group: CollectiveGroup,
    /// First byte written of each copy.
    pub destinations: [DeviceAddress; MAX_RANKS],
    /// First byte read.
    pub sources: [DeviceAddress; MAX_RANKS],
    /// Bytes; may be 0. A copy onto itself is left out.
    pub bytes: [u64; MAX_RANKS],
    /// Copies.
    pub copies: u32,
    /// How many of them are under way at once: the blocks are dealt out among so many, and one group
    /// of copies follows the other. At least 1.
    pub concurrent: u32,
}

/// Bytes from every member to every member in packets, without a barrier: source and destination are
/// memory of this rank, and free for use, as the bytes arrive, when the call ends.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PacketArguments {
    /// Who takes part.
    pub group: CollectiveGroup,
    /// What each member is sent (the own entry too: it is copied).
    pub sources: [DeviceAddress; MAX_RANKS],
    /// Where what each member sends goes.
    pub destinations: [DeviceAddress; MAX_RANKS],
    /// Bytes sent to each member; may be 0. Equal to what that member expects.
    pub send_bytes: [u64; MAX_RANKS],
    /// Bytes that each member sends; may be 0.
    pub receive_bytes: [u64; MAX_RANKS],
}

/// A reduction between two barriers: this rank reduces `count` elements of every member and stores
/// the result at each destination.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ReduceArguments {
    /// Who takes part.
    pub group: CollectiveGroup,
    /// Each member's elements, as this device addresses them.
    pub sources: [DeviceAddress; MAX_RANKS],
    /// Where the result goes: an address of each member's memory, or 0 for none.
    pub destinations: [DeviceAddress; MAX_RANKS],
    /// Elements that this rank reduces; may be 0.
    pub count: u64,
    /// What they are.
    pub element: ElementType,
    /// How they become one.
    pub reduce: ReduceOperation,
}

/// A reduction for which members push what each has to reduce into that one's inbox: the same as
/// `reduce` between its barriers, but that each member stores what another one needs, in pieces.
///
/// An inbox has *channels*, zeroed before the first call, `channel_bytes` apart. A block has one for each
/// pair of its warps, numbered through the grid, which talks to the channels of its number at the peers
/// only. In a channel, at multiples of [`PUSH_WORD_STRIDE`]: a word for each member, which that member
/// raises when it has pushed a piece; one for each, which that member raises when it has taken one; two
/// counters of the owner's, pieces pushed and taken. Behind them, from a multiple of
/// [`PUSH_PIECES_ALIGNMENT`] on: for each other member in turn `slots` pieces of `piece_bytes`. World,
/// `channel_bytes`, `slots` and `piece_bytes` are alike in all calls on the same inboxes; grids need not be.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ReducePushArguments {
    /// Who takes part, this rank's share of every member, and where its result goes.
    pub reduce: ReduceArguments,
    /// In this rank's memory, its elements of each member's share.
    pub sources: [DeviceAddress; MAX_RANKS],
    /// Elements of each member's share; alike on all members, may be 0.
    pub counts: [u64; MAX_RANKS],
    /// Each member's inbox, as this device addresses it; this rank's own among them.
    pub inboxes: [DeviceAddress; MAX_RANKS],
    /// From one channel to the next, a multiple of [`PUSH_PIECES_ALIGNMENT`].
    pub channel_bytes: u64,
    /// Channels of an inbox: the most that a grid can have.
    pub channels: u32,
    /// Pieces of one member that there is room for; a power of two.
    pub slots: u32,
    /// Bytes of a piece, a multiple of 16.
    pub piece_bytes: u32,
    /// 1 if members store at each other: then all have reached the call before the first result is
    /// stored, and all have stored when it ends.
    pub barriers: u32,
}

/// A reduction in packets, without a barrier: every member sends each other `counts[p]` elements from
/// `sources[p]`, and reduces `counts[rank]` of every member.
///
/// With `two_shot` 0 the result goes to `destinations[rank]`. With 1 it is sent to every member in
/// packets again, and what member `p` sends, `counts[p]` elements, goes to `destinations[p]`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ReducePacketArguments {
    /// Who takes part.
    pub group: CollectiveGroup,
    /// In this rank's memory, what each member is to reduce; the own entry is its own share.
    pub sources: [DeviceAddress; MAX_RANKS],
    /// In this rank's memory, where results go.
    pub destinations: [DeviceAddress; MAX_RANKS],
    /// Elements that each member reduces; alike on all members, may be 0.
    pub counts: [u64; MAX_RANKS],
    /// What they are.
    pub element: ElementType,
    /// How they become one.
    pub reduce: ReduceOperation,
    /// 1 if results are sent to every member.
    pub two_shot: u32,
    /// Zero.
    pub reserved: u32,
}

/// Marks an address of [`ExchangeArguments`] as absent.
pub const NO_TOKEN: u64 = u64::MAX;

/// Sends and receives of one rank, at most one of each for a member, done at once: the receiver loads
/// from the sender once both are there.
///
/// What is sent is named by a token: the number of the allocation's row in `table` times 2⁴⁸, plus
/// the offset into it. A sender announces token and bytes to every block that receives; a receiver
/// that expects another number of bytes gives up with a record.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ExchangeArguments {
    /// Who takes part. Its world times `blocks_per_peer`, plus one, is the grid.
    pub group: CollectiveGroup,
    /// What each member is sent, as a token; [`NO_TOKEN`] for nothing.
    pub send_tokens: [u64; MAX_RANKS],
    /// Bytes of it; may be 0.
    pub send_bytes: [u64; MAX_RANKS],
    /// Where what each member sends goes; [`NO_TOKEN`] for nothing.
    pub destinations: [u64; MAX_RANKS],
    /// Bytes of it; may be 0.
    pub receive_bytes: [u64; MAX_RANKS],
    /// `[row][rank of the communicator]`: each rank's copy of an allocation, as this device addresses it.
    pub table: DeviceAddress,
    /// Ranks of the communicator: the length of a row.
    pub table_ranks: u32,
    /// Blocks that receive from each member; alike on all members.
    pub blocks_per_peer: u32,
}

/// A row of the selector: up to `bytes`, in worlds of at most `world`, do it like this.
///
/// Bytes are the size that benchmarks of collectives give: of an all-reduce, reduce and broadcast one rank's elements; of an
/// all-gather, gather, reduce-scatter, scatter and all-to-all the whole buffer of a rank that has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectiveRow {
    /// The row holds for this operation.
    pub operation: CollectiveOperation,
    /// And for groups of at most so many ranks.
    pub world: u32,
    /// And for at most so many bytes.
    pub bytes: u64,
    /// How to do it; [`Algorithm::AUTOMATIC`] ends the table.
    pub algorithm: Algorithm,
    /// Blocks of the grid.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Copies under way at once ([`MoveArguments::concurrent`]; by the copy engine 1, or 2 for all that
    /// there can be); 0 for as many as there are, or as the size is worth.
    pub concurrent: u32,
}
