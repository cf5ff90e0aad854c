//! The words and counters with which ranks synchronize in an operation.

use crate::backend::abi::*;
use crate::rank::allocation::Allocation;

/// The words and counters of one operation: symmetric, zeroed, with the same layout on all ranks.
///
/// ```text
/// barrier    [rank]           SIGNAL_STRIDE bytes apart: raised by that rank at barriers, or when it comes to a call
/// signals    [rank]           raised by that rank when its shard is here
/// turn                        raised by the rank that hands a link on
/// arrivals   [shard][chunk]   raised when that chunk is here
/// counters                    32 bits each, this rank's own: barriers, turns given, turns waited for, then
///                             signals given to each rank, signals waited for from each
/// calls      [block]          32 bits each: of the blocks of a kernel that is the barrier, too
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

    fn arrivals_at(&self) -> u64 {
        (2 * self.world + 1) * SIGNAL_STRIDE
    }

    fn counters_at(&self) -> u64 {
        self.arrivals_at() + self.world * self.chunks * SIGNAL_STRIDE
    }

    fn calls_at(&self) -> u64 {
        self.counters_at() + ((3 + 2 * self.world) * 4).next_multiple_of(SIGNAL_STRIDE)
    }

    /// Returns the bytes of all words and counters.
    pub(super) fn bytes(&self) -> u64 {
        self.calls_at() + (u64::from(AT_ONCE_BLOCKS) * 4).next_multiple_of(SIGNAL_STRIDE)
    }
}

/// The words of an operation, at their addresses.
#[derive(Clone, Copy)]
pub(super) struct Signals<'a> {
    pub(super) words: Words,
    /// `None` if no step needs them.
    pub(super) allocation: Option<&'a Allocation>,
    pub(super) rank: usize,
    pub(super) world: usize,
    pub(super) channel: u32,
    pub(super) watch: Watch,
}

impl Signals<'_> {
    /// Returns the address of a byte of them at a rank; null if no step needs them.
    fn at(&self, rank: usize, offset: u64) -> DeviceAddress {
        self.allocation.map_or(DeviceAddress::NULL, |allocation| {
            allocation.at(rank, offset)
        })
    }

    fn own(&self, offset: u64) -> DeviceAddress {
        self.at(self.rank, offset)
    }

    fn counter(&self, index: u64) -> DeviceAddress {
        self.own(self.words.counters_at() + index * 4)
    }

    /// Returns the counter with the value that arrival words reach in a call: the number of its first barrier.
    pub(super) fn epoch(&self) -> DeviceAddress {
        self.counter(0)
    }

    /// Returns the counters of calls for the blocks of the fused kernel for small M.
    pub(super) fn calls(&self) -> DeviceAddress {
        self.own(self.words.calls_at())
    }

    /// Returns a rank's words that record which ranks have come to a call of that kernel.
    pub(super) fn entered(&self, at: usize) -> DeviceAddress {
        self.at(at, 0)
    }

    /// Returns a rank's arrival words.
    pub(super) fn arrivals(&self, at: usize) -> DeviceAddress {
        self.at(at, self.words.arrivals_at())
    }

    /// Returns the word at rank `at` that records the arrival of a chunk of this rank's shard.
    pub(super) fn arrival(&self, at: usize, chunk: u32) -> DeviceAddress {
        let index = self.rank as u64 * self.words.chunks + u64::from(chunk);
        DeviceAddress(self.arrivals(at).0 + index * SIGNAL_STRIDE)
    }

    /// Returns a barrier of all ranks.
    pub(super) fn barrier(&self) -> Barrier {
        let mut peers = [DeviceAddress::NULL; MAX_RANKS];
        for (peer, word) in peers.iter_mut().enumerate().take(self.world) {
            *word = self.at(peer, self.rank as u64 * SIGNAL_STRIDE);
        }
        Barrier {
            watch: self.watch,
            epoch: self.epoch(),
            own: self.own(0),
            peers,
            world: self.world as u32,
            slot: self.channel,
        }
    }

    /// Returns the signal to a peer that this rank's shard has arrived there.
    pub(super) fn give(&self, peer: usize) -> SignalTarget {
        let word = (self.words.world + self.rank as u64) * SIGNAL_STRIDE;
        SignalTarget {
            word: self.at(peer, word),
            epoch: self.counter(3 + peer as u64),
            ..SignalTarget::default()
        }
    }

    /// Returns the wait for that signal of a peer.
    pub(super) fn receive(&self, peer: usize) -> SignalWait {
        let word = (self.words.world + peer as u64) * SIGNAL_STRIDE;
        SignalWait {
            word: self.own(word),
            epoch: self.counter(3 + self.words.world + peer as u64),
            watch: self.watch,
            peer: peer as u32,
            slot: self.channel,
            ..SignalWait::default()
        }
    }

    /// Returns a turn: a signal to the next user of a link, and the wait for the user before this rank.
    pub(super) fn turn(&self, to: usize, from: usize) -> (SignalTarget, SignalWait) {
        let word = 2 * self.words.world * SIGNAL_STRIDE;
        let target = SignalTarget {
            word: self.at(to, word),
            epoch: self.counter(1),
            ..SignalTarget::default()
        };
        let wait = SignalWait {
            word: self.own(word),
            epoch: self.counter(2),
            watch: self.watch,
            peer: from as u32,
            slot: self.channel,
            ..SignalWait::default()
        };
        (target, wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_do_not_overlap_and_counters_have_lines_of_their_own() {
        for (world, chunks) in [(1, 1), (2, 4), (72, 7)] {
            let words = Words::new(world, chunks);
            let world = world as u64;
            assert_eq!(words.arrivals_at(), (2 * world + 1) * SIGNAL_STRIDE);
            let arrivals = world * u64::from(chunks) * SIGNAL_STRIDE;
            assert_eq!(words.counters_at(), words.arrivals_at() + arrivals);
            assert!(words.calls_at() >= words.counters_at() + (3 + 2 * world) * 4);
            assert!(words.bytes() >= words.calls_at() + u64::from(AT_ONCE_BLOCKS) * 4);
        }
    }
}
