//! Collectives: operations, algorithms, the memory by which ranks synchronize, and the kernels' arguments.

use super::forms::open_enum;
use super::handles::DeviceAddress;
use super::limits::MAX_RANKS;
use super::signals::Watch;

open_enum!(
    /// Type of the elements that are reduced. f16, bf16 and fp8 accumulate in f32; an NVLS switch accumulates fp8 in
    /// f16.
    ElementTypeCode {
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

impl ElementTypeCode {
    /// Bytes of one element; 0 for a type that this version does not know.
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
    /// Operator that combines the ranks' elements. symmem's own algorithms combine in rank order, so that all of them
    /// give the same bits; an NVLS switch and NCCL or RCCL use an order of their own.
    ReduceOpCode {
        /// Integers wrap.
        SUM = 1,
        /// The sum divided by the number of ranks, then rounded; integers round towards zero.
        AVERAGE = 2,
        /// NaN if any element is NaN.
        MINIMUM = 3,
        /// NaN if any element is NaN.
        MAXIMUM = 4,
        /// Integers wrap.
        PRODUCT = 5,
    }
);

open_enum!(
    /// A collective operation of a group of ranks.
    CollectiveOperationCode {
        /// No rank continues before all have arrived.
        BARRIER = 1,
        /// Copies one rank's elements to all ranks.
        BROADCAST = 2,
        /// Copies every rank's elements to all ranks, in rank order.
        ALL_GATHER = 3,
        /// All-gather with a count for each rank.
        ALL_GATHER_V = 4,
        /// Reduces the ranks' elements to one rank.
        REDUCE = 5,
        /// Reduces, and leaves one part of the result at each rank.
        REDUCE_SCATTER = 6,
        /// Reduces to all ranks.
        ALL_REDUCE = 7,
        /// Sends one part from each rank to each rank.
        ALL_TO_ALL = 8,
        /// All-to-all with a count for each pair of ranks.
        ALL_TO_ALL_V = 9,
        /// Copies every rank's elements to one rank, in rank order.
        GATHER = 10,
        /// Sends one part of one rank's elements to each rank.
        SCATTER = 11,
        /// Sends and receives that run concurrently.
        EXCHANGE = 12,
        /// GEMM whose `A` is all-gathered.
        ALL_GATHER_GEMM = 13,
        /// All-reduce of rows, to which a residual is added, and which are normalised.
        ALL_REDUCE_NORM = 14,
        /// GEMM whose products are added up, one part of the sum at each rank.
        GEMM_REDUCE_SCATTER = 15,
        /// GEMM whose products are added up, the sum at all ranks.
        GEMM_ALL_REDUCE = 16,
    }
);

open_enum!(
    /// Algorithm of a collective. Each operation has only some of them.
    AlgorithmCode {
        /// The selector chooses by operation, size and world size.
        AUTOMATIC = 0,
        /// LL packets, which carry flags in the data: no barrier, but twice the bytes. One-shot.
        PACKETS = 1,
        /// LL packets in two steps: a reduce-scatter, then an all-gather of the results.
        PACKETS_TWO_SHOT = 2,
        /// Between two barriers, every rank pulls all elements that it needs and reduces them itself.
        ONE_SHOT = 3,
        /// Between two barriers, every rank pulls and reduces its part and pushes the result to all ranks. A
        /// broadcast scatters, then gathers.
        TWO_SHOT = 4,
        /// Between two barriers, every rank stores to its peers.
        PUSH = 5,
        /// Between two barriers, every rank loads from its peers.
        PULL = 6,
        /// The copy engine copies, each step after the neighbor has finished the step before. In an all-reduce it
        /// gathers, after a kernel has reduced each rank's share.
        COPY_ENGINE = 7,
        /// NCCL or RCCL.
        VENDOR = 8,
        /// The receiver loads from the sender once both have arrived ([`CollectiveOperationCode::EXCHANGE`]).
        RENDEZVOUS = 9,
        /// Between two barriers, each pair of ranks exchanges its two parts in place; each of the two ranks swaps
        /// half of the bytes. Only for an all-to-all in place.
        SWAP = 10,
        /// Between two barriers, every rank loads its share from a multicast address, which reduces it, and stores
        /// the result to a multicast address. An operation that only reduces or only distributes does one of the two.
        MULTICAST = 11,
        /// Between two barriers, every rank loads all elements that it needs from a multicast address, which reduces
        /// them. Never in place.
        MULTICAST_ONE_SHOT = 12,
        /// Lamport packets, in which data is its own flag: no barrier. Sums and averages of floating-point types of at most
        /// 32 bits, one-shot, send no more bytes than the data's; operations that only move send one in 31 more.
        LAMPORT = 13,
        /// Every rank pushes its data in pieces through its peers' inboxes, and takes what arrives from its own: no
        /// barrier, and no address of a peer's memory. An all-reduce does so twice.
        PIECES = 14,
        /// Lamport packets in two steps of one launch: every rank reduces its share, and sends the result to all.
        LAMPORT_TWO_SHOT = 15,
    }
);

impl AlgorithmCode {
    /// Whether the algorithm uses multicast addresses, or emulates them.
    pub const fn is_multicast(self) -> bool {
        matches!(self, Self::MULTICAST | Self::MULTICAST_ONE_SHOT)
    }

    /// Whether the algorithm sends Lamport packets.
    pub const fn is_lamport(self) -> bool {
        matches!(self, Self::LAMPORT | Self::LAMPORT_TWO_SHOT)
    }
}

open_enum!(
    /// A family of collective kernels.
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
        /// [`MulticastArguments`](super::MulticastArguments) that do not reduce, for any type of element.
        MULTICAST_MOVE = 9,
        /// [`ReduceLamportArguments`].
        REDUCE_LAMPORT = 10,
        /// [`PieceArguments`].
        PIECES = 11,
        /// [`MoveLamportArguments`].
        MOVE_LAMPORT = 12,
        /// [`ReduceNormArguments`](super::ReduceNormArguments).
        REDUCE_NORM = 13,
    }
);

open_enum!(
    /// When a stream's next kernel may start beside a collective's, on devices whose kernels can say so. The next kernel
    /// always waits for the collective's end before it touches memory.
    DependentsCode {
        /// Once every block has heard from all that it waits for.
        ANSWERED = 0,
        /// When this kernel ends.
        ENDED = 1,
        /// When this kernel ends; and this kernel starts after the end of the one before.
        NEVER = 2,
    }
);

/// Maximum number of blocks in a collective's grid; each block has a slot.
pub const SLOT_BLOCKS: u32 = 320;
/// Bytes of a block's slot. The `SLOT_*` offsets below say what is in it.
pub const SLOT_BYTES: u64 = 4096;
/// Maximum number of blocks in a grid of LL packets; each block has a region.
pub const PACKET_BLOCKS: u32 = 64;
/// Offset in a slot, in bytes, of the 32-bit counters that only their owner uses: barriers, uses of packets, sends,
/// receives.
pub const SLOT_COUNTERS: u64 = 0;
/// Offset in a slot, in bytes, of one 32-bit word per member, which that member raises at barriers.
pub const SLOT_WORDS: u64 = 128;
/// Offset in a slot, in bytes, of one 32-bit word per member, which that member raises when it has received.
pub const SLOT_RECEIVED: u64 = 512;
/// Offset in a slot of 32 bytes per member: four 8-byte packets in which that member announces what it sends.
pub const SLOT_ANNOUNCEMENTS: u64 = 1024;

/// Bytes from one word of a channel of [`ReducePushArguments`] to the next.
pub const PUSH_WORD_STRIDE: u64 = 32;
/// Alignment in bytes of the pieces, which follow the words of a channel.
pub const PUSH_PIECES_ALIGNMENT: u64 = 128;
/// Threads of a pair of 32-thread warps. With larger warps a grid has fewer channels.
pub const PUSH_PAIR_THREADS: u32 = 64;
/// The number of threads in a pushing block is a multiple of this: a pair of warps of 32 or 64 threads.
pub const PUSH_THREAD_STEP: u32 = 128;

/// The ranks of one collective call, and the memory by which they synchronize.
///
/// Each member has *slots*, zeroed before the first call: [`SLOT_BLOCKS`] of [`SLOT_BYTES`], then [`PACKET_BLOCKS`]
/// regions of `packet_bytes` each. All members launch the same grid. Block `b` uses slot and region `b` and
/// communicates only with block `b` of its peers, so a grid needs no barrier of its own, and every block takes part
/// in every barrier. A region has two halves, used alternately, of `world` inboxes each. The inbox of member `p` in
/// half `h` is at `(h * world + p) * packet_capacity`, with `packet_capacity = packet_bytes / 2 / world`, rounded
/// down to a multiple of 16.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CollectiveGroup {
    /// Abort word, record and deadline; its rank is the communicator's.
    pub watch: Watch,
    /// Each member's slots as this device addresses them, this rank's own included.
    pub slots: [DeviceAddress; MAX_RANKS],
    /// Bytes of a block's region for LL packets.
    pub packet_bytes: u32,
    /// When the stream's next kernel may start, if the kernel can say so.
    pub dependents: DependentsCode,
    /// This rank in the group.
    pub rank: u32,
    /// Number of ranks in the group.
    pub world: u32,
    /// The channel, for the record.
    pub slot: u32,
    /// The operation, for the record.
    pub operation: CollectiveOperationCode,
    /// Each member's rank in the communicator, for the record.
    pub members: [u8; MAX_RANKS],
}

