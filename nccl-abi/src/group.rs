//! Groups: calls between `ncclGroupStart` and `ncclGroupEnd` of a thread, which happen at the end.

use crate::abi::{self, Code, IN_PROGRESS, SUCCESS};
use crate::call::Call;
use crate::failure::{Failure, of_nccl, run};
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

/// Does a call, or lets NCCL do it, at once or at the end of the thread's group.
///
/// # Safety
/// The memory is on the rank's device and has the elements that the call says, until the stream has passed the work.
pub unsafe fn dispatch(call: Call, nccl: impl FnOnce() -> Result<(), Failure>) -> Code {
    run(call.kind.name(), || {
        let Some(member) = member::find(call.comm) else {
            return nccl();
        };
        if !member.does(&call) {
            member.counts.add(call.kind, false);
            return nccl();
        }
        let inside = GROUP.with_borrow_mut(|group| {
            let inside = group.depth > 0;
            group.calls.extend(inside.then_some(call));
            inside
        });
        match inside {
            true => Ok(()),
            // SAFETY: guaranteed by the caller.
            false => unsafe { member.perform(&call) },
        }
    })
}

/// Joins a communicator, at once or at the end of the thread's group. `nccl` makes NCCL's; `None` if there is no NCCL.
///
/// # Errors
/// As [`Join::finish`].
///
/// # Safety
/// The place for the handle is writable until the end of the group.
pub unsafe fn join(join: Join, nccl: Option<impl FnOnce() -> Code>) -> Result<(), Failure> {
    let made = nccl.map(|nccl| nccl());
    if GROUP.with_borrow(|group| group.depth > 0) {
        GROUP.with_borrow_mut(|group| group.joins.push(join));
        // NCCL tells at the end what went wrong.
        return made.map_or(Ok(()), of_nccl);
    }
    join.finish(made.map_or_else(|| library::nccl().map(drop), of_nccl))
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
/// As [`dispatch`] for each call of the group.
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
        outcome = outcome.and(unsafe { member.perform(&call) });
    }
    outcome?;
    match nccl {
        IN_PROGRESS => of_nccl(nccl),
        _ => Ok(()),
    }
}
