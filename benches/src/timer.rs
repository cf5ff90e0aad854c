//! Device time between two points of a stream.

use super::Result;
use super::event::Event;
use symmem::{Communicator, Queue};

/// Two events on a queue.
pub(super) struct Timer<'a> {
    start: Event<'a>,
    end: Event<'a>,
}

impl<'a> Timer<'a> {
    pub(super) fn new(communicator: &'a Communicator) -> Result<Self> {
        Ok(Self {
            start: Event::new(communicator)?,
            end: Event::new(communicator)?,
        })
    }

    pub(super) fn begin(&self, queue: &Queue) -> Result<()> {
        self.start.record(queue)
    }

    pub(super) fn end(&self, queue: &Queue) -> Result<()> {
        self.end.record(queue)
    }

    /// Returns the nanoseconds between the two points. The device must have passed both.
    pub(super) fn nanoseconds(&self) -> Result<f64> {
        self.start.nanoseconds_to(&self.end)
    }
}
