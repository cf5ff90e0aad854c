//! Random data, and the comparison with a copy of it.

use super::Result;
use symmem::{Stream, SymmetricBuffer};

/// Guard bytes after every range, which a transfer must not change.
pub(super) const GUARD: usize = 4096;

/// Every byte of a destination before a checked transfer. No pattern contains it, so a byte that was not
/// moved is always found.
pub(super) const POISON: u8 = 0;

/// Length of the table that patterns repeat: prime, so that no power-of-two displacement maps it to
/// itself.
const PERIOD: usize = 1_048_583;

/// Bytes read or written at once.
const CHUNK: usize = 4 << 20;

/// Random bytes for each rank: one table, with a different start for each rank.
pub(super) struct Patterns {
    table: Vec<u8>,
}

impl Patterns {
    pub(super) fn new() -> Self {
        // Xorshift64 (Marsaglia 2003); the state must not be 0.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let byte = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            match (state >> 32) as u8 {
                POISON => 0xa5,
                byte => byte,
            }
        };
        Self {
            table: std::iter::repeat_with(byte).take(PERIOD).collect(),
        }
    }

    /// Returns the pattern of `rank` from `place` on: up to `length` bytes, at least one.
    fn piece(&self, rank: usize, place: usize, length: usize) -> &[u8] {
        let start = (rank * 131_071 + place) % PERIOD;
        &self.table[start..(start + length).min(PERIOD)]
    }

    /// Calls `each` with consecutive pieces of the pattern and their offsets within `length` bytes.
    fn pieces(&self, rank: usize, place: usize, length: usize, mut each: impl FnMut(usize, &[u8])) {
        let mut done = 0;
        while done < length {
            let piece = self.piece(rank, place + done, length - done);
            each(done, piece);
            done += piece.len();
        }
    }

    /// Fills this rank's copy of a buffer with the pattern of `rank`. Blocks.
    pub(super) fn fill(
        &self,
        rank: usize,
        buffer: &SymmetricBuffer<u8>,
        stream: &Stream,
    ) -> Result<()> {
        let mut chunk = vec![0; CHUNK.min(buffer.len())];
        for place in (0..buffer.len()).step_by(CHUNK) {
            let length = CHUNK.min(buffer.len() - place);
            self.pieces(rank, place, length, |at, piece| {
                chunk[at..at + piece.len()].copy_from_slice(piece);
            });
            buffer.write(stream, place, &chunk[..length])?;
        }
        Ok(())
    }

    /// Counts the first `bytes` in this rank's copy that differ from the pattern of `rank`, plus the guard
    /// bytes after them that are not poison. Blocks.
    pub(super) fn wrong_bytes(
        &self,
        rank: usize,
        buffer: &SymmetricBuffer<u8>,
        bytes: usize,
        stream: &Stream,
    ) -> Result<u64> {
        let mut chunk = vec![0; CHUNK.min(bytes).max(GUARD)];
        let mut wrong = 0;
        for place in (0..bytes).step_by(CHUNK) {
            let length = CHUNK.min(bytes - place);
            buffer.read(stream, place, &mut chunk[..length])?;
            self.pieces(rank, place, length, |at, piece| {
                wrong += differing(&chunk[at..at + piece.len()], piece);
            });
        }
        buffer.read(stream, bytes, &mut chunk[..GUARD])?;
        Ok(wrong + differing(&chunk[..GUARD], &[POISON; GUARD]))
    }
}

fn differing(seen: &[u8], expected: &[u8]) -> u64 {
    if seen == expected {
        return 0;
    }
    seen.iter().zip(expected).filter(|(a, b)| a != b).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(rank: usize, place: usize, length: usize) -> Vec<u8> {
        let mut all = vec![0; length];
        Patterns::new().pieces(rank, place, length, |at, piece| {
            all[at..at + piece.len()].copy_from_slice(piece);
        });
        all
    }

    #[test]
    fn a_pattern_never_holds_the_poison_and_goes_on_past_its_table() {
        let all = bytes(3, 0, 2 * PERIOD + 10);
        assert!(!all.contains(&POISON));
        assert_eq!(all[PERIOD..PERIOD + 10], all[..10]);
        assert_eq!(bytes(3, PERIOD - 5, 10), all[PERIOD - 5..PERIOD + 5]);
    }

    #[test]
    fn ranks_have_different_patterns_and_so_have_displaced_copies() {
        let all = bytes(0, 0, 4096);
        assert!(differing(&all, &bytes(1, 0, 4096)) > 4000);
        assert!(differing(&all, &bytes(0, 16, 4096)) > 4000);
        assert_eq!(differing(&all, &bytes(0, 0, 4096)), 0);
    }
}
