//! Signals and waits on a stream.

use super::abi::*;
use super::failure::CallResult;
use enum_dispatch::enum_dispatch;

/// Gives signals, waits for them, and updates words of symmetric memory.
#[enum_dispatch]
pub trait Signals {
    /// Enqueues a signal. A reader that sees the signal sees all earlier work on the stream.
    ///
    /// # Safety
    /// The words are live until the stream has passed this point.
    unsafe fn signal_give(
        &self,
        target: &SignalTarget,
        placement: SignalPlacementCode,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Enqueues a wait: holds the stream until the signal has come. Later work sees what the giver's stream had done.
    ///
    /// With [`SignalPlacementCode::DEVICE`] a kernel waits. It leaves at the deadline or when the abort word is set, and
    /// fills the record. With [`SignalPlacementCode::HOST`] the stream waits in hardware, and only a store to the word
    /// releases it; at a failure the library's watcher makes that store.
    ///
    /// # Safety
    /// The words, the abort word and the record are live until the stream has passed this point.
    unsafe fn signal_wait(
        &self,
        wait: &SignalWait,
        placement: SignalPlacementCode,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Enqueues one step of a pipeline, a kernel of one block: gives a signal, then waits for one. Both have words on
    /// the device.
    ///
    /// # Safety
    /// As for [`Signals::signal_wait`].
    unsafe fn signal_step(
        &self,
        target: &SignalTarget,
        wait: &SignalWait,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Enqueues an atomic operation on a word of symmetric memory.
    ///
    /// # Safety
    /// The words are live until the stream has passed this point.
    unsafe fn word_update(&self, operation: &WordOperation, stream: RawStream) -> CallResult<()>;
    /// Enqueues a wait until words of this rank's own memory satisfy the condition. Later work sees what was done
    /// before they did. Leaves at the deadline or when the abort word is set, and fills the record.
    ///
    /// # Safety
    /// As for [`Signals::signal_wait`].
    unsafe fn word_wait(&self, wait: &WordWait, stream: RawStream) -> CallResult<()>;
}
