//! How members of a group keep in step: where their words lie, the barrier, and inboxes.
//!
//! A collective here has one block, so it has the slots and the regions of all blocks to itself, and
//! spreads them out: each word that a member raises has a cache line of its own, with the count of
//! sleepers behind it, as a signal word has. All ranks of a host lay them out alike, and nobody else
//! looks.

use crate::backend::abi::*;
use crate::epoch;
use crate::host::progress::{
    Bounds, Look, Pending, SignalWord, Sleep, fill_record, look, wake, word_at,
};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The words that members raise, one array of each kind.
const WORDS: u64 = SLOT_BYTES;
/// Bytes of one array.
const ARRAY: u64 = MAX_RANKS as u64 * SIGNAL_STRIDE;
/// Behind all slots: the inboxes.
const INBOXES: u64 = SLOT_BLOCKS as u64 * SLOT_BYTES;
/// Counters that only their owner uses, one for each peer: sends, receipts.
const PAIR_COUNTERS: u64 = 512;

const _: () = assert!(WORDS + 5 * ARRAY <= INBOXES);
const _: () = assert!(PAIR_COUNTERS + 2 * 4 * MAX_RANKS as u64 <= WORDS);

/// Bytes of a packet that lie beside its flag, in the same two cache lines.
pub(crate) const BESIDE_FLAG: u64 = SIGNAL_STRIDE - size_of::<SignalWord>() as u64;

/// An array of words that members raise.
#[derive(Clone, Copy)]
pub(crate) enum Words {
    Barrier,
    /// The flags of one half's packets.
    Packets {
        half: u32,
    },
    Announced,
    Received,
}

/// A counter of this rank's.
#[derive(Clone, Copy)]
pub(crate) enum Counter {
    Barriers,
    Packets,
    SendsTo(u32),
    ReceiptsFrom(u32),
}

/// What became of a wait.
#[must_use]
pub(crate) enum Turn {
    /// It is over.
    Go,
    /// It goes on; this is how to sleep.
    Blocked(Sleep),
    /// It gave up, and left a record.
    GaveUp,
}

/// Bytes from the start of a half to its next member's inbox.
#[inline]
pub(crate) fn inbox_capacity(group: &CollectiveGroup) -> u64 {
    let area = group.packet_bytes * u64::from(PACKET_BLOCKS);
    area / 2 / u64::from(group.world) / 16 * 16
}

/// The members of a group, and this rank among them.
#[derive(Clone, Copy)]
pub(crate) struct Members<'a> {
    group: &'a CollectiveGroup,
}

impl<'a> Members<'a> {
    /// # Safety
    /// The slots and the watch's words are live while this and its copies are used; `world` is at
    /// most [`MAX_RANKS`] and `rank` less; `packet_bytes` is true.
    pub(crate) unsafe fn new(group: &'a CollectiveGroup) -> Self {
        Self { group }
    }

    /// This rank's number in the group.
    #[inline]
    pub(crate) fn rank(self) -> u32 {
        self.group.rank
    }

    /// How many members there are.
    #[inline]
    pub(crate) fn world(self) -> u32 {
        self.group.world
    }

    /// All members but this one; the next one first, so that not all begin with the same one.
    #[inline]
    pub(crate) fn peers(self) -> impl Iterator<Item = u32> + Clone {
        let (rank, world) = (self.group.rank, self.group.world);
        (rank + 1..world).chain(0..rank)
    }

    #[inline]
    fn address(self, member: u32, offset: u64) -> DeviceAddress {
        DeviceAddress(self.group.slots[member as usize].0 + offset)
    }

    /// The word, at member `at`, that member `from` raises.
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

    /// What lies behind the word that this rank raises at a member: [`BESIDE_FLAG`] bytes.
    #[inline]
    pub(crate) fn beside_theirs(self, words: Words, member: u32) -> DeviceAddress {
        DeviceAddress(self.theirs(words, member).0 + SIGNAL_STRIDE - BESIDE_FLAG)
    }

