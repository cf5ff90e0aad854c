//! An endpoint: the connection to one peer, and its operations.

use crate::envelope::{self, Kind};
use crate::failure::{Failure, Result, check};
use crate::key::Key;
use crate::operation::{self, Closing, Kept, Operation, Peer};
use crate::region::Region;
use crate::table::{
    self, EndpointAttributes, EndpointParameters, Handle, RequestParameters, SocketAddress, Status,
    TransportEntry,
};
use crate::worker::{Worker, WorkerShared};
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// The key of a peer's [`crate::Memory`], for operations of the endpoint that unpacked it.
pub struct RemoteKey {
    // Dropped first: it must not outlive the worker.
    pub(crate) key: Arc<Key>,
    peer: Arc<Peer>,
    region: Region,
    _worker: Arc<WorkerShared>,
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
    pub(crate) peer: Arc<Peer>,
    pub(crate) worker: Arc<WorkerShared>,
}

// SAFETY: the handle is only passed to UCX under the context's lock.
unsafe impl Send for Endpoint {}
// SAFETY: as above.
unsafe impl Sync for Endpoint {}

impl Worker {
    /// Connects to a peer's worker by its [`Worker::address`]. The connection is made in the background; its failure
    /// ends the endpoint's operations. `peer` is the number that errors name.
    ///
    /// # Errors
    /// The address is not one, or no transport reaches it.
    pub fn connect(&self, peer: u32, address: &[u8]) -> Result<Endpoint> {
        const CALL: &str = "ucp_ep_create";
        let address = envelope::open(Kind::Address, address).ok_or_else(|| {
            Failure::refused(CALL, "not a whole `Worker::address`").with_peer(peer)
        })?;
        Endpoint::connect(&self.0, peer, address)
    }
}

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
    fn connect(worker: &Arc<WorkerShared>, label: u32, address: &[u8]) -> Result<Self> {
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
                ..operation::parameters()
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

    /// Closes the endpoint: with `force` at once and without the peer, which ends its operations, and the peer's endpoint
    /// to this worker fails; else after a flush, with which the peer has to help. Atomics that are not complete fail in
    /// both cases. The endpoint is closed when the operation is complete; forced, a few calls of
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
                ..operation::parameters()
            };
            // SAFETY: the endpoint is open, and is not used afterwards.
            unsafe { (self.worker.context.table().ucp_ep_close_nbx)(handle, &raw const parameters) }
        });
        started.unwrap_or_else(Operation::failed)
    }

    /// Returns the handle, unless the endpoint has failed.
    pub(crate) fn open(&self, call: &'static str) -> Result<Handle> {
        match (self.handle, self.peer.failed.load(Ordering::Acquire)) {
            (Some(handle), 0) => Ok(handle),
            (_, failed) => Err(self.peer.failed_call(call, failed as Status)),
        }
    }

    /// Returns the handle, unless the endpoint has failed, the key belongs to another one, or these bytes lie outside of
    /// its memory.
    pub(crate) fn usable(
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
    pub(crate) fn on_host(&self, call: &'static str, key: &RemoteKey) -> Result<()> {
        match key.region.host {
            true => Ok(()),
            false => {
                let text = "the peer's memory is a device's; use host memory, or `put` and `get`";
                Err(Failure::refused(call, text).with_peer(self.peer.label))
            }
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // It completes in the progress of the worker, or when that is closed.
        let _ = self.start_close(true);
    }
}
