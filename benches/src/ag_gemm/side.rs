//! A second stream, for work beside that of the first.

use crate::{BenchError, Result};
use symmem::backend::abi::{RawEvent, RawStream};
use symmem::backend::{Backend, CallResult, Device, Failure};
use symmem::{Communicator, Stream};

/// The stream, and the events by which it begins after another one and is waited for.
pub(super) struct Side<'a> {
    backend: &'a Backend,
    rank: usize,
    stream: Stream,
    events: Vec<RawEvent>,
}

impl<'a> Side<'a> {
    pub(super) fn new(communicator: &'a Communicator) -> Result<Self> {
        let mut side = Self {
            backend: communicator.backend(),
            rank: communicator.rank(),
            stream: communicator.stream()?,
            events: Vec::new(),
        };
        for _ in 0..2 {
            let event = side.call(side.backend.event_create())?;
            side.events.push(event);
        }
        Ok(side)
    }

    /// Enqueues `beside` on this stream and `here` on `main`, both after what `main` has done, and has
    /// `main` wait for both. `main` is not being captured.
    pub(super) fn both(
        &self,
        main: &Stream,
        beside: impl FnOnce(&Stream) -> Result<()>,
        here: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.after(&self.stream, main, self.events[0])?;
        beside(&self.stream)?;
        here()?;
        self.after(main, &self.stream, self.events[1])
    }

    /// Has a stream wait for another one.
    fn after(&self, waits: &Stream, done: &Stream, event: RawEvent) -> Result<()> {
        // SAFETY: streams and event are live.
        self.call(unsafe { self.backend.event_record(event, RawStream(done.raw())) })?;
        // SAFETY: as above.
        self.call(unsafe {
            self.backend
                .stream_wait_event(RawStream(waits.raw()), event)
        })
    }

    fn call<V>(&self, result: CallResult<V>) -> Result<V> {
        result.map_err(|failure: Failure| BenchError::Backend {
            rank: self.rank,
            operation: "two streams side by side",
            failure,
        })
    }
}

impl Drop for Side<'_> {
    fn drop(&mut self) {
        for event in &self.events {
            // SAFETY: made by `new`; no stream waits for it any more, since all is measured. Nobody is left
            // to tell of a failure.
            let _ = unsafe { self.backend.event_destroy(*event) };
        }
    }
}
