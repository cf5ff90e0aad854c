//! Sizes to measure, and numbers of repetitions.

use serde::{Deserialize, Serialize};

/// The amount of measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effort {
    /// Few sizes and 3 rounds, for a first impression.
    Quick,
    /// Sizes up to 64 MiB, each eight times the last, for one screen; 9 rounds.
    Overview,
    /// Sizes up to 64 MiB, among them those of published tables (2 KiB to 4 MiB); 9 rounds.
    #[default]
    Standard,
    /// Sizes up to 1 GiB; 9 rounds.
    Full,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The smallest size of the published table.
const SMALLEST: u64 = 2 * KIB;

impl Effort {
    /// Returns the number of rounds of each looped and replayed measurement; their median is reported.
    pub(super) fn rounds(self) -> u32 {
        match self {
            Self::Quick => 3,
            Self::Overview | Self::Standard | Self::Full => 9,
        }
    }

    /// Returns the sizes of transfers to measure in bytes, rising; only the first may exceed `limit`.
    pub(super) fn sizes(self, limit: u64) -> Vec<u64> {
        let wanted: Vec<u64> = match self {
            Self::Quick => vec![SMALLEST, 64 * KIB, MIB, 4 * MIB],
            Self::Overview => powers_of_two(SMALLEST, 64 * MIB)
                .into_iter()
                .step_by(3)
                .collect(),
            Self::Standard => powers_of_two(SMALLEST, 64 * MIB),
            Self::Full => powers_of_two(SMALLEST, 1024 * MIB),
        };
        let fits = |&bytes: &u64| bytes == SMALLEST || bytes <= limit;
        wanted.into_iter().filter(fits).collect()
    }
}

/// Returns `from` and its multiples by powers of two, up to `to`.
pub(super) fn powers_of_two(from: u64, to: u64) -> Vec<u64> {
    // Stops at an overflow, and after 0.
    let next = |bytes: &u64| bytes.checked_mul(2).filter(|twice| twice > bytes);
    std::iter::successors(Some(from), next)
        .take_while(|&bytes| bytes <= to)
        .collect()
}

/// Maximum number of transfers back to back, as in published tables.
const REPEATS: f64 = 50.0;

/// Returns how many transfers of `each_ns` to launch back to back in about `budget_ns`: 1 to 50.
pub(super) fn repeats(each_ns: f64, budget_ns: f64) -> u32 {
    (budget_ns / each_ns).clamp(1.0, REPEATS) as u32
}

/// Returns how many of `wanted` rounds fit into about `budget_ns` if one transfer takes `each_ns`: at least 3.
pub(super) fn fewer_rounds(wanted: u32, each_ns: f64, budget_ns: f64) -> u32 {
    ((budget_ns / each_ns) as u32).clamp(3, wanted.max(3))
}

/// Returns how many single transfers of `each_ns` to time in about `budget_ns`: 5 to 200.
pub(super) fn samples(each_ns: f64, budget_ns: f64) -> u32 {
    (budget_ns / each_ns).clamp(5.0, 200.0) as u32
}

/// Returns for each round or sample the time of the slowest rank, among the ranks that have times.
pub(super) fn slowest<'a>(ranks: impl Iterator<Item = &'a Vec<f64>>) -> Vec<f64> {
    let having: Vec<&Vec<f64>> = ranks.filter(|times| !times.is_empty()).collect();
    let rounds = having.iter().map(|times| times.len()).min().unwrap_or(0);
    let of = |round: usize| having.iter().map(|times| times[round]).fold(0.0, f64::max);
    (0..rounds).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_sizes_come_first_and_full_ends_at_a_gibibyte() {
        let sizes = Effort::Standard.sizes(u64::MAX);
        assert_eq!(sizes[..12], powers_of_two(2048, 4 << 20)[..]);
        assert_eq!(sizes.last(), Some(&(64 << 20)));
        assert_eq!(Effort::Full.sizes(u64::MAX).last(), Some(&(1 << 30)));
        assert!(Effort::Quick.sizes(u64::MAX).len() < 6);
    }

    #[test]
    fn an_overview_has_the_smallest_and_the_largest_of_the_standard_sizes() {
        let sizes = Effort::Overview.sizes(u64::MAX);
        assert_eq!(
            sizes,
            [2 * KIB, 16 * KIB, 128 * KIB, MIB, 8 * MIB, 64 * MIB]
        );
    }

    #[test]
    fn no_size_exceeds_the_limit_and_one_is_always_left() {
        assert_eq!(Effort::Full.sizes(5000), [2048, 4096]);
        assert_eq!(Effort::Standard.sizes(0), [2048]);
    }

    #[test]
    fn powers_of_two_end_where_numbers_do() {
        assert_eq!(powers_of_two(1 << 62, u64::MAX), [1 << 62, 1 << 63]);
        assert_eq!(powers_of_two(0, u64::MAX), [0]);
        assert!(powers_of_two(4, 3).is_empty());
    }

    #[test]
    fn repeats_fill_the_time_and_stay_in_bounds() {
        assert_eq!(repeats(1e3, 1e6), 50);
        assert_eq!(repeats(1e5, 1e6), 10);
        assert_eq!(repeats(1e9, 1e6), 1);
        assert_eq!(fewer_rounds(9, 1e6, 1e8), 9);
        assert_eq!(fewer_rounds(9, 1e6, 5e6), 5);
        assert_eq!(fewer_rounds(9, 1e9, 5e6), 3);
        assert_eq!(samples(1e3, 2e7), 200);
        assert_eq!(samples(1e9, 2e7), 5);
    }
}
