//! Messages of an endpoint.

use crate::endpoint::{Endpoint, RemoteKey};
use crate::failure::{Failure, Result};
use crate::messages::{FIRST_FREE, PUT, PUT_HEADER_BYTES};
use crate::operation::{self, Kept, Operation};
use crate::table::{self, RequestParameters};
use std::ptr;

impl Endpoint {
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
        // SAFETY: guaranteed by the caller.
        unsafe { self.start_send_from(identifier, header, (data, bytes), table::SEND_EAGER) }
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
        // SAFETY: guaranteed by the caller.
        unsafe { self.start_send_from(identifier, header, (data, bytes), table::SEND_RENDEZVOUS) }
    }

    /// Starts to send a message whose header is copied, and whose data is not.
    ///
    /// # Safety
    /// As [`Endpoint::send_from`].
    unsafe fn start_send_from(
        &self,
        identifier: u16,
        header: &[u8],
        (data, bytes): (*const u8, usize),
        flags: u32,
    ) -> Result<Operation> {
        let parts = Parts {
            header: header.len(),
            data,
            bytes,
        };
        let identifier = FIRST_FREE + u32::from(identifier);
        self.start_send(identifier, header.to_vec(), parts, flags)
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
                ..operation::parameters()
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
