//! Communicators that symmem does not serve: their calls are counted, if a report is asked for.

use crate::abi::{Comm, SUCCESS};
use crate::call::Kind;
use crate::counts::{Counts, OF_NCCL};
use crate::exit::at_exit;
use crate::{library, member, reentry, report};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A communicator that symmem does not serve.
struct Unserved {
    /// Rank and number of ranks, if NCCL told them.
    place: Option<(c_int, c_int)>,
    counts: Counts,
}

/// Communicators that symmem does not serve, by handle, from their first counted call on. Empty unless a report is asked for.
static UNSERVED: Mutex<BTreeMap<usize, Arc<Unserved>>> = Mutex::new(BTreeMap::new());

fn unserved() -> MutexGuard<'static, BTreeMap<usize, Arc<Unserved>>> {
    // Each change of it is one insertion or removal.
    UNSERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a collective on a communicator that symmem does not serve.
///
/// # Safety
/// The communicator is NCCL's.
pub unsafe fn add(comm: Comm, kind: Kind) {
    if report::is_asked() && !reentry::is_nccls() {
        // SAFETY: guaranteed by the caller.
        unsafe { entry(comm) }.counts.add(kind, false);
    }
}

/// Counts a call of a function that NCCL alone does.
///
/// # Safety
/// The communicator is NCCL's.
pub unsafe fn add_forwarded(comm: Comm, name: &str) {
    if !report::is_asked() || reentry::is_nccls() || !OF_NCCL.contains(&name) {
        return;
    }
    match member::find(comm) {
        Some(member) => member.counts.add_forwarded(name),
        // SAFETY: guaranteed by the caller.
        None => unsafe { entry(comm) }.counts.add_forwarded(name),
    }
}

/// Returns the entry of a communicator that symmem does not serve, made by the first call.
///
/// # Safety
/// The communicator is NCCL's.
unsafe fn entry(comm: Comm) -> Arc<Unserved> {
    if let Some(known) = unserved().get(&comm.addr()) {
        return known.clone();
    }
    at_exit(report_all);
    let made = Arc::new(Unserved {
        // SAFETY: guaranteed by the caller.
        place: unsafe { place(comm) },
        counts: Counts::default(),
    });
    unserved().entry(comm.addr()).or_insert(made).clone()
}

/// Asks NCCL for rank and number of ranks.
///
/// # Safety
/// The communicator is NCCL's, or null, which NCCL refuses.
unsafe fn place(comm: Comm) -> Option<(c_int, c_int)> {
    let table = &library::nccl().ok()?.table;
    let (mut rank, mut world) = (0, 0);
    // SAFETY: the pointers are to numbers on this stack; the rest is guaranteed by the caller.
    let codes = unsafe {
        [
            table.ncclCommUserRank?(comm, &mut rank),
            table.ncclCommCount?(comm, &mut world),
        ]
    };
    (codes == [SUCCESS; 2]).then_some((rank, world))
}

/// Prints the counts of a communicator that symmem does not serve and that ends, if that is asked for.
///
/// # Safety
/// The communicator is NCCL's, and lives.
pub unsafe fn report_end(comm: Comm) {
    if report::is_asked() && !reentry::is_nccls() {
        // SAFETY: guaranteed by the caller.
        let ended = unsafe { entry(comm) };
        unserved().remove(&comm.addr());
        ended.report();
    }
}

/// Prints the counts of all communicators that symmem does not serve and that have not ended.
fn report_all() {
    let all = std::mem::take(&mut *unserved());
    all.values().for_each(|one| one.report());
}

impl Unserved {
    fn report(&self) {
        let place = match self.place {
            Some((rank, world)) => format!("rank {rank} of {world}"),
            None => "a communicator".into(),
        };
        let nccl = library::nccl().map_or("NCCL", |nccl| nccl.name.as_str());
        report::line(&format!("{place}, {nccl} alone: {}", self.counts.text()));
    }
}
