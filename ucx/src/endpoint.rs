//! An endpoint: the connection to one peer, and its operations.

use crate::envelope::{self, Kind};
use crate::failure::{Failure, Result, check};
use crate::key::{Key, RemoteKey};
use crate::operation::{self, Kept, Operation, Peer};
use crate::table::{
    self, Callback, EndpointAttributes, EndpointParameters, Handle, RequestParameters,
    SocketAddress, Status, TransportEntry,
};
use crate::worker::WorkerShared;
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// An atomic operation on a peer's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Atomic {
    /// Adds the operand.
    Add,
    /// Bitwise and with the operand.
    And,
    /// Bitwise or with the operand.
    Or,
    /// Bitwise exclusive or with the operand.
    Xor,
    /// Stores the operand; the result is the earlier value.
    Swap,
    /// Stores the operand if the word equals `compare`; the result is the earlier value.
    CompareSwap,
    /// As `Add`; the result is the earlier value.
    FetchAdd,
    /// As `And`; the result is the earlier value.
    FetchAnd,
    /// As `Or`; the result is the earlier value.
    FetchOr,
    /// As `Xor`; the result is the earlier value.
    FetchXor,
}

impl Atomic {
    /// Returns the number in `ucp_atomic_op_t`, and whether there is a result.
    fn code(self) -> (u32, bool) {
        match self {
            Self::Add => (0, false),
            Self::FetchAdd => (0, true),
            Self::Swap => (1, true),
            Self::CompareSwap => (2, true),
            Self::And => (3, false),
            Self::FetchAnd => (3, true),
            Self::Or => (4, false),
            Self::FetchOr => (4, true),
            Self::Xor => (5, false),
            Self::FetchXor => (5, true),
        }
    }
}

/// The connection to a peer's worker. Dropping it closes it with force.
///
/// Operations are started, not awaited: they complete in [`crate::Worker::progress`]. A peer that dies ends them with
/// [`crate::Poll::Failed`], if the transport notices: over TCP when the peer's system closes the connection, not if the
/// machine or the network falls silent.
///
/// **Order.** Messages arrive in the order of the calls. Puts, gets and atomics are not ordered with each other nor
/// with messages: wait for [`Endpoint::flush`] in between.
pub struct Endpoint {
    /// `None` once it is being closed.
    handle: Option<Handle>,
    peer: Arc<Peer>,
    worker: Arc<WorkerShared>,
}

// SAFETY: the handle is only passed to UCX under the context's lock.
unsafe impl Send for Endpoint {}
// SAFETY: as above.
unsafe impl Sync for Endpoint {}

/// UCX's callback for the failure of an endpoint.
///
/// # Safety
/// UCX calls it with the argument that was set with it, before the endpoint is closed.
unsafe extern "C" fn endpoint_failed(
    argument: *mut c_void,
    _endpoint: *mut c_void,
    status: Status,
) {
    // SAFETY: the endpoint has a reference of its own to the peer until it is closed.
    let peer = unsafe { &*argument.cast_const().cast::<Peer>() };
    peer.failed.store(status.into(), Ordering::Release);
}

impl Endpoint {
    pub(crate) fn connect(worker: &Arc<WorkerShared>, label: u32, address: &[u8]) -> Result<Self> {
        let peer = Arc::new(Peer {
            library: worker.context.library.clone(),
            label,
            failed: AtomicI32::new(0),
            in_flight: worker.in_flight.clone(),
        });
        let for_handler = Arc::into_raw(peer.clone());
        let nowhere = || SocketAddress {
            address: ptr::null(),
            length: 0,
        };
        let parameters = EndpointParameters {
            field_mask: 1 | 1 << 1 | 1 << 2,
            address: address.as_ptr().cast(),
            err_mode: table::ERROR_MODE_PEER,
            err_handler: endpoint_failed,
            err_argument: for_handler.cast_mut().cast(),
            user_data: ptr::null_mut(),
            flags: 0,
            sockaddr: nowhere(),
            conn_request: ptr::null_mut(),
            name: ptr::null(),
            local_sockaddr: nowhere(),
        };
        let mut handle = ptr::null_mut();
        let table = worker.context.table();
        let _held = worker.context.take();
        // SAFETY: the worker is open, and the address is whole, by its checksum.
        let status =
            unsafe { (table.ucp_ep_create)(worker.handle, &raw const parameters, &raw mut handle) };
        if let Err(failure) = check(table, "ucp_ep_create", status) {
            // SAFETY: made above; there is no endpoint that could use it.
            drop(unsafe { Arc::from_raw(for_handler) });
            return Err(failure.with_peer(label));
        }
        Ok(Self {
            handle: Some(handle),
            peer,
            worker: worker.clone(),
        })
    }

