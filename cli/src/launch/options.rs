//! What to run and how.

use std::ffi::OsString;
use std::time::Duration;

/// Time that the other ranks have to notice that one has failed, unless the options say otherwise. A rank knows of a
/// peer's death within a second.
pub const REACTION: Duration = Duration::from_millis(1500);

/// Time that ranks have to end once they were asked to, unless the options say otherwise.
pub const GRACE: Duration = Duration::from_secs(5);

/// What to run and how.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// How many ranks.
    pub ranks: u32,
    /// The program each of them runs, looked up in `PATH`.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Whether each line of output starts with `[rank] `. Without, the ranks write to this process's
    /// standard output and error themselves.
    pub prefix: bool,
    /// Variables to set for every rank, besides this process's own.
    pub environment: Vec<(OsString, OsString)>,
    /// Whether to say which code a rank failed with. Ranks of this command say why they fail themselves.
    pub tells_codes: bool,
    /// Whether the other ranks are asked to end (SIGTERM) once one has failed. Those that are not find out by
    /// themselves, and give back what they have.
    pub asks_to_end: bool,
    /// Time the other ranks have after one has failed to say what that means for them, and to end by themselves,
    /// before they are asked to.
    pub reaction: Duration,
    /// Time the other ranks have to end once they were asked to or, if they are not, after one has failed.
    pub grace: Duration,
}

impl RunOptions {
    /// `ranks` ranks of `program`, with prefixed output and the usual [`REACTION`] and [`GRACE`].
    pub fn new(ranks: u32, program: impl Into<OsString>) -> Self {
        Self {
            ranks,
            program: program.into(),
            arguments: Vec::new(),
            prefix: true,
            environment: Vec::new(),
            tells_codes: true,
            asks_to_end: true,
            reaction: REACTION,
            grace: GRACE,
        }
    }
}
