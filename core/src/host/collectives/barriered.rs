//! The families that work between two barriers: copies, swaps, and reductions.

use super::super::operation::Step;
use super::super::signals::Pending;
use super::super::transfer;
use super::arithmetic::reduction;
use super::members::{Members, Turn};
use crate::backend::abi::*;
use std::ptr;

/// Copies, between two barriers.
///
/// # Safety
/// All memory that it names is live, and its numbers are in range.
pub(super) unsafe fn advance_move(
    arguments: &MoveArguments,
    pending: &mut Option<Pending>,
) -> Step {
    // SAFETY: the caller's word.
    unsafe { advance_each(arguments, pending, transfer::copy) }
}

/// Swaps of destinations with sources, between two barriers.
///
/// # Safety
/// As [`advance_move`].
pub(super) unsafe fn advance_swap(
    arguments: &MoveArguments,
    pending: &mut Option<Pending>,
) -> Step {
    // SAFETY: the caller's word.
    unsafe { advance_each(arguments, pending, transfer::swap) }
}

/// Calls `each(destination, source, bytes)` for all but copies onto themselves, between two barriers.
///
/// # Safety
/// As [`advance_move`]; that is all that `each` takes.
#[inline]
unsafe fn advance_each(
    arguments: &MoveArguments,
    pending: &mut Option<Pending>,
    each: unsafe fn(DeviceAddress, DeviceAddress, u64),
) -> Step {
    // SAFETY: the caller's word.
    let members = unsafe { Members::new(&arguments.group) };
    between_barriers(members, pending, || {
        for copy in 0..arguments.copies as usize {
            let (to, from) = (arguments.destinations[copy], arguments.sources[copy]);
            if to != from {
                // SAFETY: the caller's word.
                unsafe { each(to, from, arguments.bytes[copy]) };
            }
        }
    })
}

/// A reduction, between two barriers.
///
/// # Safety
/// As [`advance_move`].
pub(super) unsafe fn advance_reduce(
    arguments: &ReduceArguments,
    pending: &mut Option<Pending>,
) -> Step {
    // SAFETY: the caller's word.
    let members = unsafe { Members::new(&arguments.group) };
    between_barriers(members, pending, || {
        let Some(reduce) = reduction(arguments.element, arguments.reduce) else {
            return;
        };
        let world = members.world() as usize;
        let mut sources = [ptr::null(); MAX_RANKS];
        let mut destinations = [ptr::null_mut(); MAX_RANKS];
        for (source, address) in sources[..world].iter_mut().zip(&arguments.sources) {
            *source = pointer(*address).cast_const();
        }
        // The own first, then the next member's, so that not all store to the same one.
        let rank = members.rank() as usize;
        let mut known = 0;
        for member in (rank..world).chain(0..rank) {
            if arguments.destinations[member].0 != 0 {
                destinations[known] = pointer(arguments.destinations[member]);
                known += 1;
            }
        }
        // SAFETY: the caller's word.
        unsafe {
            reduce(
                &sources[..world],
                &destinations[..known],
                arguments.count as usize,
            )
        };
    })
}

/// The pointer to an address.
#[inline]
pub(super) fn pointer(address: DeviceAddress) -> *mut u8 {
    ptr::with_exposed_provenance_mut(address.0 as usize)
}

/// Does `work` once all members are here, and ends when all have done theirs.
#[inline]
fn between_barriers(
    members: Members<'_>,
    pending: &mut Option<Pending>,
    work: impl FnOnce(),
) -> Step {
    let pending = pending.get_or_insert_with(|| Pending::new(0));
    if pending.stage == 0 {
        match members.barrier(pending) {
            Turn::Go => {}
            Turn::Blocked(sleep) => return Step::Blocked(sleep),
            Turn::GaveUp => return Step::Done,
        }
        work();
        pending.stage = 1;
    }
    match members.barrier(pending) {
        Turn::Blocked(sleep) => Step::Blocked(sleep),
        Turn::Go | Turn::GaveUp => Step::Done,
    }
}