    /// Returns the label that the caller gave the peer.
    pub fn peer(&self) -> u32 {
        self.peer.label
    }

    /// Copies `bytes` bytes from this process's memory to `remote` in the peer's. When the operation is complete, the
    /// source may be reused; the peer sees the bytes after a [`Endpoint::flush`].
    ///
    /// # Errors
    /// The endpoint has failed, or the key is not its own.
    ///
    /// # Safety
    /// The source is readable and unchanged until the operation is complete; if it lies in a [`crate::Memory`], that
    /// lasts as long too. The peer's memory is registered and has `bytes` bytes at `remote`.
    pub unsafe fn put(
        &self,
        source: *const u8,
        bytes: usize,
        remote: u64,
        key: &RemoteKey,
    ) -> Result<Operation> {
        const CALL: &str = "ucp_put_nbx";
        let handle = self.usable(CALL, key)?;
        let _held = self.worker.context.take();
        let parameters = self.with_memory(source as usize, bytes);
        Operation::start(&self.peer, CALL, key.kept(), |_, user_data| {
            let parameters = RequestParameters {
                user_data,
                ..parameters
            };
            // SAFETY: endpoint and key are open; the caller promises the memory on both sides.
            unsafe {
                (self.worker.context.table().ucp_put_nbx)(
                    handle,
                    source.cast(),
                    bytes,
                    remote,
                    key.key.handle,
                    &raw const parameters,
                )
            }
        })
    }

    /// Copies `bytes` bytes from `remote` in the peer's memory to this process's. They are there when the operation is
    /// complete.
    ///
    /// # Errors
    /// The endpoint has failed, or the key is not its own.
    ///
    /// # Safety
    /// The destination is writable, and nobody else uses it, until the operation is complete; if it lies in a
    /// [`crate::Memory`], that lasts as long too. The peer's memory is registered and has `bytes` bytes at `remote`.
    pub unsafe fn get(
        &self,
        destination: *mut u8,
        bytes: usize,
        remote: u64,
        key: &RemoteKey,
    ) -> Result<Operation> {
        const CALL: &str = "ucp_get_nbx";
        let handle = self.usable(CALL, key)?;
        let _held = self.worker.context.take();
        let parameters = self.with_memory(destination as usize, bytes);
        Operation::start(&self.peer, CALL, key.kept(), |_, user_data| {
            let parameters = RequestParameters {
                user_data,
                ..parameters
            };
            // SAFETY: endpoint and key are open; the caller promises the memory on both sides.
            unsafe {
                (self.worker.context.table().ucp_get_nbx)(
                    handle,
                    destination.cast(),
                    bytes,
                    remote,
                    key.key.handle,
                    &raw const parameters,
                )
            }
        })
    }