/// Arguments of copies, or swaps, between two barriers of a group. Every member has reached the call before the first
/// byte moves, and every member's bytes are in place and visible when the call ends. A swap also writes the sources,
/// so no two swaps of the group may overlap.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MoveArguments {
    /// The participating ranks.
    pub group: CollectiveGroup,
    /// First byte written by each copy.
    pub destinations: [DeviceAddress; MAX_RANKS],
    /// First byte read by each copy.
    pub sources: [DeviceAddress; MAX_RANKS],
    /// Bytes of each copy; may be 0. A copy onto itself is skipped.
    pub bytes: [u64; MAX_RANKS],
    /// Number of copies.
    pub copies: u32,
    /// Number of copies that run at a time, at least 1. The blocks are divided among that many; the others follow in
    /// turn.
    pub concurrent: u32,
}

/// Arguments of a transfer from every member to every member in LL packets, without a barrier. Sources and
/// destinations are memory of this rank, complete and free for reuse when the call ends.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PacketArguments {
    /// The participating ranks.
    pub group: CollectiveGroup,
    /// First byte that is sent to each member; the own entry is copied.
    pub sources: [DeviceAddress; MAX_RANKS],
    /// First byte that each member's data is written to.
    pub destinations: [DeviceAddress; MAX_RANKS],
    /// Bytes sent to each member; may be 0. Must equal what that member expects.
    pub send_bytes: [u64; MAX_RANKS],
    /// Bytes that each member sends to this rank; may be 0.
    pub receive_bytes: [u64; MAX_RANKS],
}

