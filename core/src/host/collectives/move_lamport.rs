//! Moves in Lamport packets. [`MoveLamportArguments`] says what the marks are.

use super::lamport::{self, Inboxes, VECTOR, WORDS};
use crate::backend::abi::*;
use crate::host::copies;
use crate::host::progress::{Pending, Step};

/// The word of data for which the empty word would stand.
const MARKED: u32 = u32::MAX;
/// Vectors of data in a line, and words of a line with its marks.
const LINE_VECTORS: u64 = LAMPORT_LINE_DATA_BYTES / VECTOR;
const LINE_WORDS: u64 = LAMPORT_LINE_BYTES / 4;

/// Checks that all numbers are in range.
///
/// # Errors
/// The value that is out of range.
pub(super) fn check(arguments: &MoveLamportArguments) -> Result<(), String> {
    let taken = MoveLamportArguments::taken_bytes(arguments.bytes);
    lamport::check(
        &arguments.group,
        arguments.bytes,
        taken,
        arguments.part_bytes,
    )
}

/// A call, as seen by this rank.
struct Call<'a> {
    arguments: &'a MoveLamportArguments,
    inboxes: Inboxes<'a>,
}

impl<'a> Call<'a> {
    /// # Safety
    /// All memory in `arguments` is live while the call is used, and [`check`] has passed.
    unsafe fn new(arguments: &'a MoveLamportArguments) -> Self {
        let words = MoveLamportArguments::taken_bytes(arguments.bytes) / 4;
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
        }
    }

    /// Returns a word of the message to a member.
    fn source(&self, member: u32, index: u64) -> u32 {
        let message = self.arguments.sources[member as usize];
        // SAFETY: the messages are live, as `new` requires.
        unsafe { lamport::word_of(message, self.arguments.bytes, index) }
    }

    /// Returns a word of what goes to a member: data, or the complement of marks.
    fn sent(&self, member: u32, index: u64) -> u32 {
        let (line, place) = (index / LINE_WORDS, index % LINE_WORDS);
        let (thread, word) = (place / WORDS, place % WORDS);
        let at = |thread| (line * LINE_VECTORS + thread) * WORDS + word;
        if thread < LINE_VECTORS {
            return self.source(member, at(thread));
        }
        let marked = (0..LINE_VECTORS).filter(|&thread| self.source(member, at(thread)) == MARKED);
        !marked.fold(1 << LINE_VECTORS, |marks, thread| marks | 1 << thread)
    }

    /// Stores all members' messages, and empties their places.
    fn store(&self, buffer: u64) {
        let own = self.inboxes.own() as usize;
        let (bytes, all) = (self.arguments.bytes, &self.arguments.destinations);
        for member in self.inboxes.members.peers() {
            for index in 0..bytes.div_ceil(4) {
                let (vector, word) = (index / WORDS, index % WORDS);
                let (line, thread) = (vector / LINE_VECTORS, vector % LINE_VECTORS);
                let at = |thread: u64| line * LINE_WORDS + thread * WORDS + word;
                let marks = !self.inboxes.arrived(member, buffer, at(LINE_VECTORS));
                let data = match marks >> thread & 1 {
                    0 => self.inboxes.arrived(member, buffer, at(thread)),
                    _ => MARKED,
                };
                let word = data.to_le_bytes();
                let from = DeviceAddress(word.as_ptr().expose_provenance() as u64);
                let to = DeviceAddress(all[member as usize].0 + index * 4);
                // SAFETY: the destination is live, as `new` requires; the word is on this stack.
                unsafe { copies::copy(to, from, (bytes - index * 4).min(4)) };
            }
            for index in 0..MoveLamportArguments::taken_bytes(bytes) / 4 {
                self.inboxes.empty(member, buffer, index);
            }
        }
        let source = self.arguments.sources[own];
        if source != all[own] {
            // SAFETY: both are live, as `new` requires.
            unsafe { copies::copy(all[own], source, bytes) };
        }
    }
}

/// Advances a move.
///
/// # Safety
/// All memory in `arguments` is live, and [`super::Collective::check`] has passed.
pub(crate) unsafe fn advance(
    arguments: &MoveLamportArguments,
    pending: &mut Option<Pending>,
) -> Step {
    // SAFETY: the memory is live and the arguments are checked, as this function requires.
    let call = unsafe { Call::new(arguments) };
    let data = |member, index| call.sent(member, index);
    // SAFETY: the watch's words are null or live, as this function requires.
    unsafe {
        call.inboxes
            .advance(pending, data, |buffer| call.store(buffer))
    }
}
