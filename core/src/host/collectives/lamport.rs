//! Lamport packets: data that is its own flag. [`ReduceLamportArguments`] says how an inbox is divided.
//!
//! A processor gains nothing by them, since one flag per message costs it less; ranks of this backend use them only when
//! they are named, and the fake drivers by their emulation of the kernels.

use super::members::{Members, WaitOutcome};
use crate::backend::abi::*;
use crate::epoch::lamport;
use crate::host::copies;
use crate::host::progress::{
    ABORT_WORD_SET, DEADLINE_PASSED, Pending, Sleep, Step, is_aborted, word_at,
};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Bytes of a vector, the unit in which messages are counted.
pub(super) const VECTOR: u64 = 16;
/// Words of a vector.
pub(super) const WORDS: u64 = 4;
/// Longest sleep on a packet, whose sender wakes no sleeper.
const LONGEST_SLEEP: Duration = Duration::from_micros(100);

/// The counters: the buffer in turn, and whether a wait has given up.
const BUFFER: u64 = 0;
const GAVE_UP: u64 = 2;

/// Returns a word of a message of `bytes` bytes. Bytes after its end are zero.
///
/// # Safety
/// The message is live.
pub(super) unsafe fn word_of(message: DeviceAddress, bytes: u64, index: u64) -> u32 {
    let length = bytes.saturating_sub(index * 4).min(4);
    let mut word = [0; 4];
    let to = DeviceAddress(word.as_mut_ptr().expose_provenance() as u64);
    // SAFETY: the message is live, as this function requires; the word is on this stack.
    unsafe { copies::copy(to, DeviceAddress(message.0 + index * 4), length) };
    u32::from_le_bytes(word)
}

/// Stores a word of a message of `bytes` bytes, as far as the message reaches.
///
/// # Safety
/// The message is live.
pub(super) unsafe fn store_word(message: DeviceAddress, bytes: u64, index: u64, word: u32) {
    let length = bytes.saturating_sub(index * 4).min(4);
    let word = word.to_le_bytes();
    let from = DeviceAddress(word.as_ptr().expose_provenance() as u64);
    // SAFETY: the message is live, as this function requires; the word is on this stack.
    unsafe { copies::copy(DeviceAddress(message.0 + index * 4), from, length) };
}

/// The messages of a call, as seen by this rank. A message has a part of the same length for each stage.
pub(super) trait Messages {
    /// Returns the number of stages.
    fn stages(&self) -> u32 {
        1
    }

    /// Returns the words of a stage's part of a message. No message is empty, so that each member hears from each.
    fn words(&self, from: u32, to: u32) -> u64;

    /// Returns a word of what this rank sends to a peer in the first stage.
    fn word(&self, to: u32, index: u64) -> u32;

    /// Takes what all peers have sent in a stage, empties its places, and sends what the next stage waits for.
    fn take(&self, stage: u32, buffer: u64);
}

/// A call's inboxes, as seen by this rank.
pub(super) struct Inboxes<'a> {
    pub(super) members: Members<'a>,
    group: &'a CollectiveGroup,
    addresses: &'a [DeviceAddress; MAX_RANKS],
    counters: DeviceAddress,
    part_bytes: u64,
}

impl<'a> Inboxes<'a> {
    /// # Safety
    /// The group's memory, inboxes and counters are live while this is used, and the arguments' `check` has passed.
    pub(super) unsafe fn new(
        group: &'a CollectiveGroup,
        addresses: &'a [DeviceAddress; MAX_RANKS],
        counters: DeviceAddress,
        part_bytes: u32,
    ) -> Self {
        Self {
            // SAFETY: the group's numbers are checked and its memory is live, as this function requires.
            members: unsafe { Members::new(group) },
            group,
            addresses,
            counters,
            part_bytes: part_bytes.into(),
        }
    }

    pub(super) fn own(&self) -> u32 {
        self.members.rank()
    }