/// Arguments of a reduction between two barriers: this rank reduces `count` elements of every member and stores the
/// result at each destination.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ReduceArguments {
    /// The participating ranks.
    pub group: CollectiveGroup,
    /// Each member's elements as this device addresses them.
    pub sources: [DeviceAddress; MAX_RANKS],
    /// Destinations of the result: an address in each member's memory, or 0 for none.
    pub destinations: [DeviceAddress; MAX_RANKS],
    /// Number of elements that this rank reduces; may be 0.
    pub count: u64,
    /// Type of the elements.
    pub element: ElementTypeCode,
    /// Reduction operator.
    pub reduce: ReduceOpCode,
}

/// Arguments of a reduction in which each member pushes to every other member's inbox, in pieces, the elements that
/// the other reduces. The result is that of `reduce`.
///
/// An inbox has *channels*, zeroed before the first call, `channel_bytes` apart. Each pair of warps in the grid has
/// one channel and communicates only with the channels of the same number at the peers. A channel holds, at multiples
/// of [`PUSH_WORD_STRIDE`]: one word per member that the member raises when it has pushed a piece, one word per
/// member that the member raises when it has taken a piece, and the owner's two counters of pieces pushed and taken.
/// From the next multiple of [`PUSH_PIECES_ALIGNMENT`] on, it holds `slots` pieces of `piece_bytes` for each other
/// member. All calls on the same inboxes have the same world size, `channel_bytes`, `slots` and `piece_bytes`; their
/// grids may differ.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ReducePushArguments {
    /// The participating ranks, this rank's share of every member's elements, and the destinations of its result. Of the
    /// sources only this rank's own is read; without `barrier` the others may be null.
    pub reduce: ReduceArguments,
    /// This rank's elements of each member's share, in this rank's memory.
    pub sources: [DeviceAddress; MAX_RANKS],
    /// Number of elements in each member's share; equal on all members, may be 0.
    pub counts: [u64; MAX_RANKS],
    /// Each member's inbox as this device addresses it, this rank's own included.
    pub inboxes: [DeviceAddress; MAX_RANKS],
    /// Bytes from one channel to the next, a multiple of [`PUSH_PIECES_ALIGNMENT`].
    pub channel_bytes: u64,
    /// Channels of an inbox, which is the most that a grid may use.
    pub channels: u32,
    /// Number of pieces per member that an inbox holds; a power of two.
    pub slots: u32,
    /// Bytes of a piece, a multiple of 16.
    pub piece_bytes: u32,
    /// 1 if members store results in each other's memory. All have then stored when the call ends. A result is stored
    /// once a piece has come from every member, which thus has reached the call.
    pub barrier: u32,
}

