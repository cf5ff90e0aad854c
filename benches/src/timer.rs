//! Time on the device between two points of a stream.

use super::{BenchError, Result};
use symmem::backend::abi::{RawEvent, RawStream};
use symmem::backend::{Backend, CallResult, Device};
use symmem::{Communicator, Stream};

/// Two events on a stream.
pub(super) struct Timer<'a> {
    backend: &'a Backend,
    rank: usize,
    start: RawEvent,
    end: RawEvent,
}

impl<'a> Timer<'a> {
    pub(super) fn new(communicator: &'a Communicator) -> Result<Self> {
        let backend = communicator.backend();
        let rank = communicator.rank();
        let create = || backend.event_create().map_err(|f| failed(rank, f));
        let start = create()?;
        let end = match create() {
            Ok(end) => end,
            Err(error) => {
                // SAFETY: created above and used by nobody.
                let _ = unsafe { backend.event_destroy(start) };
                return Err(error);
            }
        };
        Ok(Self {
            backend,
            rank,
            start,
            end,
        })
    }

    fn call<T>(&self, result: CallResult<T>) -> Result<T> {
        result.map_err(|failure| failed(self.rank, failure))
    }

    /// The time begins where the stream gets here.
    pub(super) fn begin(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both live as long as the values borrowed here.
        self.call(unsafe {
            self.backend
                .event_record(self.start, RawStream(stream.raw()))
        })
    }

    /// The time ends where the stream gets here.
    pub(super) fn end(&self, stream: &Stream) -> Result<()> {
        // SAFETY: as above.
        self.call(unsafe { self.backend.event_record(self.end, RawStream(stream.raw())) })
    }

    /// Nanoseconds between the two points; the stream has passed both.
    pub(super) fn nanoseconds(&self) -> Result<f64> {
        // SAFETY: both are live and were recorded by a stream that was synchronized since.
        self.call(unsafe { self.backend.event_elapsed(self.start, self.end) })
            .map(|nanoseconds| nanoseconds as f64)
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        // SAFETY: created by `new`, destroyed only here. Nobody is left to tell of a failure.
        unsafe {
            let _ = self.backend.event_destroy(self.start);
            let _ = self.backend.event_destroy(self.end);
        }
    }
}

fn failed(rank: usize, failure: symmem::backend::Failure) -> BenchError {
    BenchError::Backend {
        rank,
        operation: "timing",
        failure,
    }
}
