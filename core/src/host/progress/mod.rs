//! Steps of work, and how they wait.

mod policy;
mod step;
mod word;

pub(crate) use policy::{ATTENDED, GRACE, HELPED, Policy};
pub(crate) use step::{
    ABORT_WORD_SET, Bounds, DEADLINE_PASSED, Pending, PollOutcome, Step, fill_record, is_aborted,
    look,
};
#[cfg(test)]
pub(crate) use word::LONGEST_SLEEP;
pub use word::Sleeper;
pub(crate) use word::{SignalWord, Sleep, long_at, wake, word_at};
