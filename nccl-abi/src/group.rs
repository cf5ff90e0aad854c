//! Groups: calls between `ncclGroupStart` and `ncclGroupEnd` of a thread, which happen at the end.

use crate::abi::{self, Code, IN_PROGRESS, SUCCESS};
use crate::call::Call;
use crate::failure::{Failure, of_nccl, run};
use crate::join::Join;
use crate::library;
use crate::member::{self, Member};
use crate::report;
use std::cell::RefCell;
use std::sync::Arc;

#[derive(Default)]
struct Group {
    /// Groups in groups.
    depth: u32,
    /// With the reason why NCCL has made none.
    joins: Vec<(Join, Option<Failure>)>,
    calls: Vec<(Arc<Member>, Call)>,
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
        match GROUP.with_borrow(|group| group.depth > 0) {
            true => {
                GROUP.with_borrow_mut(|group| group.calls.push((member, call)));
                Ok(())
            }
            // SAFETY: guaranteed by the caller.
            false => unsafe { member.perform(&call) },
        }
    })
}

/// Joins a communicator, at once or at the end of the thread's group. `nccl` makes NCCL's, if there is an NCCL that can.
///
/// # Errors
/// As [`Join::finish`].
///
/// # Safety
/// The place for the handle is writable until the end of the group.
pub unsafe fn join(
    join: Join,
    nccl: Result<impl FnOnce() -> Code, Failure>,
) -> Result<(), Failure> {
    let made = nccl.map(|nccl| nccl());
    if GROUP.with_borrow(|group| group.depth > 0) {
        // NCCL tells at the end what went wrong.
        let code = *made.as_ref().unwrap_or(&SUCCESS);
        GROUP.with_borrow_mut(|group| group.joins.push((join, made.err())));
        return of_nccl(code);
    }
    match made {
        Ok(IN_PROGRESS) => {
            early();
            of_nccl(IN_PROGRESS)
        }
        made => join.finish(made.and_then(of_nccl)),
    }
}

/// Tells that a communicator is left to NCCL, since it is not ready when the call returns.
pub fn early() {
    report::line("a communicator whose calls may return early: NCCL does all calls");
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
    if nccl == IN_PROGRESS && !ended.joins.is_empty() {
        early();
        return of_nccl(nccl);
    }
    // What is wrong with NCCL's communicator is not wrong with one that symmem serves alone.
    let mut outcome = match ended.joins.is_empty() {
        true => of_nccl(nccl).or_else(|failure| match failure.code {
            IN_PROGRESS => Ok(()),
            _ => Err(failure),
        }),
        false => join_all(ended.joins, nccl),
    };
    // SAFETY: guaranteed by the caller.
    outcome = outcome.and(unsafe { perform_all(&ended.calls) });
    outcome?;
    match nccl {
        IN_PROGRESS => of_nccl(nccl),
        _ => Ok(()),
    }
}

/// Joins the ranks of a group, which ended with this code of NCCL's.
fn join_all(joins: Vec<(Join, Option<Failure>)>, code: Code) -> Result<(), Failure> {
    // One thread that has several ranks would wait in the first for the second.
    if joins.len() > 1 {
        report::line("a thread has several ranks, so NCCL serves them");
        return library::nccl().map(drop).and_then(|()| of_nccl(code));
    }
    joins
        .into_iter()
        .try_for_each(|(join, without)| join.finish(without.map_or_else(|| of_nccl(code), Err)))
}

/// Does the calls of a group. Those of a communicator start when all their streams have come, and end on all at once.
///
/// # Safety
/// As [`dispatch`] for each call.
unsafe fn perform_all(calls: &[(Arc<Member>, Call)]) -> Result<(), Failure> {
    let mut outcome = Ok(());
    let mut done: Vec<*const Member> = Vec::new();
    for (member, _) in calls {
        if done.contains(&Arc::as_ptr(member)) {
            continue;
        }
        done.push(Arc::as_ptr(member));
        let its_calls = || {
            let of_member = calls.iter().filter(|(other, _)| Arc::ptr_eq(other, member));
            of_member.map(|(_, call)| call)
        };
        let mut streams = Vec::new();
        for call in its_calls() {
            if !streams.contains(&call.stream) {
                streams.push(call.stream);
            }
        }
        // SAFETY: guaranteed by the caller.
        unsafe {
            outcome = outcome.and(member.gather(&streams));
            for call in its_calls() {
                outcome = outcome.and(member.perform(call));
            }
            if let Some(last) = its_calls().next_back() {
                outcome = outcome.and(member.spread(last.stream, &streams));
            }
        }
    }
    outcome
}
