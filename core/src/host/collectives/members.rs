//! Synchronization of a group's members: the layout of their words, the barrier, and inboxes.
//!
//! A collective on the host has one block, which therefore uses the slots and regions of all blocks. It spreads them
//! out: each word that a member raises has cache lines of its own and is followed by a count of sleepers, like a
//! signal word. All ranks of a host use this layout, and nothing else reads it.

use crate::backend::abi::*;
use crate::epoch;
use crate::host::progress::{
    Bounds, Pending, PollOutcome, SignalWord, Sleep, fill_record, long_at, look, wake, word_at,
};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Offset of the words that members raise: one array for each of [`Words`].
const WORDS: u64 = SLOT_BYTES;
/// Bytes of one array.
const ARRAY: u64 = MAX_RANKS as u64 * SIGNAL_STRIDE;
/// Offset of the inboxes, which follow all slots.
const INBOXES: u64 = SLOT_BLOCKS as u64 * SLOT_BYTES;
/// Offset of the owner's counters, one of each per peer: sends, receives.
const PAIR_COUNTERS: u64 = 512;
/// Offset of what is done of the owner's exchange with each peer, in bytes: sent, received.
const DONE: u64 = 2048;

const _: () = assert!(WORDS + 5 * ARRAY <= INBOXES);
const _: () = assert!(PAIR_COUNTERS + 2 * 4 * MAX_RANKS as u64 <= DONE);
const _: () = assert!(DONE + 2 * 8 * MAX_RANKS as u64 <= WORDS);

/// Bytes of a packet that fit beside its flag, in the same two cache lines.
pub(crate) const BESIDE_FLAG: u64 = SIGNAL_STRIDE - size_of::<SignalWord>() as u64;

/// An array of words that members raise.
#[derive(Clone, Copy)]
pub(crate) enum Words {
    Barrier,
    /// The flags of the packets in one half of the inbox.
    Packets {
        half: u32,
    },
    Announced,
    Received,
}

/// A counter that only this rank uses.
#[derive(Clone, Copy)]
pub(crate) enum Counter {
    Barriers,
    Packets,
    SendsTo(u32),
    ReceiptsFrom(u32),
}

/// A direction of an exchange with a peer.
#[derive(Clone, Copy)]
pub(crate) enum Direction {
    Send,
    Receive,
}

/// The outcome of a look at a wait.
#[must_use]
pub(crate) enum WaitOutcome {
    /// The wait is over.
    Go,
    /// The wait continues; the value says how to sleep.
    Blocked(Sleep),
    /// The wait gave up and left a record.
    GaveUp,
}

/// Returns the bytes from one member's inbox to the next in the same half.
#[inline]
pub(crate) fn inbox_capacity(group: &CollectiveGroup) -> u64 {
    let area = u64::from(group.packet_bytes) * u64::from(PACKET_BLOCKS);
    area / 2 / u64::from(group.world) / 16 * 16
}

/// The members of a group, as seen by one of them.
#[derive(Clone, Copy)]
pub(crate) struct Members<'a> {
    group: &'a CollectiveGroup,
}

impl<'a> Members<'a> {
    /// # Safety
    /// The slots and the watch's words are live while this value and its copies are used. `world` is at most
    /// [`MAX_RANKS`], `rank` is less than `world`, and the slots have regions of `packet_bytes`.
    pub(crate) unsafe fn new(group: &'a CollectiveGroup) -> Self {
        Self { group }
    }

    /// This rank in the group.
    #[inline]
    pub(crate) fn rank(self) -> u32 {
        self.group.rank
    }

    /// Number of members.
    #[inline]
    pub(crate) fn world(self) -> u32 {
        self.group.world
    }

    /// All members except this one, starting with the next, so that not all ranks begin with the same member.
    #[inline]
    pub(crate) fn peers(self) -> impl Iterator<Item = u32> + Clone {
        let (rank, world) = (self.group.rank, self.group.world);
        (rank + 1..world).chain(0..rank)
    }

    #[inline]
    fn address(self, member: u32, offset: u64) -> DeviceAddress {
        DeviceAddress(self.group.slots[member as usize].0 + offset)
    }

    /// The word at member `at` that member `from` raises.
    #[inline]
    fn word(self, words: Words, at: u32, from: u32) -> DeviceAddress {
        let array = match words {
            Words::Barrier => 0,
            Words::Packets { half } => 1 + u64::from(half),
            Words::Announced => 3,
            Words::Received => 4,
        };
        let offset = WORDS + array * ARRAY + u64::from(from) * SIGNAL_STRIDE;
        self.address(at, offset)
    }

    /// The word that this rank raises at a member.
    #[inline]
    fn theirs(self, words: Words, member: u32) -> DeviceAddress {
        self.word(words, member, self.rank())
    }

    /// The [`BESIDE_FLAG`] bytes after the word that this rank raises at a member.
    #[inline]
    pub(crate) fn beside_theirs(self, words: Words, member: u32) -> DeviceAddress {
        DeviceAddress(self.theirs(words, member).0 + SIGNAL_STRIDE - BESIDE_FLAG)
    }

    /// The [`BESIDE_FLAG`] bytes after the word that a member raises at this rank.
    #[inline]
    pub(crate) fn beside_own(self, words: Words, member: u32) -> DeviceAddress {
        DeviceAddress(self.word(words, self.rank(), member).0 + SIGNAL_STRIDE - BESIDE_FLAG)
    }