    /// What lies behind the word that a member raises here.
    #[inline]
    pub(crate) fn beside_own(self, words: Words, member: u32) -> DeviceAddress {
        DeviceAddress(self.word(words, self.rank(), member).0 + SIGNAL_STRIDE - BESIDE_FLAG)
    }

    /// The inbox, at member `at`, for what member `from` sends in a half.
    #[inline]
    pub(crate) fn inbox(self, half: u32, at: u32, from: u32) -> DeviceAddress {
        let number = u64::from(half) * u64::from(self.world()) + u64::from(from);
        self.address(at, INBOXES + number * inbox_capacity(self.group))
    }

    /// Counts one more.
    #[inline]
    pub(crate) fn count(self, counter: Counter) -> u32 {
        epoch::next(self.counter(counter))
    }

    /// What was counted last.
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
        // SAFETY: within this rank's slots, by `new`'s condition.
        unsafe { word_at(address) }
    }

    /// Raises this rank's word at one member.
    #[inline]
    pub(crate) fn raise(self, words: Words, member: u32, value: u32) {
        // SAFETY: within the member's slots, by `new`'s condition.
        unsafe { SignalWord::at(self.theirs(words, member)) }.publish(value);
    }

    /// Raises this rank's words at all peers.
    #[inline]
    pub(crate) fn raise_all(self, words: Words, value: u32) {
        let theirs = self.peers().map(|peer| {
            // SAFETY: as in `raise`.
            let word = unsafe { SignalWord::at(self.theirs(words, peer)) };
            (&word.value, &word.sleepers)
        });
        epoch::publish_all(theirs, value, wake);
    }

    /// Waits until the word that a member raises here has reached `pending.expected`.
    #[inline]
    pub(crate) fn wait(self, words: Words, member: u32, pending: &mut Pending) -> Turn {
        let watch = &self.group.watch;
        let bounds = Bounds {
            abort: watch.abort,
            deadline: Some(Duration::from_nanos(watch.deadline_ns)),
        };
        // SAFETY: within this rank's slots, by `new`'s condition.
        match unsafe { look(self.word(words, self.rank(), member), &bounds, pending) } {
            Look::Reached => Turn::Go,
            Look::Blocked(sleep) => Turn::Blocked(sleep),
            Look::GaveUp { seen, reason } => {
                self.record(&WaitRecord {
                    kind: WaitRecord::COLLECTIVE + self.group.operation.0,
                    peer: self.number_of(member),
                    expected: pending.expected,
                    seen,
                    reason,
                    elapsed_ns: pending.elapsed_ns(),
                    ..WaitRecord::default()
                });
                Turn::GaveUp
            }
        }
    }

    /// The communicator's number of a member.
    #[inline]
    pub(crate) fn number_of(self, member: u32) -> u32 {
        self.group.members[member as usize].into()
    }

    /// Leaves a record, if nobody has; who waited and on which channel are filled in.
    #[cold]
    pub(crate) fn record(self, record: &WaitRecord) {
        let record = WaitRecord {
            rank: self.group.watch.rank,
            slot: self.group.slot,
            ..*record
        };
        // SAFETY: the record is live, by `new`'s condition.
        unsafe { fill_record(self.group.watch.record, &record) };
    }

    /// Goes on with a barrier: tells every peer at its first step, then waits for one after the other.
    #[inline]
    pub(crate) fn barrier(self, pending: &mut Pending) -> Turn {
        if pending.begin() {
            pending.expected = self.count(Counter::Barriers);
            self.raise_all(Words::Barrier, pending.expected);
        }
        self.wait_for_all(Words::Barrier, pending)
    }

    /// Waits for one peer after the other; then the pending wait is ready for the next.
    #[inline]
    pub(crate) fn wait_for_all(self, words: Words, pending: &mut Pending) -> Turn {
        while pending.peer < self.world() {
            if pending.peer != self.rank() {
                match self.wait(words, pending.peer, pending) {
                    Turn::Go => {}
                    other => return other,
                }
            }
            pending.peer += 1;
        }
        pending.end();
        Turn::Go
    }
}
