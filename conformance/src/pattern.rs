//! Test data that every rank can compute by itself, and comparison with the data that arrived.

use super::covering::Random;
use symmem::Element;
use zerocopy::IntoBytes;

/// Seed of a sequence of random elements; different tags give independent sequences.
#[derive(Clone, Copy, Debug)]
pub struct Tag {
    /// The case's seed.
    pub seed: u64,
    /// The rank that the elements belong to.
    pub rank: usize,
    /// The round of the case; `None` for poison.
    pub round: Option<u32>,
}

/// Returns `length` elements of random bits.
pub fn elements<T: Element>(tag: Tag, length: usize) -> Vec<T> {
    let round = tag.round.map_or(u64::MAX, u64::from);
    let mut random = Random(tag.seed);
    let mut random = Random(random.number() ^ (tag.rank as u64 + 1).wrapping_mul(round | 1 << 32));
    let mut elements = vec![T::new_zeroed(); length];
    for bytes in elements.as_mut_slice().as_mut_bytes().chunks_mut(8) {
        bytes.copy_from_slice(&random.number().to_le_bytes()[..bytes.len()]);
    }
    elements
}

/// Returns the first byte in which `seen` differs from `expected`; `None` if they are bit-identical.
pub fn difference<T: Element>(seen: &[T], expected: &[T]) -> Option<Difference> {
    let (seen, expected) = (seen.as_bytes(), expected.as_bytes());
    if seen == expected {
        return None;
    }
    let mut differing = seen
        .iter()
        .zip(expected)
        .enumerate()
        .filter(|(_, (a, b))| a != b);
    let (byte, (&seen, &expected)) = differing.next()?;
    Some(Difference {
        byte,
        seen,
        expected,
        count: 1 + differing.count(),
    })
}

/// The first byte that differs, and the number of bytes that differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its index.
    pub byte: usize,
    /// Its value.
    pub seen: u8,
    /// The expected value.
    pub expected: u8,
    /// Number of bytes that differ.
    pub count: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: Tag = Tag {
        seed: 1,
        rank: 0,
        round: Some(0),
    };

    #[test]
    fn elements_are_known_by_their_tag_alone() {
        assert_eq!(elements::<u16>(TAG, 9), elements::<u16>(TAG, 9));
        for other in [
            Tag { seed: 2, ..TAG },
            Tag { rank: 1, ..TAG },
            Tag {
                round: Some(1),
                ..TAG
            },
            Tag { round: None, ..TAG },
        ] {
            assert_ne!(
                elements::<u64>(TAG, 1),
                elements::<u64>(other, 1),
                "{other:?}"
            );
        }
    }

    #[test]
    fn a_difference_is_found_in_the_bits_even_of_what_is_no_number() {
        let nan = f32::from_bits(0x7fc0_0001);
        assert_eq!(difference(&[nan], &[nan]), None);
        let other = f32::from_bits(0x7fc0_0002);
        let found = difference(&[0.0, nan], &[0.0, other]).unwrap();
        assert_eq!(
            found,
            Difference {
                byte: 4,
                seen: 1,
                expected: 2,
                count: 1
            }
        );
        assert!(difference(&[0.0f32], &[-0.0]).is_some());
    }
}
