//! Sends and receives: the sender announces where its bytes are; the receiver copies them and acknowledges.
//!
//! Only the two ranks of a pair synchronize: each counts its sends to the other and its receives from it. A rank
//! makes all its announcements before it waits for any peer, and then serves whichever peer is ready, so that rings, sends
//! to itself and ranks that wait for each other by way of third ones do not deadlock.
//!
//! What only the sender can address goes chunk by chunk through the sender's staging.

use super::members::{BESIDE_FLAG, Counter, Direction, Members, WaitOutcome, Words};
use crate::backend::abi::*;
use crate::host::copies;
use crate::host::progress::{Pending, Sleep, Step, long_at};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// [`WaitRecord::kind`]: the sizes of send and receive differ.
const SIZE_DIFFERS: u32 = 4;
/// [`WaitRecord::kind`]: the sent allocation has been released by this rank.
const GIVEN_UP: u32 = 5;

/// Stands for an exchange with a peer that is over, in place of its bytes.
const OVER: u64 = u64::MAX;
/// Longest sleep on one peer's word while others may raise theirs.
const SLEEP_AMONG_SEVERAL: Duration = Duration::from_micros(200);

const _: () = assert!(BESIDE_FLAG >= 16);

/// Maps an address in the table, or one read from it, to an address of this process for a number of bytes; `None` makes
/// the receive give up.
pub type Resolve<'a> = dyn FnMut(DeviceAddress, u64) -> Option<DeviceAddress> + 'a;

/// Advances sends and receives.
///
/// # Safety
/// All memory in `arguments` is live, tokens name rows of the table or live memory of this process, and
/// [`super::Collective::check`] has passed.
pub(crate) unsafe fn advance(
    arguments: &ExchangeArguments,
    pending: &mut Option<Pending>,
    resolve: &mut Resolve<'_>,
) -> Step {
    // SAFETY: the group's memory is live and its numbers are checked, as this function requires.
    let members = unsafe { Members::new(&arguments.group) };
    let call = Call { arguments, members };
    let pending = pending.get_or_insert_with(|| Pending::new(0));
    if pending.begin() {
        // SAFETY: this function has the same conditions.
        unsafe { call.begin() };
    }
    loop {
        let (mut went_on, mut unfinished, mut sleep) = (false, 0, None::<Sleep>);
        for member in 0..members.world() {
            for direction in [Direction::Receive, Direction::Send] {
                if members.done(direction, member).load(Ordering::Relaxed) == OVER {
                    continue;
                }
                unfinished += 1;
                // SAFETY: this function has the same conditions.
                match unsafe { call.step(direction, member, pending, resolve) } {
                    WaitOutcome::Go => went_on = true,
                    WaitOutcome::Blocked(until) => sleep = sleep.or(Some(until)),
                    WaitOutcome::GaveUp => return Step::Done,
                }
            }
        }
        if went_on {
            continue;
        }
        let Some(mut sleep) = sleep else {
            return Step::Done;
        };
        if unfinished > 1 {
            sleep.limit = sleep.limit.min(SLEEP_AMONG_SEVERAL);
        }
        return Step::Blocked(sleep);
    }
}

/// A call, as seen by this rank.
#[derive(Clone, Copy)]
struct Call<'a> {
    arguments: &'a ExchangeArguments,
    members: Members<'a>,
}

