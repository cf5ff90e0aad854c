//! Moves in Lamport packets. [`MoveLamportArguments`] says what the marks are.

use super::lamport::{self, Inboxes, Messages, VECTOR, WORDS};
use crate::backend::abi::*;
use crate::host::copies;
use crate::host::progress::{Pending, Step};

/// The word of data for which the empty word would stand.
const MARKED: u32 = u32::MAX;
/// Vectors of data in a line, and words of a line with its marks.
const LINE_VECTORS: u64 = LAMPORT_LINE_DATA_BYTES / VECTOR;
const LINE_WORDS: u64 = LAMPORT_LINE_BYTES / 4;

/// A call, as seen by this rank.
struct Call<'a> {
    arguments: &'a MoveLamportArguments,
    inboxes: Inboxes<'a>,
}

impl<'a> Call<'a> {
    /// # Safety
    /// All memory in `arguments` is live while the call is used, and [`MoveLamportArguments::check`] has passed.
    unsafe fn new(arguments: &'a MoveLamportArguments) -> Self {
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

    /// Returns a word of the message to a member.
    fn source(&self, member: u32, index: u64) -> u32 {
        let message = self.arguments.sources[member as usize];
        let bytes = self.arguments.bytes_between(self.inboxes.own(), member);
        // SAFETY: the messages are live, as `new` requires.
        unsafe { lamport::word_of(message, bytes, index) }
    }

    /// Stores a peer's message, and empties its places.
    fn store(&self, peer: u32, buffer: u64) {
        let own = self.inboxes.own();
        let bytes = self.arguments.bytes_between(peer, own);
        let to = self.arguments.destinations[peer as usize];
        for index in 0..bytes.div_ceil(4) {
            let (vector, word) = (index / WORDS, index % WORDS);
            let (line, thread) = (vector / LINE_VECTORS, vector % LINE_VECTORS);
            let at = |thread: u64| line * LINE_WORDS + thread * WORDS + word;
            let marks = !self.inboxes.arrived(peer, buffer, at(LINE_VECTORS));
            let data = match marks >> thread & 1 {
                0 => self.inboxes.arrived(peer, buffer, at(thread)),
                _ => MARKED,
            };
            // SAFETY: the destination is live, as `new` requires.
            unsafe { lamport::store_word(to, bytes, index, data) };
        }
        for index in 0..self.words(peer, own) {
            self.inboxes.empty(peer, buffer, index);
        }
    }

    /// Copies this rank's message to itself.
    fn copy_own(&self) {
        let own = self.inboxes.own();
        let source = self.arguments.sources[own as usize];
        let destination = self.arguments.destinations[own as usize];
        if source != destination {
            let bytes = self.arguments.bytes_between(own, own);
            // SAFETY: both are live, as `new` requires.
            unsafe { copies::copy(destination, source, bytes) };
        }
    }
}

impl Messages for Call<'_> {
    fn words(&self, from: u32, to: u32) -> u64 {
        let bytes = self.arguments.bytes_between(from, to);
        // An empty message takes a line, too.
        MoveLamportArguments::taken_bytes(bytes.max(1)) / 4
    }

    fn word(&self, to: u32, index: u64) -> u32 {
        // Data, or the complement of marks.
        let (line, place) = (index / LINE_WORDS, index % LINE_WORDS);
        let (thread, word) = (place / WORDS, place % WORDS);
        let at = |thread| (line * LINE_VECTORS + thread) * WORDS + word;
        if thread < LINE_VECTORS {
            return self.source(to, at(thread));
        }
        let marked = (0..LINE_VECTORS).filter(|&thread| self.source(to, at(thread)) == MARKED);
        !marked.fold(1 << LINE_VECTORS, |marks, thread| marks | 1 << thread)
    }

    fn take(&self, _: u32, buffer: u64) {
        for peer in self.inboxes.members.peers() {
            self.store(peer, buffer);
        }
        self.copy_own();
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
    // SAFETY: the watch's words are null or live, as this function requires.
    unsafe { call.inboxes.advance(pending, &call) }
}
