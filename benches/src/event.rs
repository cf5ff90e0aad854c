//! Points of a queue: for the time between two of them, and for other queues to wait for.

use super::{BenchError, Result};
use symmem::backend::abi::{RawEvent, RawStream};
use symmem::backend::{Backend, CallResult, Device};
use symmem::{Communicator, Queue};

/// A point of a queue, once it is recorded.
pub(crate) struct Event<'a> {
    backend: &'a Backend,
    rank: usize,
    raw: RawEvent,
}

impl<'a> Event<'a> {
    pub(crate) fn new(communicator: &'a Communicator) -> Result<Self> {
        // SAFETY: it makes events, records them and destroys them, and has queues wait for them.
        let backend = unsafe { communicator.backend() };
        let rank = communicator.rank();
        Ok(Self {
            raw: told(rank, backend.event_create())?,
            backend,
            rank,
        })
    }

    /// It is where the queue gets here.
    pub(crate) fn record(&self, queue: &Queue) -> Result<()> {
        // SAFETY: both live as long as the values borrowed here.
        let recorded = unsafe { self.backend.event_record(self.raw, RawStream(queue.raw())) };
        told(self.rank, recorded)
    }

    /// Has a queue wait for it.
    pub(crate) fn hold(&self, queue: &Queue) -> Result<()> {
        let queue = RawStream(queue.raw());
        // SAFETY: as above.
        told(self.rank, unsafe {
            self.backend.stream_wait_event(queue, self.raw)
        })
    }

    /// Nanoseconds from it to another point; the device has passed both.
    pub(crate) fn nanoseconds_to(&self, end: &Self) -> Result<f64> {
        // SAFETY: both are live.
        let elapsed = unsafe { self.backend.event_elapsed(self.raw, end.raw) };
        Ok(told(self.rank, elapsed)? as f64)
    }
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        // SAFETY: created by `new`, destroyed only here. Nobody is left to tell of a failure.
        let _ = unsafe { self.backend.event_destroy(self.raw) };
    }
}

fn told<V>(rank: usize, result: CallResult<V>) -> Result<V> {
    result.map_err(|failure| BenchError::Backend {
        rank,
        operation: "timing",
        failure,
    })
}
