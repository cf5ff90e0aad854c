//! The options of a launch.

use std::ffi::OsString;
use std::time::Duration;

/// Default time in which the other ranks may end by themselves after one has failed. A rank notices a dead peer within
/// one second.
pub const REACTION: Duration = Duration::from_millis(1500);

/// Default time between SIGTERM and SIGKILL.
pub const GRACE: Duration = Duration::from_secs(5);

/// The options of a launch.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Number of ranks.
    pub ranks: u32,
    /// The program that each rank runs, looked up in `PATH`.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Whether to prefix each line of output with `[rank] `. If not, the ranks inherit this process's standard output
    /// and standard error.
    pub prefix: bool,
    /// Environment variables to set for every rank, in addition to this process's environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Whether to print the exit code of a failed rank. The ranks of this command print their own errors.
    pub tells_codes: bool,
    /// Whether to send SIGTERM to the other ranks after one has failed. If not, they notice the failure themselves and
    /// release what they hold.
    pub asks_to_end: bool,
    /// Time after a failure in which the other ranks may print their errors and end by themselves, before SIGTERM.
    pub reaction: Duration,
    /// Time before SIGKILL: after SIGTERM or, without SIGTERM, after the failure.
    pub grace: Duration,
}

impl RunOptions {
    /// Returns options for `ranks` ranks of `program`, with prefixed output, [`REACTION`] and [`GRACE`].
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