    /// Updates a word of `bits` (32 or 64) bits at `remote` in the peer's memory, atomically for all users of UCX. The
    /// earlier value is at `result` when the operation is complete, if the update has one and `result` is not null.
    /// `compare` counts for [`Atomic::CompareSwap`] only.
    ///
    /// # Errors
    /// The endpoint has failed, the key is not its own, `bits` is another number, or `remote` or `result` is not
    /// aligned to the word.
    ///
    /// # Safety
    /// `result` is null, or writable for a word that nobody else uses until the operation is complete. The peer's
    /// memory is registered and has a word at `remote`.
    #[allow(clippy::too_many_arguments, reason = "an atomic has this many")]
    pub unsafe fn atomic(
        &self,
        update: Atomic,
        bits: u32,
        operand: u64,
        compare: u64,
        result: *mut u8,
        remote: u64,
        key: &RemoteKey,
    ) -> Result<Operation> {
        const CALL: &str = "ucp_atomic_op_nbx";
        let refused = |text: String| Failure::refused(CALL, text).with_peer(self.peer.label);
        if bits != 32 && bits != 64 {
            return Err(refused(format!("{bits} bits; pass 32 or 64")));
        }
        let bytes = u64::from(bits / 8);
        if remote % bytes != 0 || result as u64 % bytes != 0 {
            return Err(refused(format!(
                "the word at {remote:#x} or the result at {result:?} is not aligned to {bytes} bytes"
            )));
        }
        let handle = self.usable(CALL, key)?;
        let (code, has_result) = update.code();
        let mut kept = key.kept();
        // UCX takes the value to compare with as operand, and the new value from the place of the result.
        let swaps = update == Atomic::CompareSwap;
        (kept.operand, kept.result) = if swaps {
            (compare, operand)
        } else {
            (operand, 0)
        };
        let _held = self.worker.context.take();
        Operation::start(&self.peer, CALL, kept, |kept, user_data| {
            let place: *mut c_void = match result.is_null() {
                true => (&raw mut kept.result).cast(),
                false => result.cast(),
            };
            if swaps && !result.is_null() {
                // SAFETY: the caller promises a writable, aligned word.
                unsafe {
                    match bits {
                        32 => result.cast::<u32>().write(operand as u32),
                        _ => result.cast::<u64>().write(operand),
                    }
                }
            }
            let reply = match has_result {
                true => table::WITH_REPLY_BUFFER,
                false => 0,
            };
            let parameters = RequestParameters {
                attributes: table::COMPLETION | table::WITH_DATATYPE | reply,
                datatype: table::contiguous(bytes),
                user_data,
                reply_buffer: place,
                ..RequestParameters::new()
            };
            // SAFETY: endpoint and key are open, operand and result stay until the operation is complete, and the
            // caller promises the peer's word. A little-endian machine finds the lower half of the operand at its
            // address.
            unsafe {
                (self.worker.context.table().ucp_atomic_op_nbx)(
                    handle,
                    code,
                    (&raw const kept.operand).cast(),
                    1,
                    remote,
                    key.key.handle,
                    &raw const parameters,
                )
            }
        })
    }

    /// Sends a message to the peer's handler of this identifier; header and data are copied. Messages of an endpoint
    /// arrive in order. The operation is complete when UCX has taken the message, not when it has arrived.
    ///
    /// # Errors
    /// The endpoint has failed, or the header is longer than [`crate::Worker::max_header`].
    pub fn send(&self, identifier: u16, header: &[u8], data: &[u8]) -> Result<Operation> {
        let mut bytes = Vec::with_capacity(header.len() + data.len());
        bytes.extend_from_slice(header);
        bytes.extend_from_slice(data);
        let parts = Parts {
            header: header.len(),
            data: ptr::null(),
            bytes: data.len(),
        };
        self.start_send(identifier, bytes, parts, table::SEND_EAGER)
    }

    /// Sends a message as [`Endpoint::send`], without copying the data first.
    ///
    /// # Errors
    /// As [`Endpoint::send`].
    ///
    /// # Safety
    /// The data is readable and unchanged until the operation is complete.
    pub unsafe fn send_from(
        &self,
        identifier: u16,
        header: &[u8],
        data: *const u8,
        bytes: usize,
    ) -> Result<Operation> {
        let parts = Parts {
            header: header.len(),
            data,
            bytes,
        };
        self.start_send(identifier, header.to_vec(), parts, table::SEND_EAGER)
    }

    /// Sends a message whose data the peer fetches when it has seen the header. It may overtake others, and be
    /// overtaken. The operation is complete when the peer has the data.
    ///
    /// # Errors
    /// As [`Endpoint::send`].
    ///
    /// # Safety
    /// As [`Endpoint::send_from`].
    pub unsafe fn send_rendezvous(
        &self,
        identifier: u16,
        header: &[u8],
        data: *const u8,
        bytes: usize,
    ) -> Result<Operation> {
        let parts = Parts {
            header: header.len(),
            data,
            bytes,
        };
        self.start_send(identifier, header.to_vec(), parts, table::SEND_RENDEZVOUS)
    }

