//! One-shot sums in Lamport packets: data that is its own flag. [`ReduceLamportArguments`] says how an inbox is divided.
//!
//! A processor gains nothing by them, since one flag per message costs it less; ranks of this backend use them only when
//! they are named, and the fake drivers by their emulation of the kernels.

use super::arithmetic::reduction;
use super::barriered::pointer;
use super::members::Members;
use crate::backend::abi::*;
use crate::epoch::lamport;
use crate::host::copies;
use crate::host::progress::{
    ABORT_WORD_SET, DEADLINE_PASSED, Pending, Sleep, Step, is_aborted, word_at,
};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Bytes of a vector, the unit in which messages are counted.
const VECTOR: u64 = 16;
/// Words of a vector.
const WORDS: u64 = 4;
/// Words that are reduced at once: enough for whole elements, few enough for the stack.
const CHUNK: usize = 16;
/// Longest sleep on a packet, whose sender wakes no sleeper.
const LONGEST_SLEEP: Duration = Duration::from_micros(100);

/// The counters: the buffer in turn, and whether a wait has given up.
const BUFFER: u64 = 0;
const GAVE_UP: u64 = 2;

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
    if arguments.group.world < 2 {
        return Err("a group of one has no peers to send packets to; copy instead".into());
    }
    let part = u64::from(arguments.part_bytes);
    let bytes = arguments.count.saturating_mul(element.bytes());
    if bytes == 0 || bytes > part || !part.is_multiple_of(VECTOR) {
        return Err(format!(
            "{bytes} bytes do not fit into a part of {part}: give at least one element, and a part of a multiple of \
             {VECTOR} bytes"
        ));
    }
    Ok(())
}

/// A call, as seen by this rank.
struct Call<'a> {
    arguments: &'a ReduceLamportArguments,
    members: Members<'a>,
    /// Bytes of the message, and the words that it takes: those of whole vectors.
    bytes: u64,
    words: u64,
}

impl<'a> Call<'a> {
    /// # Safety
    /// All memory in `arguments` is live while the call is used, and [`check`] has passed.
    unsafe fn new(arguments: &'a ReduceLamportArguments) -> Self {
        let bytes = arguments.count * arguments.element.bytes();
        Self {
            arguments,
            // SAFETY: the group's numbers are checked and its memory is live, as this function requires.
            members: unsafe { Members::new(&arguments.group) },
            bytes,
            words: bytes.div_ceil(VECTOR) * WORDS,
        }
    }

    fn own(&self) -> u32 {
        self.members.rank()
    }

