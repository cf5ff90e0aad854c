//! A second stream, for concurrent work.

use crate::Result;
use crate::event::Event;
use symmem::{Communicator, Queue, Stream};

/// The stream, and the events that order it with another stream.
pub(super) struct Side<'a> {
    stream: Stream,
    begin: Event<'a>,
    end: Event<'a>,
}

impl<'a> Side<'a> {
    pub(super) fn new(communicator: &'a Communicator) -> Result<Self> {
        Ok(Self {
            stream: communicator.stream()?,
            begin: Event::new(communicator)?,
            end: Event::new(communicator)?,
        })
    }

    /// Enqueues `beside` on this stream and `here` on `main`. Both run after the work enqueued on `main` so far, and
    /// later work on `main` waits for both. `main` must not be capturing.
    pub(super) fn both(
        &self,
        main: &Queue,
        beside: impl FnOnce(&Queue) -> Result<()>,
        here: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.begin.record(main)?;
        self.begin.hold(&self.stream)?;
        beside(&self.stream)?;
        here()?;
        self.end.record(&self.stream)?;
        self.end.hold(main)
    }
}
