//! Every type that crosses the boundary between core and a backend.
//!
//! Only integers, pointers with lengths and `repr(C)` structs of those live here: a backend may be a
//! shared object built by another compiler. Within a major version only structs that carry their size
//! grow, at their end; every other layout is fixed. A snapshot test pins each. The structs under "arguments of kernels" are also passed, by value, to kernels:
//! `device/include/symmem/abi.h` declares the same layouts and both sides assert size and offsets.

use std::ffi::c_void;

/// Most ranks a node group can have; the length of every table of peers that a kernel takes by value.
///
/// 72 is the largest NVLink domain sold (NVL72).
pub const MAX_RANKS: usize = 72;

/// Bytes between two signal words, so that two peers never write the same cache line.
///
/// The 32 bits after a signal word are the backend's (the host backend counts sleepers there) and
/// start as zero.
pub const SIGNAL_STRIDE: u64 = 128;

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub u64);
        impl $name {
            /// The handle that names nothing; on CUDA and HIP the null stream.
            pub const NULL: Self = Self(0);
        }
    };
}
handle!(
    /// An address a device (or, on the host backend, a processor) can load and store.
    DeviceAddress
);
handle!(
    /// A queue of ordered work. On a GPU it is the driver's own stream handle.
    RawStream
);
handle!(
    /// A point in a stream's work.
    RawEvent
);
handle!(
    /// Captured work, not yet launchable.
    RawGraph
);
handle!(
    /// Captured work, instantiated: launchable any number of times.
    RawGraphExec
);
handle!(
    /// Loaded device code.
    RawModule
);
handle!(
    /// A kernel inside a loaded module.
    RawFunction
);
handle!(
    /// Memory this process allocated to share it.
    RawAllocation
);
handle!(
    /// A peer's allocation as this process sees it.
    RawMapping
);
handle!(
    /// A communicator of the vendor's library (NCCL, RCCL).
    RawVendor
);

macro_rules! open_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $value:expr,)+ }) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
        impl $name {
            $($(#[$vdoc])* pub const $variant: Self = Self($value);)+
            /// The name of the value, or `unknown` for one from a newer version.
            pub fn name(self) -> &'static str {
                match self.0 { $($value => stringify!($variant),)+ _ => "unknown" }
            }
        }
    };
}

open_enum!(
    /// What became of a call through the table. Anything but `OK` has a [`FailureRecord`].
    Status {
        /// It worked.
        OK = 0,
        /// The vendor's call failed; the record has its name and number.
        CALL_FAILED = 1,
        /// No memory of that kind is left on this device.
        OUT_OF_MEMORY = 2,
        /// The backend, the device or the driver cannot do this.
        UNSUPPORTED = 3,
        /// An argument is outside what the contract allows.
        INVALID_ARGUMENT = 4,
        /// There is no such device.
        NO_DEVICE = 5,
        /// A library or a symbol in it is missing.
        LIBRARY_MISSING = 6,
        /// This device cannot address that peer's memory.
        PEER_UNREACHABLE = 7,
        /// The backend panicked; the panic was caught at the table.
        PANICKED = 8,
        /// Work submitted earlier failed, and the device's context is lost.
        CONTEXT_LOST = 9,
    }
);

open_enum!(
    /// A way to hand memory to a peer. Strategies are tried in the order that the backend lists them.
    ShareKind {
        /// A file descriptor that maps as ordinary memory (host backend).
        MEMORY_FILE = 1,
        /// Virtual-memory-management handle exported as a POSIX file descriptor.
        VMM_FILE_DESCRIPTOR = 2,
        /// The vendor's legacy inter-process handle: 64 bytes to the allocation's base.
        LEGACY_IPC = 3,
        /// The plain address: only between ranks that are threads of one process.
        SAME_PROCESS = 4,
    }
);

open_enum!(
    /// How bytes are moved.
    Method {
        /// Let the planner choose by direction and size.
        AUTOMATIC = 0,
        /// The copy engine: no compute unit is used.
        COPY_ENGINE = 1,
        /// A kernel of 16-byte loads and stores, unrolled.
        VECTOR = 2,
        /// A kernel of bulk asynchronous copies through shared memory.
        BULK = 3,
        /// Four warps, a quarter each, 4-byte loads unrolled by four: TileScale's published method.
        UNROLLED = 4,
    }
);