    fn start_send(
        &self,
        identifier: u16,
        bytes: Vec<u8>,
        parts: Parts,
        flags: u32,
    ) -> Result<Operation> {
        const CALL: &str = "ucp_am_send_nbx";
        let handle = self.open(CALL)?;
        if parts.header > self.worker.max_header {
            let text = format!(
                "a header of {} bytes; at most {} are possible",
                parts.header, self.worker.max_header
            );
            return Err(Failure::refused(CALL, text).with_peer(self.peer.label));
        }
        let kept = Kept {
            bytes,
            ..Kept::default()
        };
        let _held = self.worker.context.take();
        Operation::start(&self.peer, CALL, kept, |kept, user_data| {
            let header = kept.bytes.as_ptr();
            let data = match parts.data.is_null() {
                // SAFETY: the data follows the header.
                true => unsafe { header.add(parts.header) },
                false => parts.data,
            };
            let parameters = RequestParameters {
                attributes: table::COMPLETION | table::WITH_FLAGS,
                flags,
                user_data,
                ..RequestParameters::new()
            };
            // SAFETY: the endpoint is open; header and data stay until the operation is complete: they are kept, or
            // the caller promises it.
            unsafe {
                (self.worker.context.table().ucp_am_send_nbx)(
                    handle,
                    identifier.into(),
                    header.cast(),
                    parts.header,
                    data.cast(),
                    parts.bytes,
                    &raw const parameters,
                )
            }
        })
    }

    /// Completes when all earlier puts and atomics of this endpoint have been applied in the peer's memory, and all its
    /// other operations are complete.
    ///
    /// # Errors
    /// The endpoint has failed.
    pub fn flush(&self) -> Result<Operation> {
        const CALL: &str = "ucp_ep_flush_nbx";
        let handle = self.open(CALL)?;
        let _held = self.worker.context.take();
        Operation::start(&self.peer, CALL, Kept::default(), |_, user_data| {
            let parameters = RequestParameters {
                attributes: table::COMPLETION,
                user_data,
                ..RequestParameters::new()
            };
            // SAFETY: the endpoint is open.
            unsafe { (self.worker.context.table().ucp_ep_flush_nbx)(handle, &raw const parameters) }
        })
    }

    /// Reads the key of a peer's memory, as [`crate::Memory::packed_key`] returned it there.
    ///
    /// # Errors
    /// The bytes are not a key, or no transport of this endpoint can use it.
    pub fn unpack(&self, key: &[u8]) -> Result<RemoteKey> {
        const CALL: &str = "ucp_ep_rkey_unpack";
        let endpoint = self.open(CALL)?;
        let key = envelope::open(Kind::Key, key).ok_or_else(|| {
            Failure::refused(CALL, "not a whole `Memory::packed_key`").with_peer(self.peer.label)
        })?;
        let mut handle = ptr::null_mut();
        let table = self.worker.context.table();
        let _held = self.worker.context.take();
        // SAFETY: the endpoint is open, and the key is whole, by its checksum.
        let status =
            unsafe { (table.ucp_ep_rkey_unpack)(endpoint, key.as_ptr().cast(), &raw mut handle) };
        check(table, CALL, status).map_err(|failure| failure.with_peer(self.peer.label))?;
        Ok(RemoteKey {
            key: Arc::new(Key {
                context: self.worker.context.clone(),
                handle,
            }),
            peer: self.peer.clone(),
            _worker: self.worker.clone(),
        })
    }

    /// Returns the failure that UCX reported for this endpoint. All its operations fail from then on.
    pub fn failure(&self) -> Option<Failure> {
        self.peer.failure()
    }

    /// Returns the transports and devices of this endpoint, such as `tcp/eth0`. Empty before UCX 1.14.
    pub fn transports(&self) -> String {
        const MOST: usize = 16;
        let (Some(query), Some(handle)) = (self.worker.context.table().ucp_ep_query, self.handle)
        else {
            return String::new();
        };
        let mut entries = [const {
            TransportEntry {
                transport: ptr::null(),
                device: ptr::null(),
            }
        }; MOST];
        let mut attributes = EndpointAttributes {
            field_mask: 1 << 3,
            name: [0; 32],
            local_sockaddr: [0; 16],
            remote_sockaddr: [0; 16],
            entries: entries.as_mut_ptr(),
            num_entries: 0,
            entry_size: size_of::<TransportEntry>(),
        };
        attributes.num_entries = MOST as u32;
        let _held = self.worker.context.take();
        // SAFETY: the endpoint is open. UCX writes at most so many entries of this size; before 1.14 it knows no such
        // field, and writes nothing.
        let status = unsafe { query(handle, &raw mut attributes) };
        if status != table::OK {
            return String::new();
        }
        let text = |text: *const std::ffi::c_char| {
            // SAFETY: UCX's texts live as long as the endpoint.
            (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy())
        };
        let mut names: Vec<String> = entries
            .iter()
            .take(attributes.num_entries as usize)
            .filter_map(|entry| {
                Some(format!(
                    "{}/{}",
                    text(entry.transport)?,
                    text(entry.device)?
                ))
            })
            .collect();
        names.sort();
        names.dedup();
        names.join(" ")
    }

