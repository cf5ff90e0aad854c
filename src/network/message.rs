//! The header of a message between two ranks of different nodes.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The identifier of all messages in UCX.
pub const IDENTIFIER: u16 = 0x53;

/// Puts and answers of at most these bytes travel in a message.
pub const SMALL: u64 = 16 << 10;

/// [`Header::channel`] of a put without a signal.
pub const NO_CHANNEL: u32 = u32::MAX;

/// Kinds of messages.
pub mod kind {
    /// Data for `offset` in allocation `number`, maybe none, and a signal with `value` on `channel`, maybe none.
    /// Acknowledged.
    pub const PUT: u32 = 1;
    /// Only acknowledges: [`Header::acknowledged`](super::Header::acknowledged) counts in every message.
    pub const ACKNOWLEDGE: u32 = 2;
    /// Asks for an update of the word at `offset` in allocation `number`; `value` has the update and the bits.
    pub const UPDATE: u32 = 3;
    /// Answers an update: `operand` is the earlier value.
    pub const ANSWER: u32 = 4;
    /// A step of a barrier on `channel`; `value` is the step.
    pub const BARRIER: u32 = 5;
    /// The sender no longer addresses the receiver's copy of allocation `number`.
    pub const GIVEN_UP: u32 = 6;
    /// The sender leaves in good order.
    pub const FAREWELL: u32 = 7;
    /// A message of leg `request` of key `number`; `value` is its tag.
    pub const LEG: u32 = 8;
    /// Asks for a slot of the receiver's pinned memory, for one piece of a put. Answered by [`GRANT`].
    pub const ASK: u32 = 9;
    /// Grants a slot to `request`: its offset is `operand`.
    pub const GRANT: u32 = 10;
    /// `operand` bytes for `offset` in allocation `number` are in the receiver's slot at `compare`. Acknowledged.
    pub const PIECE: u32 = 11;
    /// Asks for `operand` bytes at `offset` in allocation `number`, at most a piece, for the sender's slot at `compare`.
    pub const GET: u32 = 12;
    /// Answers [`GET`]: the bytes are in the message, if they are few, or in the receiver's slot.
    pub const GOT: u32 = 13;
}

/// A message's header, in the machine's order of bytes: all nodes of a job have the same.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Header {
    /// A random number that only the ranks of this communicator know. Other messages are dropped.
    pub session: u64,
    /// One of [`kind`].
    pub kind: u32,
    /// The rank that sends.
    pub source: u32,
    /// The channel.
    pub channel: u32,
    /// A value; see [`kind`].
    pub value: u32,
    /// Number of the allocation, the same on all ranks.
    pub number: u64,
    /// Offset in the allocation, in bytes.
    pub offset: u64,
    /// Count of the receiver's acknowledged messages that the sender has handled.
    pub acknowledged: u64,
    /// Identifies a request to its sender.
    pub request: u64,
    /// An operand or a result.
    pub operand: u64,
    /// The value that a compare-and-swap compares with.
    pub compare: u64,
}

impl Header {
    /// Reads a header; `None` for another length.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        Self::read_from_bytes(bytes).ok()
    }
}
