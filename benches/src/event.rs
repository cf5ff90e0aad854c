//! Events on queues, for timing and for other queues to wait for.

use super::{BenchError, Result};
use symmem::backend::abi::{RawEvent, RawStream};
use symmem::backend::{Backend, CallResult, Device};
use symmem::{Communicator, Queue};

/// A backend's event; destroyed when dropped.
pub(crate) struct Event<'a> {
    backend: &'a Backend,
    rank: usize,
    raw: RawEvent,
}

impl<'a> Event<'a> {
    pub(crate) fn new(communicator: &'a Communicator) -> Result<Self> {
        // SAFETY: the backend only creates, records, waits for and destroys events here.
        let backend = unsafe { communicator.backend() };
        let rank = communicator.rank();
        Ok(Self {
            raw: at_rank(rank, backend.event_create())?,
            backend,
            rank,
        })
    }

    pub(crate) fn record(&self, queue: &Queue) -> Result<()> {
        // SAFETY: event and stream live as long as the values borrowed here.
        let recorded = unsafe { self.backend.event_record(self.raw, RawStream(queue.raw())) };
        at_rank(self.rank, recorded)
    }

    /// Enqueues a wait for the event.
    pub(crate) fn hold(&self, queue: &Queue) -> Result<()> {
        let queue = RawStream(queue.raw());
        // SAFETY: event and stream live as long as the values borrowed here.
        at_rank(self.rank, unsafe {
            self.backend.stream_wait_event(queue, self.raw)
        })
    }

    /// Returns the nanoseconds from this event to `end`. The device must have passed both.
    pub(crate) fn nanoseconds_to(&self, end: &Self) -> Result<f64> {
        // SAFETY: both events are live, since both values are borrowed.
        let elapsed = unsafe { self.backend.event_elapsed(self.raw, end.raw) };
        Ok(at_rank(self.rank, elapsed)? as f64)
    }
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        // SAFETY: `new` created the event, and only this destroys it. A failure cannot be reported from here.
        let _ = unsafe { self.backend.event_destroy(self.raw) };
    }
}

fn at_rank<V>(rank: usize, result: CallResult<V>) -> Result<V> {
    result.map_err(|failure| BenchError::Backend {
        rank,
        operation: "timing",
        failure,
    })
}