    /// Closes the endpoint: with `force` at once and without the peer, which ends its operations; else after a flush,
    /// with which the peer has to help. The endpoint is closed when the operation is complete; forced, a few calls of
    /// [`crate::Worker::progress`] suffice.
    pub fn close(mut self, force: bool) -> Operation {
        self.start_close(force)
    }

    fn start_close(&mut self, force: bool) -> Operation {
        let Some(handle) = self.handle.take() else {
            return Operation::done();
        };
        // SAFETY: `connect` made this reference by `into_raw` for the error handler, and it is taken back once.
        let handler = unsafe { Arc::from_raw(Arc::as_ptr(&self.peer)) };
        let kept = Kept {
            _handler: Some(handler),
            ..Kept::default()
        };
        let _held = self.worker.context.take();
        let started = Operation::start(&self.peer, "ucp_ep_close_nbx", kept, |_, user_data| {
            let parameters = RequestParameters {
                attributes: table::COMPLETION | table::WITH_FLAGS,
                flags: if force { table::CLOSE_FORCE } else { 0 },
                user_data,
                ..RequestParameters::new()
            };
            // SAFETY: the endpoint is open, and is not used afterwards.
            unsafe { (self.worker.context.table().ucp_ep_close_nbx)(handle, &raw const parameters) }
        });
        started.unwrap_or_else(Operation::failed)
    }

    /// Returns the handle, unless the endpoint has failed.
    fn open(&self, call: &'static str) -> Result<Handle> {
        match (self.handle, self.peer.failed.load(Ordering::Acquire)) {
            (Some(handle), 0) => Ok(handle),
            (_, failed) => Err(self.peer.failed_call(call, failed as Status)),
        }
    }

    /// Returns the handle, unless the endpoint has failed or the key belongs to another one.
    fn usable(&self, call: &'static str, key: &RemoteKey) -> Result<Handle> {
        if !Arc::ptr_eq(&self.peer, &key.peer) {
            let text = format!(
                "the key was unpacked by the endpoint of peer {}; unpack it with this one",
                key.peer.label
            );
            return Err(Failure::refused(call, text).with_peer(self.peer.label));
        }
        self.open(call)
    }

    /// Returns the parameters of a transfer from or to memory of this process.
    fn with_memory(&self, address: usize, bytes: usize) -> RequestParameters {
        let memory = self.worker.context.registration(address, bytes);
        RequestParameters {
            attributes: table::COMPLETION | memory.map_or(0, |_| table::WITH_MEMORY),
            memory: memory.unwrap_or(ptr::null_mut()),
            ..RequestParameters::new()
        }
    }
}

/// The parts of a message.
struct Parts {
    /// Bytes of the header.
    header: usize,
    /// Null: the data follows the header.
    data: *const u8,
    /// Bytes of the data.
    bytes: usize,
}

impl RemoteKey {
    fn kept(&self) -> Kept {
        Kept {
            _key: Some(self.key.clone()),
            ..Kept::default()
        }
    }
}

impl RequestParameters {
    /// Returns parameters without any attribute, with the callback of operations.
    pub(crate) fn new() -> Self {
        Self {
            attributes: 0,
            flags: 0,
            request: ptr::null_mut(),
            callback: Callback {
                send: operation::completed,
            },
            datatype: 0,
            user_data: ptr::null_mut(),
            reply_buffer: ptr::null_mut(),
            memory_type: 0,
            receive_information: ptr::null_mut(),
            memory: ptr::null_mut(),
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // It completes in the progress of the worker, or when that is closed.
        let _ = self.start_close(true);
    }
}