open_enum!(
    /// Which side of a transfer is remote.
    Direction {
        /// Store to the peer.
        PUT = 0,
        /// Load from the peer.
        GET = 1,
    }
);

open_enum!(
    /// Where signal words live, and so what can wait on them.
    SignalPlacement {
        /// In device memory of the rank that waits: kernels poll it. Epochs live on the device and
        /// can be captured.
        DEVICE = 0,
        /// In host memory shared by the ranks: a stream waits in hardware and no compute unit is
        /// used. Epochs live on the host; eager calls only.
        HOST = 1,
    }
);

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
    }
);

open_enum!(
    /// How a collective is done. Not every algorithm fits every operation.
    Algorithm {
        /// Let the selector choose by operation, size and world.
        AUTOMATIC = 0,
        /// Packets that carry their flag (NCCL's LL): no barrier, twice the bytes. One-shot.
        PACKETS = 1,
        /// Packets twice: a reduce-scatter, then an all-gather of its results.
        PACKETS_TWO_SHOT = 2,
        /// Between two barriers every rank pulls all it needs and reduces it itself.
        ONE_SHOT = 3,
        /// Between two barriers every rank pulls and reduces its part and pushes it to all; a
        /// broadcast scatters, then gathers.
        TWO_SHOT = 4,
        /// Between two barriers every rank stores to its peers. In a reduction it stores what each of them
        /// is to reduce into that one's inbox; where there is none (other groups than that of all ranks,
        /// other channels than 0, other elements than f16, bf16 and f32 on a GPU) or ranges do not start
        /// at multiples of 16 bytes, peers load it instead, as in two shots, or one of a reduce-scatter.
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
    }
);

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
        /// [`ReducePushArguments`].
        REDUCE_PUSH = 6,
    }
);

open_enum!(
    /// What is done to a word of symmetric memory, atomically and at system scope.
    WordUpdate {
        /// Only the old value is wanted.
        FETCH = 0,
        /// The operand is stored.
        SET = 1,
        /// The operand is added, wrapping.
        ADD = 2,
        /// The operand replaces the value.
        SWAP = 3,
        /// The operand replaces the value if that equals [`WordOperation::compare`].
        COMPARE_SWAP = 4,
    }
);

open_enum!(
    /// When a wait for a word is over: the word, compared with the wait's value. The order is that of
    /// epochs: wrapping, so that a word is greater if it is less than half the range ahead.
    Condition {
        /// Equal.
        EQUAL = 1,
        /// Not equal.
        NOT_EQUAL = 2,
        /// Ahead or equal.
        GREATER_OR_EQUAL = 3,
        /// Ahead.
        GREATER = 4,
        /// Behind or equal.
        LESS_OR_EQUAL = 5,
        /// Behind.
        LESS = 6,
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

/// Set in [`Capabilities::flags`]: kernels launched here can use [`Method::BULK`].
pub const CAPABILITY_BULK: u64 = 1 << 0;
/// Streams can be captured into graphs.
pub const CAPABILITY_GRAPHS: u64 = 1 << 1;
/// A stream can wait on a word without a kernel.
pub const CAPABILITY_STREAM_WAIT: u64 = 1 << 2;
/// The device has the hardware for multicast. Says nothing about permission to use it.
pub const CAPABILITY_MULTICAST_HARDWARE: u64 = 1 << 3;
/// A copy engine exists apart from the compute units.
pub const CAPABILITY_COPY_ENGINE: u64 = 1 << 4;
/// Kernels can be loaded and launched through [`crate::backend::Device::launch`].
pub const CAPABILITY_LAUNCH: u64 = 1 << 5;

/// What went wrong in the last failed call of this thread.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FailureRecord {
    /// The status that the call returned.
    pub status: Status,
    /// The vendor's error number, 0 if there is none.
    pub vendor_code: i32,
    /// The failing call as the vendor spells it, UTF-8, zero-padded.
    pub call: [u8; 64],
    /// What it said and what to do about it, UTF-8, zero-padded.
    pub message: [u8; 952],
}

/// A device as a backend describes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceDescription {
    /// The ordinal under the visibility variables in force.
    pub ordinal: u32,
    /// Compute units (streaming multiprocessors, compute units, or processors).
    pub compute_units: u32,
    /// Architecture, e.g. 90 for sm_90, 942 for gfx942; 0 on the host.
    pub architecture: u32,
    /// 1 if the device is a partition of a device (a MIG instance).
    pub partition: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// What the vendor identifies this very device by.
    pub uuid: [u8; 16],
    /// The device's name, UTF-8, zero-padded.
    pub name: [u8; 64],
    /// PCI address as text, zero-padded.
    pub bus: [u8; 16],
}

