//! Communicators that symmem serves, by the handles that programs have of them.

use crate::abi::{self, Comm};
use crate::call::{Call, Kind};
use crate::counts::Counts;
use crate::failure::Failure;
use crate::library;
use crate::report;
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, RwLock};
use symmem::backend::Device;
use symmem::backend::abi::{RawEvent, RawStream};
use symmem::{Algorithm, CollectiveCall, CollectiveOptions, Communicator, Provider, Queue, Stream};

/// A rank of a communicator that symmem serves.
pub struct Member {
    pub communicator: Communicator,
    /// Whether the program's handle is NCCL's; else it stands for nothing but this.
    pub has_nccl: bool,
    pub agreed: Agreed,
    pub counts: Counts,
    order: Mutex<Order>,
}

/// What all ranks of a communicator agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Whether NCCL has a communicator of all ranks.
    pub has_nccl: bool,
    /// Most bytes of a call that symmem does, if the user set them.
    pub most_bytes: Option<u64>,
}

/// The streams of a communicator's calls. Calls follow one another on all of them, as NCCL's do.
#[derive(Default)]
struct Order {
    streams: HashMap<u64, Stream>,
    last: Option<RawStream>,
    event: Option<RawEvent>,
}

/// Most bytes of a call by LL packets, which carry as many bytes again as flags, if NCCL could do it. An assumption: above,
/// it has not been measured on two GPUs.
const MOST_BY_LL: u64 = 1 << 20;

static MEMBERS: RwLock<BTreeMap<usize, Arc<Member>>> = RwLock::new(BTreeMap::new());

/// Enters a member under the program's handle.
pub fn add(comm: Comm, member: Member) {
    let mut members = MEMBERS.write().unwrap_or_else(PoisonError::into_inner);
    members.insert(comm.addr(), Arc::new(member));
}

/// Returns the member of a handle; `None` if symmem does not serve it.
pub fn find(comm: Comm) -> Option<Arc<Member>> {
    let members = MEMBERS.read().unwrap_or_else(PoisonError::into_inner);
    members.get(&comm.addr()).cloned()
}

/// Removes the member of a handle.
pub fn take(comm: Comm) -> Option<Arc<Member>> {
    let mut members = MEMBERS.write().unwrap_or_else(PoisonError::into_inner);
    members.remove(&comm.addr())
}

/// Returns all members.
pub fn all() -> Vec<Arc<Member>> {
    let members = MEMBERS.read().unwrap_or_else(PoisonError::into_inner);
    members.values().cloned().collect()
}

impl Member {
    pub fn new(communicator: Communicator, has_nccl: bool, agreed: Agreed) -> Self {
        Self {
            communicator,
            has_nccl,
            agreed,
            counts: Counts::default(),
            order: Mutex::default(),
        }
    }

    /// Returns whether symmem does this call. The same on all ranks.
    pub fn does(&self, call: &Call) -> bool {
        if !self.agreed.has_nccl {
            return true;
        }
        let Some((element, size, operator)) = call.types() else {
            return false;
        };
        // The bytes of one rank, or of all.
        let parts = match call.kind {
            Kind::AllReduce | Kind::Reduce | Kind::Broadcast => 1,
            Kind::ReduceScatter | Kind::AllGather | Kind::AllToAll => {
                self.communicator.world_size()
            }
        };
        let Some(bytes) = (call.count as u64).checked_mul((size * parts) as u64) else {
            return false;
        };
        if bytes == 0 {
            return true;
        }
        if let Some(most) = self.agreed.most_bytes {
            return bytes <= most;
        }
        let question = CollectiveCall {
            reduce: operator,
            own_memory: true,
            ..CollectiveCall::new(call.kind.operation(), bytes, element)
        };
        let options = CollectiveOptions::new().provider(Provider::Symmem);
        let choice = self.communicator.explain_call(&question, &options);
        match choice.map(|choice| choice.algorithm()) {
            Ok(Algorithm::Lamport) => true,
            Ok(Algorithm::Ll | Algorithm::LlTwoShot) => bytes <= MOST_BY_LL,
            _ => false,
        }
    }

    fn order(&self) -> MutexGuard<'_, Order> {
        // Each change of it is one assignment or insertion.
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enqueues on a stream of the program's, behind what was enqueued before on any.
    ///
    /// # Errors
    /// The call's, or the driver's.
    ///
    /// # Safety
    /// The stream belongs to the rank's device, and lives as long as the communicator.
    pub unsafe fn enqueue(
        &self,
        stream: abi::Stream,
        call: impl FnOnce(&Queue) -> symmem::Result<()>,
    ) -> Result<(), Failure> {
        let raw = RawStream(stream.addr() as u64);
        let mut order = self.order();
        if let Some(last) = order.last.filter(|last| *last != raw) {
            // SAFETY: both streams live, as the caller guarantees; the event is this member's own.
            unsafe { self.follow(&mut order, last, raw) }
                .map_err(|failure| Failure::new(abi::UNHANDLED_CUDA_ERROR, failure.to_string()))?;
        }
        let stream = (order.streams.entry(raw.0))
            // SAFETY: guaranteed by the caller.
            .or_insert_with(|| unsafe { self.communicator.stream_from_raw(raw.0) });
        call(stream)?;
        order.last = Some(raw);
        Ok(())
    }

