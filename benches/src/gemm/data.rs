//! Random matrices. Each element is a function of its matrix, line and place, so that a rank can compute the expected
//! result without the other ranks' data.

use super::element::MatrixFloat;
use crate::Result;
use std::ops::Range;
use symmem::{Stream, SymmetricBuffer};

/// Length of the table that lines are taken from: prime, so that no power-of-two displacement maps it to
/// itself.
const PERIOD: usize = 1_048_583;

/// Elements written at once; a single line may be longer.
const CHUNK: usize = 4 << 20;

/// Random numbers between -1 and 1. A line of a matrix is a piece of the table; matrix and line determine its start.
pub(crate) struct Table<T> {
    elements: Vec<T>,
    values: Vec<f32>,
}

/// The content of a matrix, as a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content(u64);

impl Content {
    /// The content of A in a pass. Each pass has another, so that stale data of an earlier pass is wrong.
    pub(crate) fn a(pass: u64) -> Self {
        Self(pass * 4 + 1)
    }

    /// The content in a pass of a rank's own A.
    pub(crate) fn own_a(pass: u64, rank: usize) -> Self {
        Self((pass << 8 | rank as u64) * 4)
    }

    /// The content of B at a rank.
    pub(crate) fn b(rank: usize) -> Self {
        Self(rank as u64 * 4 + 2)
    }

    /// The content of the bias at a rank.
    pub(crate) fn bias(rank: usize) -> Self {
        Self(rank as u64 * 4 + 3)
    }

    /// Index of a line's first element in the table.
    fn start(self, line: usize) -> usize {
        (mix(self.0 << 40 ^ line as u64) % PERIOD as u64) as usize
    }
}

/// SplitMix64's output function (Steele, Lea and Flood 2014).
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

impl<T: MatrixFloat> Table<T> {
    pub(crate) fn new() -> Self {
        // 17 random bits, mapped to [-1, 1).
        let value = |place: usize| (mix(place as u64) >> 47) as f32 / 65_536.0 - 1.0;
        let elements: Vec<T> = (0..PERIOD).map(|place| T::from_f32(value(place))).collect();
        Self {
            values: elements.iter().map(|element| element.to_f32()).collect(),
            elements,
        }
    }

    /// Writes the elements of a line from place `from` on to `out`.
    pub(crate) fn line(&self, content: Content, line: usize, from: usize, out: &mut [T]) {
        copy(&self.elements, content.start(line) + from, out);
    }

    /// Like [`Self::line`], as f32.
    pub(crate) fn values(&self, content: Content, line: usize, from: usize, out: &mut [f32]) {
        copy(&self.values, content.start(line) + from, out);
    }

    /// Returns one element as f32.
    pub(crate) fn value(&self, content: Content, line: usize, place: usize) -> f32 {
        self.values[(content.start(line) + place) % PERIOD]
    }

    /// Fills the start of this rank's copy of a buffer with a part of a matrix, without padding. Blocks.
    pub(crate) fn fill(
        &self,
        content: Content,
        lines: Range<usize>,
        places: Range<usize>,
        buffer: &SymmetricBuffer<T>,
        stream: &Stream,
    ) -> Result<()> {
        let width = places.len();
        if width == 0 {
            return Ok(());
        }
        let at_once = (CHUNK / width).max(1);
        let mut chunk = vec![T::ZERO; at_once.min(lines.len()) * width];
        for first in lines.clone().step_by(at_once) {
            let some = first..(first + at_once).min(lines.end);
            let chunk = &mut chunk[..some.len() * width];
            for (line, out) in some.zip(chunk.chunks_mut(width)) {
                self.line(content, line, places.start, out);
            }
            buffer.write(stream, (first - lines.start) * width, chunk)?;
        }
        Ok(())
    }
}

/// Copies from a table that repeats endlessly, from place `from` on.
fn copy<V: Copy>(table: &[V], from: usize, out: &mut [V]) {
    let mut done = 0;
    while done < out.len() {
        let start = (from + done) % table.len();
        let length = (table.len() - start).min(out.len() - done);
        out[done..done + length].copy_from_slice(&table[start..start + length]);
        done += length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_line_is_that_part_of_it_as_number_and_as_element() {
        let table = Table::<half::bf16>::new();
        let content = Content::a(0);
        let mut whole = vec![0.0; PERIOD + 10];
        table.values(content, 7, 0, &mut whole);
        assert_eq!(whole[PERIOD..], whole[..10], "it goes on past its end");
        let mut part = vec![half::bf16::ZERO; 100];
        table.line(content, 7, 50, &mut part);
        for (place, element) in part.iter().enumerate() {
            assert_eq!(element.to_f32(), whole[50 + place]);
            assert_eq!(table.value(content, 7, 50 + place), whole[50 + place]);
        }
        assert!(whole.iter().all(|value| value.abs() <= 1.0));
        assert!(whole.iter().sum::<f32>().abs() < 4000.0, "around 0");
    }

    #[test]
    fn matrices_passes_and_lines_differ() {
        let table = Table::<half::f16>::new();
        let line = |content, line| {
            let mut out = vec![0.0; 256];
            table.values(content, line, 0, &mut out);
            out
        };
        let all = [
            line(Content::a(0), 0),
            line(Content::a(1), 0),
            line(Content::a(0), 1),
            line(Content::own_a(0, 0), 0),
            line(Content::own_a(0, 1), 0),
            line(Content::own_a(1, 0), 0),
            line(Content::b(0), 0),
            line(Content::b(1), 0),
            line(Content::bias(0), 0),
        ];
        for (index, one) in all.iter().enumerate() {
            for other in &all[..index] {
                let same = one.iter().zip(other).filter(|(a, b)| a == b).count();
                assert!(same < 8);
            }
        }
    }
}