/// A row of a transfer table: up to `bytes`, move like this.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferRow {
    /// The row holds for transfers of at most this many bytes.
    pub bytes: u64,
    /// How to move them.
    pub method: Method,
    /// Blocks of the grid.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Bulk copies in flight per block ([`Method::BULK`]).
    pub stages: u32,
    /// Bytes of each bulk copy, a multiple of 16 ([`Method::BULK`]).
    pub stage_bytes: u32,
    /// Zero.
    pub reserved: u32,
}

/// What an open device can do.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Capabilities {
    /// `CAPABILITY_*`.
    pub flags: u64,
    /// Strategies for sharing memory, best first, ended by 0.
    pub share_kinds: [ShareKind; 4],
    /// Bytes that allocations to be shared are rounded up to.
    pub share_granularity: u64,
    /// Most bytes of shared memory a block can have.
    pub shared_memory_per_block: u32,
    /// How many peers at once keep the links busy: 1 behind a switch, all of them in a mesh.
    pub fanout: u32,
    /// The transfer table for puts, ended by a row of `bytes == u64::MAX`.
    pub put_rows: [TransferRow; 8],
    /// The transfer table for gets.
    pub get_rows: [TransferRow; 8],
    /// Version of the driver, as the vendor numbers it.
    pub driver_version: u32,
    /// Bytes that a rank should give for what the others push at it in reductions
    /// ([`ReducePushArguments::inboxes`]); 0 where a reduction by pushing takes none.
    pub reduce_inbox_bytes: u32,
}

/// Free and total memory of a device, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryInformation {
    /// Bytes an allocation could still get.
    pub free: u64,
    /// Bytes in all.
    pub total: u64,
}

/// Host memory that both the host and the device address; pinned on a GPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct HostMemory {
    /// The host's pointer.
    pub host: u64,
    /// The same bytes as kernels and stream operations address them.
    pub device: DeviceAddress,
    /// Bytes.
    pub bytes: u64,
}

/// Memory allocated to be shared.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedAllocation {
    /// Names it in later calls.
    pub handle: RawAllocation,
    /// Its first byte on this device.
    pub address: DeviceAddress,
    /// Bytes, after rounding up to the granularity.
    pub bytes: u64,
}

/// What a peer needs to map an allocation. Travels between ranks; a descriptor travels beside it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ExportedHandle {
    /// The strategy that made it.
    pub kind: ShareKind,
    /// The exporter's device ordinal (used by [`ShareKind::SAME_PROCESS`]).
    pub device: u32,
    /// From the shared object's base to the first byte meant.
    pub offset: u64,
    /// Bytes of the whole shared object.
    pub bytes: u64,
    /// The exporter's own address of the first byte meant ([`ShareKind::SAME_PROCESS`]).
    pub address: u64,
    /// The vendor's opaque handle ([`ShareKind::LEGACY_IPC`]).
    pub opaque: [u8; 64],
    /// A file descriptor the receiver of this struct owns, or −1.
    pub descriptor: i32,
    /// Zero.
    pub reserved: u32,
}

/// A peer's memory, mapped here.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedMapping {
    /// Names it in [`crate::backend::SymmetricMemory::unmap`].
    pub handle: RawMapping,
    /// The peer's first byte as this device addresses it.
    pub address: DeviceAddress,
}

