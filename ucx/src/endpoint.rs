//! An endpoint: the connection to one peer, and its operations.

use crate::atomics::Request;
use crate::envelope::{self, Kind};
use crate::failure::{Failure, Result, check};
use crate::key::{Key, Region, RemoteKey};
use crate::messages::{FIRST_FREE, PUT, PUT_HEADER_BYTES};
use crate::operation::{self, Closing, Kept, Operation, Peer};
use crate::table::{
    self, Callback, EndpointAttributes, EndpointParameters, Handle, RequestParameters,
    SocketAddress, Status, TransportEntry,
};
use crate::worker::WorkerShared;
use std::ffi::{CStr, c_char, c_void};
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
    const ALL: [Self; 10] = [
        Self::Add,
        Self::And,
        Self::Or,
        Self::Xor,
        Self::Swap,
        Self::CompareSwap,
        Self::FetchAdd,
        Self::FetchAnd,
        Self::FetchOr,
        Self::FetchXor,
    ];

    /// Returns the update with this number, which is `self as u32`.
    pub(crate) fn of_number(number: u32) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|update| *update as u32 == number)
    }

    /// Returns whether the update has a result.
    fn fetches(self) -> bool {
        !matches!(self, Self::Add | Self::And | Self::Or | Self::Xor)
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
    peer.awaited.fail(Some(peer), status);
}