    /// Returns a counter of this rank.
    fn counter(&self, index: u64) -> &'a AtomicU32 {
        // SAFETY: the counters are live, as `new` requires, and only this rank uses them.
        unsafe { word_at(DeviceAddress(self.counters.0 + index * 4)) }
    }

    /// Returns a word of the part in a buffer that is at member `at` for what member `from` sends.
    fn word(&self, at: u32, from: u32, buffer: u64, index: u64) -> DeviceAddress {
        let peers = u64::from(self.members.world() - 1);
        let part = u64::from(if from < at { from } else { from - 1 });
        let offset = (buffer * peers + part) * self.part_bytes;
        DeviceAddress(self.addresses[at as usize].0 + offset + index * 4)
    }

    fn packet(&self, at: u32, from: u32, buffer: u64, index: u64) -> &'a AtomicU32 {
        // SAFETY: the inboxes are live, as `new` requires, and are accessed atomically only.
        unsafe { word_at(self.word(at, from, buffer, index)) }
    }

    /// Sends what peers wait for in the first stage, and counts the call. Returns its buffer; `None` if an earlier wait
    /// has given up.
    fn begin(&self, messages: &impl Messages) -> Option<u64> {
        if self.counter(GAVE_UP).load(Ordering::Relaxed) != 0 {
            return None;
        }
        lamport::fence::<AtomicU32>();
        let buffer = u64::from(self.counter(BUFFER).load(Ordering::Relaxed)) % LAMPORT_BUFFERS;
        for peer in self.members.peers() {
            for index in 0..messages.words(self.own(), peer) {
                self.send(peer, buffer, index, messages.word(peer, index));
            }
        }
        let next = lamport::next_buffer(buffer);
        self.counter(BUFFER).store(next as u32, Ordering::Relaxed);
        Some(buffer)
    }

    /// Sends a word to a peer.
    pub(super) fn send(&self, peer: u32, buffer: u64, index: u64, data: u32) {
        lamport::send(self.packet(peer, self.own(), buffer, index), data);
    }

    /// Returns a word from a member, all of whose packets have arrived.
    pub(super) fn arrived(&self, member: u32, buffer: u64, index: u64) -> u32 {
        lamport::received(self.packet(self.own(), member, buffer, index)).unwrap_or_default()
    }

    /// Empties the place of a word that has been read.
    pub(super) fn empty(&self, member: u32, buffer: u64, index: u64) {
        lamport::empty(self.packet(self.own(), member, buffer, index));
    }

    /// Returns a word that has arrived, and empties its place.
    pub(super) fn take(&self, member: u32, buffer: u64, index: u64) -> u32 {
        let data = self.arrived(member, buffer, index);
        self.empty(member, buffer, index);
        data
    }

    /// Gives up a wait for a member, with a record. No later call sends: places of this one may still be full.
    #[cold]
    fn give_up(&self, member: u32, pending: &Pending, reason: u32) {
        self.counter(GAVE_UP).store(1, Ordering::Relaxed);
        self.members.record(&WaitRecord {
            kind: WaitRecord::COLLECTIVE + self.group.operation.0,
            peer: self.members.number_of(member),
            expected: 1,
            reason,
            elapsed_ns: pending.elapsed_ns(),
            ..WaitRecord::default()
        });
    }

    /// Looks whether all that peers send in this stage has arrived.
    ///
    /// # Safety
    /// The watch's words are null or live.
    unsafe fn wait(&self, pending: &mut Pending, messages: &impl Messages) -> WaitOutcome {
        let buffer = u64::from(pending.expected);
        while pending.peer < self.members.world() {
            let peer = pending.peer;
            let words = messages.words(peer, self.own());
            while peer != self.own() && pending.round < words {
                let index = u64::from(pending.stage) * words + pending.round;
                if lamport::received(self.packet(self.own(), peer, buffer, index)).is_some() {
                    pending.round += 1;
                    continue;
                }
                let watch = &self.group.watch;
                // SAFETY: the watch's words are null or live, as this function requires.
                let aborted = unsafe { is_aborted(watch) };
                let remaining = pending.left_of(Duration::from_nanos(watch.deadline_ns));
                if aborted || remaining.is_zero() {
                    let reason = if aborted {
                        ABORT_WORD_SET
                    } else {
                        DEADLINE_PASSED
                    };
                    self.give_up(peer, pending, reason);
                    return WaitOutcome::GaveUp;
                }
                return WaitOutcome::Blocked(Sleep {
                    word: self.word(self.own(), peer, buffer, index),
                    seen: 0,
                    limit: remaining.min(LONGEST_SLEEP),
                    counted: false,
                });
            }
            pending.round = 0;
            pending.peer += 1;
        }
        WaitOutcome::Go
    }

    /// Advances a call: sends to all peers, then waits for them and takes what they send, stage by stage.
    ///
    /// # Safety
    /// The watch's words are null or live.
    pub(super) unsafe fn advance(
        &self,
        pending: &mut Option<Pending>,
        messages: &impl Messages,
    ) -> Step {
        let pending = pending.get_or_insert_with(|| Pending::new(0));
        if pending.begin() {
            let Some(buffer) = self.begin(messages) else {
                return Step::Done;
            };
            pending.expected = buffer as u32;
        }
        while pending.stage < messages.stages() {
            // SAFETY: the watch's words are null or live, as this function requires.
            match unsafe { self.wait(pending, messages) } {
                WaitOutcome::Go => {}
                WaitOutcome::Blocked(sleep) => return Step::Blocked(sleep),
                WaitOutcome::GaveUp => return Step::Done,
            }
            lamport::fence::<AtomicU32>();
            messages.take(pending.stage, pending.expected.into());
            pending.stage += 1;
            pending.peer = 0;
        }
        Step::Done
    }
}