/// A grid of blocks of threads.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks along x, y, z.
    pub blocks: [u32; 3],
    /// Threads of a block along x, y, z.
    pub threads: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_memory: u32,
}

/// A move of bytes between two addresses, ordered on a stream.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Transfer {
    /// First byte written.
    pub destination: DeviceAddress,
    /// First byte read.
    pub source: DeviceAddress,
    /// Bytes; may be 0.
    pub bytes: u64,
    /// The signal to give once every byte is visible to the peer; `word` 0 for none.
    pub signal: SignalTarget,
    /// Which side is remote.
    pub direction: Direction,
    /// Method, blocks, threads and bytes in flight; never [`Method::AUTOMATIC`].
    pub row: TransferRow,
}

impl Transfer {
    /// A copy of `bytes` by the copy engine, without a signal, between any two addresses that the
    /// device knows.
    pub fn by_engine(destination: DeviceAddress, source: DeviceAddress, bytes: u64) -> Self {
        Self {
            destination,
            source,
            bytes,
            row: TransferRow {
                bytes,
                method: Method::COPY_ENGINE,
                ..TransferRow::default()
            },
            ..Self::default()
        }
    }
}

// ---- arguments of kernels; mirrored in device/include/symmem/abi.h ----

/// Where a signal goes and what counts it.
///
/// The giver writes `++*epoch` to `word`. With `epoch` 0 it writes `value`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SignalTarget {
    /// The peer's 32-bit word, as this device addresses it; 0 for no signal.
    pub word: DeviceAddress,
    /// This rank's own 32-bit counter of signals given to that word; 0 if the host counts.
    pub epoch: DeviceAddress,
    /// A zeroed 32-bit word in this device's memory by which the blocks of one grid find the last
    /// among them. It is zero again when the grid ends.
    pub arrivals: DeviceAddress,
    /// The value to write where `epoch` is 0.
    pub value: u32,
    /// Zero.
    pub reserved: u32,
}

/// What a waiting kernel watches besides its word.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    /// The abort word: pinned host memory, 0 while all is well.
    pub abort: DeviceAddress,
    /// A [`WaitRecord`] in pinned host memory, filled by the first wait that gives up.
    pub record: DeviceAddress,
    /// Nanoseconds from the kernel's start after which a wait gives up.
    pub deadline_ns: u64,
    /// This rank.
    pub rank: u32,
    /// Zero.
    pub reserved: u32,
}

/// A wait for a peer's signal: until `word` has reached `++*epoch`, compared with wrapping
/// arithmetic. With `epoch` 0 the value waited for is `value`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SignalWait {
    /// This rank's own word.
    pub word: DeviceAddress,
    /// This rank's counter of waits on that word; 0 if the host counts.
    pub epoch: DeviceAddress,
    /// Abort word, record and deadline.
    pub watch: Watch,
    /// The value to reach where `epoch` is 0.
    pub value: u32,
    /// Who is to give the signal (for the record).
    pub peer: u32,
    /// The channel (for the record).
    pub slot: u32,
    /// Zero.
    pub reserved: u32,
}

/// What the kernel of a pipeline's step takes: a signal to give, then one to wait for.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct StepArguments {
    /// What is given.
    pub target: SignalTarget,
    /// What is waited for.
    pub wait: SignalWait,
}

/// A barrier among `world` ranks: each writes its epoch into its word at every peer, then waits
/// until every peer's word here has reached it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Barrier {
    /// Abort word, record and deadline.
    pub watch: Watch,
    /// This rank's 32-bit counter of barriers on these words.
    pub epoch: DeviceAddress,
    /// This rank's own words: the one that rank `p` writes is at `p *` [`SIGNAL_STRIDE`].
    pub own: DeviceAddress,
    /// At each peer the word that this rank writes, as this device addresses it.
    pub peers: [DeviceAddress; MAX_RANKS],
    /// Ranks in the barrier.
    pub world: u32,
    /// The channel (for the record).
    pub slot: u32,
}

