//! Ranges of a region.

use std::sync::Arc;

/// A range of a region, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub offset: u64,
    /// The length; may be 0.
    pub bytes: u64,
}

impl Span {
    /// Returns `bytes` bytes of the range, from its byte `at` on.
    pub fn part(self, at: u64, bytes: u64) -> Self {
        debug_assert!(at + bytes <= self.bytes);
        Self {
            offset: self.offset + at,
            bytes,
        }
    }
}

/// A range for each member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parts {
    /// The same range for all.
    Whole(Span),
    /// A range of `bytes` bytes for each, `stride` bytes apart.
    Equal {
        /// The first byte of member 0's.
        offset: u64,
        /// Distance of two members' ranges.
        stride: u64,
        /// Bytes of each.
        bytes: u64,
    },
    /// Shares of `span`, whose bytes are a multiple of `element_bytes`: as even as vectors of 64 bytes allow.
    Shares {
        /// The whole.
        span: Span,
        /// Bytes per element: a power of two.
        element_bytes: u64,
    },
    /// A range for each member, in their order.
    Each(Arc<[Span]>),
}

/// Granularity of shares: a cache line.
const LINE: u64 = 64;

impl Parts {
    /// Makes ranges of which only `member`'s has bytes.
    pub fn only(member: usize, members: usize, span: Span) -> Self {
        let part = |one| if one == member { span } else { Span::default() };
        Self::Each((0..members).map(part).collect())
    }

    /// Returns a member's range.
    pub fn of(&self, member: usize, members: usize) -> Span {
        match self {
            Self::Whole(span) => *span,
            Self::Equal {
                offset,
                stride,
                bytes,
            } => Span {
                offset: offset + stride * member as u64,
                bytes: *bytes,
            },
            Self::Shares {
                span,
                element_bytes,
            } => {
                let granule = LINE.max(*element_bytes);
                let granules = span.bytes.div_ceil(granule);
                let start = |member: u64| {
                    let members = members as u64;
                    let before = granules / members * member + (granules % members).min(member);
                    (before * granule).min(span.bytes)
                };
                let (first, end) = (start(member as u64), start(member as u64 + 1));
                span.part(first, end - first)
            }
            Self::Each(spans) => spans[member],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_the_whole_without_overlap_and_start_at_lines() {
        for bytes in [0, 4, 64, 68, 640, 1000] {
            for members in 1..8 {
                let span = Span { offset: 128, bytes };
                let shares = Parts::Shares {
                    span,
                    element_bytes: 4,
                };
                let mut next = 128;
                for member in 0..members {
                    let share = shares.of(member, members);
                    assert_eq!(share.offset, next);
                    assert!(share.bytes == 0 || share.offset.is_multiple_of(64));
                    next += share.bytes;
                }
                assert_eq!(next, 128 + bytes);
            }
        }
    }
}