    /// The inbox at member `at` for what member `from` sends in a half.
    #[inline]
    pub(crate) fn inbox(self, half: u32, at: u32, from: u32) -> DeviceAddress {
        let number = u64::from(half) * u64::from(self.world()) + u64::from(from);
        self.address(at, INBOXES + number * inbox_capacity(self.group))
    }

    /// Increments a counter and returns its new value.
    #[inline]
    pub(crate) fn count(self, counter: Counter) -> u32 {
        epoch::next(self.counter(counter))
    }

    /// Returns a counter's value.
    pub(crate) fn counted(self, counter: Counter) -> u32 {
        self.counter(counter).load(Ordering::Relaxed)
    }

    #[inline]
    fn counter(self, counter: Counter) -> &'a AtomicU32 {
        let offset = match counter {
            Counter::Barriers => SLOT_COUNTERS,
            Counter::Packets => SLOT_COUNTERS + 4,
            Counter::SendsTo(member) => PAIR_COUNTERS + 4 * u64::from(member),
            Counter::ReceiptsFrom(member) => {
                PAIR_COUNTERS + 4 * (MAX_RANKS as u64 + u64::from(member))
            }
        };
        let address = self.address(self.rank(), offset);
        // SAFETY: the address is within this rank's slots, which `new` requires to be live.
        unsafe { word_at(address) }
    }

    /// What is done of this rank's exchange with a member, in bytes; only this rank uses it, during one call.
    pub(crate) fn done(self, direction: Direction, member: u32) -> &'a AtomicU64 {
        let first = match direction {
            Direction::Send => 0,
            Direction::Receive => MAX_RANKS as u64,
        };
        let address = self.address(self.rank(), DONE + 8 * (first + u64::from(member)));
        // SAFETY: the address is within this rank's slots, which `new` requires to be live.
        unsafe { long_at(address) }
    }

    /// The staging at member `at` for what it sends to another member `to`.
    pub(crate) fn staged(self, arguments: &ExchangeArguments, at: u32, to: u32) -> DeviceAddress {
        let number = if to < at { to } else { to - 1 };
        let offset = u64::from(number) * u64::from(arguments.chunk_bytes);
        self.address(at, arguments.staging + offset)
    }

    /// Raises this rank's word at one member.
    #[inline]
    pub(crate) fn raise(self, words: Words, member: u32, value: u32) {
        // SAFETY: the word is within the member's slots, which `new` requires to be live.
        unsafe { SignalWord::at(self.theirs(words, member)) }.publish(value);
    }

    /// Raises this rank's words at all peers.
    #[inline]
    pub(crate) fn raise_all(self, words: Words, value: u32) {
        let theirs = self.peers().map(|peer| {
            // SAFETY: the word is within the peer's slots, which `new` requires to be live.
            let word = unsafe { SignalWord::at(self.theirs(words, peer)) };
            (&word.value, &word.sleepers)
        });
        epoch::publish_all(theirs, value, wake);
    }

    /// Looks at the word that a member raises here: it must reach `pending.expected`.
    #[inline]
    pub(crate) fn wait(self, words: Words, member: u32, pending: &mut Pending) -> WaitOutcome {
        let watch = &self.group.watch;
        let bounds = Bounds::of(watch);
        // SAFETY: the word is within this rank's slots, which `new` requires to be live, as are the watch's words.
        match unsafe { look(self.word(words, self.rank(), member), &bounds, pending) } {
            PollOutcome::Reached => WaitOutcome::Go,
            PollOutcome::Blocked(sleep) => WaitOutcome::Blocked(sleep),
            PollOutcome::GaveUp { seen, reason } => {
                self.record(&WaitRecord {
                    kind: WaitRecord::COLLECTIVE + self.group.operation.0,
                    peer: self.number_of(member),
                    expected: pending.expected,
                    seen,
                    reason,
                    elapsed_ns: pending.elapsed_ns(),
                    ..WaitRecord::default()
                });
                WaitOutcome::GaveUp
            }
        }
    }

    /// A member's rank in the communicator.
    #[inline]
    pub(crate) fn number_of(self, member: u32) -> u32 {
        self.group.members[member as usize].into()
    }

    /// Leaves a record, if there is none yet, with this rank and the channel filled in.
    #[cold]
    pub(crate) fn record(self, record: &WaitRecord) {
        let record = WaitRecord {
            rank: self.group.watch.rank,
            slot: self.group.slot,
            ..*record
        };
        // SAFETY: `new` requires the record to be live.
        unsafe { fill_record(self.group.watch.record, &record) };
    }

    /// Advances a barrier: its first step signals every peer, then it waits for one peer after another.
    #[inline]
    pub(crate) fn barrier(self, pending: &mut Pending) -> WaitOutcome {
        if pending.begin() {
            pending.expected = self.count(Counter::Barriers);
            self.raise_all(Words::Barrier, pending.expected);
        }
        self.wait_for_all(Words::Barrier, pending)
    }

    /// Waits for one peer after another, then resets `pending` for the next step.
    #[inline]
    pub(crate) fn wait_for_all(self, words: Words, pending: &mut Pending) -> WaitOutcome {
        while pending.peer < self.world() {
            if pending.peer != self.rank() {
                match self.wait(words, pending.peer, pending) {
                    WaitOutcome::Go => {}
                    other => return other,
                }
            }
            pending.peer += 1;
        }
        pending.end();
        WaitOutcome::Go
    }
}
