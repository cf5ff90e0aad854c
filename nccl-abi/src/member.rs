//! Communicators that symmem serves, by the handles that programs have of them.

use crate::abi::{self, Comm};
use crate::call::Call;
use crate::choice::{Agreed, Choices};
use crate::counts::Counts;
use crate::device;
use crate::failure::Failure;
use crate::library;
use crate::reentry;
use crate::report;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use symmem::backend::abi::{RawEvent, RawStream};
use symmem::backend::{CallResult, Device};
use symmem::{Communicator, Queue, Stream};

/// A rank of a communicator that symmem serves.
pub struct Member {
    pub communicator: Communicator,
    /// Whether the program's handle is NCCL's; else it stands for nothing but this.
    pub has_nccl: bool,
    pub agreed: Agreed,
    pub counts: Counts,
    choices: Choices,
    order: Mutex<Order>,
}

/// The streams of a communicator's calls. Calls follow one another on all of them, as NCCL's do; so do those of a capture.
#[derive(Default)]
struct Order {
    streams: HashMap<u64, Stream>,
    /// The stream of the last call that was not captured.
    last: Option<RawStream>,
    /// By capture that is under way, the stream of its last call. Two captures that one event joins are both invalid.
    captured: HashMap<u64, RawStream>,
    event: Option<RawEvent>,
}

static MEMBERS: RwLock<BTreeMap<usize, Arc<Member>>> = RwLock::new(BTreeMap::new());

/// Enters a member under the program's handle.
pub fn add(comm: Comm, member: Member) {
    let mut members = MEMBERS.write().unwrap_or_else(PoisonError::into_inner);
    members.insert(comm.addr(), Arc::new(member));
}

/// Returns the member of a handle; `None` if symmem does not serve it, and for calls that NCCL makes of itself.
pub fn find(comm: Comm) -> Option<Arc<Member>> {
    if reentry::is_nccls() {
        return None;
    }
    let members = MEMBERS.read().unwrap_or_else(PoisonError::into_inner);
    members.get(&comm.addr()).cloned()
}

/// Removes the member of a handle, and returns it as [`find`] does.
pub fn take(comm: Comm) -> Option<Arc<Member>> {
    if reentry::is_nccls() {
        return None;
    }
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
            choices: Choices::default(),
            order: Mutex::default(),
        }
    }

    /// Returns whether symmem does this call. The same on all ranks.
    pub fn does(&self, call: &Call) -> bool {
        self.choices.does(&self.communicator, &self.agreed, call)
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
        // SAFETY: the caller's streams live, and nothing of the communicator's is destroyed here.
        unsafe {
            let capture = self.capture(raw).map_err(of_driver)?;
            let last = match capture {
                Some(capture) => {
                    if !order.captured.contains_key(&capture) {
                        let is_in = |stream, capture| self.capture(stream).ok() == Some(capture);
                        (order.captured).retain(|capture, stream| is_in(*stream, Some(*capture)));
                    }
                    order.captured.insert(capture, raw)
                }
                None => order.last.replace(raw),
            };
            if let Some(last) = last.filter(|last| *last != raw) {
                (self.follow(&mut order, last, raw, capture)).map_err(of_driver)?;
            }
        }
        let stream = (order.streams.entry(raw.0))
            // SAFETY: guaranteed by the caller.
            .or_insert_with(|| unsafe { self.communicator.stream_from_raw(raw.0) });
        Ok(call(stream)?)
    }

    /// Returns the number of the capture that a stream is in; `None` if it is not being captured.
    ///
    /// # Safety
    /// The stream lives.
    unsafe fn capture(&self, stream: RawStream) -> CallResult<Option<u64>> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let is_captured = self.communicator.backend().stream_capturing(stream)?;
            Ok(is_captured.then(|| device::capture(stream)))
        }
    }

    /// Makes `next`, which is in this `capture` or in none, wait for what is enqueued on `last`, if that is in the same.
    ///
    /// # Safety
    /// Both streams live.
    unsafe fn follow(
        &self,
        order: &mut Order,
        last: RawStream,
        next: RawStream,
        capture: Option<u64>,
    ) -> CallResult<()> {
        // SAFETY: nothing of the communicator's is destroyed here; the event is made and used here only. Both streams live.
        unsafe {
            // The driver does not tell it of the default stream while another stream captures.
            if self.capture(last).ok() != Some(capture) {
                return Ok(());
            }
            let backend = self.communicator.backend();
            let event = match order.event {
                Some(event) => event,
                None => *order.event.insert(backend.event_create()?),
            };
            backend.event_record(event, last)?;
            backend.stream_wait_event(next, event)
        }
    }

    /// Makes the first of several streams wait for the others: a group starts when all its streams have come.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// The streams live.
    pub unsafe fn gather(&self, streams: &[abi::Stream]) -> Result<(), Failure> {
        let Some((first, others)) = streams.split_first() else {
            return Ok(());
        };
        for other in others {
            // SAFETY: guaranteed by the caller.
            unsafe { self.wait(*first, *other) }?;
        }
        Ok(())
    }

    /// Makes several streams wait for the last call: a group ends on all its streams at once.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// The streams live.
    pub unsafe fn spread(&self, last: abi::Stream, streams: &[abi::Stream]) -> Result<(), Failure> {
        for stream in streams.iter().filter(|stream| **stream != last) {
            // SAFETY: guaranteed by the caller.
            unsafe { self.wait(*stream, last) }?;
        }
        Ok(())
    }

    /// Makes one stream wait for another, if both are in the same capture or neither is in one.
    ///
    /// # Safety
    /// Both streams live.
    unsafe fn wait(&self, next: abi::Stream, last: abi::Stream) -> Result<(), Failure> {
        let [next, last] = [next, last].map(|stream| RawStream(stream.addr() as u64));
        let mut order = self.order();
        // SAFETY: guaranteed by the caller; nothing of the communicator's is destroyed here.
        unsafe {
            let capture = self.capture(next).map_err(of_driver)?;
            self.follow(&mut order, last, next, capture)
        }
        .map_err(of_driver)
    }

    /// Ends what waits for peers, on all ranks, unless nothing does. Does not block.
    pub fn stop(&self) {
        let is_idle = || {
            // A thread that is in a call may wait in the driver for room.
            let Ok(order) = self.order.try_lock() else {
                return false;
            };
            let mut streams = order.streams.values();
            streams.all(|stream| stream.is_idle().unwrap_or(false))
        };
        if self.communicator.check().is_err() || !is_idle() {
            self.communicator.abort();
        }
    }
}

