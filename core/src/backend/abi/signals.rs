//! Signals, barriers and waits: the arguments of their kernels, and the record of a wait that gave up.

use super::forms::open_enum;
use super::handles::DeviceAddress;
use super::limits::MAX_RANKS;

/// Bytes from one signal word to the next, so that two peers never write the same cache line.
///
/// The backend owns the 32 bits after a signal word, which start as zero; the host backend counts sleepers there.
pub const SIGNAL_STRIDE: u64 = 128;

open_enum!(
    /// Where signal words live, which determines what can wait for them.
    SignalPlacementCode {
        /// In device memory of the waiting rank: kernels poll it. Epochs live on the device, and calls can be
        /// captured.
        DEVICE = 0,
        /// In host memory that the ranks share: a stream waits in hardware and occupies no compute unit. Epochs live
        /// on the host, so calls cannot be captured.
        HOST = 1,
    }
);

open_enum!(
    /// An atomic operation on a word of symmetric memory, at system scope.
    WordUpdate {
        /// Loads the word.
        FETCH = 0,
        /// Stores the operand.
        SET = 1,
        /// Adds the operand, wrapping.
        ADD = 2,
        /// Replaces the word by the operand and returns the old value.
        SWAP = 3,
        /// Replaces the word by the operand if the word equals [`WordOperation::compare`].
        COMPARE_SWAP = 4,
    }
);

open_enum!(
    /// The condition that ends a wait: how the word must compare with the wait's value. Comparison wraps, as for
    /// epochs: a word is greater if it is less than half the range ahead.
    ConditionCode {
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

/// A signal: its word and its counter.
///
/// The giver writes `++*epoch` to `word`, or `value` if `epoch` is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SignalTarget {
    /// The peer's 32-bit word, as this device addresses it; 0 for no signal.
    pub word: DeviceAddress,
    /// This rank's 32-bit counter of signals given to that word; 0 if the host counts.
    pub epoch: DeviceAddress,
    /// A zeroed 32-bit word in this device's memory with which the blocks of one grid find the last block to finish.
    /// It is zero again when the grid ends.
    pub arrivals: DeviceAddress,
    /// The value to write if `epoch` is 0.
    pub value: u32,
    /// Zero.
    pub reserved: u32,
}

/// The bounds of a waiting kernel: abort word, record and deadline.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    /// The abort word: pinned host memory, 0 while all is well.
    pub abort: DeviceAddress,
    /// A [`WaitRecord`] in pinned host memory, filled by the first wait that gives up.
    pub record: DeviceAddress,
    /// A 32-bit word in this rank's device memory, 0 at first. The first wait that sees the abort word sets it to 1,
    /// and the device's other waits then give up at once, without a record. Null if and only if `abort` is null.
    pub aborted: DeviceAddress,
    /// Nanoseconds from a kernel's first look at the clock, microseconds into its first wait that is not answered at once,
    /// until a wait gives up.
    pub deadline_ns: u64,
    /// This rank.
    pub rank: u32,
    /// Zero.
    pub reserved: u32,
}

/// A wait for a peer's signal, until `word` has reached `++*epoch` (or `value` if `epoch` is 0) in wrapping
/// arithmetic.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SignalWait {
    /// This rank's own word.
    pub word: DeviceAddress,
    /// This rank's counter of waits on that word; 0 if the host counts.
    pub epoch: DeviceAddress,
    /// Abort word, record and deadline.
    pub watch: Watch,
    /// The value to reach if `epoch` is 0.
    pub value: u32,
    /// The rank that gives the signal, for the record.
    pub peer: u32,
    /// The channel, for the record.
    pub slot: u32,
    /// Zero.
    pub reserved: u32,
}

/// Arguments of a pipeline step: a signal to give, then one to wait for.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct StepArguments {
    /// The signal to give.
    pub target: SignalTarget,
    /// The signal to wait for.
    pub wait: SignalWait,
}

/// A barrier among `world` ranks. Each rank writes its epoch to its word at every peer, then waits until every peer's
/// word here has reached that epoch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Barrier {
    /// Abort word, record and deadline.
    pub watch: Watch,
    /// This rank's 32-bit counter of barriers on these words.
    pub epoch: DeviceAddress,
    /// This rank's words; rank `p` writes the one at `p *` [`SIGNAL_STRIDE`].
    pub own: DeviceAddress,
    /// The word that this rank writes at each peer, as this device addresses it.
    pub peers: [DeviceAddress; MAX_RANKS],
    /// Number of ranks in the barrier.
    pub world: u32,
    /// The channel, for the record.
    pub slot: u32,
}

