//! Signals on a stream.

use super::abi::*;
use super::failure::CallResult;
use enum_dispatch::enum_dispatch;

/// Give a signal, wait for a signal.
#[enum_dispatch]
pub trait Signals {
    /// Gives the signal once all earlier work on the stream is visible to whoever sees it.
    ///
    /// # Safety
    /// The words are live until the stream has passed this point.
    unsafe fn signal_give(
        &self,
        target: &SignalTarget,
        placement: SignalPlacement,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Holds the stream until the signal has come; later work sees what the giver's stream had done.
    ///
    /// With [`SignalPlacement::DEVICE`] a kernel waits: it leaves at the deadline or when the abort
    /// word is set, and fills the record. With [`SignalPlacement::HOST`] the stream waits in
    /// hardware and only a store to the word releases it: core's watcher gives that.
    ///
    /// # Safety
    /// The words, the abort word and the record are live until the stream has passed this point.
    unsafe fn signal_wait(
        &self,
        wait: &SignalWait,
        placement: SignalPlacement,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Gives a signal and then waits for one, as a step of a pipeline: one kernel of one block. Both
    /// have words on the device.
    ///
    /// # Safety
    /// As [`Signals::signal_wait`].
    unsafe fn signal_step(
        &self,
        target: &SignalTarget,
        wait: &SignalWait,
        stream: RawStream,
    ) -> CallResult<()>;
    /// An atomic operation on a word of symmetric memory.
    ///
    /// # Safety
    /// The words are live until the stream has passed this point.
    unsafe fn word_update(&self, operation: &WordOperation, stream: RawStream) -> CallResult<()>;
    /// Holds the stream until words of this rank's own memory are as they should be; later work sees
    /// what was done before they became so. Leaves at the deadline or when the abort word is set, and
    /// fills the record.
    ///
    /// # Safety
    /// As [`Signals::signal_wait`].
    unsafe fn word_wait(&self, wait: &WordWait, stream: RawStream) -> CallResult<()>;
}
