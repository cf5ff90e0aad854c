//! Signals, barriers and waits: what their kernels take, and the record of a wait that gave up.

use super::forms::open_enum;
use super::handles::DeviceAddress;
use super::limits::MAX_RANKS;

/// Bytes between two signal words, so that two peers never write the same cache line.
///
/// The 32 bits after a signal word are the backend's (the host backend counts sleepers there) and
/// start as zero.
pub const SIGNAL_STRIDE: u64 = 128;

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
/// Signals are counted by the same words and counters as those of [`crate::backend::Signals`] on that channel,
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
    /// [`WaitRecord::COLLECTIVE`] plus a [`CollectiveOperation`](super::CollectiveOperation) for a wait within one.
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
    /// What is added to a [`CollectiveOperation`](super::CollectiveOperation) to make a kind.
    pub const COLLECTIVE: u32 = 16;
}
