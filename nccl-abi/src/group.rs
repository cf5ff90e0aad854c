//! Groups: calls between `ncclGroupStart` and `ncclGroupEnd` of a thread, which happen at the end.

use crate::abi::{self, IN_PROGRESS, SUCCESS};
use crate::call::Call;
use crate::failure::{Failure, of_nccl};
use crate::join::Join;
use crate::library;
use crate::member;
use std::cell::RefCell;

#[derive(Default)]
struct Group {
    /// Groups in groups.
    depth: u32,
    joins: Vec<Join>,
    calls: Vec<Call>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// Keeps a call for the end of the thread's group. Returns false if there is none.
pub fn defer(call: Call) -> bool {
    GROUP.with_borrow_mut(|group| {
        let inside = group.depth > 0;
        group.calls.extend(inside.then_some(call));
        inside
    })
}

/// Returns whether this thread is in a group.
pub fn is_open() -> bool {
    GROUP.with_borrow(|group| group.depth > 0)
}

/// Keeps a rank that joins for the end of the thread's group.
pub fn defer_join(join: Join) {
    GROUP.with_borrow_mut(|group| group.joins.push(join));
}

/// Begins a group.
///
/// # Errors
/// NCCL's.
pub fn start() -> Result<(), Failure> {
    if let Ok(nccl) = library::nccl() {
        // SAFETY: any thread may begin a group.
        of_nccl(unsafe { (nccl.table.ncclGroupStart)() })?;
    }
    GROUP.with_borrow_mut(|group| group.depth += 1);
    Ok(())
}

/// Ends a group: NCCL's calls, then symmem's, in the order in which the program made them.
///
/// # Errors
/// The first failure of a call, or that no group is open.
///
/// # Safety
/// As [`Call::dispatch`] for each call of the group.
pub unsafe fn end() -> Result<(), Failure> {
    // The group itself if this ends the outermost one.
    let ended = GROUP.with_borrow_mut(|group| {
        let depth = group.depth.checked_sub(1);
        let depth = depth.ok_or_else(|| Failure::new(abi::INVALID_USAGE, "no group is open"))?;
        group.depth = depth;
        Ok::<_, Failure>((depth == 0).then(|| std::mem::take(group)))
    })?;
    let nccl = match library::nccl() {
        // SAFETY: this thread began the group.
        Ok(nccl) => unsafe { (nccl.table.ncclGroupEnd)() },
        Err(_) => SUCCESS,
    };
    let Some(ended) = ended else {
        return of_nccl(nccl);
    };
    // What is wrong with NCCL's communicator is not wrong with one that symmem serves alone.
    let mut outcome = match ended.joins.is_empty() {
        true => of_nccl(nccl).or_else(|failure| match failure.code {
            IN_PROGRESS => Ok(()),
            _ => Err(failure),
        }),
        false => Join::all(ended.joins, nccl),
    };
    for call in ended.calls {
        let Some(member) = member::find(call.comm) else {
            continue;
        };
        // SAFETY: guaranteed by the caller.
        outcome = outcome.and(unsafe { call.enqueue(&member) });
    }
    outcome?;
    match nccl {
        IN_PROGRESS => of_nccl(nccl),
        _ => Ok(()),
    }
}
