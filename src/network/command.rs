//! Commands: what a queue, or a graph, asks the network to do.

use super::legs::LegCall;
use crate::backend::abi::WordUpdate;
use std::time::Duration;

/// A byte of a symmetric allocation at a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the allocation, the same on all ranks.
    pub number: u64,
    /// Offset, in bytes.
    pub offset: u64,
}

/// A command. Its addresses are of this rank's memory, which stays mapped until the command is complete.
#[derive(Clone, Debug)]
pub struct Command {
    /// symmem's operation, for errors.
    pub operation: &'static str,
    /// Time without progress after which it fails.
    pub deadline: Duration,
    /// What to do.
    pub action: Action,
}

/// What a command does.
#[derive(Clone, Debug)]
pub enum Action {
    /// Copies bytes to a peer, then signals it if there is a channel.
    Put {
        /// The peer.
        peer: usize,
        /// The first byte at the peer.
        to: Place,
        /// The first byte here.
        from: u64,
        /// Number of bytes, which may be 0.
        bytes: u64,
        /// The channel of the signal.
        channel: Option<u32>,
    },
    /// Copies bytes from a peer.
    Get {
        /// The peer.
        peer: usize,
        /// The first byte at the peer.
        from: Place,
        /// The first byte here.
        to: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// Updates a word at a peer.
    Update {
        /// The peer.
        peer: usize,
        /// The word.
        word: Place,
        /// The update.
        update: WordUpdate,
        /// Width of the word in bits, 32 or 64.
        bits: u32,
        /// The operand.
        operand: u64,
        /// The value that a compare-and-swap compares with.
        compare: u64,
        /// Address here that the earlier value is stored to, if any.
        result: Option<u64>,
    },
    /// Waits for the other nodes: their first ranks exchange messages.
    Barrier {
        /// The channel.
        channel: u32,
    },
    /// Does legs of collectives beside each other.
    Legs(Vec<LegCall>),
}

/// Bytes `from..to` of one rank's memory.
#[derive(Clone, Copy)]
struct Range(u64, u64);

impl Range {
    fn of(start: u64, bytes: u64) -> Self {
        Self(start, start + bytes)
    }

    fn overlaps(self, other: Self) -> bool {
        self.0 < other.1 && other.0 < self.1
    }
}

impl Command {
    /// Returns the peer, or `other` for a command with several.
    pub fn peer_or(&self, other: usize) -> usize {
        match self.action {
            Action::Put { peer, .. } | Action::Get { peer, .. } | Action::Update { peer, .. } => {
                peer
            }
            Action::Barrier { .. } | Action::Legs(_) => other,
        }
    }

    /// Returns whether it is a put with a signal.
    pub fn signals(&self) -> bool {
        matches!(
            self.action,
            Action::Put {
                channel: Some(_),
                ..
            }
        )
    }

    /// Returns the bytes that it moves, if it moves any.
    pub fn bytes(&self) -> Option<u64> {
        match self.action {
            Action::Put { bytes, .. } | Action::Get { bytes, .. } => Some(bytes),
            Action::Update { bits, .. } => Some(u64::from(bits / 8)),
            Action::Barrier { .. } | Action::Legs(_) => None,
        }
    }

    /// Returns whether it may run beside an earlier command of its queue that is not complete: nobody can see in which
    /// order puts to disjoint memory arrive, as long as each signal comes after all of them.
    pub fn may_join(&self, earlier: &Self) -> bool {
        match (&self.action, &earlier.action) {
            (
                Action::Put {
                    peer, to, bytes, ..
                },
                Action::Put {
                    peer: before,
                    to: place,
                    bytes: length,
                    ..
                },
            ) => {
                peer != before
                    || to.number != place.number
                    || !Range::of(to.offset, *bytes).overlaps(Range::of(place.offset, *length))
            }
            (
                Action::Get { to, bytes, .. },
                Action::Get {
                    to: place,
                    bytes: length,
                    ..
                },
            ) => !Range::of(*to, *bytes).overlaps(Range::of(*place, *length)),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(peer: usize, offset: u64, bytes: u64) -> Command {
        Command {
            operation: "put",
            deadline: Duration::MAX,
            action: Action::Put {
                peer,
                to: Place { number: 1, offset },
                from: 0,
                bytes,
                channel: None,
            },
        }
    }

    fn get(to: u64, bytes: u64) -> Command {
        Command {
            operation: "get",
            deadline: Duration::MAX,
            action: Action::Get {
                peer: 1,
                from: Place {
                    number: 1,
                    offset: 0,
                },
                to,
                bytes,
            },
        }
    }

    #[test]
    fn puts_run_together_unless_a_later_one_overwrites_an_earlier_one() {
        assert!(put(1, 8, 8).may_join(&put(1, 0, 8)));
        assert!(!put(1, 7, 8).may_join(&put(1, 0, 8)));
        assert!(put(2, 0, 8).may_join(&put(1, 0, 8)), "another rank's copy");
    }

    #[test]
    fn gets_run_together_unless_they_write_the_same_bytes_and_never_beside_puts() {
        assert!(get(64, 64).may_join(&get(0, 64)));
        assert!(!get(63, 64).may_join(&get(0, 64)));
        assert!(!get(64, 64).may_join(&put(1, 0, 8)));
        assert!(!put(1, 0, 8).may_join(&get(64, 64)));
    }
}
