//! The one place that writes to standard output and standard error.
//!
//! `println!` panics if the disk is full or the pipe is closed; every function here returns the error, and the
//! command ends with it. Clippy refuses `println!` and its relatives in this crate.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};

/// Why nothing more can be written.
#[derive(Debug, thiserror::Error)]
#[error("writing to {stream}: {error}{}", advice(error))]
pub(crate) struct OutputError {
    stream: &'static str,
    error: io::Error,
}

impl OutputError {
    /// Whether the reader of a pipe has gone, as `head` does: no reason for words.
    pub(crate) fn is_closed(&self) -> bool {
        self.error.kind() == ErrorKind::BrokenPipe
    }
}

impl From<OutputError> for io::Error {
    fn from(error: OutputError) -> Self {
        Self::new(error.error.kind(), error)
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull => "; free some space or write elsewhere",
        _ => "",
    }
}

pub(crate) type Result = std::result::Result<(), OutputError>;

/// Standard output or standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Output,
    Error,
}

impl Stream {
    /// Writes all of `bytes` at once: lines of several threads do not mix.
    pub(crate) fn write(self, bytes: &[u8]) -> Result {
        let written = match self {
            Self::Output => {
                let mut output = io::stdout().lock();
                output.write_all(bytes).and_then(|()| output.flush())
            }
            Self::Error => io::stderr().lock().write_all(bytes),
        };
        written.map_err(|error| self.failed(error))
    }

    /// The error of a pipe whose reader has gone, if this is one.
    pub(crate) fn lost_reader(self) -> Option<OutputError> {
        let (output, error) = (io::stdout(), io::stderr());
        let mut polled = [match self {
            Self::Output => PollFd::new(&output, PollFlags::empty()),
            Self::Error => PollFd::new(&error, PollFlags::empty()),
        }];
        poll(&mut polled, Some(&Timespec::default())).ok()?;
        let is_lost = polled[0].revents().contains(PollFlags::ERR);
        is_lost.then(|| self.failed(ErrorKind::BrokenPipe.into()))
    }

    fn failed(self, error: io::Error) -> OutputError {
        let stream = match self {
            Self::Output => "standard output",
            Self::Error => "standard error",
        };
        OutputError { stream, error }
    }

    /// Whether a person looks at it.
    pub(crate) fn is_terminal(self) -> bool {
        match self {
            Self::Output => io::stdout().is_terminal(),
            Self::Error => io::stderr().is_terminal(),
        }
    }
}

/// Writes what a person reads: tables, findings.
pub(crate) fn text(text: impl Display) -> Result {
    Stream::Output.write(text.to_string().as_bytes())
}

/// Writes a line beside the result, to standard error.
pub(crate) fn note(line: impl Display) -> Result {
    Stream::Error.write(format!("{line}\n").as_bytes())
}

/// Writes why the command ends. Where even that cannot be written, the exit code says it.
pub(crate) fn last_words(reason: impl Display) {
    let _ = note(format_args!("symmem: {reason}"));
}
