//! Collectives in packets: each member stores to an inbox at every other member, raises a flag there, and waits for
//! the others' flags. There is no barrier.
//!
//! A GPU has a flag in every packet. A processor's stores are ordered, so one flag per message is enough, and a small
//! message lies beside its flag in the same cache lines. A message larger than an inbox is sent in rounds. In each
//! round every member raises its flag at every other and waits for all of theirs, so two halves of an inbox are
//! enough (see [`epoch::half_of`]).

use super::arithmetic::reduction;
use super::barriered::pointer;
use super::members::{BESIDE_FLAG, Counter, Members, WaitOutcome, Words, inbox_capacity};
use crate::backend::abi::*;
use crate::epoch;
use crate::host::copies;
use crate::host::progress::{Pending, Step};
use std::ptr;

/// The part of a message that one round sends.
#[derive(Clone, Copy)]
struct Piece {
    offset: u64,
    bytes: u64,
}

impl Piece {
    /// Returns the piece, of at most `capacity` bytes, that a round sends of a message of `bytes`.
    fn of(bytes: u64, round: u64, capacity: u64) -> Self {
        let offset = (round * capacity).min(bytes);
        Self {
            offset,
            bytes: (bytes - offset).min(capacity),
        }
    }
}

/// One use of the inboxes: a round, or half of a two-shot round.
#[derive(Clone, Copy)]
struct Use<'a> {
    members: Members<'a>,
    half: u32,
}

impl<'a> Use<'a> {
    /// Continues the use that `pending` is in, or begins the next one. Returns true if it begins; the caller then
    /// sends.
    fn enter(members: Members<'a>, pending: &mut Pending) -> (Self, bool) {
        let begins = pending.begin();
        if begins {
            pending.expected = members.count(Counter::Packets);
        }
        let half = epoch::half_of(pending.expected);
        (Self { members, half }, begins)
    }

    fn words(self) -> Words {
        Words::Packets { half: self.half }
    }

    /// Puts a piece into the inbox at a member; raising the flag publishes it.
    ///
    /// # Safety
    /// The piece of the source is readable and not larger than the inbox.
    unsafe fn put(self, member: u32, source: DeviceAddress, piece: Piece) {
        let inbox = if piece.bytes <= BESIDE_FLAG {
            self.members.beside_theirs(self.words(), member)
        } else {
            self.members.inbox(self.half, member, self.members.rank())
        };
        // SAFETY: the source is readable and the piece fits; the inbox's owner has read the previous contents.
        unsafe { copies::copy(inbox, DeviceAddress(source.0 + piece.offset), piece.bytes) };
    }

    /// Returns the address of what a member sent, which is valid once its flag has come.
    fn inbox_of(self, member: u32, bytes: u64) -> DeviceAddress {
        if bytes <= BESIDE_FLAG {
            self.members.beside_own(self.words(), member)
        } else {
            self.members.inbox(self.half, self.members.rank(), member)
        }
    }
}

/// Advances a transfer of bytes from every member to every member.
///
/// # Safety
/// All memory in `arguments` is live, and [`super::Collective::check`] has passed.
pub(crate) unsafe fn advance_packets(
    arguments: &PacketArguments,
    pending: &mut Option<Pending>,
) -> Step {
    // SAFETY: the group's memory is live and its numbers are checked, as this function requires.
    let members = unsafe { Members::new(&arguments.group) };
    let (own, world) = (members.rank() as usize, members.world() as usize);
    let capacity = inbox_capacity(&arguments.group);
    let pending = pending.get_or_insert_with(|| {
        let all = 0..world;
        let longest =
            all.map(|member| arguments.send_bytes[member].max(arguments.receive_bytes[member]));
        Pending::of_rounds(longest.max().unwrap_or(0).div_ceil(capacity).max(1))
    });
    while pending.round < pending.rounds {
        let round = pending.round;
        let piece = |bytes: u64| Piece::of(bytes, round, capacity);
        let (this, begins) = Use::enter(members, pending);
        if begins {
            for peer in members.peers() {
                let sent = piece(arguments.send_bytes[peer as usize]);
                // SAFETY: the source is live, and a piece is not larger than an inbox.
                unsafe { this.put(peer, arguments.sources[peer as usize], sent) };
            }
            members.raise_all(this.words(), pending.expected);
            let (to, from) = (arguments.destinations[own], arguments.sources[own]);
            if round == 0 && to != from {
                // SAFETY: source and destination are live, as this function requires.
                unsafe { copies::copy(to, from, arguments.send_bytes[own]) };
            }
        }
        match members.wait_for_all(this.words(), pending) {
            WaitOutcome::Go => {}
            WaitOutcome::Blocked(sleep) => return Step::Blocked(sleep),
            WaitOutcome::GaveUp => return Step::Done,
        }
        for peer in members.peers() {
            let received = piece(arguments.receive_bytes[peer as usize]);
            let to = DeviceAddress(arguments.destinations[peer as usize].0 + received.offset);
            // SAFETY: the destination is live; the sender raised its flag after it wrote the bytes.
            unsafe { copies::copy(to, this.inbox_of(peer, received.bytes), received.bytes) };
        }
        pending.round += 1;
    }
    Step::Done
}

