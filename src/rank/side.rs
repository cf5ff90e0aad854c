//! Streams of the library's own that take part of the work of a caller's stream.

use crate::backend::abi::{RawEvent, RawStream};
use crate::backend::{Backend, CallResult, Device};
use crate::base::error::Result;
use crate::rank::context::{Inner, KnownStream, lock};

/// A stream that forks from a caller's and joins it again, and the event that keeps the two in order:
/// each wait is for the record before it, so one event serves for both.
///
/// All calls can be captured; the stream then takes part in the capture until that ends.
#[derive(Clone, Copy)]
pub struct SideStream {
    raw: RawStream,
    event: RawEvent,
}

impl SideStream {
    /// The stream.
    pub fn raw(&self) -> RawStream {
        self.raw
    }

    /// Lets it begin once `from` has come here.
    ///
    /// # Safety
    /// Both are live.
    pub unsafe fn fork(&self, backend: &Backend, from: RawStream) -> CallResult<()> {
        // SAFETY: the caller's word.
        unsafe {
            backend.event_record(self.event, from)?;
            backend.stream_wait_event(self.raw, self.event)
        }
    }

    /// Lets `into` go on once it has done its work.
    ///
    /// # Safety
    /// Both are live.
    pub unsafe fn join(&self, backend: &Backend, into: RawStream) -> CallResult<()> {
        // SAFETY: the caller's word.
        unsafe {
            backend.event_record(self.event, self.raw)?;
            backend.stream_wait_event(into, self.event)
        }
    }
}

impl Inner {
    /// A new side stream. It is known as callers' streams are, so nothing that it may use is released
    /// while it has work; it ends with [`Inner::close_side_stream`] or with the communicator.
    pub fn side_stream(&self) -> Result<SideStream> {
        let failed = |call| move |failure| self.failed(call, failure);
        let raw = self
            .backend
            .stream_create()
            .map_err(failed("stream_create"))?;
        let event = self.backend.event_create().inspect_err(|_| {
            // SAFETY: made above, and used by nobody. Nothing is to be done about a failure.
            let _ = unsafe { self.backend.stream_destroy(raw) };
        });
        let event = event.map_err(failed("event_create"))?;
        lock(&self.streams).push(KnownStream {
            raw,
            owned: true,
            event: Some(event),
            closing: false,
        });
        Ok(SideStream { raw, event })
    }

    /// Gives a side stream up; it goes once it is idle.
    pub fn close_side_stream(&self, side: SideStream) {
        self.close_stream(side.raw, true);
    }
}
