//! Transfers on a stream of the host backend.

use crate::backend::abi::*;
use crate::backend::{CallResult, Failure, RemoteAccess};
use crate::host::backend::HostBackend;
use crate::host::stream::Operation;

impl RemoteAccess for HostBackend {
    unsafe fn transfer(&self, transfer: &Transfer, stream: RawStream) -> CallResult<()> {
        // SAFETY: the caller passes a live stream.
        let stream = unsafe { self.stream(stream, "transfer")? };
        match transfer.row.method {
            MethodCode::COPY_ENGINE
            | MethodCode::VECTOR
            | MethodCode::BULK
            | MethodCode::UNROLLED => {}
            other => {
                return Err(Failure::new(
                    Status::INVALID_ARGUMENT,
                    "transfer",
                    format!(
                        "transfer method {} ({}) is automatic or unknown; let the planner choose one",
                        other.name(),
                        other.0
                    ),
                ));
            }
        }
        let signal = &transfer.signal;
        if transfer.row.method == MethodCode::COPY_ENGINE
            && signal.word.0 != 0
            && signal.epoch.0 == 0
        {
            stream.refuse_capture("transfer", "a copy engine's signal without an epoch would give the same value at every replay; use a device epoch")?;
        }
        // SAFETY: the caller keeps the memory live until the stream has passed this point.
        unsafe { stream.submit(Operation::Transfer(*transfer)) }
    }

    unsafe fn transfer_rows(&self, copy: &RowsCopy, stream: RawStream) -> CallResult<()> {
        // SAFETY: the caller passes a live stream.
        let stream = unsafe { self.stream(stream, "transfer_rows")? };
        // SAFETY: the caller keeps the memory live until the stream has passed this point.
        unsafe { stream.submit(Operation::TransferRows(*copy)) }
    }
}
