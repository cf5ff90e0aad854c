//! The memory of the legs of one channel: two buffers, so that a leg works on one while the ranks of a node work on the
//! other, and an inbox for what is reduced.

use crate::group::far::CHANNEL;
use crate::network::leg::parts::Span;

/// Bytes of a buffer, and most bytes of a chunk. Not tuned yet.
pub const BUFFER: u64 = 2 << 20;
/// Bytes of the inbox: for 512 members, 64 lines each.
const INBOX: u64 = CHANNEL - 2 * BUFFER;

/// The inbox, in a channel's memory.
pub const INBOX_SPAN: Span = Span {
    offset: 2 * BUFFER,
    bytes: INBOX,
};

/// Granularity of parts and chunks: a cache line.
pub const LINE: u64 = 64;

/// Returns how many bytes each of `slots` slots of a buffer has: whole lines.
pub fn slot_bytes(slots: u64) -> u64 {
    BUFFER / slots.max(1) / LINE * LINE
}

/// Returns the windows of parts of `bytes` bytes: offset and length.
pub fn windows(bytes: u64, most: u64) -> impl Iterator<Item = (u64, u64)> {
    let count = bytes.div_ceil(most.max(1));
    (0..count).map(move |index| (index * most, (bytes - index * most).min(most)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_all_bytes_in_order() {
        assert_eq!(windows(0, 64).count(), 0);
        assert_eq!(
            windows(130, 64).collect::<Vec<_>>(),
            [(0, 64), (64, 64), (128, 2)]
        );
    }
}
