//! Collectives between two barriers: copies, swaps, reductions, and emulated multicast.

use super::arithmetic::reduction;
use super::members::{Members, WaitOutcome};
use crate::backend::abi::*;
use crate::host::copies;
use crate::host::progress::{Pending, Step};
use std::ptr;

/// Advances copies between two barriers.
///
/// # Safety
/// All memory in `arguments` is live, and [`super::Collective::check`] has passed.
pub(crate) unsafe fn advance_move(
    arguments: &MoveArguments,
    pending: &mut Option<Pending>,
) -> Step {
    // SAFETY: this function has the same conditions.
    unsafe { advance_each(arguments, pending, copies::copy) }
}

/// Advances swaps between two barriers, of each destination with its source.
///
/// # Safety
/// As for [`advance_move`].
pub(crate) unsafe fn advance_swap(
    arguments: &MoveArguments,
    pending: &mut Option<Pending>,
) -> Step {
    // SAFETY: this function has the same conditions.
    unsafe { advance_each(arguments, pending, copies::swap) }
}

/// Calls `each(destination, source, bytes)` between two barriers, for all copies except those onto themselves.
///
/// # Safety
/// As for [`advance_move`]; `each` may require that and no more.
#[inline]
unsafe fn advance_each(
    arguments: &MoveArguments,
    pending: &mut Option<Pending>,
    each: unsafe fn(DeviceAddress, DeviceAddress, u64),
) -> Step {
    // SAFETY: the group's memory is live and its numbers are checked, as this function requires.
    let members = unsafe { Members::new(&arguments.group) };
    between_barriers(members, pending, || {
        for copy in 0..arguments.copies as usize {
            let (to, from) = (arguments.destinations[copy], arguments.sources[copy]);
            if to != from {
                // SAFETY: both ranges are live, as this function requires.
                unsafe { each(to, from, arguments.bytes[copy]) };
            }
        }
    })
}

/// Advances a reduction between two barriers.
///
/// # Safety
/// As for [`advance_move`].
pub(crate) unsafe fn advance_reduce(
    arguments: &ReduceArguments,
    pending: &mut Option<Pending>,
) -> Step {
    // SAFETY: the group's memory is live and its numbers are checked, as this function requires.
    let members = unsafe { Members::new(&arguments.group) };
    between_barriers(members, pending, || {
        let reduced = Reduced {
            element: arguments.element,
            reduce: arguments.reduce,
            count: arguments.count,
            sources: &arguments.sources,
            destinations: &arguments.destinations,
        };
        // SAFETY: sources and destinations are live, as this function requires.
        unsafe { reduced.run(members) };
    })
}

/// Advances a multicast collective between two barriers, emulated through the members' own addresses.
///
/// # Safety
/// As for [`advance_move`].
pub(crate) unsafe fn advance_multicast(
    arguments: &MulticastArguments,
    pending: &mut Option<Pending>,
) -> Step {
    // SAFETY: the group's memory is live and its numbers are checked, as this function requires.
    let members = unsafe { Members::new(&arguments.group) };
    between_barriers(members, pending, || {
        let (rank, world) = (members.rank() as usize, members.world() as usize);
        let mut destinations = arguments.destinations;
        if arguments.store == MulticastStore::OWN {
            destinations = [DeviceAddress::NULL; MAX_RANKS];
            destinations[rank] = arguments.destinations[rank];
        }
        if arguments.load == MulticastLoad::REDUCED {
            let reduced = Reduced {
                element: arguments.element,
                reduce: arguments.reduce,
                count: arguments.count,
                sources: &arguments.sources,
                destinations: &destinations,
            };
            // SAFETY: sources and destinations are live, as this function requires.
            unsafe { reduced.run(members) };
            return;
        }
        let (from, bytes) = (
            arguments.sources[rank],
            arguments.count * arguments.element.bytes(),
        );
        for member in (rank..world).chain(0..rank) {
            let to = destinations[member];
            if to.0 != 0 && to != from {
                // SAFETY: source and destination are live, as this function requires.
                unsafe { copies::copy(to, from, bytes) };
            }
        }
    })
}

/// A reduction of all members' elements.
struct Reduced<'a> {
    element: ElementTypeCode,
    reduce: ReduceOpCode,
    count: u64,
    sources: &'a [DeviceAddress; MAX_RANKS],
    /// An address in each member's memory, or 0 for none.
    destinations: &'a [DeviceAddress; MAX_RANKS],
}

impl Reduced<'_> {
    /// # Safety
    /// All sources and destinations are live for `count` elements.
    #[inline]
    unsafe fn run(&self, members: Members<'_>) {
        let Some(reduce) = reduction(self.element, self.reduce) else {
            return;
        };
        let world = members.world() as usize;
        let mut sources = [ptr::null(); MAX_RANKS];
        let mut destinations = [ptr::null_mut(); MAX_RANKS];
        for (source, address) in sources[..world].iter_mut().zip(self.sources) {
            *source = pointer(*address).cast_const();
        }
        // Starts at the own destination and goes on with the next member's, so that not all ranks store to the same
        // member.
        let rank = members.rank() as usize;
        let mut known = 0;
        for member in (rank..world).chain(0..rank) {
            if self.destinations[member].0 != 0 {
                destinations[known] = pointer(self.destinations[member]);
                known += 1;
            }
        }
        // SAFETY: all ranges have `count` live elements, as this function requires.
        unsafe {
            reduce(
                &sources[..world],
                &destinations[..known],
                self.count as usize,
                world,
            )
        };
    }
}

/// Converts an address to a pointer.
#[inline]
pub(crate) fn pointer(address: DeviceAddress) -> *mut u8 {
    ptr::with_exposed_provenance_mut(address.0 as usize)
}

/// Does `work` once all members have arrived, and ends when all have finished theirs.
#[inline]
fn between_barriers(
    members: Members<'_>,
    pending: &mut Option<Pending>,
    work: impl FnOnce(),
) -> Step {
    let pending = pending.get_or_insert_with(|| Pending::new(0));
    if pending.stage == 0 {
        match members.barrier(pending) {
            WaitOutcome::Go => {}
            WaitOutcome::Blocked(sleep) => return Step::Blocked(sleep),
            WaitOutcome::GaveUp => return Step::Done,
        }
        work();
        pending.stage = 1;
    }
    match members.barrier(pending) {
        WaitOutcome::Blocked(sleep) => Step::Blocked(sleep),
        WaitOutcome::Go | WaitOutcome::GaveUp => Step::Done,
    }
}
