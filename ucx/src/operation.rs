//! Operations in flight, and how their completion is reported.

use crate::atomics::Awaited;
use crate::failure::Failure;
use crate::key::Key;
use crate::library::Library;
use crate::table::{self, Started, Status};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// State of an [`Operation`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Not complete yet; call [`crate::Worker::progress`].
    Pending,
    /// Complete.
    Done,
    /// Ended without effect, or with an unknown one.
    Failed(Failure),
}

/// A started operation. Completes in [`crate::Worker::progress`].
///
/// Dropping a pending one neither stops nor waits for it: memory of the caller that it uses must stay valid until it is
/// complete, or until its endpoint was closed with `force` and that close is complete.
#[must_use = "an operation may still use the caller's memory, and may fail"]
pub struct Operation(State);

enum State {
    Done,
    Failed(Failure),
    Started(Arc<Pending>),
    /// Complete when all are.
    All(Vec<Operation>),
}

/// The peer of an endpoint, as operations and UCX's callbacks see it.
pub(crate) struct Peer {
    pub library: Library,
    pub label: u32,
    /// The status with which UCX reported the endpoint's failure, or 0.
    pub failed: AtomicI32,
    /// Operations of the worker that are not complete.
    pub in_flight: Arc<AtomicUsize>,
    /// Atomic operations of the worker.
    pub awaited: Arc<Awaited>,
}

impl Peer {
    pub fn failure(&self) -> Option<Failure> {
        match self.failed.load(Ordering::Acquire) as Status {
            table::OK => None,
            status => Some(self.failed_call("endpoint", status)),
        }
    }

    /// Describes a failed call. A canceled operation of a failed endpoint has the endpoint's status.
    pub fn failed_call(&self, call: &'static str, status: Status) -> Failure {
        let cause = match (status, self.failed.load(Ordering::Acquire) as Status) {
            (table::CANCELED, failed) if failed != table::OK => failed,
            (status, _) => status,
        };
        Failure::new(self.library.table(), call, cause).with_peer(self.label)
    }
}

/// What UCX reads or writes until an operation is complete, and what must not be released before.
#[derive(Default)]
pub(crate) struct Kept {
    pub _key: Option<Arc<Key>>,
    /// Header and data of a message.
    pub bytes: Vec<u8>,
    /// The endpoint, if it is being closed.
    pub _closing: Option<Closing>,
}

/// An endpoint that is being closed: UCX may call its error handler, with this peer as argument, until it is.
pub(crate) struct Closing(pub Arc<Peer>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.awaited.fail(Some(&self.0), table::CANCELED);
    }
}

/// An operation, shared by its [`Operation`] and UCX's callback.
pub(crate) struct Pending {
    pub peer: Arc<Peer>,
    call: &'static str,
    status: AtomicI32,
    /// Only the completion accesses it.
    kept: UnsafeCell<Kept>,
}

// SAFETY: `kept` is accessed once, by the completion, under the context's lock.
unsafe impl Send for Pending {}
// SAFETY: as above; the other fields are immutable or atomic.
unsafe impl Sync for Pending {}

impl Operation {
    /// Returns whether the operation is complete. Takes no lock.
    pub fn poll(&self) -> Poll {
        match &self.0 {
            State::Done => Poll::Done,
            State::Failed(failure) => Poll::Failed(failure.clone()),
            State::Started(pending) => match pending.status.load(Ordering::Acquire) as Status {
                table::IN_PROGRESS => Poll::Pending,
                table::OK => Poll::Done,
                status => Poll::Failed(pending.peer.failed_call(pending.call, status)),
            },
            State::All(all) => {
                let mut states = all.iter().map(Self::poll);
                let first = states.find(|state| *state != Poll::Done);
                first.unwrap_or(Poll::Done)
            }
        }
    }

    /// Returns an operation that is complete when this one and the others are. The first one that is not complete, or
    /// has failed, decides.
    pub(crate) fn with(self, others: Vec<Arc<Pending>>) -> Self {
        if others.is_empty() {
            return self;
        }
        let others = others.into_iter().map(Self::of);
        Self(State::All([self].into_iter().chain(others).collect()))
    }

    pub(crate) fn of(pending: Arc<Pending>) -> Self {
        Self(State::Started(pending))
    }

    pub(crate) fn done() -> Self {
        Self(State::Done)
    }

    pub(crate) fn failed(failure: Failure) -> Self {
        Self(State::Failed(failure))
    }

    /// Starts an operation: `start` passes [`completed`] and its argument to UCX as callback and user data. What is
    /// `kept` is dropped when the operation is complete; buffers in it do not move. The caller holds the context's
    /// lock.
    ///
    /// # Errors
    /// The call failed; nothing was started.
    pub(crate) fn start(
        peer: &Arc<Peer>,
        call: &'static str,
        kept: Kept,
        start: impl FnOnce(*mut c_void) -> table::StatusPointer,
    ) -> Result<Self, Failure> {
        let pending = Pending::new(peer, call, kept);
        let for_callback = Arc::into_raw(pending.clone());
        let started = Started::of(start(for_callback.cast_mut().cast()));
        if matches!(started, Started::Request) {
            return Ok(Self::of(pending));
        }
        // SAFETY: made by `into_raw` above; UCX does not call back for a call that ended at once.
        drop(unsafe { Arc::from_raw(for_callback) });
        match started {
            Started::Failed(status) => {
                pending.complete(status);
                Err(peer.failed_call(call, status))
            }
            _ => {
                pending.complete(table::OK);
                Ok(Self::done())
            }
        }
    }
}

impl Pending {
    pub fn new(peer: &Arc<Peer>, call: &'static str, kept: Kept) -> Arc<Self> {
        peer.in_flight.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self {
            peer: peer.clone(),
            call,
            status: AtomicI32::new(table::IN_PROGRESS.into()),
            kept: UnsafeCell::new(kept),
        })
    }

    /// Completes the operation. Called once, under the context's lock.
    pub fn complete(&self, status: Status) {
        // SAFETY: only this function accesses it, once, when UCX has no more use for it.
        drop(std::mem::take(unsafe { &mut *self.kept.get() }));
        self.status.store(status.into(), Ordering::Release);
        self.peer.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Completion callback of every operation.
///
/// # Safety
/// UCX calls it once for an operation that was started with it, with the argument that [`Operation::start`] passed.
pub(crate) unsafe extern "C" fn completed(
    request: *mut c_void,
    status: Status,
    user_data: *mut c_void,
) {
    // SAFETY: `Operation::start` made it by `into_raw`, and this is the only call.
    let pending = unsafe { Arc::from_raw(user_data.cast_const().cast::<Pending>()) };
    pending.complete(status);
    // SAFETY: the request is complete, is freed only here, and is not used afterwards.
    unsafe { (pending.peer.library.table().ucp_request_free)(request) };
}
