//! Operations in flight, and how their completion is reported.

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
}

/// The peer of an endpoint, as operations and UCX's callbacks see it.
pub(crate) struct Peer {
    pub library: Library,
    pub label: u32,
    /// The status with which UCX reported the endpoint's failure, or 0.
    pub failed: AtomicI32,
    /// Operations of the worker that UCX has not called back.
    pub in_flight: Arc<AtomicUsize>,
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
    /// Operand of an atomic.
    pub operand: u64,
    /// Result of an atomic, where the caller wants none.
    pub result: u64,
    /// The argument of the endpoint's error handler, which UCX may call until the endpoint is closed.
    pub _handler: Option<Arc<Peer>>,
}

/// An operation, shared by its [`Operation`] and UCX's callback.
pub(crate) struct Pending {
    peer: Arc<Peer>,
    call: &'static str,
    status: AtomicI32,
    /// Only the function that starts the operation, and later the callback, access it.
    kept: UnsafeCell<Kept>,
}

// SAFETY: `kept` has one user at a time: whoever starts the operation, then UCX, then the callback. All run under the
// context's lock.
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
        }
    }

    pub(crate) fn done() -> Self {
        Self(State::Done)
    }

    pub(crate) fn failed(failure: Failure) -> Self {
        Self(State::Failed(failure))
    }

    /// Starts an operation: `start` passes [`completed`] and the second argument to UCX as callback and user data. What
    /// is `kept` stays at its address until the operation is complete. The caller holds the context's lock.
    ///
    /// # Errors
    /// The call failed; nothing was started.
    pub(crate) fn start(
        peer: &Arc<Peer>,
        call: &'static str,
        kept: Kept,
        start: impl FnOnce(&mut Kept, *mut c_void) -> table::StatusPointer,
    ) -> Result<Self, Failure> {
        let pending = Arc::new(Pending {
            peer: peer.clone(),
            call,
            status: AtomicI32::new(table::IN_PROGRESS.into()),
            kept: UnsafeCell::new(kept),
        });
        let for_callback = Arc::into_raw(pending.clone());
        peer.in_flight.fetch_add(1, Ordering::Relaxed);
        // SAFETY: nobody else knows the operation yet.
        let kept = unsafe { &mut *pending.kept.get() };
        let started = Started::of(start(kept, for_callback.cast_mut().cast()));
        if matches!(started, Started::Request) {
            return Ok(Self(State::Started(pending)));
        }
        peer.in_flight.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: made by `into_raw` above; UCX does not call back for a call that ended at once.
        drop(unsafe { Arc::from_raw(for_callback) });
        match started {
            Started::Failed(status) => Err(peer.failed_call(call, status)),
            _ => Ok(Self::done()),
        }
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
    // SAFETY: UCX has no more use for it, and the function that started the operation has returned.
    drop(std::mem::take(unsafe { &mut *pending.kept.get() }));
    pending.status.store(status.into(), Ordering::Release);
    pending.peer.in_flight.fetch_sub(1, Ordering::Relaxed);
    // SAFETY: the request is complete, is freed only here, and is not used afterwards.
    unsafe { (pending.peer.library.table().ucp_request_free)(request) };
}
