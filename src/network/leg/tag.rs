//! Tags of a leg's messages.

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Data.
    Data,
    /// The sender may be put to.
    Ready,
    /// Piece `index` has been used, so one more may follow.
    Credit,
    /// Piece `index` has been put.
    Piece,
    /// Piece `index` of the result has been put.
    Result,
    /// Step `index` of a barrier.
    Step,
}

/// Most pieces of a share.
pub const MOST_PIECES: u64 = 1 << 24;

/// Returns the tag of a message; `index` is below [`MOST_PIECES`].
pub fn tag(kind: Kind, index: u32) -> u32 {
    debug_assert!(u64::from(index) < MOST_PIECES);
    (kind as u32) << 24 | index
}