/// What the copy kernels take: the device's part of a [`Transfer`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TransferArguments {
    /// First byte written.
    pub destination: DeviceAddress,
    /// First byte read.
    pub source: DeviceAddress,
    /// Bytes; may be 0.
    pub bytes: u64,
    /// The signal to give; `word` 0 for none.
    pub signal: SignalTarget,
    /// Bulk copies in flight per block.
    pub stages: u32,
    /// Bytes of each bulk copy.
    pub stage_bytes: u32,
}

/// What the ping-pong kernels of the benchmark take (`symmem_latency_packet`,
/// `symmem_latency_signal`): `rounds` round trips between two ranks inside one kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct LatencyArguments {
    /// This rank's inbox, aligned to 16 bytes: the flag at its start, two slots of payload from
    /// [`SIGNAL_STRIDE`] on.
    pub local: DeviceAddress,
    /// The peer's inbox.
    pub remote: DeviceAddress,
    /// Bytes of payload put before each signal, a multiple of 8.
    pub bytes: u64,
    /// Where the nanoseconds of all rounds together are written (64 bits); all ones if a wait gave up.
    pub result: DeviceAddress,
    /// Abort word, record and deadline.
    pub watch: Watch,
    /// Round trips.
    pub rounds: u32,
    /// The flag's value before the first round.
    pub base: u32,
    /// 1 at the rank that sends first.
    pub first: u32,
    /// The other rank (for the record).
    pub peer: u32,
}

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

/// Copies between two barriers of a group: every member has reached the call before the first byte
/// moves, and every member's bytes are where they belong, and visible, when the call ends.
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

/// An atomic operation on a word of symmetric memory, 32 or 64 bits, in order with its stream: what
/// the stream did before is visible to whoever sees the new value.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct WordOperation {
    /// The word, as this device addresses it.
    pub word: DeviceAddress,
    /// Where the value before is stored, in this rank's memory, as wide; 0 for nowhere.
    pub result: DeviceAddress,
    /// The operand.
    pub operand: u64,
    /// What [`WordUpdate::COMPARE_SWAP`] compares with.
    pub compare: u64,
    /// What is done.
    pub update: WordUpdate,
    /// 32 or 64.
    pub bits: u32,
}

/// A wait for words of this rank's own memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct WordWait {
    /// The first word.
    pub words: DeviceAddress,
    /// Bytes from one word to the next.
    pub stride: u64,
    /// What words are compared with.
    pub value: u64,
    /// Where the index of the first word that was seen to satisfy the condition goes (32 bits); 0 for
    /// nowhere.
    pub index: DeviceAddress,
    /// Abort word, record and deadline.
    pub watch: Watch,
    /// Words; at least 1.
    pub count: u32,
    /// When a word is as it should be.
    pub condition: Condition,
    /// 1 if one word is enough, 0 if all are needed.
    pub any: u32,
    /// 32 or 64.
    pub bits: u32,
}

/// What a user's own kernel takes, by value, to reach its peers: one symmetric buffer at every rank, and
/// the signals of one channel. `symmem/handle.h` has the functions that use it.
///
/// Signals are counted by the same words and counters as those of [`super::Signals`] on that channel,
/// so a kernel may wait for what a stream has signalled and the other way round.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Handle {
    /// Abort word, record and deadline.
    pub watch: Watch,
    /// The buffer's first byte at each rank, as this device addresses it; this rank's own among them.
    pub bases: [DeviceAddress; MAX_RANKS],
    /// At each rank the words that its peers raise: the one of giver `g` is at `g *` [`SIGNAL_STRIDE`].
    pub signals: [DeviceAddress; MAX_RANKS],
    /// This rank's counters of signals given, 32 bits for each peer.
    pub given: DeviceAddress,
    /// This rank's counters of signals waited for, 32 bits for each peer.
    pub waited: DeviceAddress,
    /// Zeroed 32-bit words, one for each peer, by which the blocks of a grid that signals find the last.
    pub arrivals: DeviceAddress,
    /// The same for the blocks of a grid that waits.
    pub departures: DeviceAddress,
    /// Bytes of the buffer at each rank.
    pub bytes: u64,
    /// This rank.
    pub rank: u32,
    /// Ranks in the world.
    pub world: u32,
    /// The channel (for the record).
    pub channel: u32,
    /// Zero.
    pub reserved: u32,
}