/// Advances a reduction: every member sends each other member the elements that the other reduces. With `two_shot` it
/// also sends its result to all, in a second use of the same round.
///
/// # Safety
/// As for [`advance_packets`].
pub(crate) unsafe fn advance_reduce_packets(
    arguments: &ReducePacketArguments,
    pending: &mut Option<Pending>,
) -> Step {
    // SAFETY: the group's memory is live and its numbers are checked, as this function requires.
    let members = unsafe { Members::new(&arguments.group) };
    let (own, world) = (members.rank() as usize, members.world() as usize);
    let width = arguments.element.bytes();
    let Some(reduce) = reduction(arguments.element, arguments.reduce) else {
        return Step::Done;
    };
    // A multiple of 16, so no element is cut.
    let capacity = inbox_capacity(&arguments.group);
    let bytes = |member: usize| arguments.counts[member] * width;
    let pending = pending.get_or_insert_with(|| {
        let longest = (0..world).map(bytes).max().unwrap_or(0);
        Pending::of_rounds(longest.div_ceil(capacity).max(1))
    });
    while pending.round < pending.rounds {
        let round = pending.round;
        let piece = |member: usize| Piece::of(bytes(member), round, capacity);
        let mine = piece(own);
        let result = DeviceAddress(arguments.destinations[own].0 + mine.offset);
        if pending.stage == 0 {
            let (this, begins) = Use::enter(members, pending);
            if begins {
                for peer in members.peers() {
                    let (source, sent) = (arguments.sources[peer as usize], piece(peer as usize));
                    // SAFETY: the source is live, and a piece is not larger than an inbox.
                    unsafe { this.put(peer, source, sent) };
                }
                members.raise_all(this.words(), pending.expected);
            }
            match members.wait_for_all(this.words(), pending) {
                WaitOutcome::Go => {}
                WaitOutcome::Blocked(sleep) => return Step::Blocked(sleep),
                WaitOutcome::GaveUp => return Step::Done,
            }
            let mut sources = [ptr::null(); MAX_RANKS];
            for (member, source) in sources[..world].iter_mut().enumerate() {
                let address = if member == own {
                    DeviceAddress(arguments.sources[own].0 + mine.offset)
                } else {
                    this.inbox_of(member as u32, mine.bytes)
                };
                *source = pointer(address).cast_const();
            }
            let count = (mine.bytes / width) as usize;
            // SAFETY: the own source and the result are live; all senders raised their flags after they wrote their
            // bytes.
            unsafe { reduce(&sources[..world], &[pointer(result)], count, world) };
            pending.stage = arguments.two_shot;
        }
        if pending.stage == 1 {
            let (this, begins) = Use::enter(members, pending);
            if begins {
                let sent = Piece { offset: 0, ..mine };
                for peer in members.peers() {
                    // SAFETY: the result is live, and a piece is not larger than an inbox.
                    unsafe { this.put(peer, result, sent) };
                }
                members.raise_all(this.words(), pending.expected);
            }
            match members.wait_for_all(this.words(), pending) {
                WaitOutcome::Go => {}
                WaitOutcome::Blocked(sleep) => return Step::Blocked(sleep),
                WaitOutcome::GaveUp => return Step::Done,
            }
            for peer in members.peers() {
                let received = piece(peer as usize);
                let to = arguments.destinations[peer as usize].0 + received.offset;
                let inbox = this.inbox_of(peer, received.bytes);
                // SAFETY: the destination is live; the sender raised its flag after it wrote the bytes.
                unsafe { copies::copy(DeviceAddress(to), inbox, received.bytes) };
            }
            pending.stage = 0;
        }
        pending.round += 1;
    }
    Step::Done
}
