//! Random elements for each rank, and what is wrong with an operation's result.
//!
//! What is reduced is small whole numbers, whose sum no type rounds: then every order of adding gives
//! the same bits, and one exact check serves every library. What is only moved is random bits.

use super::element::Sample;
use super::shape::{Shape, Who};
use crate::Result;
use std::ops::Range;
use symmem::{Stream, SymmetricBuffer};
use zerocopy::IntoBytes;

/// Elements after every output that an operation must leave as they were.
pub(super) const GUARD: usize = 1024;

/// Every byte of an output before an operation that is checked. No element consists of it, so one that
/// was not written is always seen.
pub(super) const POISON: u8 = 0xff;

/// Length of the table that patterns repeat: prime, so that no power-of-two displacement maps it to
/// itself.
const PERIOD: usize = 1_048_583;

/// Elements read or written at once.
const CHUNK: usize = 1 << 20;

/// Outputs up to so many bytes are checked whole; of larger ones their ends and random pieces.
const WHOLE: usize = 16 << 20;
/// Bytes at either end of a larger output.
const END: usize = 4 << 20;
/// Pieces between the ends, and bytes of each.
const PIECES: usize = 64;
const PIECE: usize = 64 << 10;

/// What is in a source: the two kinds of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Random bits, to be moved.
    Bits,
    /// Small whole numbers, to be added.
    Numbers,
}

impl Content {
    pub(super) fn of(shape: &Shape) -> Self {
        match shape.collective.reduces() {
            true => Self::Numbers,
            false => Self::Bits,
        }
    }
}

/// Random elements: tables, begun at a different place by each rank.
pub(super) struct Data<T> {
    bits: Vec<T>,
    numbers: Vec<T>,
    values: Vec<u32>,
    world: usize,
}

/// Xorshift64 (Marsaglia 2003): any state but 0 will do.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Where the pattern of `rank` has its element `place`.
fn index(rank: usize, place: usize) -> usize {
    (rank * 131_071 + place) % PERIOD
}

impl<T: Sample> Data<T> {
    pub(super) fn new(world: usize) -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut bits = vec![T::number(0); PERIOD];
        for byte in bits.as_mut_bytes() {
            *byte = match (next(&mut state) >> 32) as u8 {
                POISON => 0x5a,
                byte => byte,
            };
        }
        // The sum of all ranks' numbers is still exact.
        let span = u64::from(T::LARGEST_EXACT / world as u32).max(1) + 1;
        let value = || (next(&mut state) >> 16) % span;
        let values: Vec<u32> = std::iter::repeat_with(value)
            .map(|value| value as u32)
            .take(PERIOD)
            .collect();
        Self {
            bits,
            numbers: values.iter().map(|&value| T::number(value)).collect(),
            values,
            world,
        }
    }

    /// Calls `each` with consecutive runs of the table, as ranges of the table and offsets within
    /// `length` elements.
    fn runs(rank: usize, place: usize, length: usize, mut each: impl FnMut(usize, Range<usize>)) {
        let mut done = 0;
        while done < length {
            let start = index(rank, place + done);
            let end = (start + length - done).min(PERIOD);
            each(done, start..end);
            done += end - start;
        }
    }

    /// Fills this rank's copy of a buffer with its pattern. Blocks.
    pub(super) fn fill(
        &self,
        rank: usize,
        content: Content,
        buffer: &SymmetricBuffer<T>,
        stream: &Stream,
    ) -> Result<()> {
        let table = match content {
            Content::Bits => &self.bits,
            Content::Numbers => &self.numbers,
        };
        let mut chunk = vec![T::number(0); CHUNK.min(buffer.len())];
        for place in (0..buffer.len()).step_by(CHUNK) {
            let length = CHUNK.min(buffer.len() - place);
            Self::runs(rank, place, length, |at, run| {
                chunk[at..at + run.len()].copy_from_slice(&table[run]);
            });
            buffer.write(stream, place, &chunk[..length])?;
        }
        Ok(())
    }

    /// What a rank's output holds from element `at` on.
    fn expected(&self, shape: &Shape, rank: usize, at: usize, out: &mut [T]) {
        let mut sums = vec![
            0_u32;
            if shape.collective.reduces() {
                out.len()
            } else {
                0
            }
        ];
        let mut done = 0;
        while done < out.len() {
            let origin = shape.origin(rank, at + done);
            let length = (origin.until - at - done).min(out.len() - done);
            let out = &mut out[done..done + length];
            match origin.who {
                Who::One(peer) => Self::runs(peer, origin.place, length, |at, run| {
                    out[at..at + run.len()].copy_from_slice(&self.bits[run]);
                }),
                Who::Sum => {
                    let sums = &mut sums[done..done + length];
                    for peer in 0..self.world {
                        Self::runs(peer, origin.place, length, |at, run| {
                            let sums = &mut sums[at..at + run.len()];
                            let values = &self.values[run];
                            sums.iter_mut()
                                .zip(values)
                                .for_each(|(sum, value)| *sum += value);
                        });
                    }
                    out.iter_mut()
                        .zip(sums)
                        .for_each(|(out, sum)| *out = T::number(*sum));
                }
            }
            done += length;
        }
    }

    /// Compares this rank's output, which lies at `output` of the buffer, and the guard at `guard`:
    /// elements that are wrong, and elements that were looked at. Blocks.
    pub(super) fn wrong_elements(
        &self,
        shape: &Shape,
        rank: usize,
        buffer: &SymmetricBuffer<T>,
        output: Range<usize>,
        guard: usize,
        stream: &Stream,
    ) -> Result<(u64, u64)> {
        let (mut wrong, mut checked) = (0, 0);
        let mut seen = vec![T::number(0); CHUNK.max(GUARD)];
        let mut expected = seen.clone();
        for range in sampled(output.len(), size_of::<T>()) {
            for at in range.clone().step_by(CHUNK) {
                let length = CHUNK.min(range.end - at);
                buffer.read(stream, output.start + at, &mut seen[..length])?;
                self.expected(shape, rank, at, &mut expected[..length]);
                wrong += differing(&seen[..length], &expected[..length]);
                checked += length as u64;
            }
        }
        buffer.read(stream, guard, &mut seen[..GUARD])?;
        expected[..GUARD].as_mut_bytes().fill(POISON);
        wrong += differing(&seen[..GUARD], &expected[..GUARD]);
        Ok((wrong, checked))
    }
}

