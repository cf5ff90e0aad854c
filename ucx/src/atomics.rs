//! Atomic operations, as messages that the owner of the word executes in its progress.
//!
//! UCX has atomics of its own, which are not used: from 1.16 on, an endpoint that reports the death of its peer has
//! none (no protocol for them can be aborted). These are also atomic with the owner's CPU, which atomics of a network
//! device need not be.

use crate::context::ContextShared;
use crate::endpoint::Atomic;
use crate::messages::{REPLY, REQUEST};
use crate::operation::{Kept, Operation, Peer, Pending};
use crate::table::{self, Handle, HandlerParameters, ReceiveParameters, RequestParameters, Status};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A request, as sent: little endian, like both machines that symmem supports.
const REQUEST_BYTES: usize = 40;
const REPLY_BYTES: usize = 24;

/// The executing side of a worker, at an address that UCX knows.
pub(crate) struct Atomics {
    context: Arc<ContextShared>,
    pub awaited: Arc<Awaited>,
    /// The peer of replies: UCX made the endpoint.
    requester: Arc<Peer>,
}

/// Operations whose reply has not arrived.
#[derive(Default)]
pub(crate) struct Awaited {
    next: AtomicU64,
    operations: Mutex<HashMap<u64, Expected>>,
}

struct Expected {
    pending: Arc<Pending>,
    /// Null, or where to store the earlier value.
    result: *mut u8,
    bits: u32,
}

// SAFETY: whoever started the operation has promised that the result is writable until it is complete, whichever thread
// completes it.
unsafe impl Send for Expected {}

impl Awaited {
    /// Starts an operation that a reply completes; returns it and the number for the reply.
    pub fn insert(&self, peer: &Arc<Peer>, result: *mut u8, bits: u32) -> (u64, Arc<Pending>) {
        let pending = Pending::new(peer, "atomic", Kept::default());
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        let expected = Expected {
            pending: pending.clone(),
            result,
            bits,
        };
        self.locked().insert(token, expected);
        (token, pending)
    }

    /// Completes an operation. A number that is not awaited belongs to an operation that has failed.
    pub fn complete(&self, token: u64, earlier: u64, status: Status) {
        let Some(expected) = self.locked().remove(&token) else {
            return;
        };
        if status == table::OK && !expected.result.is_null() {
            // SAFETY: the caller of the operation has promised an aligned, writable word until it is complete.
            unsafe {
                match expected.bits {
                    32 => expected.result.cast::<u32>().write(earlier as u32),
                    _ => expected.result.cast::<u64>().write(earlier),
                }
            }
        }
        expected.pending.complete(status);
    }

    /// Fails all operations of a peer, or of all.
    pub fn fail(&self, peer: Option<&Peer>, status: Status) {
        self.locked().retain(|_, expected| {
            let concerned = peer.is_none_or(|peer| ptr::eq(&*expected.pending.peer, peer));
            if concerned {
                expected.pending.complete(status);
            }
            !concerned
        });
    }

    /// Returns the operations of a peer.
    pub fn of(&self, peer: &Peer) -> Vec<Arc<Pending>> {
        let operations = self.locked();
        let all = operations.values().map(|expected| &expected.pending);
        all.filter(|pending| ptr::eq(&*pending.peer, peer))
            .cloned()
            .collect()
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Expected>> {
        self.operations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// An update, as it travels.
pub(crate) struct Request {
    pub token: u64,
    pub address: u64,
    pub operand: u64,
    pub compare: u64,
    pub update: Atomic,
    pub bits: u32,
}

impl Request {
    /// Sends the request to a peer's worker. The caller holds the context's lock.
    pub fn send(&self, peer: &Arc<Peer>, endpoint: Handle) -> crate::Result<Operation> {
        let mut bytes = Vec::with_capacity(REQUEST_BYTES);
        for word in [self.token, self.address, self.operand, self.compare] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend((self.update as u32).to_le_bytes());
        bytes.extend(self.bits.to_le_bytes());
        send(
            peer,
            endpoint,
            REQUEST,
            bytes,
            table::SEND_EAGER | table::SEND_REPLY,
        )
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; REQUEST_BYTES] = bytes.try_into().ok()?;
        let last = word(bytes, 4);
        Some(Self {
            token: word(bytes, 0),
            address: word(bytes, 1),
            operand: word(bytes, 2),
            compare: word(bytes, 3),
            update: Atomic::of_number(last as u32)?,
            bits: (last >> 32) as u32,
        })
    }

    /// Executes the update and returns the earlier value.
    fn execute(&self, context: &ContextShared) -> Result<u64, Status> {
        let (address, bytes) = (self.address as usize, self.bits as usize / 8);
        if !matches!(bytes, 4 | 8) || !address.is_multiple_of(bytes) {
            return Err(table::INVALID_PARAM);
        }
        let registration = context.registration(address, bytes);
        let registration = registration.ok_or(table::INVALID_ADDRESS)?;
        if !registration.host {
            return Err(table::UNSUPPORTED);
        }
        // SAFETY: registered memory stays mapped and only raw pointers refer to it. The word is aligned, as checked.
        unsafe {
            match bytes {
                4 => self.apply_32(AtomicU32::from_ptr(address as *mut u32)),
                _ => self.apply_64(AtomicU64::from_ptr(address as *mut u64)),
            }
        }
    }
}

macro_rules! apply {
    ($name:ident, $word:ty, $number:ty) => {
        fn $name(&self, word: &$word) -> Result<u64, Status> {
            let (operand, order) = (self.operand as $number, Ordering::SeqCst);
            let earlier = match self.update {
                Atomic::Add | Atomic::FetchAdd => word.fetch_add(operand, order),
                Atomic::And | Atomic::FetchAnd => word.fetch_and(operand, order),
                Atomic::Or | Atomic::FetchOr => word.fetch_or(operand, order),
                Atomic::Xor | Atomic::FetchXor => word.fetch_xor(operand, order),
                Atomic::Swap => word.swap(operand, order),
                Atomic::CompareSwap => {
                    let compare = self.compare as $number;
                    match word.compare_exchange(compare, operand, order, order) {
                        Ok(earlier) | Err(earlier) => earlier,
                    }
                }
            };
            Ok(earlier.into())
        }
    };
}

impl Request {
    apply!(apply_32, AtomicU32, u32);
    apply!(apply_64, AtomicU64, u64);
}

/// Returns a word of a message.
fn word(bytes: &[u8], index: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[8 * index..8 * index + 8]);
    u64::from_le_bytes(word)
}

/// Sends a header without data.
fn send(
    peer: &Arc<Peer>,
    endpoint: Handle,
    identifier: u32,
    bytes: Vec<u8>,
    flags: u32,
) -> crate::Result<Operation> {
    let kept = Kept {
        bytes,
        ..Kept::default()
    };
    let (header, length) = (kept.bytes.as_ptr(), kept.bytes.len());
    let start = |user_data| {
        let parameters = RequestParameters {
            attributes: table::COMPLETION | table::WITH_FLAGS,
            flags,
            user_data,
            ..RequestParameters::new()
        };
        // SAFETY: the endpoint is open, and the header is kept until the operation is complete.
        unsafe {
            (peer.library.table().ucp_am_send_nbx)(
                endpoint,
                identifier,
                header.cast(),
                length,
                header.cast(),
                0,
                &raw const parameters,
            )
        }
    };
    Operation::start(peer, "ucp_am_send_nbx", kept, start)
}

impl Atomics {
    pub fn new(context: &Arc<ContextShared>, in_flight: &Arc<AtomicUsize>) -> Self {
        let awaited = Arc::<Awaited>::default();
        let requester = Peer {
            library: context.library.clone(),
            label: u32::MAX,
            failed: AtomicI32::new(0),
            in_flight: in_flight.clone(),
            awaited: awaited.clone(),
        };
        Self {
            context: context.clone(),
            awaited,
            requester: Arc::new(requester),
        }
    }

