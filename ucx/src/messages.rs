//! Receiving active messages.

use crate::context::ContextShared;
use crate::library::Library;
use crate::table::{
    self, Callback, Handle, HandlerParameters, ReceiveParameters, RequestParameters, Started,
    Status,
};
use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

/// UCX's identifier of requests for an atomic operation.
pub(crate) const REQUEST: u32 = 0;
/// UCX's identifier of replies to them.
pub(crate) const REPLY: u32 = 1;
/// UCX's identifier of messages with bytes for memory.
pub(crate) const PUT: u32 = 2;
/// UCX's identifier of the caller's identifier 0.
pub(crate) const FIRST_FREE: u32 = 3;
/// In front of the header of a message with bytes for memory: their address, and the caller's identifier.
pub(crate) const PUT_HEADER_BYTES: usize = 16;

/// Handler of messages: takes a message's header and data.
pub type Handler = Box<dyn FnMut(&[u8], &[u8]) + Send>;

/// A handler at an address that UCX knows. Used only under the context's lock.
pub(crate) struct Slot {
    library: Library,
    worker: Handle,
    handler: UnsafeCell<Handler>,
    /// The handler runs: it sends to its own worker, and UCX delivers that message inside of the call.
    busy: Cell<bool>,
    /// Messages that arrived meanwhile.
    waiting: RefCell<VecDeque<(Vec<u8>, Vec<u8>)>>,
}

// SAFETY: handlers are `Send`; the worker's handle, and all that is behind cells, are used under the context's lock.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    pub fn new(library: Library, worker: Handle, handler: Handler) -> Self {
        Self {
            library,
            worker,
            handler: UnsafeCell::new(handler),
            busy: Cell::new(false),
            waiting: RefCell::default(),
        }
    }

    /// Tells UCX the handler. The slot stays at its address until the worker is closed.
    pub fn set(&self, identifier: u32) -> Status {
        let parameters = HandlerParameters {
            field_mask: 1 | 1 << 2 | 1 << 3,
            id: identifier,
            flags: 0,
            callback: Some(arrived),
            argument: ptr::from_ref(self).cast_mut().cast(),
        };
        // SAFETY: the worker is open, and keeps the slot as long as it is.
        unsafe {
            (self.library.table().ucp_worker_set_am_recv_handler)(
                self.worker,
                &raw const parameters,
            )
        }
    }

    fn deliver(&self, header: &[u8], data: &[u8]) {
        if self.busy.replace(true) {
            let message = (header.to_vec(), data.to_vec());
            self.waiting.borrow_mut().push_back(message);
            return;
        }
        // SAFETY: `busy` lets only one call in, and all run under the context's lock.
        let handler = unsafe { &mut *self.handler.get() };
        handler(header, data);
        loop {
            let next = self.waiting.borrow_mut().pop_front();
            let Some((header, data)) = next else { break };
            handler(&header, &data);
        }
        self.busy.set(false);
    }
}

/// A message whose data is being fetched from the sender.
struct Receiving {
    slot: *const Slot,
    header: Vec<u8>,
    data: Vec<u8>,
}

/// Returns the bytes at an address, which UCX leaves undefined for no bytes.
///
/// # Safety
/// There are this many bytes, and they stay during the borrow.
pub(crate) unsafe fn bytes<'a>(address: *const c_void, length: usize) -> &'a [u8] {
    match length {
        0 => &[],
        // SAFETY: the caller says so.
        _ => unsafe { std::slice::from_raw_parts(address.cast(), length) },
    }
}

/// UCX's callback for messages.
///
/// # Safety
/// UCX calls it inside of progress with the slot that was set, and a message.
unsafe extern "C" fn arrived(
    slot: *mut c_void,
    header: *const c_void,
    header_length: usize,
    data: *mut c_void,
    length: usize,
    parameters: *const ReceiveParameters,
) -> Status {
    // SAFETY: the worker keeps the slot as long as it is open.
    let slot = unsafe { &*slot.cast_const().cast::<Slot>() };
    // SAFETY: UCX passes the header and its length, valid during this call.
    let header = unsafe { bytes(header, header_length) };
    // SAFETY: UCX passes valid parameters.
    let attributes = unsafe { (*parameters).attributes };
    if attributes & table::RECEIVE_RENDEZVOUS != 0 {
        return fetch(slot, header, data, length);
    }
    // SAFETY: without rendezvous, the data is there during this call.
    slot.deliver(header, unsafe { bytes(data, length) });
    table::OK
}

