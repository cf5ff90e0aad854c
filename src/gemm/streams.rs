//! The streams of a plan, and the order among them.

use std::fmt;

/// A stream of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GemmStream {
    /// The caller's stream.
    Main,
    /// A stream for copies.
    Copies(usize),
    /// A stream for GEMMs.
    Gemms(usize),
}

impl fmt::Display for GemmStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Main => write!(formatter, "caller's stream"),
            Self::Copies(index) => write!(formatter, "copy stream {index}"),
            Self::Gemms(index) => write!(formatter, "GEMM stream {index}"),
        }
    }
}

/// How a step orders streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamOrder {
    /// A side stream waits for the caller's stream.
    Fork(GemmStream),
    /// The caller's stream waits for a side stream.
    Join(GemmStream),
    /// An event is recorded on a stream.
    Mark(usize, GemmStream),
    /// A stream waits for an event.
    Await(usize, GemmStream),
}

/// A step of a plan.
pub(crate) trait PlanStep: Copy {
    /// Returns how it orders streams; `None` if it does something else.
    fn order(&self) -> Option<StreamOrder>;
}
