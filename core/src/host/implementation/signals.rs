//! Signals on a stream of the host backend.

use crate::backend::abi::*;
use crate::backend::{CallResult, Signals};
use crate::host::backend::HostBackend;
use crate::host::stream::Operation;
use crate::host::words;

const FROZEN: &str = "a host signal's value would be the same at every replay; use a device signal";

impl Signals for HostBackend {
    unsafe fn signal_give(
        &self,
        target: &SignalTarget,
        placement: SignalPlacementCode,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the caller passes a live stream.
        let stream = unsafe { self.stream(stream, "signal_give")? };
        if placement == SignalPlacementCode::HOST {
            stream.refuse_capture("signal_give", FROZEN)?;
        }
        // SAFETY: the caller keeps the words live until the stream has passed this point.
        unsafe { stream.submit(Operation::Give(*target)) }
    }

    unsafe fn signal_wait(
        &self,
        wait: &SignalWait,
        placement: SignalPlacementCode,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the caller passes a live stream.
        let stream = unsafe { self.stream(stream, "signal_wait")? };
        if placement == SignalPlacementCode::HOST {
            stream.refuse_capture("signal_wait", FROZEN)?;
        }
        // SAFETY: the caller keeps the words live until the stream has passed this point.
        unsafe { stream.submit(Operation::Wait(*wait, placement)) }
    }

    unsafe fn signal_step(
        &self,
        target: &SignalTarget,
        wait: &SignalWait,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the caller passes a live stream.
        let stream = unsafe { self.stream(stream, "signal_step")? };
        // SAFETY: the caller keeps the words live until the stream has passed this point.
        unsafe { stream.submit(Operation::Step(*target, *wait)) }
    }

    unsafe fn word_update(&self, operation: &WordOperation, stream: RawStream) -> CallResult<()> {
        words::check_update(operation)?;
        // SAFETY: the caller passes a live stream.
        let stream = unsafe { self.stream(stream, "word_update")? };
        // SAFETY: the caller keeps the words live until the stream has passed this point.
        unsafe { stream.submit(Operation::UpdateWord(*operation)) }
    }

    unsafe fn word_wait(&self, wait: &WordWait, stream: RawStream) -> CallResult<()> {
        words::check_wait(wait)?;
        // SAFETY: the caller passes a live stream.
        let stream = unsafe { self.stream(stream, "word_wait")? };
        // SAFETY: the caller keeps the words live until the stream has passed this point.
        unsafe { stream.submit(Operation::WaitForWords(*wait)) }
    }
}