/// Arguments of a transfer from every member to every member in pieces through inboxes, without a barrier. Sources and
/// destinations are memory of this rank, complete and free for reuse when the call ends. The inboxes are those of
/// [`ReducePushArguments`]: calls of both on the same inboxes may follow each other.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PieceArguments {
    /// The participating ranks.
    pub group: CollectiveGroup,
    /// First byte that is sent to each member; the own entry is copied.
    pub sources: [DeviceAddress; MAX_RANKS],
    /// First byte that each member's data is written to.
    pub destinations: [DeviceAddress; MAX_RANKS],
    /// Bytes sent to each member; may be 0. Must equal what that member expects.
    pub send_bytes: [u64; MAX_RANKS],
    /// Bytes that each member sends to this rank; may be 0.
    pub receive_bytes: [u64; MAX_RANKS],
    /// Each member's inbox as this device addresses it, this rank's own included.
    pub inboxes: [DeviceAddress; MAX_RANKS],
    /// Bytes of the longest message of any member to any other; equal on all members.
    pub longest: u64,
    /// Bytes from one channel to the next, a multiple of [`PUSH_PIECES_ALIGNMENT`].
    pub channel_bytes: u64,
    /// Channels of an inbox, which is the most that a grid may use.
    pub channels: u32,
    /// Number of pieces per member that an inbox holds; a power of two.
    pub slots: u32,
    /// Bytes of a piece, a multiple of 16.
    pub piece_bytes: u32,
    /// 1 if a destination may be the source of another member's data; the own source is then the own destination.
    /// Members may differ in it.
    pub in_place: u32,
}

impl PieceArguments {
    /// Returns the same transfer in LL packets.
    pub fn in_packets(&self) -> PacketArguments {
        PacketArguments {
            group: self.group,
            sources: self.sources,
            destinations: self.destinations,
            send_bytes: self.send_bytes,
            receive_bytes: self.receive_bytes,
        }
    }
}

impl ReducePushArguments {
    /// Returns the same reduction in LL packets, if no member stores into another's memory.
    pub fn in_packets(&self) -> Option<ReducePacketArguments> {
        let reduce = &self.reduce;
        (self.barrier == 0).then_some(ReducePacketArguments {
            group: reduce.group,
            sources: self.sources,
            destinations: reduce.destinations,
            counts: self.counts,
            element: reduce.element,
            reduce: reduce.reduce,
            two_shot: 0,
            reserved: 0,
        })
    }
}

/// Arguments of a reduction in LL packets, without a barrier. Every member sends each other member `counts[p]`
/// elements from `sources[p]`, and reduces `counts[rank]` elements of every member.
///
/// With `two_shot` 0 the result goes to `destinations[rank]`. With 1 this rank also sends its result to every member
/// in LL packets, and the `counts[p]` elements that member `p` sends go to `destinations[p]`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ReducePacketArguments {
    /// The participating ranks.
    pub group: CollectiveGroup,
    /// The elements that each member reduces, in this rank's memory; the own entry is this rank's share.
    pub sources: [DeviceAddress; MAX_RANKS],
    /// Destinations of the results, in this rank's memory.
    pub destinations: [DeviceAddress; MAX_RANKS],
    /// Number of elements that each member reduces; equal on all members, may be 0.
    pub counts: [u64; MAX_RANKS],
    /// Type of the elements.
    pub element: ElementTypeCode,
    /// Reduction operator.
    pub reduce: ReduceOpCode,
    /// 1 if each member's result is sent to every member.
    pub two_shot: u32,
    /// Zero.
    pub reserved: u32,
}

/// Buffers of an inbox for Lamport packets; calls use them in turn.
pub const LAMPORT_BUFFERS: u64 = 2;
/// Bytes of the counters of [`ReduceLamportArguments`].
pub const LAMPORT_COUNTER_BYTES: u64 = 16;