/// Written once by the first wait that gave up; lives in host memory.
///
/// `state` goes 0 → 1 (being written) → 2 (complete).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitRecord {
    /// 0 empty, 1 being written, 2 complete.
    pub state: u32,
    /// 1 a signal wait, 2 a barrier, 3 a wait for words (`peer` is then the word's index), 4 a receipt
    /// of another size than was sent (`expected` and `seen` are bytes, saturated), 5 a receipt from an
    /// allocation that the receiver has given up;
    /// [`WaitRecord::COLLECTIVE`] plus a [`CollectiveOperation`] for a wait within one.
    pub kind: u32,
    /// Who waited.
    pub rank: u32,
    /// For whom.
    pub peer: u32,
    /// On which channel.
    pub slot: u32,
    /// The epoch waited for.
    pub expected: u32,
    /// The epoch seen when it gave up.
    pub seen: u32,
    /// 1 the deadline passed, 2 the abort word was set.
    pub reason: u32,
    /// Nanoseconds from the kernel's start until it gave up.
    pub elapsed_ns: u64,
}

impl WaitRecord {
    /// What is added to a [`CollectiveOperation`] to make a kind.
    pub const COLLECTIVE: u32 = 16;
}

// ---- collectives: rows of the selector, the vendor's library ----

/// A row of the selector: up to `bytes`, in worlds of at most `world`, do it like this.
///
/// Bytes are nccl-tests' size: of an all-reduce, reduce and broadcast one rank's elements; of an
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
    /// Copies under way at once ([`MoveArguments::concurrent`]); 0 for as many as there are.
    pub concurrent: u32,
}

/// The vendor's library has symmetric windows.
pub const VENDOR_WINDOWS: u32 = 1 << 0;
/// It has an all-to-all of its own.
pub const VENDOR_ALL_TO_ALL: u32 = 1 << 1;

/// The vendor's library of collectives.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VendorDescription {
    /// `NCCL` or `RCCL`, zero-padded.
    pub name: [u8; 16],
    /// The file it was loaded from, zero-padded.
    pub file: [u8; 256],
    /// As the library numbers it.
    pub version: u32,
    /// `VENDOR_*`.
    pub flags: u32,
}

/// What ranks need to meet in the vendor's library; made by one, given to all.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VendorIdentifier {
    /// Opaque.
    pub bytes: [u8; 128],
}

/// One call of the vendor's library.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct VendorCall {
    /// What is sent.
    pub source: DeviceAddress,
    /// What is received.
    pub destination: DeviceAddress,
    /// Elements, as the vendor's call counts them.
    pub count: u64,
    /// The operation. A lone send or receipt is [`CollectiveOperation::EXCHANGE`] with only a source
    /// or only a destination.
    pub operation: CollectiveOperation,
    /// What the elements are.
    pub element: ElementType,
    /// How they become one, where they do.
    pub reduce: ReduceOperation,
    /// The root, or the peer of a send or receipt.
    pub peer: u32,
}

// ---- what core lends to a backend ----

/// Services of the host program that a backend may call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HostServices {
    /// Bytes of this struct in the host's build.
    pub size: u32,
    /// Zero.
    pub reserved: u32,
    /// Log `length` bytes of UTF-8 at `level` (1 error … 5 trace).
    pub log: Option<unsafe extern "C" fn(level: u32, text: *const u8, length: usize)>,
}

/// How to open a device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OpenOptions {
    /// Bytes of this struct in the host's build.
    pub size: u32,
    /// The device's ordinal as probed.
    pub ordinal: u32,
    /// This rank, for messages.
    pub rank: u32,
    /// Ranks on this host, which a spinning host backend compares with its processors.
    pub local_world: u32,
    /// The host's services; outlives the instance.
    pub services: *const HostServices,
}

/// An open backend, owned by the table's `open` and `close`.
pub type Instance = *const c_void;
