//! Groups: calls between `ncclGroupStart` and `ncclGroupEnd` of a thread, which happen at the end.

use crate::abi::{self, Code, IN_PROGRESS, SUCCESS};
use crate::call::Call;
use crate::failure::{Failure, of_nccl, run};
use crate::forwarded::by_nccl;
use crate::join::Join;
use crate::library::{self, function};
use crate::member::{self, Member};
use crate::{reentry, report, unserved};
use std::cell::RefCell;
use std::ffi::c_void;
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
/// The memory is on the rank's device and has the elements that the call says, until the stream has passed the work; for
/// NCCL, the arguments keep its rules.
pub unsafe fn dispatch(call: Call) -> Code {
    run(call.kind.name(), || {
        let Some(member) = member::find(call.comm) else {
            // SAFETY: guaranteed by the caller; a communicator that symmem does not serve is NCCL's.
            return unsafe {
                if !call.comm.is_null() && library::nccl().is_ok() {
                    unserved::add(call.comm, call.kind);
                }
                by_nccl(&call)
            };
        };
        if !member.does(&call) {
            member.counts.add(call.kind, false);
            // SAFETY: guaranteed by the caller.
            return unsafe { by_nccl(&call) };
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
    if reentry::is_nccls() {
        return made.and_then(of_nccl);
    }
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
    if !reentry::is_nccls() {
        GROUP.with_borrow_mut(|group| group.depth += 1);
    }
    Ok(())
}

/// Leaves a group. Returns the group itself if it is the outermost one.
///
/// # Errors
/// If no group is open.
fn leave() -> Result<Option<Group>, Failure> {
    GROUP.with_borrow_mut(|group| {
        let depth = group.depth.checked_sub(1);
        let depth = depth.ok_or_else(|| Failure::new(abi::INVALID_USAGE, "no group is open"))?;
        group.depth = depth;
        Ok((depth == 0).then(|| std::mem::take(group)))
    })
}

/// Ends a group: NCCL's calls, then symmem's, in the order in which the program made them.
///
/// # Errors
/// The first failure of a call, or that no group is open.
///
/// # Safety
/// As [`dispatch`] for each call of the group.
pub unsafe fn end() -> Result<(), Failure> {
    // NCCL's groups in calls that it makes of itself are no groups of the program's.
    let ended = match reentry::is_nccls() {
        true => None,
        false => leave()?,
    };
    let nccl = match library::nccl() {
        // SAFETY: this thread began the group.
        Ok(nccl) => unsafe { (nccl.table.ncclGroupEnd)() },
        Err(_) => SUCCESS,
    };
    let Some(ended) = ended else {
        return of_nccl(nccl);
    };
    let first = match (nccl, ended.joins.is_empty()) {
        (IN_PROGRESS, true) => Ok(()),
        (IN_PROGRESS, false) => {
            early();
            Ok(())
        }
        (code, true) => of_nccl(code),
        // NCCL may refuse a communicator that symmem serves alone.
        (code, false) => join_all(ended.joins, code),
    };
    // Also after a failure: peers that had none have enqueued their part, which waits for this rank's.
    // SAFETY: guaranteed by the caller.
    let second = unsafe { perform_all(&ended.calls) };
    first.and(second)?;
    match nccl {
        IN_PROGRESS => of_nccl(nccl),
        _ => Ok(()),
    }
}

/// Ends a group without doing its calls: NCCL tells how long they would take it. Symmem's calls go to NCCL for that, and
/// nobody does them.
///
/// # Errors
/// If no group is open, or there is no NCCL to ask; NCCL's.
///
/// # Safety
/// As [`dispatch`] for each call of the group; `information` is as NCCL wants it.
pub unsafe fn simulate_end(information: *mut c_void) -> Result<(), Failure> {
    let nccl = function("ncclGroupSimulateEnd", |table| table.ncclGroupSimulateEnd);
    if reentry::is_nccls() {
        // SAFETY: guaranteed by the caller.
        return of_nccl(unsafe { nccl?(information) });
    }
    if nccl.is_err() && library::nccl().is_ok() {
        // An NCCL without the function keeps its group open, and so does this library.
        return nccl.map(drop);
    }
    let ended = leave()?;
    let nccl = nccl?;
    let mut outcome = Ok(());
    if let Some(ended) = ended {
        if !ended.joins.is_empty() {
            report::line("a communicator made in a simulated group: NCCL does all calls");
        }
        let known = (ended.calls.iter()).filter(|(member, _)| member.agreed.has_nccl);
        for (_, call) in known {
            // SAFETY: guaranteed by the caller; all ranks have a communicator of NCCL's.
            keep_first(&mut outcome, unsafe { by_nccl(call) });
        }
    }
    // SAFETY: guaranteed by the caller; this thread began the group.
    keep_first(&mut outcome, of_nccl(unsafe { nccl(information) }));
    outcome
}

/// Joins the ranks of a group, which ended with this code of NCCL's. Joins go on after a failure, since peers wait in each.
fn join_all(mut joins: Vec<(Join, Option<Failure>)>, code: Code) -> Result<(), Failure> {
    let identifier = |(join, _): &(Join, Option<Failure>)| join.identifier.0;
    // All ranks join in the same order, else each of two could wait for the other in another communicator.
    joins.sort_by_key(identifier);
    let mut outcome = Ok(());
    for same in joins.chunk_by_mut(|one, other| identifier(one) == identifier(other)) {
        let joined = match same {
            [(join, without)] => join.finish(without.take().map_or_else(|| of_nccl(code), Err)),
            // One thread that has several ranks would wait in the first for the second.
            _ => {
                report::line("a thread has several ranks of a communicator, so NCCL serves them");
                library::nccl().map(drop).and_then(|()| of_nccl(code))
            }
        };
        keep_first(&mut outcome, joined);
    }
    outcome
}

/// Takes over a failure, unless there was one before.
fn keep_first(outcome: &mut Result<(), Failure>, next: Result<(), Failure>) {
    if outcome.is_ok() {
        *outcome = next;
    }
}

/// Does the calls of a group, also those behind one that fails, since peers wait in each. Those of a communicator start
/// when all their streams have come, and end on all at once.
///
/// # Errors
/// The first failure.
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
            keep_first(&mut outcome, member.gather(&streams));
            for call in its_calls() {
                keep_first(&mut outcome, member.perform(call));
            }
            if let Some(last) = its_calls().next_back() {
                keep_first(&mut outcome, member.spread(last.stream, &streams));
            }
        }
    }
    outcome
}