/// Fetches the data of a message from its sender, then delivers the message.
fn fetch(slot: &Slot, header: &[u8], descriptor: *mut c_void, length: usize) -> Status {
    let mut data = Vec::new();
    if data.try_reserve_exact(length).is_err() {
        // `UCS_ERR_NO_MEMORY`, which the sender sees.
        return -4;
    }
    data.resize(length, 0);
    let buffer = data.as_mut_ptr();
    let receiving = Box::into_raw(Box::new(Receiving {
        slot,
        header: header.to_vec(),
        data,
    }));
    let parameters = RequestParameters {
        attributes: table::WITH_CALLBACK | table::WITH_USER_DATA,
        callback: Callback { receive: fetched },
        user_data: receiving.cast(),
        ..RequestParameters::new()
    };
    // SAFETY: the descriptor is this message's. The buffer has `length` bytes and lives until the callback.
    let started = Started::of(unsafe {
        (slot.library.table().ucp_am_recv_data_nbx)(
            slot.worker,
            descriptor,
            buffer.cast(),
            length,
            &raw const parameters,
        )
    });
    if matches!(started, Started::Request) {
        return table::IN_PROGRESS;
    }
    // SAFETY: made above, and UCX does not call back for a call that ended at once.
    let receiving = unsafe { Box::from_raw(receiving) };
    match started {
        Started::Failed(status) => status,
        _ => {
            slot.deliver(&receiving.header, &receiving.data);
            table::OK
        }
    }
}

/// UCX's callback when a message's data is there, or the sender failed.
///
/// # Safety
/// UCX calls it once, with the user data of [`fetch`].
unsafe extern "C" fn fetched(
    request: *mut c_void,
    status: Status,
    _length: usize,
    user_data: *mut c_void,
) {
    // SAFETY: made by `into_raw` in `fetch`, and this is the only call.
    let receiving = unsafe { Box::from_raw(user_data.cast::<Receiving>()) };
    // SAFETY: the worker keeps the slot as long as it is open.
    let slot = unsafe { &*receiving.slot };
    // SAFETY: the request is complete, is freed only here, and is not used afterwards.
    unsafe { (slot.library.table().ucp_request_free)(request) };
    // A message of a sender that failed is lost; the endpoint's failure reports it.
    if status == table::OK {
        slot.deliver(&receiving.header, &receiving.data);
    }
}

/// Returns the handler of [`PUT`]: stores a message's data, then calls the handler for its header that `find` returns.
pub(crate) fn storing(
    context: &Arc<ContextShared>,
    find: impl Fn(u16) -> Option<Arc<Slot>> + Send + 'static,
) -> Handler {
    // The worker, which has this handler, holds the context: a strong reference would not keep it longer.
    let context = context.clone();
    Box::new(move |header, data| {
        let Some((front, header)) = header.split_first_chunk::<PUT_HEADER_BYTES>() else {
            return tracing::warn!("a damaged message arrived");
        };
        let (numbers, _) = front.as_chunks::<8>();
        let (address, identifier) = (
            u64::from_le_bytes(numbers[0]) as usize,
            u64::from_le_bytes(numbers[1]) as u16,
        );
        let target = context.registration(address, data.len());
        if !target.is_some_and(|memory| memory.host) {
            let bytes = data.len();
            return tracing::warn!(
                address,
                bytes,
                "a message for memory that is not registered"
            );
        }
        // SAFETY: registered memory is mapped and writable, and only raw pointers refer to it. The message lies in UCX's
        // memory.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), address as *mut u8, data.len()) };
        if let Some(slot) = find(identifier) {
            slot.deliver(header, &[]);
        }
    })
}