    /// Tells UCX the handlers. They stay at their address until the worker is closed.
    pub fn set(&self, worker: Handle) -> Status {
        for (identifier, callback) in [
            (REQUEST, requested as table::MessageCallback),
            (REPLY, replied),
        ] {
            let parameters = HandlerParameters {
                field_mask: 1 | 1 << 2 | 1 << 3,
                id: identifier,
                flags: 0,
                callback: Some(callback),
                argument: ptr::from_ref(self).cast_mut().cast(),
            };
            // SAFETY: the worker is open, and has this structure as long as it is.
            let status = unsafe {
                (self.context.table().ucp_worker_set_am_recv_handler)(worker, &raw const parameters)
            };
            if status != table::OK {
                return status;
            }
        }
        table::OK
    }
}

/// UCX's callback for requests.
///
/// # Safety
/// UCX calls it inside of progress with the [`Atomics`] that were set, and a message.
unsafe extern "C" fn requested(
    atomics: *mut c_void,
    header: *const c_void,
    header_length: usize,
    _data: *mut c_void,
    _length: usize,
    parameters: *const ReceiveParameters,
) -> Status {
    // SAFETY: the worker has the structure as long as it is open.
    let atomics = unsafe { &*atomics.cast_const().cast::<Atomics>() };
    // SAFETY: UCX passes the header and its length, valid during this call.
    let header = unsafe { crate::messages::bytes(header, header_length) };
    // SAFETY: UCX passes valid parameters.
    let (attributes, endpoint) =
        unsafe { ((*parameters).attributes, (*parameters).reply_endpoint) };
    let Some(request) = Request::read(header) else {
        tracing::warn!(bytes = header_length, "a damaged atomic operation arrived");
        return table::OK;
    };
    let (earlier, status) = match request.execute(&atomics.context) {
        Ok(earlier) => (earlier, table::OK),
        Err(status) => (0, status),
    };
    if attributes & table::RECEIVE_REPLY_ENDPOINT != 0 {
        let mut bytes = Vec::with_capacity(REPLY_BYTES);
        for word in [request.token, earlier, i64::from(status) as u64] {
            bytes.extend(word.to_le_bytes());
        }
        // A requester that has died needs no reply.
        let _ = send(
            &atomics.requester,
            endpoint,
            REPLY,
            bytes,
            table::SEND_EAGER,
        );
    }
    table::OK
}

/// UCX's callback for replies.
///
/// # Safety
/// As for [`requested`].
unsafe extern "C" fn replied(
    atomics: *mut c_void,
    header: *const c_void,
    header_length: usize,
    _data: *mut c_void,
    _length: usize,
    _parameters: *const ReceiveParameters,
) -> Status {
    // SAFETY: the worker has the structure as long as it is open.
    let atomics = unsafe { &*atomics.cast_const().cast::<Atomics>() };
    // SAFETY: UCX passes the header and its length, valid during this call.
    let header = unsafe { crate::messages::bytes(header, header_length) };
    if header.len() == REPLY_BYTES {
        let status = word(header, 2) as Status;
        atomics
            .awaited
            .complete(word(header, 0), word(header, 1), status);
    }
    table::OK
}
