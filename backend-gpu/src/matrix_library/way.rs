//! Heuristic candidates, as the library describes them.

use super::table::Code;

/// Most 64-bit words of the algorithm struct in either library.
const MOST_WAY_WORDS: usize = 8;
/// 64-bit words that follow the algorithm in a heuristic result: the workspace size, a status code with a waves
/// count, and two reserved words.
pub const TOLD_WORDS: usize = 4;

/// A heuristic candidate: the algorithm struct and its workspace in bytes.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub words: [u64; MOST_WAY_WORDS],
    pub workspace: u64,
}

impl Way {
    /// Reads one heuristic result; `None` if its status says that the algorithm is not usable.
    pub fn read(told: &[u64], way_words: usize) -> Option<Self> {
        let (way, rest) = told.split_at_checked(way_words)?;
        let &[workspace, state, ..] = rest else {
            return None;
        };
        let [a, b, c, d, ..] = state.to_ne_bytes();
        if Code::from_ne_bytes([a, b, c, d]) != 0 {
            return None;
        }
        let mut words = [0; MOST_WAY_WORDS];
        words.get_mut(..way_words)?.copy_from_slice(way);
        Some(Self { words, workspace })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::c_int;

    #[test]
    fn what_the_library_tells_of_a_way_is_read_behind_its_struct() {
        let state = |code: c_int| {
            let mut bytes = [0x7f; 8];
            bytes[..4].copy_from_slice(&code.to_ne_bytes());
            u64::from_ne_bytes(bytes)
        };
        for way_words in [3, 8] {
            let mut told: Vec<u64> = (1..=way_words as u64).collect();
            told.extend([4096, state(0), 0, 0]);
            let way = Way::read(&told, way_words).expect("a way");
            assert_eq!(way.workspace, 4096);
            assert_eq!(way.words[..way_words], told[..way_words]);
            told[way_words + 1] = state(15);
            assert!(Way::read(&told, way_words).is_none());
        }
        assert!(Way::read(&[0; 4], 8).is_none());
    }
}
