//! Ways to do a product, as a library names them.

use super::table::Code;

/// The most words that a way's struct has in any library.
const MOST_WAY_WORDS: usize = 8;
/// 64-bit words behind a way in what the library tells of it: its workspace, a code beside a figure of merit,
/// and two that are reserved.
pub const TOLD_WORDS: usize = 4;

/// One way to do a product.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub words: [u64; MOST_WAY_WORDS],
    pub workspace: u64,
}

impl Way {
    /// Of what the library told of it; `None` where it says that it cannot be gone.
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