/// Stands for every member where arguments name one.
pub const EVERY_MEMBER: u32 = u32::MAX;

/// Arguments of a reduction in Lamport packets, without a barrier.
///
/// One-shot (`share_bytes` is 0): every member sends the `receiver` `count` elements from `sources[p]`, where `p` is the
/// receiver's number, and the receiver reduces `count` elements of every member. Every other message is one vector of
/// zeros, which says only that its sender has begun this call, and has no source.
///
/// Two-shot: `sources[p]` is share `p` of this rank's elements, the shares one after the other. Member `p` reduces share `p`
/// of all members, and sends the result to all others; `destination` is where all shares go. Each message is a share, filled
/// up with zeros to `share_bytes`, and behind it the sender's result, filled up alike.
///
/// A packet is a 32-bit word of data, complemented. Zero is no packet: data that would become zero has all bits set, so
/// in these types it is NaN, and the sender clears its sign bit. An inbox is zeroed before the first call. It has
/// [`LAMPORT_BUFFERS`] buffers of `world - 1` parts of `part_bytes`; member `p` sends to part `p` of a member that comes
/// after it and to part `p - 1` of one that comes before. Calls use the buffers in turn, and zero what they have read.
/// After a call in which a wait gave up, no call on these inboxes sends. All calls on the same inboxes have the same world
/// size and `part_bytes`; grids may differ from call to call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ReduceLamportArguments {
    /// The participating ranks, at least two. Their slots are not used.
    pub group: CollectiveGroup,
    /// Each member's inbox as this device addresses it, this rank's own included.
    pub inboxes: [DeviceAddress; MAX_RANKS],
    /// The elements that each member reduces, in this rank's memory; the own entry is this rank's share.
    pub sources: [DeviceAddress; MAX_RANKS],
    /// Destination of the result, in this rank's memory.
    pub destination: DeviceAddress,
    /// Number of elements, equal on all members: at least 1, and at most what a part has room for. Two-shot, that of all
    /// shares together.
    pub count: u64,
    /// This rank's counters: the buffer in turn, one that is zero between calls, and one that is set when a wait has
    /// given up. 32 bits each, zeroed before the first call.
    pub counters: DeviceAddress,
    /// Bytes of a part, a multiple of 16.
    pub part_bytes: u32,
    /// Type of the elements: a floating-point type of at most 32 bits.
    pub element: ElementTypeCode,
    /// [`ReduceOpCode::SUM`] or [`ReduceOpCode::AVERAGE`].
    pub reduce: ReduceOpCode,
    /// As in `group`. The small kernels read it here, beside the other words that they read.
    pub dependents: DependentsCode,
    /// The addresses that a group of two uses, from [`ReduceLamportArguments::pair_of`]; zeros in other groups.
    pub pair: LamportPair,
    /// Bytes of a share, if the call is two-shot: a multiple of 16, so many that `world` shares hold all elements, and at
    /// most half of `part_bytes`. Otherwise 0.
    pub share_bytes: u64,
    /// The member that reduces, or [`EVERY_MEMBER`]; two-shot always [`EVERY_MEMBER`].
    pub receiver: u32,
    /// Zero.
    pub reserved: u32,
}

/// Addresses of a reduction in Lamport packets in a group of two, which the tables have as well. Here one line of the
/// constant cache holds them all, and no load of one waits for the load of an index.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LamportPair {
    /// The elements that this rank reduces.
    pub source: DeviceAddress,
    /// The elements that the peer reduces.
    pub sent: DeviceAddress,
    /// This rank's inbox.
    pub inbox: DeviceAddress,
    /// The peer's inbox.
    pub peer_inbox: DeviceAddress,
}

/// Bytes of a line of Lamport packets that moves data: 32 vectors, of which the last has marks.
pub const LAMPORT_LINE_BYTES: u64 = 512;
/// Bytes of data in a line.
pub const LAMPORT_LINE_DATA_BYTES: u64 = 496;