/// Which elements of an output are looked at: rising ranges that do not overlap.
fn sampled(length: usize, size: usize) -> Vec<Range<usize>> {
    if length * size <= WHOLE {
        return std::iter::once(0..length).collect();
    }
    let (end, piece) = (END / size, PIECE / size);
    let mut ranges: Vec<Range<usize>> = std::iter::once(0..end).collect();
    // Between the ends a piece at a random place of each of so many strips.
    let strip = (length - 2 * end) / PIECES;
    let mut state = length as u64;
    for index in 0..PIECES {
        let start = end + index * strip;
        let room = strip.saturating_sub(piece).max(1) as u64;
        let start = start + (next(&mut state) % room) as usize;
        ranges.push(start..start + piece.min(strip));
    }
    ranges.push(length - end..length);
    ranges
}

fn differing<T: Sample>(seen: &[T], expected: &[T]) -> u64 {
    // Bits, not values: a NaN equals itself, and a zero of the wrong sign does not pass.
    if seen.as_bytes() == expected.as_bytes() {
        return 0;
    }
    let size = size_of::<T>();
    let pairs = (seen.as_bytes().chunks(size)).zip(expected.as_bytes().chunks(size));
    pairs.filter(|(a, b)| a != b).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Collective;

    #[test]
    fn no_element_is_made_of_the_poison() {
        let data = Data::<u16>::new(8);
        assert!(data.bits.iter().all(|bits| *bits != 0xffff));
        assert!(data.numbers.iter().all(|number| *number != 0xffff));
    }

    #[test]
    fn sums_of_all_ranks_are_exact_in_every_type() {
        fn most<T: Sample>(world: usize) -> u32 {
            Data::<T>::new(world).values.into_iter().max().unwrap() * world as u32
        }
        assert!(most::<half::bf16>(8) <= 256 && most::<half::bf16>(8) > 128);
        assert!(most::<i8>(8) <= 127);
        assert!(most::<f32>(8) <= 1 << 24);
    }

    #[test]
    fn a_sum_is_what_adding_gives_and_a_gather_is_in_rank_order() {
        let data = Data::<f32>::new(3);
        let of = |rank: usize, place: usize| data.numbers[index(rank, place)];
        let shape = Shape::new(Collective::ReduceScatter, 4096, 4, 3).unwrap();
        let mut out = vec![0.0; 7];
        data.expected(&shape, 2, 5, &mut out);
        let place = 2 * shape.part + 5;
        let sum: f32 = (0..3).map(|rank| of(rank, place)).sum();
        assert_eq!(out[0], sum);

        let shape = Shape::new(Collective::AllGather, 4096, 4, 3).unwrap();
        let mut out = vec![0.0; shape.whole];
        data.expected(&shape, 0, 0, &mut out);
        for (at, bits) in out.iter().enumerate() {
            let expected = data.bits[index(at / shape.part, at % shape.part)];
            assert_eq!(bits.to_bits(), expected.to_bits(), "{at}");
        }
    }

    #[test]
    fn a_single_wrong_bit_is_seen_and_nan_equals_itself() {
        let mut seen = [f32::NAN, 1.0, 0.0];
        assert_eq!(differing(&seen, &[f32::NAN, 1.0, 0.0]), 0);
        seen[2] = -0.0;
        assert_eq!(differing(&seen, &[f32::NAN, 1.0, 0.0]), 1);
    }

    #[test]
    fn large_outputs_are_looked_at_from_end_to_end() {
        let whole: Vec<_> = std::iter::once(0..1000).collect();
        assert_eq!(sampled(1000, 4), whole);
        let length = (1 << 30) / 2;
        let ranges = sampled(length, 2);
        assert_eq!(ranges.len(), PIECES + 2);
        assert_eq!((ranges[0].start, ranges[PIECES + 1].end), (0, length));
        for pair in ranges.windows(2) {
            assert!(pair[0].end <= pair[1].start, "{pair:?}");
        }
        let just_above = WHOLE / 8 + 1;
        for pair in sampled(just_above, 8).windows(2) {
            assert!(pair[0].end <= pair[1].start, "{pair:?}");
        }
    }
}
