//! Heuristic candidates, as the library describes them.

use super::table::Code;

/// Most 64-bit words of the algorithm struct in either library.
const MOST_ALGORITHM_WORDS: usize = 8;
/// 64-bit words that follow the algorithm in a heuristic result: the workspace size, a status code with a waves
/// count, and two reserved words.
pub const RESULT_WORDS: usize = 4;

/// A heuristic candidate: the algorithm struct and its workspace in bytes.
#[derive(Clone, Copy)]
pub(super) struct Heuristic {
    pub words: [u64; MOST_ALGORITHM_WORDS],
    pub workspace: u64,
}

impl Heuristic {
    /// Reads one heuristic result; `None` if its status says that the algorithm is not usable.
    pub fn read(result: &[u64], algorithm_words: usize) -> Option<Self> {
        let (algorithm, rest) = result.split_at_checked(algorithm_words)?;
        let &[workspace, state, ..] = rest else {
            return None;
        };
        let [a, b, c, d, ..] = state.to_ne_bytes();
        if Code::from_ne_bytes([a, b, c, d]) != 0 {
            return None;
        }
        let mut words = [0; MOST_ALGORITHM_WORDS];
        words.get_mut(..algorithm_words)?.copy_from_slice(algorithm);
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
        for algorithm_words in [3, 8] {
            let mut result: Vec<u64> = (1..=algorithm_words as u64).collect();
            result.extend([4096, state(0), 0, 0]);
            let algorithm = Heuristic::read(&result, algorithm_words).expect("a way");
            assert_eq!(algorithm.workspace, 4096);
            assert_eq!(
                algorithm.words[..algorithm_words],
                result[..algorithm_words]
            );
            result[algorithm_words + 1] = state(15);
            assert!(Heuristic::read(&result, algorithm_words).is_none());
        }
        assert!(Heuristic::read(&[0; 4], 8).is_none());
    }
}