/// Arguments of a move in Lamport packets, without a barrier: a message of `bytes` bytes from the `sender` to the `receiver`,
/// each of which may be every member. A member's message to itself is one of them. It uses the inboxes and counters of
/// [`ReduceLamportArguments`], and its calls count as calls on them. So all other messages to other members are empty, but
/// still take one line, which says that its sender has begun this call; they have neither source nor destination.
///
/// A message takes lines of [`LAMPORT_LINE_BYTES`], whose first [`LAMPORT_LINE_DATA_BYTES`] are data. Bit `t` of word `w` of
/// the 16 bytes behind them is set if word `w` of the line's 16 bytes at `16 t` has all bits set, and the highest bit is
/// always set. So any bits can be moved, and no word of a message is empty.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MoveLamportArguments {
    /// The participating ranks, at least two. Their slots are not used.
    pub group: CollectiveGroup,
    /// Each member's inbox as this device addresses it, this rank's own included.
    pub inboxes: [DeviceAddress; MAX_RANKS],
    /// The message to each member, in this rank's memory.
    pub sources: [DeviceAddress; MAX_RANKS],
    /// Where each member's message goes, in this rank's memory. It may be where the message to that member lies. The
    /// message to itself is copied unless both addresses are the same.
    pub destinations: [DeviceAddress; MAX_RANKS],
    /// Bytes of each message, equal on all members: at least 1, and at most
    /// [`MoveLamportArguments::capacity`] of a part.
    pub bytes: u64,
    /// This rank's counters.
    pub counters: DeviceAddress,
    /// Bytes of a part, a multiple of 16.
    pub part_bytes: u32,
    /// As in `group`. The small kernels read it here, beside the other words that they read.
    pub dependents: DependentsCode,
    /// The addresses that a group of two uses, from [`MoveLamportArguments::pair_of`]; zeros in other groups.
    pub pair: MoveLamportPair,
    /// The member that sends, or [`EVERY_MEMBER`].
    pub sender: u32,
    /// The member that receives, or [`EVERY_MEMBER`].
    pub receiver: u32,
}

/// Addresses of a move in Lamport packets in a group of two, as in [`LamportPair`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveLamportPair {
    /// The message to the peer.
    pub sent: DeviceAddress,
    /// Where the peer's message goes.
    pub arriving: DeviceAddress,
    /// This rank's message to itself.
    pub own_source: DeviceAddress,
    /// Where that one goes.
    pub own_destination: DeviceAddress,
    /// This rank's inbox.
    pub inbox: DeviceAddress,
    /// The peer's inbox.
    pub peer_inbox: DeviceAddress,
}

/// Checks a message in Lamport packets of `bytes` bytes, which take `taken` of a part.
///
/// # Errors
/// The number that is out of range.
fn check_message(
    group: &CollectiveGroup,
    bytes: u64,
    taken: u64,
    part_bytes: u32,
) -> Result<(), String> {
    if group.world < 2 {
        return Err("a group of one has no peers to send packets to; copy instead".into());
    }
    if bytes == 0 || taken > part_bytes.into() || !part_bytes.is_multiple_of(16) {
        return Err(format!(
            "{bytes} bytes take {taken} of a part of {part_bytes}: give at least one element, and a part of a multiple \
             of 16 bytes that holds them"
        ));
    }
    Ok(())
}

/// Returns whether a number names a member, or every member.
fn is_named(named: u32, member: u32) -> bool {
    named == EVERY_MEMBER || named == member
}

/// Checks a number that names a member of a group, or every member.
///
/// # Errors
/// What it names, and the number.
fn check_named(group: &CollectiveGroup, what: &str, named: u32) -> Result<(), String> {
    if named == EVERY_MEMBER || named < group.world {
        return Ok(());
    }
    Err(format!(
        "{what} {named} is not in a group of {}; name a member, or {EVERY_MEMBER} for every member",
        group.world
    ))
}

impl MoveLamportArguments {
    /// Checks that the messages fit into a part, and the members that are named.
    ///
    /// # Errors
    /// The number that is out of range.
    pub fn check(&self) -> Result<(), String> {
        let taken = Self::taken_bytes(self.bytes);
        check_message(&self.group, self.bytes, taken, self.part_bytes)?;
        check_named(&self.group, "sender", self.sender)?;
        check_named(&self.group, "receiver", self.receiver)
    }

    /// Returns the bytes of a member's message to another.
    pub fn bytes_between(&self, sender: u32, receiver: u32) -> u64 {
        match is_named(self.sender, sender) && is_named(self.receiver, receiver) {
            true => self.bytes,
            false => 0,
        }
    }