impl Endpoint {
    pub(crate) fn connect(worker: &Arc<WorkerShared>, label: u32, address: &[u8]) -> Result<Self> {
        let peer = Arc::new(Peer {
            library: worker.context.library.clone(),
            label,
            failed: AtomicI32::new(0),
            in_flight: worker.in_flight.clone(),
            awaited: worker.atomics.awaited.clone(),
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
    /// The endpoint has failed, the key is not its own, or the bytes lie outside of its memory.
    ///
    /// # Safety
    /// The source is readable and unchanged until the operation is complete; if it lies in a [`crate::Memory`], that
    /// lasts as long too. The peer's memory is still registered.
    pub unsafe fn put(
        &self,
        source: *const u8,
        bytes: usize,
        remote: u64,
        key: &RemoteKey,
    ) -> Result<Operation> {
        const CALL: &str = "ucp_put_nbx";
        let handle = self.usable(CALL, key, remote, bytes)?;
        let _held = self.worker.context.take();
        let parameters = self.with_memory(source as usize, bytes);
        Operation::start(&self.peer, CALL, key.kept(), |user_data| {
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
    /// The endpoint has failed, the key is not its own, or the bytes lie outside of its memory.
    ///
    /// # Safety
    /// The destination is writable, and nobody else uses it, until the operation is complete; if it lies in a
    /// [`crate::Memory`], that lasts as long too. The peer's memory is still registered.
    pub unsafe fn get(
        &self,
        destination: *mut u8,
        bytes: usize,
        remote: u64,
        key: &RemoteKey,
    ) -> Result<Operation> {
        const CALL: &str = "ucp_get_nbx";
        let handle = self.usable(CALL, key, remote, bytes)?;
        let _held = self.worker.context.take();
        let parameters = self.with_memory(destination as usize, bytes);
        Operation::start(&self.peer, CALL, key.kept(), |user_data| {
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

    /// Updates a word of `bits` (32 or 64) bits at `remote` in the peer's host memory, atomically with other updates and
    /// with the peer's CPU. The peer executes it in its [`crate::Worker::progress`]. The earlier value is at `result`
    /// when the operation is complete, if the update has one and `result` is not null. `compare` counts for
    /// [`Atomic::CompareSwap`] only.
    ///
    /// The operation fails if the peer's memory is not registered any more.
    ///
    /// # Errors
    /// The endpoint has failed, the key is not its own or not of host memory, the word lies outside of its memory,
    /// `bits` is another number, or `remote` or `result` is not aligned to the word.
    ///
    /// # Safety
    /// `result` is null, or writable for a word that nobody else uses until the operation is complete.
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
        const CALL: &str = "atomic";
        let refused = |text: String| Failure::refused(CALL, text).with_peer(self.peer.label);
        if bits != 32 && bits != 64 {
            return Err(refused(format!("{bits} bits; pass 32 or 64")));
        }
        let bytes = u64::from(bits / 8);
        if !remote.is_multiple_of(bytes) || !(result as u64).is_multiple_of(bytes) {
            return Err(refused(format!(
                "the word at {remote:#x} or the result at {result:?} is not aligned to {bytes} bytes"
            )));
        }
        let handle = self.usable(CALL, key, remote, bytes as usize)?;
        self.on_host(CALL, key)?;
        let result = match update.fetches() {
            true => result,
            false => ptr::null_mut(),
        };
        let _held = self.worker.context.take();
        // The reply may arrive while the request is being sent.
        let (token, pending) = self.peer.awaited.insert(&self.peer, result, bits);
        let request = Request {
            token,
            address: remote,
            operand,
            compare,
            update,
            bits,
        };
        match request.send(&self.peer, handle) {
            // If sending fails later, the endpoint has failed, and with it the operation.
            Ok(_sending) => Ok(Operation::of(pending)),
            Err(failure) => {
                self.peer.awaited.complete(token, 0, failure.status);
                Err(failure)
            }
        }
    }

    /// Sends `bytes` bytes with a message: the peer stores them at `remote` in its host memory, then calls its handler of
    /// this identifier with the header and no data. Source and header are copied. Half the latency of a put, a flush and
    /// a message; the peer copies the bytes once more, so use it up to some 16 KiB.
    ///
    /// Ordered like a message. The operation is complete when UCX has taken the message. The peer drops the message,
    /// with a warning in its log, if its memory is not registered any more.
    ///
    /// # Errors
    /// The endpoint has failed, the key is not its own or not of host memory, the bytes lie outside of its memory, or the
    /// header is longer than [`crate::Worker::max_header`] less 16 bytes.
    ///
    /// # Safety
    /// The source is readable.
    pub unsafe fn put_and_send(
        &self,
        source: *const u8,
        bytes: usize,
        remote: u64,
        key: &RemoteKey,
        identifier: u16,
        header: &[u8],
    ) -> Result<Operation> {
        const CALL: &str = "put_and_send";
        self.usable(CALL, key, remote, bytes)?;
        self.on_host(CALL, key)?;
        let mut kept = Vec::with_capacity(PUT_HEADER_BYTES + header.len() + bytes);
        kept.extend(remote.to_le_bytes());
        kept.extend(u64::from(identifier).to_le_bytes());
        kept.extend(header);
        let parts = Parts {
            header: kept.len(),
            data: ptr::null(),
            bytes,
        };
        if bytes != 0 {
            // SAFETY: there is room for so many bytes; the caller promises the source.
            unsafe {
                let end = kept.as_mut_ptr().add(kept.len());
                ptr::copy_nonoverlapping(source, end, bytes);
                kept.set_len(kept.len() + bytes);
            }
        }
        self.start_send(PUT, kept, parts, table::SEND_EAGER)
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
        self.start_send(
            FIRST_FREE + u32::from(identifier),
            bytes,
            parts,
            table::SEND_EAGER,
        )
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
        self.start_send(
            FIRST_FREE + u32::from(identifier),
            header.to_vec(),
            parts,
            table::SEND_EAGER,
        )
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
        self.start_send(
            FIRST_FREE + u32::from(identifier),
            header.to_vec(),
            parts,
            table::SEND_RENDEZVOUS,
        )
    }

    fn start_send(
        &self,
        identifier: u32,
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
        let header = kept.bytes.as_ptr();
        let data = match parts.data.is_null() {
            // The data follows the header.
            true => header.wrapping_add(parts.header),
            false => parts.data,
        };
        let _held = self.worker.context.take();
        Operation::start(&self.peer, CALL, kept, |user_data| {
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
                    identifier,
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
        let atomics = self.peer.awaited.of(&self.peer);
        let flush = Operation::start(&self.peer, CALL, Kept::default(), |user_data| {
            let parameters = RequestParameters {
                attributes: table::COMPLETION,
                user_data,
                ..RequestParameters::new()
            };
            // SAFETY: the endpoint is open.
            unsafe { (self.worker.context.table().ucp_ep_flush_nbx)(handle, &raw const parameters) }
        });
        flush.map(|flush| flush.with(atomics))
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
        let (region, key) = Region::unpack(key).ok_or_else(|| {
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
            region,
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
        let text = |text: *const c_char| {
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
            _closing: Some(Closing(handler)),
            ..Kept::default()
        };
        let _held = self.worker.context.take();
        let started = Operation::start(&self.peer, "ucp_ep_close_nbx", kept, |user_data| {
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

    /// Returns the handle, unless the endpoint has failed, the key belongs to another one, or these bytes lie outside of
    /// its memory.
    fn usable(
        &self,
        call: &'static str,
        key: &RemoteKey,
        remote: u64,
        bytes: usize,
    ) -> Result<Handle> {
        if !Arc::ptr_eq(&self.peer, &key.peer) {
            let text = format!(
                "the key was unpacked by the endpoint of peer {}; unpack it with this one",
                key.peer.label
            );
            return Err(Failure::refused(call, text).with_peer(self.peer.label));
        }
        if !key.region.contains(remote, bytes as u64) {
            let text = format!(
                "{bytes} bytes at {remote:#x} lie outside of the key's memory, {} bytes at {:#x}",
                key.region.bytes, key.region.address
            );
            return Err(Failure::refused(call, text).with_peer(self.peer.label));
        }
        self.open(call)
    }

    /// Refuses keys of a device's memory, for what the peer's CPU executes.
    fn on_host(&self, call: &'static str, key: &RemoteKey) -> Result<()> {
        match key.region.host {
            true => Ok(()),
            false => {
                let text = "the peer's memory is a device's; use host memory, or `put` and `get`";
                Err(Failure::refused(call, text).with_peer(self.peer.label))
            }
        }
    }

    /// Returns the parameters of a transfer from or to memory of this process.
    fn with_memory(&self, address: usize, bytes: usize) -> RequestParameters {
        let memory = self.worker.context.registration(address, bytes);
        RequestParameters {
            attributes: table::COMPLETION | memory.map_or(0, |_| table::WITH_MEMORY),
            memory: memory.map_or(ptr::null_mut(), |memory| memory.handle),
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
