//! Puts, gets and atomics of an endpoint.

use crate::atomics::{Atomic, Request};
use crate::endpoint::{Endpoint, RemoteKey};
use crate::failure::{Failure, Result};
use crate::operation::{self, Kept, Operation};
use crate::table::{self, RequestParameters};
use std::ptr;

impl Endpoint {
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

    /// Returns the parameters of a transfer from or to memory of this process.
    fn with_memory(&self, address: usize, bytes: usize) -> RequestParameters {
        let memory = self.worker.context.registration(address, bytes);
        RequestParameters {
            attributes: table::COMPLETION | memory.map_or(0, |_| table::WITH_MEMORY),
            memory: memory.map_or(ptr::null_mut(), |memory| memory.handle),
            ..operation::parameters()
        }
    }
}

impl RemoteKey {
    fn kept(&self) -> Kept {
        Kept {
            _key: Some(self.key.clone()),
            ..Kept::default()
        }
    }
}
