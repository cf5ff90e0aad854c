//! The words and counters with which ranks signal sums and finished blocks.

use crate::backend::abi::*;
use crate::gemm_reduce::plan::GemmBlock;
use crate::rank::allocation::Allocation;

/// The words and counters of one operation: symmetric, zeroed, with the same layout on all ranks. Each word has a counter of
/// its own at both ends, so streams may signal and wait in any order. All count calls: each has one barrier, and raises each
/// word once.
///
/// What is enqueued behind a wait runs even if the wait gave up. So a rank that adds to a sum signals the next rank with the
/// number that the previous rank had raised its word to behind the wait, before its GEMM: the next rank does not take a sum that
/// lacks a part.
///
/// ```text
/// barrier    [rank]          SIGNAL_STRIDE bytes apart: raised by that rank at barriers
/// sums       [hop - 1][chunk]  raised by the previous rank when a sum is here to which this rank adds in that hop
/// blocks     [rank][chunk]   raised by that rank when a finished block is here
/// counters                   32 bits each, this rank's own: barriers, sums given, sums waited for, blocks given (to each
///                            rank), blocks waited for, sums that had arrived behind their waits
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words {
    world: u64,
    chunks: u64,
}

impl Words {
    pub(super) fn new(world: usize, chunks: u32) -> Self {
        Self {
            world: world as u64,
            chunks: u64::from(chunks),
        }
    }

    /// Returns the number of words for sums, and of those for blocks.
    fn counts(&self) -> (u64, u64) {
        let sums = (self.world - 1) * self.chunks;
        (sums, self.world * self.chunks)
    }

    fn counters_at(&self) -> u64 {
        let (sums, blocks) = self.counts();
        (self.world + sums + blocks) * SIGNAL_STRIDE
    }

    /// Returns the bytes of all words and counters.
    pub(super) fn bytes(&self) -> u64 {
        let (sums, blocks) = self.counts();
        self.counters_at() + ((1 + 3 * sums + 2 * blocks) * 4).next_multiple_of(SIGNAL_STRIDE)
    }

    /// Returns the index of a sum: of its word, and of its counters among those of sums.
    fn sum(&self, hop: usize, chunk: u32) -> u64 {
        (hop as u64 - 1) * self.chunks + u64::from(chunk)
    }

    fn block(&self, rank: usize, chunk: u32) -> u64 {
        rank as u64 * self.chunks + u64::from(chunk)
    }
}

/// The words of an operation, at their addresses.
#[derive(Clone, Copy)]
pub(super) struct Signals<'a> {
    pub(super) words: Words,
    pub(super) allocation: &'a Allocation,
    pub(super) rank: usize,
    pub(super) next: usize,
    pub(super) previous: usize,
    /// What the records of waits have as channel ([`crate::health::record::RingCall::slot`]).
    pub(super) slot: u32,
    pub(super) watch: Watch,
}

impl Signals<'_> {
    fn word(&self, rank: usize, index: u64) -> DeviceAddress {
        self.allocation.at(rank, index * SIGNAL_STRIDE)
    }

    fn counter(&self, index: u64) -> DeviceAddress {
        let offset = self.words.counters_at() + index * 4;
        self.allocation.at(self.rank, offset)
    }

    fn give(&self, peer: usize, word: u64, counter: u64) -> SignalTarget {
        SignalTarget {
            word: self.word(peer, word),
            epoch: self.counter(counter),
            ..SignalTarget::default()
        }
    }

    fn wait(&self, peer: usize, word: u64, counter: u64) -> SignalWait {
        SignalWait {
            word: self.word(self.rank, word),
            epoch: self.counter(counter),
            watch: self.watch,
            peer: peer as u32,
            slot: self.slot,
            ..SignalWait::default()
        }
    }

    /// Returns a barrier of all ranks.
    pub(super) fn barrier(&self) -> Barrier {
        let mut peers = [DeviceAddress::NULL; MAX_RANKS];
        let world = self.words.world as usize;
        for (peer, word) in peers.iter_mut().enumerate().take(world) {
            *word = self.word(peer, self.rank as u64);
        }
        Barrier {
            watch: self.watch,
            epoch: self.counter(0),
            own: self.word(self.rank, 0),
            peers,
            world: world as u32,
            slot: self.slot,
        }
    }

    /// Returns the signal to the next rank that the sum of a block is there.
    pub(super) fn give_sum(&self, block: GemmBlock) -> SignalTarget {
        let index = self.words.sum(block.hop + 1, block.chunk);
        self.give(self.next, self.words.world + index, 1 + index)
    }

    /// Returns the wait for the previous rank's sum of a block.
    pub(super) fn receive_sum(&self, block: GemmBlock) -> SignalWait {
        let index = self.words.sum(block.hop, block.chunk);
        let (sums, _) = self.words.counts();
        self.wait(self.previous, self.words.world + index, 1 + sums + index)
    }

    /// Returns the word that the previous rank raises for a block's sum, and the counter that keeps what it was behind the wait.
    pub(super) fn arrived_sum(&self, block: GemmBlock) -> (DeviceAddress, DeviceAddress) {
        let index = self.words.sum(block.hop, block.chunk);
        let (sums, blocks) = self.words.counts();
        (
            self.word(self.rank, self.words.world + index),
            self.counter(1 + 2 * sums + 2 * blocks + index),
        )
    }

    /// Returns the signal to a peer that a finished block of this rank's is there.
    pub(super) fn give_block(&self, peer: usize, chunk: u32) -> SignalTarget {
        let (sums, _) = self.words.counts();
        let word = self.words.world + sums + self.words.block(self.rank, chunk);
        self.give(peer, word, 1 + 2 * sums + self.words.block(peer, chunk))
    }

    /// Returns the wait for a finished block of a peer's.
    pub(super) fn receive_block(&self, peer: usize, chunk: u32) -> SignalWait {
        let (sums, blocks) = self.words.counts();
        let index = self.words.block(peer, chunk);
        self.wait(
            peer,
            self.words.world + sums + index,
            1 + 2 * sums + blocks + index,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_counters_do_not_overlap() {
        for (world, chunks) in [(2, 1), (2, 4), (3, 1), (8, 3), (72, 8)] {
            let words = Words::new(world, chunks);
            let sums: Vec<u64> = (1..world)
                .flat_map(|hop| (0..chunks).map(move |chunk| words.sum(hop, chunk)))
                .collect();
            let blocks: Vec<u64> = (0..world)
                .flat_map(|rank| (0..chunks).map(move |chunk| words.block(rank, chunk)))
                .collect();
            let (most_sums, most_blocks) = words.counts();
            assert_eq!(sums, (0..most_sums).collect::<Vec<_>>());
            assert_eq!(blocks, (0..most_blocks).collect::<Vec<_>>());
            let counters = 1 + 3 * most_sums + 2 * most_blocks;
            assert!(words.bytes() >= words.counters_at() + counters * 4);
        }
    }
}
