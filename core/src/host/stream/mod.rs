//! Streams, what they are asked to do, and the events that they reach.

mod events;
mod operation;
mod queue;

pub(crate) use events::Event;
pub(crate) use operation::{Operation, Recording};
pub(crate) use queue::Stream;
