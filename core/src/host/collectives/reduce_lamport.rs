//! One-shot sums in Lamport packets.

use super::arithmetic::reduction;
use super::barriered::pointer;
use super::lamport::{self, Inboxes, VECTOR, WORDS};
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
    let bytes = arguments.count.saturating_mul(element.bytes());
    lamport::check(&arguments.group, bytes, bytes, arguments.part_bytes)
}

/// A call, as seen by this rank.
struct Call<'a> {
    arguments: &'a ReduceLamportArguments,
    inboxes: Inboxes<'a>,
    /// Bytes of the message, and the words that it takes: those of whole vectors.
    bytes: u64,
    words: u64,
}

impl<'a> Call<'a> {
    /// # Safety
    /// All memory in `arguments` is live while the call is used, and [`check`] has passed.
    unsafe fn new(arguments: &'a ReduceLamportArguments) -> Self {
        let bytes = arguments.count * arguments.element.bytes();
        let words = bytes.div_ceil(VECTOR) * WORDS;
        Self {
            arguments,
            // SAFETY: this function has the same conditions.
            inboxes: unsafe {
                Inboxes::new(
                    &arguments.group,
                    &arguments.inboxes,
                    arguments.counters,
                    arguments.part_bytes,
                    words,
                )
            },
            bytes,
            words,
        }
    }

    /// Returns a word of what this rank sends to a member.
    fn source(&self, member: u32, index: u64) -> u32 {
        // SAFETY: the messages are live, as `new` requires.
        unsafe { lamport::word_of(self.arguments.sources[member as usize], self.bytes, index) }
    }

    /// Reduces all members' elements, a few at a time, and empties their places.
    fn reduce(&self, buffer: u64) {
        let Some(reduce) = reduction(self.arguments.element, self.arguments.reduce) else {
            return;
        };
        let world = self.inboxes.members.world();
        let mut data = [[0u32; CHUNK]; MAX_RANKS];
        for first in (0..self.words).step_by(CHUNK) {
            for member in 0..world {
                for (index, word) in (first..self.words).zip(&mut data[member as usize]) {
                    let data = if member == self.inboxes.own() {
                        // As at the peers, or members would get different bits.
                        from_packet(to_packet(self.source(member, index)))
                    } else {
                        let data = self.inboxes.arrived(member, buffer, index);
                        self.inboxes.empty(member, buffer, index);
                        data
                    };
                    *word = data.to_le();
                }
            }
            let mut sources = [ptr::null(); MAX_RANKS];
            for (source, words) in sources.iter_mut().zip(&data[..world as usize]) {
                *source = words.as_ptr().cast();
            }
            let bytes = (self.bytes - first * 4).min(CHUNK as u64 * 4);
            let to = DeviceAddress(self.arguments.destination.0 + first * 4);
            let count = (bytes / self.arguments.element.bytes()) as usize;
            // SAFETY: the sources are on this stack; the destination is live, as `new` requires.
            unsafe { reduce(&sources[..world as usize], &[pointer(to)], count) };
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
    let data = |member, index| call.source(member, index);
    // SAFETY: the watch's words are null or live, as this function requires.
    unsafe {
        call.inboxes
            .advance(pending, data, |buffer| call.reduce(buffer))
    }
}