fn of_driver(failure: symmem::backend::Failure) -> Failure {
    Failure::new(abi::UNHANDLED_CUDA_ERROR, failure.to_string())
}

/// Time for other threads to leave their calls on a communicator that ends.
const OTHERS: Duration = Duration::from_secs(10);

/// Takes a member apart once its work is done and no other thread is in a call on it.
fn opened(mut member: Arc<Member>) -> Option<Communicator> {
    let start = Instant::now();
    let Member {
        communicator,
        order,
        ..
    } = loop {
        match Arc::try_unwrap(member) {
            Ok(member) => break member,
            // The last of the other threads drops it.
            Err(_) if start.elapsed() > OTHERS => return None,
            Err(shared) => member = shared,
        }
        std::thread::sleep(Duration::from_millis(1));
    };
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

/// Threads that leave, each with a rank.
static LEAVING: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

/// Time for which `ncclCommDestroy` waits for the other ranks. One thread may have to end several ranks, one by one.
const TOGETHER: Duration = Duration::from_millis(500);

/// Leaves in good order: blocks until the work is done. All ranks leave together, on a thread for each that waits for the
/// others; this waits a moment for it, so that usually nothing is left when it returns.
pub fn leave(member: Arc<Member>) {
    let rank = member.communicator.rank();
    let Some(communicator) = opened(member) else {
        return;
    };
    let leaving = std::thread::spawn(move || {
        if let Err(error) = communicator.finalize() {
            report::line(&format!("rank {rank} left without its peers: {error}"));
        }
    });
    wait_until(Instant::now() + TOGETHER, || leaving.is_finished());
    let mut all = LEAVING.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|one| !one.is_finished());
    all.push(leaving);
}

fn wait_until(end: Instant, done: impl Fn() -> bool) {
    while !done() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Leaves at once, after [`Member::stop`].
pub fn abandon(member: Arc<Member>) {
    drop(opened(member));
}

/// Prints a communicator's counts, if that is asked for.
pub fn ended(member: &Member) {
    if report::is_asked() {
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

/// Reports, at the process's exit, what it has not ended by then.
pub fn report_all() {
    all().iter().for_each(|one| ended(one));
    // The driver ends with the process, and no thread may be in it then.
    let leaving = std::mem::take(&mut *LEAVING.lock().unwrap_or_else(PoisonError::into_inner));
    let end = Instant::now() + OTHERS;
    wait_until(end, || leaving.iter().all(JoinHandle::is_finished));
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
