//! Streams, their operations, and events.

mod events;
mod operation;
mod queue;

pub(crate) use events::Event;
pub(crate) use operation::{Operation, Recording};
pub(crate) use queue::Stream;
