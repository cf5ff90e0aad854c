//! A second stream, for work beside that of the first.

use crate::Result;
use crate::event::Event;
use symmem::{Communicator, Queue, Stream};

/// The stream, and the events by which it begins after another one and is waited for.
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

    /// Enqueues `beside` on this stream and `here` on `main`, both after what `main` has done, and has
    /// `main` wait for both. `main` is not being captured.
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
