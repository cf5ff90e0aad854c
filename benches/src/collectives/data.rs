//! Random elements for each rank, and the exact check of results.
//!
//! Operations that reduce get small whole numbers, whose sum is exact in every type. Every order of adding
//! then gives the same bits, and one exact check works for every library. Operations that only move
//! elements get random bits.

use super::element::SampleType;
use super::memory::Memory;
use super::shape::{Contributors, Shape};
use crate::Result;
use std::ops::Range;
use symmem::Stream;

/// Guard elements after every output, which an operation must not change.
pub(super) const GUARD: usize = 1024;

/// Every byte of an output before a checked operation. No expected element consists of it, so an element
/// that was not written is always found.
pub(super) const POISON: u8 = 0xff;

/// Length of the table that patterns repeat: prime, so that no power-of-two displacement maps it to
/// itself.
const PERIOD: usize = 1_048_583;

/// Elements read or written at once.
const CHUNK: usize = 1 << 20;

/// Outputs up to this size in bytes are checked completely; of larger ones, both ends and random pieces.
const WHOLE: usize = 16 << 20;
/// Checked bytes at each end of a larger output.
const END: usize = 4 << 20;
/// Number of checked pieces between the ends, and bytes of each.
const PIECES: usize = 64;
const PIECE: usize = 64 << 10;

/// The kind of elements in a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Random bits, for operations that move elements.
    Bits,
    /// Small whole numbers, for operations that reduce.
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

/// Random elements: two tables, with a different start for each rank.
pub(super) struct Data {
    element: SampleType,
    /// Elements as bytes, [`PERIOD`] of each content.
    bits: Vec<u8>,
    numbers: Vec<u8>,
    /// The numbers that `numbers` holds.
    values: Vec<u32>,
    world: usize,
}

/// Xorshift64 (Marsaglia 2003); the state must not be 0.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Index in the table of element `place` in the pattern of `rank`.
fn index(rank: usize, place: usize) -> usize {
    (rank * 131_071 + place) % PERIOD
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

impl Data {
    pub(super) fn new(element: SampleType, world: usize) -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut bits = vec![0; PERIOD * element.size];
        for byte in &mut bits {
            *byte = match (next(&mut state) >> 32) as u8 {
                POISON => 0x5a,
                byte => byte,
            };
        }
        // Limited so that the sum over all ranks is exact.
        let span = u64::from(element.largest_exact / world as u32).max(1) + 1;
        let value = || (next(&mut state) >> 16) % span;
        let values: Vec<u32> = std::iter::repeat_with(value)
            .map(|value| value as u32)
            .take(PERIOD)
            .collect();
        let mut numbers = vec![0; PERIOD * element.size];
        (element.write)(&values, &mut numbers);
        Self {
            element,
            bits,
            numbers,
            values,
            world,
        }
    }

    /// Copies a rank's pattern from element `place` on.
    fn copy(&self, table: &[u8], rank: usize, place: usize, out: &mut [u8]) {
        let size = self.element.size;
        runs(rank, place, out.len() / size, |at, run| {
            let run = &table[run.start * size..run.end * size];
            out[at * size..][..run.len()].copy_from_slice(run);
        });
    }

    /// Fills this rank's source with its pattern. Blocks.
    pub(super) fn fill(
        &self,
        rank: usize,
        content: Content,
        memory: &dyn Memory,
        stream: &Stream,
    ) -> Result<()> {
        let table = match content {
            Content::Bits => &self.bits,
            Content::Numbers => &self.numbers,
        };
        let length = memory.length();
        let mut chunk = vec![0; CHUNK.min(length) * self.element.size];
        for place in (0..length).step_by(CHUNK) {
            let chunk = &mut chunk[..CHUNK.min(length - place) * self.element.size];
            self.copy(table, rank, place, chunk);
            memory.write_source(stream, place, chunk)?;
        }
        Ok(())
    }

    /// Computes a rank's expected output from element `at` on.
    fn expected(&self, shape: &Shape, rank: usize, at: usize, out: &mut [u8]) {
        let size = self.element.size;
        let length = out.len() / size;
        let reduced = if shape.collective.reduces() {
            length
        } else {
            0
        };
        let mut sums = vec![0_u32; reduced];
        let mut done = 0;
        while done < length {
            let origin = shape.origin(rank, at + done);
            let count = (origin.until - at - done).min(length - done);
            let out = &mut out[done * size..][..count * size];
            match origin.who {
                Contributors::One(peer) => self.copy(&self.bits, peer, origin.place, out),
                Contributors::Sum => {
                    let sums = &mut sums[done..done + count];
                    for peer in 0..self.world {
                        runs(peer, origin.place, count, |at, run| {
                            let sums = &mut sums[at..at + run.len()];
                            let values = &self.values[run];
                            sums.iter_mut()
                                .zip(values)
                                .for_each(|(sum, value)| *sum += value);
                        });
                    }
                    (self.element.write)(sums, out);
                }
            }
            done += count;
        }
    }

    /// Checks this rank's output, which is the range `output` of the destination, and the guard at `guard`.
    /// Returns the numbers of wrong and of checked elements. Blocks.
    pub(super) fn wrong_elements(
        &self,
        shape: &Shape,
        rank: usize,
        memory: &dyn Memory,
        output: Range<usize>,
        guard: usize,
        stream: &Stream,
    ) -> Result<(u64, u64)> {
        let size = self.element.size;
        let (mut wrong, mut checked) = (0, 0);
        let mut seen = vec![0; CHUNK.max(GUARD) * size];
        let mut expected = seen.clone();
        for range in sampled(output.len(), size) {
            for at in range.clone().step_by(CHUNK) {
                let length = CHUNK.min(range.end - at);
                let (seen, expected) = (&mut seen[..length * size], &mut expected[..length * size]);
                memory.read_destination(stream, output.start + at, seen)?;
                self.expected(shape, rank, at, expected);
                wrong += differing(seen, expected, size);
                checked += length as u64;
            }
        }
        let (seen, expected) = (&mut seen[..GUARD * size], &mut expected[..GUARD * size]);
        memory.read_destination(stream, guard, seen)?;
        expected.fill(POISON);
        wrong += differing(seen, expected, size);
        Ok((wrong, checked))
    }
}