    /// Returns what `pair` must be.
    pub fn pair_of(&self) -> MoveLamportPair {
        let own = self.group.rank as usize;
        if self.group.world != 2 || own > 1 {
            return MoveLamportPair::default();
        }
        MoveLamportPair {
            sent: self.sources[1 - own],
            arriving: self.destinations[1 - own],
            own_source: self.sources[own],
            own_destination: self.destinations[own],
            inbox: self.inboxes[own],
            peer_inbox: self.inboxes[1 - own],
        }
    }

    /// Returns the bytes that a message of `bytes` takes in a part.
    pub const fn taken_bytes(bytes: u64) -> u64 {
        bytes
            .div_ceil(LAMPORT_LINE_DATA_BYTES)
            .saturating_mul(LAMPORT_LINE_BYTES)
    }

    /// Returns the longest message for which a part of `part_bytes` has room.
    pub const fn capacity(part_bytes: u64) -> u64 {
        part_bytes / LAMPORT_LINE_BYTES * LAMPORT_LINE_DATA_BYTES
    }
}

impl ReduceLamportArguments {
    /// Checks that the messages fit into a part, the member that is named, and the shares.
    ///
    /// # Errors
    /// The number that is out of range.
    pub fn check(&self) -> Result<(), String> {
        let taken = self.taken_bytes();
        check_message(&self.group, self.bytes(), taken, self.part_bytes)?;
        check_named(&self.group, "receiver", self.receiver)?;
        let (share, world) = (self.share_bytes, self.group.world);
        if share == 0 {
            return Ok(());
        }
        if !share.is_multiple_of(16) || share.saturating_mul(world.into()) < self.bytes() {
            return Err(format!(
                "{world} shares of {share} bytes for {}: shares are multiples of 16 bytes that hold all elements",
                self.bytes()
            ));
        }
        match self.receiver {
            EVERY_MEMBER => Ok(()),
            one => Err(format!(
                "receiver {one} of a two-shot reduction: every member receives; use {EVERY_MEMBER}"
            )),
        }
    }

    /// Returns the bytes of all elements.
    pub fn bytes(&self) -> u64 {
        self.count.saturating_mul(self.element.bytes())
    }

    /// Returns whether a member reduces.
    pub fn receives(&self, member: u32) -> bool {
        is_named(self.receiver, member)
    }

    /// Returns the bytes of a member's share in a two-shot call; may be 0.
    pub fn share_of(&self, member: u32) -> u64 {
        let before = self.share_bytes.saturating_mul(member.into());
        self.bytes().saturating_sub(before).min(self.share_bytes)
    }

    /// Returns the bytes that the longest message takes in a part.
    pub fn taken_bytes(&self) -> u64 {
        match self.share_bytes {
            0 => self.bytes(),
            share => share.saturating_mul(2),
        }
    }

    /// Returns what `pair` must be.
    pub fn pair_of(&self) -> LamportPair {
        let own = self.group.rank as usize;
        if self.group.world != 2 || own > 1 {
            return LamportPair::default();
        }
        LamportPair {
            source: self.sources[own],
            sent: self.sources[1 - own],
            inbox: self.inboxes[own],
            peer_inbox: self.inboxes[1 - own],
        }
    }

    /// Returns whether Lamport packets can carry a reduction: they need a word that cannot be data.
    pub const fn can_carry(element: ElementTypeCode, reduce: ReduceOpCode) -> bool {
        matches!(
            element,
            ElementTypeCode::F16
                | ElementTypeCode::BF16
                | ElementTypeCode::F32
                | ElementTypeCode::F8_E4M3
                | ElementTypeCode::F8_E5M2
        ) && matches!(reduce, ReduceOpCode::SUM | ReduceOpCode::AVERAGE)
    }
}

/// Token or address of an absent send or receive in [`ExchangeArguments`].
pub const NO_TOKEN: u64 = u64::MAX;

/// Bits of a token's offset in [`ExchangeArguments`]; the bits above are a row.
pub const TOKEN_OFFSET_BITS: u32 = 48;

/// Row in the tokens of memory that only its sender can address.
pub const OWN_ROW: u64 = 0xfffe;

/// Smallest chunk of an exchange, and the unit of its size, in bytes.
pub const CHUNK_ALIGNMENT: u32 = 16;

