//! Sums in Lamport packets, one-shot and two-shot.

use super::arithmetic::reduction;
use super::lamport::{self, Inboxes, Messages, VECTOR, WORDS};
use crate::backend::abi::*;
use crate::epoch::lamport::{from_packet, to_packet};
use crate::host::progress::{Pending, Step};
use std::ptr;

/// Words that are reduced at once: enough for whole elements, few enough for the stack.
const CHUNK: usize = 16;

/// Checks that all numbers are in range.
///
/// # Errors
/// The value that is out of range.
pub(super) fn check(arguments: &ReduceLamportArguments) -> Result<(), String> {
    let (element, reduce) = (arguments.element, arguments.reduce);
    if !ReduceLamportArguments::can_carry(element, reduce) {
        return Err(format!(
            "Lamport packets cannot carry {} of elements {} (numbers {} and {}); use sums or averages of floating-point \
             types of at most 32 bits",
            reduce.name(),
            element.name(),
            reduce.0,
            element.0
        ));
    }
    arguments.check()
}

/// A call, as seen by this rank.
struct Call<'a> {
    arguments: &'a ReduceLamportArguments,
    inboxes: Inboxes<'a>,
}

impl<'a> Call<'a> {
    /// # Safety
    /// All memory in `arguments` is live while the call is used, and [`check`] has passed.
    unsafe fn new(arguments: &'a ReduceLamportArguments) -> Self {
        Self {
            arguments,
            // SAFETY: this function has the same conditions.
            inboxes: unsafe {
                Inboxes::new(
                    &arguments.group,
                    &arguments.inboxes,
                    arguments.counters,
                    arguments.part_bytes,
                )
            },
        }
    }

    fn is_two_shot(&self) -> bool {
        self.arguments.share_bytes != 0
    }

    /// Returns the bytes of the elements that a member reduces.
    fn reduced_by(&self, member: u32) -> u64 {
        if self.is_two_shot() {
            self.arguments.share_of(member)
        } else if self.arguments.receives(member) {
            self.arguments.bytes()
        } else {
            0
        }
    }

    /// Stores a word of a member's result.
    fn store(&self, member: u32, index: u64, word: u32) {
        // One-shot, the offset is 0.
        let offset = u64::from(member) * self.arguments.share_bytes;
        let to = DeviceAddress(self.arguments.destination.0 + offset);
        // SAFETY: the destination is live, as `new` requires.
        unsafe { lamport::store_word(to, self.reduced_by(member), index, word) };
    }

    /// Returns a word of a member, for this rank to reduce, and empties its place.
    fn take_word(&self, member: u32, buffer: u64, index: u64) -> u32 {
        if member != self.inboxes.own() {
            return self.inboxes.take(member, buffer, index);
        }
        // As at the peers, or members would get different bits.
        from_packet(to_packet(self.word(member, index)))
    }

    /// Reduces all members' elements, a few at a time, and empties their places. The vector of zeros that comes to a rank
    /// that does not receive has none.
    fn reduce(&self, buffer: u64) {
        let (element, reduce) = (self.arguments.element, self.arguments.reduce);
        let Some(reduce) = reduction(element, reduce) else {
            return;
        };
        let (own, world) = (self.inboxes.own(), self.inboxes.members.world());
        let (bytes, words) = (self.reduced_by(own), self.words(own, own));
        let mut data = [[0u32; CHUNK]; MAX_RANKS];
        for first in (0..words).step_by(CHUNK) {
            let mut sources = [ptr::null(); MAX_RANKS];
            for member in 0..world {
                let data = &mut data[member as usize];
                for (index, word) in (first..words).zip(&mut *data) {
                    *word = self.take_word(member, buffer, index).to_le();
                }
                sources[member as usize] = data.as_ptr().cast();
            }
            let count = bytes.saturating_sub(first * 4).min(CHUNK as u64 * 4) / element.bytes();
            let mut results = [0u32; CHUNK];
            let to = results.as_mut_ptr().cast();
            // SAFETY: sources and results are on this stack.
            unsafe {
                reduce(
                    &sources[..world as usize],
                    &[to],
                    count as usize,
                    world as usize,
                )
            };
            for (index, result) in (first..words).zip(results) {
                self.give_result(buffer, index, u32::from_le(result));
            }
        }
    }

    /// Stores a word of this rank's result, and sends it to all peers if the call is two-shot.
    fn give_result(&self, buffer: u64, index: u64, result: u32) {
        let own = self.inboxes.own();
        if !self.is_two_shot() {
            return self.store(own, index, result);
        }
        let at = self.words(own, own) + index;
        for peer in self.inboxes.members.peers() {
            self.inboxes.send(peer, buffer, at, result);
        }
        // As at the peers.
        self.store(own, index, from_packet(to_packet(result)));
    }

    /// Stores all peers' results, and empties their places.
    fn store_results(&self, buffer: u64) {
        for peer in self.inboxes.members.peers() {
            let words = self.words(peer, self.inboxes.own());
            for index in 0..words {
                let result = self.inboxes.take(peer, buffer, words + index);
                self.store(peer, index, result);
            }
        }
    }
}

impl Messages for Call<'_> {
    fn stages(&self) -> u32 {
        1 + u32::from(self.is_two_shot())
    }

    fn words(&self, _: u32, to: u32) -> u64 {
        if self.is_two_shot() {
            return self.arguments.share_bytes / VECTOR * WORDS;
        }
        self.reduced_by(to).div_ceil(VECTOR).max(1) * WORDS
    }

    fn word(&self, to: u32, index: u64) -> u32 {
        let source = self.arguments.sources[to as usize];
        // SAFETY: the messages are live, as `new` requires.
        unsafe { lamport::word_of(source, self.reduced_by(to), index) }
    }

    fn take(&self, stage: u32, buffer: u64) {
        if stage == 0 {
            self.reduce(buffer);
        } else {
            self.store_results(buffer);
        }
    }
}

/// Advances a reduction.
///
/// # Safety
/// All memory in `arguments` is live, and [`super::Collective::check`] has passed.
pub(crate) unsafe fn advance(
    arguments: &ReduceLamportArguments,
    pending: &mut Option<Pending>,
) -> Step {
    // SAFETY: the memory is live and the arguments are checked, as this function requires.
    let call = unsafe { Call::new(arguments) };
    // SAFETY: the watch's words are null or live, as this function requires.
    unsafe { call.inboxes.advance(pending, &call) }
}