/// An atomic operation on a 32-bit or 64-bit word of symmetric memory, ordered on its stream: a reader that sees the
/// new value sees the stream's earlier work.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct WordOperation {
    /// The word, as this device addresses it.
    pub word: DeviceAddress,
    /// Address in this rank's memory that the old value is stored to, of the same width; 0 for none.
    pub result: DeviceAddress,
    /// The operand.
    pub operand: u64,
    /// The value that [`WordUpdate::COMPARE_SWAP`] compares with.
    pub compare: u64,
    /// The operation.
    pub update: WordUpdate,
    /// Width of the word in bits, 32 or 64.
    pub bits: u32,
}

/// A wait until words of this rank's own memory satisfy a condition.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct WordWait {
    /// Address of the first word.
    pub words: DeviceAddress,
    /// Bytes from one word to the next.
    pub stride: u64,
    /// The value that the words are compared with.
    pub value: u64,
    /// Address that the index (32 bits) of the first satisfying word is stored to; 0 for none.
    pub index: DeviceAddress,
    /// Abort word, record and deadline.
    pub watch: Watch,
    /// Number of words; at least 1.
    pub count: u32,
    /// The condition for each word.
    pub condition: ConditionCode,
    /// 1 if one satisfying word is enough, 0 if all words are needed.
    pub any: u32,
    /// Width of the words in bits, 32 or 64.
    pub bits: u32,
}

/// Arguments with which a user's own kernel reaches its peers, taken by value: a symmetric buffer at every rank, and
/// the signals of one channel. `symmem/handle.h` has the functions that use it.
///
/// The words and counters are those of [`crate::backend::Signals`] on the same channel, so a kernel may wait for a
/// signal that a stream gives, and vice versa.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Handle {
    /// Size of this struct in bytes: [`Handle::SIZE`].
    pub size: u32,
    /// Version of this struct and of the functions that use it: [`Handle::VERSION`].
    pub version: u32,
    /// Abort word, record and deadline.
    pub watch: Watch,
    /// First byte of the buffer at each rank as this device addresses it, this rank's own included.
    pub bases: [DeviceAddress; MAX_RANKS],
    /// The first signal word at each rank; rank `g` raises the one at `g *` [`SIGNAL_STRIDE`].
    pub signals: [DeviceAddress; MAX_RANKS],
    /// This rank's counters of signals given: 32 bits per peer.
    pub given: DeviceAddress,
    /// This rank's counters of signals waited for: 32 bits per peer.
    pub waited: DeviceAddress,
    /// Zeroed 32-bit words, one per peer, with which the blocks of a signaling grid find the last block to arrive.
    pub arrivals: DeviceAddress,
    /// Zeroed 32-bit words, one per peer, with the same purpose in a waiting grid.
    pub departures: DeviceAddress,
    /// Size of the buffer at each rank, in bytes.
    pub bytes: u64,
    /// This rank.
    pub rank: u32,
    /// Number of ranks in the world.
    pub world: u32,
    /// The channel, for the record.
    pub channel: u32,
    /// Zero.
    pub reserved: u32,
}

impl Handle {
    /// Size of the struct in bytes, as kernels of this version expect it in [`Handle::size`].
    pub const SIZE: u32 = size_of::<Self>() as u32;
    /// `SYMMEM_HANDLE_VERSION` of the device headers of this version.
    pub const VERSION: u32 = 2;

    /// Returns the name of the empty kernel by which a module says that it was compiled with the device headers of a
    /// version; see `symmem/handle.h`.
    pub fn marker(version: u32) -> String {
        // The mangled name of `symmem_handle_version<version>()`.
        format!("_Z21symmem_handle_versionILj{version}EEvv")
    }
}

/// The record of the first wait that gave up, written once; lives in host memory.
///
/// `state` goes 0 → 1 (being written) → 2 (complete).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitRecord {
    /// 0 empty, 1 being written, 2 complete.
    pub state: u32,
    /// Kind of the wait:
    /// - 1 a signal
    /// - 2 a barrier
    /// - 3 words; `peer` is the word's index
    /// - 4 a receive whose size differs from the send's; `expected` and `seen` are bytes, saturated
    /// - 5 a receive from an allocation that the receiving rank has released
    /// - [`WaitRecord::COLLECTIVE`] plus a [`CollectiveOperationCode`](super::CollectiveOperationCode) for a wait within it
    pub kind: u32,
    /// The rank that waited.
    pub rank: u32,
    /// The rank that it waited for.
    pub peer: u32,
    /// The channel.
    pub slot: u32,
    /// The epoch waited for.
    pub expected: u32,
    /// The epoch seen when it gave up.
    pub seen: u32,
    /// 1 if the deadline passed, 2 if the abort word was set.
    pub reason: u32,
    /// Nanoseconds from the kernel's first look at the clock until it gave up.
    pub elapsed_ns: u64,
}

impl WaitRecord {
    /// Added to a [`CollectiveOperationCode`](super::CollectiveOperationCode) to make a kind.
    pub const COLLECTIVE: u32 = 16;
}
