//! The memory of the legs of one channel: two buffers, so that a leg works on one while the ranks of a node work on the
//! other, and an inbox for what is reduced.

use crate::group::far::CHANNEL;
use crate::network::leg::parts::Span;

/// Bytes of a buffer, and most bytes of a chunk. Not tuned yet.
pub const BUFFER: u64 = 2 << 20;
/// Bytes of the inbox: for 512 members, 64 lines each.
const INBOX: u64 = CHANNEL - 2 * BUFFER;

/// Most bytes of a part in a leg from operand to operand: stages run beside the next one, and a slow one shows progress.
pub const DIRECT: u64 = 2 << 20;

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

/// Returns the distance of places, if each follows the one before it at the same distance, which is `bytes` at least. For a
/// single place that is `bytes`.
pub fn stride(mut places: impl Iterator<Item = u64>, bytes: u64) -> Option<u64> {
    let first = places.next()?;
    let Some(second) = places.next() else {
        return Some(bytes);
    };
    let stride = second.checked_sub(first)?;
    let follows = |(index, place): (u64, u64)| {
        Some(place) == index.checked_mul(stride).map(|distance| second + distance)
    };
    let all = (1..).zip(places).all(follows);
    (all && stride >= bytes).then_some(stride)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_a_stride_if_all_distances_are_the_same_and_parts_do_not_overlap() {
        let of = |places: &[u64], bytes| stride(places.iter().copied(), bytes);
        assert_eq!(of(&[7], 5), Some(5));
        assert_eq!(of(&[0, 8, 16], 8), Some(8));
        assert_eq!(of(&[4, 24, 44], 8), Some(20));
        assert_eq!(of(&[0, 8, 20], 8), None);
        assert_eq!(of(&[0, 8, 12], 4), None);
        assert_eq!(of(&[8, 0], 4), None);
        assert_eq!(of(&[0, 4], 8), None);
        assert_eq!(of(&[], 8), None);
    }

    #[test]
    fn windows_cover_all_bytes_in_order() {
        assert_eq!(windows(0, 64).count(), 0);
        assert_eq!(
            windows(130, 64).collect::<Vec<_>>(),
            [(0, 64), (64, 64), (128, 2)]
        );
    }
}
