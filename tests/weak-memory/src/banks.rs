//! Clocks of accesses to shared memory, from the addresses that a wave's lanes give: the banks that its lanes share.
//!
//! Shared memory serves a group of lanes at a time. In a clock, a bank serves one word of four bytes, to all lanes that
//! ask for it; lanes of a group that ask a bank for different words take turns.
//!
//! Sources: 32 banks on CDNA3 and 64 for reads of 8 and 16 bytes on CDNA4 from AMD's "FP8 GEMM Optimization on AMD CDNA4
//! Architecture"; the groups of lanes from AMD's "Understanding AMD GPU LDS and Bank Conflicts" (Composable Kernel), and
//! from experiments with HipKittens on an MI355X (`analysis/paper_experiments/phases`). Reads of 8 bytes that transpose have
//! the groups of those that do not: Primus-Turbo's attention for gfx950 explains its measured conflicts so. That reads of
//! 16 bytes on CDNA3 have the groups that CDNA4 has for 12 bytes, and the groups of 4 bytes, are assumptions.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;
use symmem_kernels_hip::Target;

/// An instruction that accesses shared memory, by its kernel and its offset.
pub type Place = (String, u64);

/// Clocks of an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    pub executions: u64,
    /// The most of all executions.
    pub most: u64,
    /// Those that as many lanes take without conflicts.
    pub least: u64,
}

/// The accesses of a run.
pub type SharedAccesses = BTreeMap<Place, Clocks>;

/// Adds the accesses of another run.
pub fn add(all: &mut SharedAccesses, more: SharedAccesses) {
    for (place, clocks) in more {
        let known = all.entry(place).or_default();
        known.executions += clocks.executions;
        known.most = known.most.max(clocks.most);
        known.least = known.least.max(clocks.least);
    }
}

/// Returns the clocks of an access of `words` adjacent words of each lane at its address, and those without conflicts.
pub fn clocks(target: Target, stores: bool, words: usize, lanes: &[(usize, usize)]) -> (u64, u64) {
    let wide = target == Target::Gfx950 && !stores && matches!(words, 2 | 4);
    let banks = if wide { 64 } else { 32 };
    // Lanes of a group: as many as the banks can serve at once.
    let size = (banks / words.max(1)).next_power_of_two().clamp(8, 32);
    let mut groups: BTreeMap<usize, FxHashSet<usize>> = BTreeMap::new();
    for &(lane, address) in lanes {
        let group = group_of(lane, size, stores, words);
        let asked = groups.entry(group).or_default();
        asked.extend((0..words).map(|word| address / 4 + word));
    }
    let (mut most, mut least) = (0, 0);
    for asked in groups.values() {
        let mut of_bank = vec![0; banks];
        for word in asked {
            of_bank[word % banks] += 1;
        }
        most += of_bank.iter().copied().max().unwrap_or(0);
        least += asked.len().div_ceil(banks) as u64;
    }
    (most, least)
}

/// Returns the group of a lane. Reads of 12 and 16 bytes do not group adjacent lanes.
fn group_of(lane: usize, size: usize, stores: bool, words: usize) -> usize {
    if stores || words < 3 {
        return lane / size;
    }
    // By fours of lanes in half of a wave: 0 and 5, 1 and 4, 2 and 7, 3 and 6; with 64 banks 0, 3, 5 and 6.
    let four = lane % 32 / 4;
    let group = if size == 8 {
        [0, 1, 2, 3, 1, 0, 3, 2][four]
    } else {
        [0, 1, 1, 0, 1, 0, 0, 1][four]
    };
    lane / 32 * 4 + group
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(address: impl Fn(usize) -> usize) -> Vec<(usize, usize)> {
        (0..64).map(|lane| (lane, address(lane))).collect()
    }

    #[test]
    fn adjacent_words_take_as_long_as_the_bandwidth_allows() {
        for words in [1, 2, 4] {
            let adjacent = lanes(|lane| lane * 4 * words);
            let clocks = |target, stores| clocks(target, stores, words, &adjacent);
            let at_128_bytes = (2 * words as u64, 2 * words as u64);
            assert_eq!(clocks(Target::Gfx942, false), at_128_bytes);
            assert_eq!(clocks(Target::Gfx942, true), at_128_bytes);
            assert_eq!(clocks(Target::Gfx950, true), at_128_bytes);
            let read = if words == 1 { 2 } else { words as u64 };
            assert_eq!(clocks(Target::Gfx950, false), (read, read));
        }
    }

    #[test]
    fn lanes_that_ask_one_bank_for_different_words_take_turns() {
        let one_bank = lanes(|lane| lane * 128);
        assert_eq!(clocks(Target::Gfx942, false, 1, &one_bank), (64, 2));
        let one_word = lanes(|_| 64);
        assert_eq!(clocks(Target::Gfx942, false, 1, &one_word), (2, 2));
        let half: Vec<_> = one_bank.into_iter().take(8).collect();
        assert_eq!(clocks(Target::Gfx942, false, 1, &half), (8, 1));
    }

    /// Rows of a tile, 16 lanes at a time, as operands of a matrix instruction are read.
    fn operands(pitch: usize) -> Vec<(usize, usize)> {
        lanes(|lane| lane % 16 * pitch + lane / 16 * 8)
    }

    #[test]
    fn lines_without_gaps_conflict_and_gaps_cure_it() {
        // A line has 32 elements of two bytes; `gemm_pitch` has four more.
        let (gaps, without) = (operands(72), operands(64));
        let clocks = |lanes: &[_]| clocks(Target::Gfx942, false, 2, lanes);
        assert_eq!(clocks(&gaps), (4, 4));
        assert_eq!(clocks(&without).1, 4);
        assert!(clocks(&without).0 >= 16, "{:?}", clocks(&without));
    }

    #[test]
    fn every_group_of_wide_reads_has_as_many_lanes() {
        for (size, groups) in [(8, 8), (16, 4)] {
            let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
            for lane in 0..64 {
                *counts.entry(group_of(lane, size, false, 4)).or_default() += 1;
            }
            assert_eq!(counts.len(), groups);
            assert!(counts.values().all(|&count| count == size), "{counts:?}");
        }
    }
}