    /// Returns a counter of this rank.
    fn counter(&self, index: u64) -> &'a AtomicU32 {
        // SAFETY: the counters are live, as `new` requires, and only this rank uses them.
        unsafe { word_at(DeviceAddress(self.arguments.counters.0 + index * 4)) }
    }

    /// Returns a word of the part in a buffer that is at member `at` for what member `from` sends.
    fn word(&self, at: u32, from: u32, buffer: u64, index: u64) -> DeviceAddress {
        let peers = u64::from(self.members.world() - 1);
        let part = u64::from(if from < at { from } else { from - 1 });
        let offset = (buffer * peers + part) * u64::from(self.arguments.part_bytes);
        DeviceAddress(self.arguments.inboxes[at as usize].0 + offset + index * 4)
    }

    fn packet(&self, at: u32, from: u32, buffer: u64, index: u64) -> &'a AtomicU32 {
        // SAFETY: the inboxes are live, as `new` requires, and are accessed atomically only.
        unsafe { word_at(self.word(at, from, buffer, index)) }
    }

    /// Returns a word of what this rank sends to a member. Bytes after the message's end are zero.
    fn source(&self, member: u32, index: u64) -> u32 {
        let bytes = self.bytes.saturating_sub(index * 4).min(4);
        let mut word = [0; 4];
        let from = DeviceAddress(self.arguments.sources[member as usize].0 + index * 4);
        // SAFETY: the message is live, as `new` requires; the word is on this stack.
        unsafe {
            copies::copy(
                DeviceAddress(word.as_mut_ptr().expose_provenance() as u64),
                from,
                bytes,
            )
        };
        u32::from_le_bytes(word)
    }

    /// Sends to all peers, and counts the call. Returns its buffer; `None` if an earlier wait has given up.
    fn begin(&self) -> Option<u64> {
        if self.counter(GAVE_UP).load(Ordering::Relaxed) != 0 {
            return None;
        }
        lamport::fence::<AtomicU32>();
        let buffer = u64::from(self.counter(BUFFER).load(Ordering::Relaxed)) % LAMPORT_BUFFERS;
        for peer in self.members.peers() {
            for index in 0..self.words {
                let place = self.packet(peer, self.own(), buffer, index);
                lamport::send(place, self.source(peer, index));
            }
        }
        let next = lamport::next_buffer(buffer);
        self.counter(BUFFER).store(next as u32, Ordering::Relaxed);
        Some(buffer)
    }

    /// Reduces all members' elements, a few at a time, and empties their places.
    fn reduce(&self, buffer: u64) {
        let Some(reduce) = reduction(self.arguments.element, self.arguments.reduce) else {
            return;
        };
        let world = self.members.world();
        let mut data = [[0u32; CHUNK]; MAX_RANKS];
        for first in (0..self.words).step_by(CHUNK) {
            for member in 0..world {
                for (index, word) in (first..self.words).zip(&mut data[member as usize]) {
                    let data = if member == self.own() {
                        // As at the peers, or members would get different bits.
                        lamport::from_packet(lamport::to_packet(self.source(member, index)))
                    } else {
                        let place = self.packet(self.own(), member, buffer, index);
                        // All packets have arrived.
                        let data = lamport::received(place).unwrap_or_default();
                        lamport::empty(place);
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

    /// Gives up a wait for a member, with a record. No later call sends: places of this one may still be full.
    #[cold]
    fn give_up(&self, member: u32, pending: &Pending, reason: u32) {
        self.counter(GAVE_UP).store(1, Ordering::Relaxed);
        self.members.record(&WaitRecord {
            kind: WaitRecord::COLLECTIVE + self.arguments.group.operation.0,
            peer: self.members.number_of(member),
            expected: 1,
            reason,
            elapsed_ns: pending.elapsed_ns(),
            ..WaitRecord::default()
        });
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
    let pending = pending.get_or_insert_with(|| Pending::of_rounds(call.words));
    if pending.begin() {
        let Some(buffer) = call.begin() else {
            return Step::Done;
        };
        pending.expected = buffer as u32;
    }
    let buffer = u64::from(pending.expected);
    while pending.peer < call.members.world() {
        let peer = pending.peer;
        while peer != call.own() && pending.round < pending.rounds {
            let index = pending.round;
            if lamport::received(call.packet(call.own(), peer, buffer, index)).is_some() {
                pending.round += 1;
                continue;
            }
            let watch = &arguments.group.watch;
            // SAFETY: the watch's words are null or live, as this function requires.
            let aborted = unsafe { is_aborted(watch) };
            let remaining = pending.left_of(Duration::from_nanos(watch.deadline_ns));
            if aborted || remaining.is_zero() {
                let reason = if aborted {
                    ABORT_WORD_SET
                } else {
                    DEADLINE_PASSED
                };
                call.give_up(peer, pending, reason);
                return Step::Done;
            }
            return Step::Blocked(Sleep {
                word: call.word(call.own(), peer, buffer, index),
                seen: 0,
                limit: remaining.min(LONGEST_SLEEP),
                counted: false,
            });
        }
        pending.round = 0;
        pending.peer += 1;
    }
    lamport::fence::<AtomicU32>();
    call.reduce(buffer);
    Step::Done
}
