//! Side streams, which take part of the work of a caller's stream, and the end of any stream.

use crate::backend::abi::{RawEvent, RawStream};
use crate::backend::{Backend, CallResult, Device};
use crate::base::error::Result;
use crate::rank::driver::Driver;
use crate::rank::release::{Held, Progress, Resource};
use crate::rank::streams::KnownStream;
use std::sync::Arc;

/// A stream that forks from a caller's and joins it again, and the event that orders the two. Each wait is for
/// the record before it, so one event serves for both.
///
/// All calls can be captured; the stream then takes part in the capture until it ends.
#[derive(Clone, Copy)]
pub struct SideStream {
    raw: RawStream,
    event: RawEvent,
}

impl SideStream {
    /// Makes a side stream. It is registered as callers' streams are, so nothing that it may use is released
    /// while it has work. It ends with [`SideStream::closing`] or with the communicator.
    ///
    /// # Errors
    /// The backend's errors.
    pub fn open(driver: &Driver) -> Result<Self> {
        let failed = |call| move |failure| driver.failed(call, failure);
        let backend = &driver.backend;
        let raw = backend.stream_create().map_err(failed("stream_create"))?;
        let event = backend.event_create().inspect_err(|_| {
            // SAFETY: made above, and not used. A failure cannot be handled here.
            let _ = unsafe { backend.stream_destroy(raw) };
        });
        let event = event.map_err(failed("event_create"))?;
        driver.add_stream(KnownStream {
            raw,
            owned: true,
            event: Some(event),
            admitted: 0,
        });
        Ok(Self { raw, event })
    }

    /// Returns the stream.
    pub fn raw(&self) -> RawStream {
        self.raw
    }

    /// Returns the resource that destroys it once it is idle.
    pub fn closing(&self) -> Held {
        ClosingStream::held(self.raw, true)
    }

    /// Makes it wait for the work on `from` so far.
    ///
    /// # Safety
    /// Both are live.
    pub unsafe fn fork(&self, backend: &Backend, from: RawStream) -> CallResult<()> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            backend.event_record(self.event, from)?;
            backend.stream_wait_event(self.raw, self.event)
        }
    }

    /// Makes `into` wait for the work on it so far.
    ///
    /// # Safety
    /// Both are live.
    pub unsafe fn join(&self, backend: &Backend, into: RawStream) -> CallResult<()> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            backend.event_record(self.event, self.raw)?;
            backend.stream_wait_event(into, self.event)
        }
    }
}

/// A stream whose handle is gone.
pub struct ClosingStream {
    raw: RawStream,
    owned: bool,
}

impl ClosingStream {
    /// Returns the resource that destroys the stream once it is idle; a caller's stream is only forgotten.
    pub fn held(raw: RawStream, owned: bool) -> Held {
        Arc::new(Self { raw, owned })
    }
}

impl Resource for ClosingStream {
    fn release(&self, driver: &Driver, _quiet: bool, _unheld: bool) -> Progress {
        let Some(stream) = driver.forget_idle_stream(self.raw, self.owned) else {
            return Progress::Waits;
        };
        destroy(driver, &stream);
        Progress::done(true)
    }
}

/// Destroys the library's part of a stream that has no work and no handle.
pub fn destroy(driver: &Driver, stream: &KnownStream) {
    if stream.owned {
        // SAFETY: live, idle, and no handle is left.
        if let Err(failure) = unsafe { driver.backend.stream_destroy(stream.raw) } {
            tracing::warn!(rank = driver.rank, %failure, "stream_destroy failed");
        }
    }
    if let Some(event) = stream.event {
        // SAFETY: made with the stream, and used by its forks and joins only.
        if let Err(failure) = unsafe { driver.backend.event_destroy(event) } {
            tracing::warn!(rank = driver.rank, %failure, "event_destroy failed");
        }
    }
}