/// Arguments of one rank's sends and receives, at most one of each per member, which run concurrently. The receiver
/// loads from the sender once both have arrived.
///
/// A token names what is sent: the row of the allocation in `table` times 2⁴⁸, plus the offset in bytes. A sender
/// announces token and size to every block that receives. A receiver that expects another size gives up and fills the
/// record.
///
/// What only the sender can address has the row [`OWN_ROW`] and its address in place of an offset; it is not for the sender
/// itself. It goes through the sender's staging: each block copies its part there chunk by chunk, announces each chunk, and
/// waits for its receipt. The chunk of part `part` for peer `p`, where peers are numbered from 0 without the sender, begins
/// `staging + (part * (world - 1) + p) * chunk_bytes` behind the sender's slots. The host's backend has one part.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ExchangeArguments {
    /// The participating ranks. The grid has `world * blocks_per_peer + 1` blocks.
    pub group: CollectiveGroup,
    /// Token of what is sent to each member, or [`NO_TOKEN`].
    pub send_tokens: [u64; MAX_RANKS],
    /// Bytes sent to each member; may be 0.
    pub send_bytes: [u64; MAX_RANKS],
    /// Address that each member's data is written to, or [`NO_TOKEN`].
    pub destinations: [u64; MAX_RANKS],
    /// Bytes received from each member; may be 0.
    pub receive_bytes: [u64; MAX_RANKS],
    /// Address table `[row][rank of the communicator]`: each rank's copy of an allocation as this device addresses
    /// it.
    pub table: DeviceAddress,
    /// Length of a row of the table: the number of ranks in the communicator.
    pub table_ranks: u32,
    /// Number of blocks that receive from each member; equal on all members.
    pub blocks_per_peer: u32,
    /// Offset of the staging from a member's slots, in bytes; equal on all members.
    pub staging: u64,
    /// Bytes of a chunk, a multiple of [`CHUNK_ALIGNMENT`]; equal on all members, and more than 0 if any member may send
    /// memory that only it can address.
    pub chunk_bytes: u32,
    /// 0
    pub reserved: u32,
}

impl ExchangeArguments {
    /// Returns the token of memory that only its sender can address; `None` for an address of more than
    /// [`TOKEN_OFFSET_BITS`] bits.
    pub fn own_token(address: DeviceAddress) -> Option<u64> {
        (address.0 >> TOKEN_OFFSET_BITS == 0).then_some(OWN_ROW << TOKEN_OFFSET_BITS | address.0)
    }

    /// Returns the sender's address if a token names memory that only it can address.
    pub fn own_address(token: u64) -> Option<DeviceAddress> {
        let offset = token & ((1 << TOKEN_OFFSET_BITS) - 1);
        (token >> TOKEN_OFFSET_BITS == OWN_ROW).then_some(DeviceAddress(offset))
    }

    /// Checks the size of a chunk, and that this rank sends itself nothing that goes in chunks.
    ///
    /// # Errors
    /// The reason as text.
    pub fn check(&self) -> Result<(), String> {
        let world = (self.group.world as usize).min(MAX_RANKS);
        let own = |token: &u64| Self::own_address(*token).is_some();
        let tokens = &self.send_tokens[..world];
        if tokens.get(self.group.rank as usize).is_some_and(own) {
            return Err(
                "a rank copies what it sends itself of memory that only it can address".into(),
            );
        }
        let bytes = self.chunk_bytes;
        if bytes.is_multiple_of(CHUNK_ALIGNMENT) && (bytes != 0 || !tokens.iter().any(own)) {
            return Ok(());
        }
        Err(format!(
            "a chunk of {bytes} bytes; give a multiple of {CHUNK_ALIGNMENT}, more than 0 if a member sends memory that \
             only it can address"
        ))
    }
}

/// A row of the selector's table: the choice for calls of at most `bytes` in groups of at most `world` ranks.
///
/// Bytes are the size that collective benchmarks state. For all-reduce, reduce and broadcast that is one rank's
/// elements; for all-gather, gather, reduce-scatter, scatter and all-to-all it is the whole buffer of a rank that has
/// it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectiveRow {
    /// The operation that the row applies to.
    pub operation: CollectiveOperationCode,
    /// Largest group, in ranks.
    pub world: u32,
    /// Largest size, in bytes.
    pub bytes: u64,
    /// The chosen algorithm; [`AlgorithmCode::AUTOMATIC`] ends the table.
    pub algorithm: AlgorithmCode,
    /// Blocks of the grid.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Number of copies that run at a time ([`MoveArguments::concurrent`]); 0 for as many as there are, or as the
    /// size justifies. For the copy engine, 1 for one and 2 for as many as possible.
    pub concurrent: u32,
}