    /// Makes `next` wait for what is enqueued on `last`. Work that is being captured runs in another order: there the
    /// program orders its graphs.
    ///
    /// # Safety
    /// Both streams live.
    unsafe fn follow(
        &self,
        order: &mut Order,
        last: RawStream,
        next: RawStream,
    ) -> symmem::backend::CallResult<()> {
        // SAFETY: nothing of the communicator's is destroyed here; the event is made and used here only. Both streams live.
        unsafe {
            let backend = self.communicator.backend();
            if backend.stream_capturing(last)? || backend.stream_capturing(next)? {
                return Ok(());
            }
            let event = match order.event {
                Some(event) => event,
                None => *order.event.insert(backend.event_create()?),
            };
            backend.event_record(event, last)?;
            backend.stream_wait_event(next, event)
        }
    }

    /// Returns whether all its streams have done their work.
    pub fn is_idle(&self) -> bool {
        let order = self.order();
        (order.streams.values()).all(|stream| stream.is_idle().unwrap_or(false))
    }
}

/// Takes a member apart if no other thread is in a call on it; else that thread drops it.
fn opened(member: Arc<Member>) -> Option<Communicator> {
    let Member {
        communicator,
        order,
        ..
    } = Arc::into_inner(member)?;
    let order = order.into_inner().unwrap_or_else(PoisonError::into_inner);
    for stream in order.streams.values() {
        // A failure is told by `ncclCommGetAsyncError`, and the communicator goes all the same.
        let _ = stream.synchronize();
    }
    if let Some(event) = order.event {
        // SAFETY: made by `follow`, and nothing else knows it. A failure cannot be handled here.
        let _ = unsafe { communicator.backend().event_destroy(event) };
    }
    Some(communicator)
}

/// Leaves with all other ranks, as `ncclCommDestroy` does: blocks until the work is done and they have called it too, for at
/// most the deadline of a setup.
pub fn leave(member: Arc<Member>) {
    let rank = member.communicator.rank();
    let ended = opened(member).map(Communicator::finalize);
    if let Some(Err(error)) = ended {
        report::line(&format!("rank {rank} left without its peers: {error}"));
    }
}

/// Leaves at once, as `ncclCommAbort` does. Work that is under way ends on all ranks.
pub fn abandon(member: Arc<Member>) {
    if member.communicator.check().is_err() || !member.is_idle() {
        member.communicator.abort();
    }
    drop(opened(member));
}

/// Set to 1, it asks for the number of calls of each communicator when it ends.
const VARIABLE: &str = "SYMMEM_NCCL_REPORT";

/// Prints a communicator's counts, if that is asked for.
pub fn ended(member: &Member) {
    if std::env::var(VARIABLE).is_ok_and(|value| value == "1") {
        let communicator = &member.communicator;
        let nccl = match library::nccl() {
            Ok(nccl) if member.has_nccl => format!("beside {}", nccl.name),
            _ => "without NCCL".into(),
        };
        report::line(&format!(
            "rank {} of {}, {nccl}: {}",
            communicator.rank(),
            communicator.world_size(),
            member.counts.text()
        ));
    }
}

/// Makes the process report at its exit what it has not ended by then.
pub fn report_at_exit() {
    unsafe extern "C" {
        // Of the C library.
        fn atexit(function: extern "C" fn()) -> c_int;
    }
    extern "C" fn report() {
        // A panic cannot leave a function that C calls.
        let _ = std::panic::catch_unwind(|| all().iter().for_each(|one| ended(one)));
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function lives as long as this library, which the C library keeps in mind for `atexit`. Without room
        // for it, nothing is reported.
        unsafe { atexit(report) };
    });
}

/// Checks that a communicator is one that NCCL knows.
///
/// # Errors
/// If symmem serves it without NCCL, so that it cannot do `name`.
pub fn check(name: &str, comm: Comm) -> Result<(), Failure> {
    match find(comm) {
        Some(member) if !member.has_nccl => {
            let message = format!("{name} needs NCCL, which has no such communicator");
            Err(Failure::new(abi::INVALID_USAGE, message))
        }
        _ => Ok(()),
    }
}