impl Call<'_> {
    /// Makes the first announcement to every member that is sent something.
    ///
    /// # Safety
    /// As for [`advance`].
    unsafe fn begin(self) {
        for member in 0..self.members.world() {
            let done = |direction, is_over: bool| {
                let done = if is_over { OVER } else { 0 };
                let place = self.members.done(direction, member);
                place.store(done, Ordering::Relaxed);
            };
            let sends = self.arguments.send_tokens[member as usize] != NO_TOKEN;
            let receives = self.arguments.destinations[member as usize] != NO_TOKEN;
            done(Direction::Send, !sends);
            done(Direction::Receive, !receives);
            if sends {
                // SAFETY: this function has the same conditions.
                unsafe { self.announce(member, 0) };
            }
            if receives {
                self.members.count(Counter::ReceiptsFrom(member));
            }
        }
    }

    /// Takes the next step of an exchange with a member, if the member is ready.
    ///
    /// # Safety
    /// As for [`advance`].
    unsafe fn step(
        self,
        direction: Direction,
        member: u32,
        pending: &mut Pending,
        resolve: &mut Resolve<'_>,
    ) -> WaitOutcome {
        let members = self.members;
        let (words, counter) = match direction {
            Direction::Send => (Words::Received, Counter::SendsTo(member)),
            Direction::Receive => (Words::Announced, Counter::ReceiptsFrom(member)),
        };
        pending.expected = members.counted(counter);
        match members.wait(words, member, pending) {
            WaitOutcome::Go => {}
            other => return other,
        }
        let place = members.done(direction, member);
        let before = place.load(Ordering::Relaxed);
        // SAFETY: this function has the same conditions.
        let now = unsafe {
            match direction {
                Direction::Send => Some(self.go_on(member, before)),
                Direction::Receive => self.receive(member, before, pending, resolve),
            }
        };
        let Some(now) = now else {
            return WaitOutcome::GaveUp;
        };
        place.store(now, Ordering::Relaxed);
        WaitOutcome::Go
    }

    /// Returns the bytes of the chunk that begins at `begin` of `bytes`.
    fn chunk(self, begin: u64, bytes: u64) -> u64 {
        (bytes - begin).min(self.arguments.chunk_bytes.into())
    }

    /// Returns what is done after the chunk that begins at `begin` of `bytes`.
    fn after(self, begin: u64, bytes: u64) -> u64 {
        match begin + self.chunk(begin, bytes) {
            end if end < bytes => end,
            _ => OVER,
        }
    }

    /// Announces to a member where its bytes are; those from `begin` on, if only this rank can address them.
    ///
    /// The member has received the previous announcement: the call that made it waited for that.
    ///
    /// # Safety
    /// As for [`advance`].
    unsafe fn announce(self, member: u32, begin: u64) {
        let Self { arguments, members } = self;
        let token = arguments.send_tokens[member as usize];
        let bytes = arguments.send_bytes[member as usize];
        if let Some(own) = ExchangeArguments::own_address(token) {
            let staged = members.staged(arguments, members.rank(), member);
            let chunk = self.chunk(begin, bytes);
            // SAFETY: this rank's memory and its staging, which has room for a chunk, are live.
            unsafe { copies::copy(staged, DeviceAddress(own.0 + begin), chunk) };
        }
        let announcement = members.beside_theirs(Words::Announced, member);
        // SAFETY: these 16 bytes follow a word, are aligned to 8, and only this rank writes them.
        unsafe {
            long_at(announcement).store(token, Ordering::Relaxed);
            long_at(DeviceAddress(announcement.0 + 8)).store(bytes, Ordering::Relaxed);
        }
        let number = members.count(Counter::SendsTo(member));
        members.raise(Words::Announced, member, number);
    }

    /// Announces the next chunk, after the member has received the one that begins at `begin`. Returns what is done.
    ///
    /// # Safety
    /// As for [`advance`].
    unsafe fn go_on(self, member: u32, begin: u64) -> u64 {
        let token = self.arguments.send_tokens[member as usize];
        if ExchangeArguments::own_address(token).is_none() {
            return OVER;
        }
        let next = self.after(begin, self.arguments.send_bytes[member as usize]);
        if next != OVER {
            // SAFETY: this function has the same conditions.
            unsafe { self.announce(member, next) };
        }
        next
    }

    /// Receives what a peer has announced: all, or the chunk that begins at `begin`. Returns what is done; `None` after a
    /// failure that left a record.
    ///
    /// # Safety
    /// As for [`advance`].
    unsafe fn receive(
        self,
        peer: u32,
        begin: u64,
        pending: &Pending,
        resolve: &mut Resolve<'_>,
    ) -> Option<u64> {
        let Self { arguments, members } = self;
        let announcement = members.beside_own(Words::Announced, peer);
        // SAFETY: these 16 bytes follow a word and are aligned to 8; the peer raised its word after it wrote them.
        let (token, sent) = unsafe {
            (
                long_at(announcement).load(Ordering::Relaxed),
                long_at(DeviceAddress(announcement.0 + 8)).load(Ordering::Relaxed),
            )
        };
        let expected = arguments.receive_bytes[peer as usize];
        let fails = |kind, expected: u64, seen: u64| {
            let saturated = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
            members.record(&WaitRecord {
                kind,
                peer: members.number_of(peer),
                expected: saturated(expected),
                seen: saturated(seen),
                elapsed_ns: pending.elapsed_ns(),
                ..WaitRecord::default()
            });
        };
        if sent != expected {
            fails(SIZE_DIFFERS, expected, sent);
            return None;
        }
        let destination = DeviceAddress(arguments.destinations[peer as usize] + begin);
        let (source, bytes, done) = if ExchangeArguments::own_address(token).is_some() {
            let staged = members.staged(arguments, peer, members.rank());
            (staged, self.chunk(begin, sent), self.after(begin, sent))
        } else {
            let row = token >> TOKEN_OFFSET_BITS;
            let offset = token & ((1 << TOKEN_OFFSET_BITS) - 1);
            let number =
                row * u64::from(arguments.table_ranks) + u64::from(members.number_of(peer));
            let entry = resolve(DeviceAddress(arguments.table.0 + 8 * number), 8)?;
            // SAFETY: `resolve` returned an address of this process for an entry of the table, which only this rank
            // writes, by whole words.
            let base = unsafe { long_at(entry) }.load(Ordering::Relaxed);
            if base == 0 && sent != 0 {
                // This rank has unmapped the allocation, so there is nothing to load; see `symmem/exchange.h`.
                fails(GIVEN_UP, 0, 0);
                return None;
            }
            (resolve(DeviceAddress(base + offset), sent)?, sent, OVER)
        };
        if source != destination {
            // SAFETY: the destination is live; the source is the peer's staging, which is, or an address of this process
            // for `sent` bytes.
            unsafe { copies::copy(destination, source, bytes) };
        }
        members.raise(
            Words::Received,
            peer,
            members.counted(Counter::ReceiptsFrom(peer)),
        );
        if done != OVER {
            members.count(Counter::ReceiptsFrom(peer));
        }
        Some(done)
    }
}