/// Returns the elements of an output to check, as rising ranges that do not overlap.
fn sampled(length: usize, size: usize) -> Vec<Range<usize>> {
    if length * size <= WHOLE {
        return std::iter::once(0..length).collect();
    }
    let (end, piece) = (END / size, PIECE / size);
    let mut ranges: Vec<Range<usize>> = std::iter::once(0..end).collect();
    // Between the ends, one piece at a random place in each of `PIECES` strips.
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

/// Returns the number of elements of `size` bytes that differ.
fn differing(seen: &[u8], expected: &[u8], size: usize) -> u64 {
    // Compares bits, so that a NaN equals itself, and a zero of the wrong sign is wrong.
    if seen == expected {
        return 0;
    }
    let pairs = seen.chunks(size).zip(expected.chunks(size));
    pairs.filter(|(a, b)| a != b).count() as u64
}

#[cfg(test)]
mod tests {
    use super::super::element::Sample;
    use super::*;
    use crate::report::Collective;
    use zerocopy::IntoBytes;

    fn data<T: Sample>(world: usize) -> Data {
        Data::new(T::ELEMENT, world)
    }

    #[test]
    fn no_element_is_made_of_the_poison() {
        let data = data::<u16>(8);
        for table in [data.bits, data.numbers] {
            assert!(table.chunks(2).all(|element| element != [POISON; 2]));
        }
    }

    #[test]
    fn sums_of_all_ranks_are_exact_in_every_type() {
        fn most<T: Sample>(world: usize) -> u32 {
            data::<T>(world).values.into_iter().max().unwrap() * world as u32
        }
        assert!(most::<half::bf16>(8) <= 256 && most::<half::bf16>(8) > 128);
        assert!(most::<i8>(8) <= 127);
        assert!(most::<f32>(8) <= 1 << 24);
    }

    #[test]
    fn a_sum_is_what_adding_gives_and_a_gather_is_in_rank_order() {
        let data = data::<f32>(3);
        let element =
            |table: &[u8], at: usize| -> [u8; 4] { table[at * 4..][..4].try_into().unwrap() };
        let shape = Shape::new(Collective::ReduceScatter, 4096, 4, 3).unwrap();
        let mut out = vec![0; 7 * 4];
        data.expected(&shape, 2, 5, &mut out);
        let place = 2 * shape.part + 5;
        let of = |rank| f32::from_ne_bytes(element(&data.numbers, index(rank, place)));
        let sum: f32 = (0..3).map(of).sum();
        assert_eq!(f32::from_ne_bytes(element(&out, 0)), sum);

        let shape = Shape::new(Collective::AllGather, 4096, 4, 3).unwrap();
        let mut out = vec![0; shape.whole * 4];
        data.expected(&shape, 0, 0, &mut out);
        for at in 0..shape.whole {
            let expected = element(&data.bits, index(at / shape.part, at % shape.part));
            assert_eq!(element(&out, at), expected, "{at}");
        }
    }

    #[test]
    fn a_single_wrong_bit_is_seen_and_nan_equals_itself() {
        let right = [f32::NAN, 1.0, 0.0];
        let mut seen = right;
        let wrong = |seen: &[f32]| differing(seen.as_bytes(), right.as_bytes(), 4);
        assert_eq!(wrong(&seen), 0);
        seen[2] = -0.0;
        assert_eq!(wrong(&seen), 1);
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
