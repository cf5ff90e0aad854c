//! Sets of ranks.

use crate::base::limits::MAX_WORLD;

/// Words of a set.
pub const WORDS: usize = MAX_WORLD / 64;

/// A set of a communicator's ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankSet([u64; WORDS]);

impl RankSet {
    /// Returns the set with `rank` added.
    pub fn with(mut self, rank: usize) -> Self {
        self.0[rank / 64] |= 1 << (rank % 64);
        self
    }

    /// Returns whether `rank` is in the set.
    pub fn contains(self, rank: usize) -> bool {
        self.0[rank / 64] & 1 << (rank % 64) != 0
    }

    /// Returns the union of the sets.
    pub fn union(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    /// Returns its bits, rank 0 first.
    pub fn words(self) -> [u64; WORDS] {
        self.0
    }

    /// Makes the set with these bits.
    pub fn of_words(words: [u64; WORDS]) -> Self {
        Self(words)
    }

    /// Returns its members below `world`.
    pub fn members(self, world: usize) -> impl Iterator<Item = usize> {
        (0..world).filter(move |&rank| self.contains(rank))
    }

    /// Returns a text that identifies the set: its bits as a hexadecimal number, without leading zeros.
    pub fn text(self) -> String {
        let mut digits = String::new();
        for word in self.0.iter().rev() {
            digits.push_str(&format!("{word:016x}"));
        }
        match digits.trim_start_matches('0') {
            "" => "0".into(),
            digits => digits.into(),
        }
    }
}
