//! Sends and receives: the sender announces the address of its bytes; the receiver loads them and acknowledges.
//!
//! Only the two ranks of a pair synchronize: each counts its sends to the other and its receives from it. A rank
//! makes all its announcements before it waits for any peer, so that rings and sends to itself do not deadlock.

use super::members::{BESIDE_FLAG, Counter, Members, WaitOutcome, Words};
use crate::backend::abi::*;
use crate::host::copies;
use crate::host::progress::{Pending, Step, long_at};
use std::sync::atomic::Ordering;

/// The bits of a token above these are the row of the table; the bits below are the offset.
const OFFSET_BITS: u32 = 48;
/// [`WaitRecord::kind`]: the sizes of send and receive differ.
const SIZE_DIFFERS: u32 = 4;
/// [`WaitRecord::kind`]: the sent allocation has been released by this rank.
const GIVEN_UP: u32 = 5;

const ANNOUNCE: u32 = 0;
const RECEIVE: u32 = 1;
const WAIT_FOR_RECEIPTS: u32 = 2;

const _: () = assert!(BESIDE_FLAG >= 16);

/// Advances sends and receives. `resolve` maps an address in the table, or one read from it, to an address of this
/// process for a number of bytes; `None` makes the receive give up.
///
/// # Safety
/// All memory in `arguments` is live, tokens name rows of the table, and [`super::Collective::check`] has passed.
pub(crate) unsafe fn advance(
    arguments: &ExchangeArguments,
    pending: &mut Option<Pending>,
    mut resolve: impl FnMut(DeviceAddress, u64) -> Option<DeviceAddress>,
) -> Step {
    // SAFETY: the group's memory is live and its numbers are checked, as this function requires.
    let members = unsafe { Members::new(&arguments.group) };
    let pending = pending.get_or_insert_with(|| Pending::new(0));
    if pending.stage == ANNOUNCE {
        for member in 0..members.world() {
            let token = arguments.send_tokens[member as usize];
            if token != NO_TOKEN {
                // SAFETY: this function has the same conditions.
                unsafe {
                    announce(
                        members,
                        member,
                        token,
                        arguments.send_bytes[member as usize],
                    )
                };
            }
        }
        pending.stage = RECEIVE;
    }
    while pending.stage < WAIT_FOR_RECEIPTS + 1 {
        while pending.peer < members.world() {
            let member = pending.peer as usize;
            let turn = if pending.stage == RECEIVE {
                if arguments.destinations[member] == NO_TOKEN {
                    WaitOutcome::Go
                } else {
                    // SAFETY: this function has the same conditions.
                    unsafe { receive(arguments, members, pending, &mut resolve) }
                }
            } else if arguments.send_tokens[member] == NO_TOKEN {
                WaitOutcome::Go
            } else {
                if pending.begin() {
                    pending.expected = members.counted(Counter::SendsTo(pending.peer));
                }
                members.wait(Words::Received, pending.peer, pending)
            };
            match turn {
                WaitOutcome::Go => pending.next_peer(),
                WaitOutcome::Blocked(sleep) => return Step::Blocked(sleep),
                WaitOutcome::GaveUp => return Step::Done,
            }
        }
        pending.end();
        pending.stage += 1;
    }
    Step::Done
}

/// Announces to a member where its bytes are.
///
/// The member has received the previous announcement: the call that made it waited for that.
///
/// # Safety
/// As for [`advance`].
unsafe fn announce(members: Members<'_>, member: u32, token: u64, bytes: u64) {
    let announcement = members.beside_theirs(Words::Announced, member);
    // SAFETY: these 16 bytes follow a word, are aligned to 8, and only this rank writes them.
    unsafe {
        long_at(announcement).store(token, Ordering::Relaxed);
        long_at(DeviceAddress(announcement.0 + 8)).store(bytes, Ordering::Relaxed);
    }
    let number = members.count(Counter::SendsTo(member));
    members.raise(Words::Announced, member, number);
}

/// Receives from the peer that `pending` waits for, once that peer has made its announcement.
///
/// # Safety
/// As for [`advance`].
unsafe fn receive(
    arguments: &ExchangeArguments,
    members: Members<'_>,
    pending: &mut Pending,
    resolve: &mut impl FnMut(DeviceAddress, u64) -> Option<DeviceAddress>,
) -> WaitOutcome {
    let peer = pending.peer;
    if pending.begin() {
        pending.expected = members.count(Counter::ReceiptsFrom(peer));
    }
    match members.wait(Words::Announced, peer, pending) {
        WaitOutcome::Go => {}
        other => return other,
    }
    let announcement = members.beside_own(Words::Announced, peer);
    // SAFETY: these 16 bytes follow a word and are aligned to 8; the peer raised its word after it wrote them.
    let (token, sent) = unsafe {
        (
            long_at(announcement).load(Ordering::Relaxed),
            long_at(DeviceAddress(announcement.0 + 8)).load(Ordering::Relaxed),
        )
    };
    let expected = arguments.receive_bytes[peer as usize];
    if sent != expected {
        let saturated = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        members.record(&WaitRecord {
            kind: SIZE_DIFFERS,
            peer: members.number_of(peer),
            expected: saturated(expected),
            seen: saturated(sent),
            elapsed_ns: pending.elapsed_ns(),
            ..WaitRecord::default()
        });
        return WaitOutcome::GaveUp;
    }
    let (row, offset) = (token >> OFFSET_BITS, token & ((1 << OFFSET_BITS) - 1));
    let number = row * u64::from(arguments.table_ranks) + u64::from(members.number_of(peer));
    let Some(entry) = resolve(DeviceAddress(arguments.table.0 + 8 * number), 8) else {
        return WaitOutcome::GaveUp;
    };
    // SAFETY: `resolve` returned an address of this process for an entry of the table, which only this rank
    // writes, by whole words.
    let base = unsafe { long_at(entry) }.load(Ordering::Relaxed);
    if base == 0 && sent != 0 {
        // This rank has unmapped the allocation, so there is nothing to load; see `symmem/exchange.h`.
        members.record(&WaitRecord {
            kind: GIVEN_UP,
            peer: members.number_of(peer),
            elapsed_ns: pending.elapsed_ns(),
            ..WaitRecord::default()
        });
        return WaitOutcome::GaveUp;
    }
    let Some(source) = resolve(DeviceAddress(base + offset), sent) else {
        return WaitOutcome::GaveUp;
    };
    let destination = DeviceAddress(arguments.destinations[peer as usize]);
    if source != destination {
        // SAFETY: the destination is live, and `resolve` returned an address of this process for `sent` bytes.
        unsafe { copies::copy(destination, source, sent) };
    }
    members.raise(Words::Received, peer, pending.expected);
    WaitOutcome::Go
}
