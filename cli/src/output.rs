//! All writes to standard output and standard error.
//!
//! `println!` panics if the disk is full or the pipe is closed; the functions here return the error, and the command
//! ends with it. Clippy denies `println!` and its relatives in this crate.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// A failed write to standard output or standard error.
#[derive(Debug, thiserror::Error)]
#[error("writing to {}: {error}{}", stream.name(), advice(error))]
pub(crate) struct OutputError {
    stream: Stream,
    error: io::Error,
}

impl OutputError {
    pub(crate) fn new(stream: Stream, error: io::Error) -> Self {
        Self { stream, error }
    }

    /// Returns the stream that could not be written.
    pub(crate) fn stream(&self) -> Stream {
        self.stream
    }

    /// Returns the system's error.
    pub(crate) fn cause(&self) -> &io::Error {
        &self.error
    }

    /// Returns whether the reader of a pipe has closed it, as `head` does.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stream {
    Output,
    Error,
}

impl Stream {
    /// Writes all of `bytes` under one lock, so that lines of several threads do not mix.
    pub(crate) fn write(self, bytes: &[u8]) -> Result {
        let written = match self {
            Self::Output => {
                let mut output = io::stdout().lock();
                output.write_all(bytes).and_then(|()| output.flush())
            }
            Self::Error => io::stderr().lock().write_all(bytes),
        };
        written.map_err(|error| OutputError::new(self, error))
    }

    /// Returns the error of a closed pipe if this stream is a pipe without a reader.
    pub(crate) fn lost_reader(self) -> Option<OutputError> {
        let (output, error) = (io::stdout(), io::stderr());
        let mut polled = [match self {
            Self::Output => PollFd::new(&output, PollFlags::empty()),
            Self::Error => PollFd::new(&error, PollFlags::empty()),
        }];
        poll(&mut polled, Some(&Timespec::default())).ok()?;
        let is_lost = polled[0].revents().contains(PollFlags::ERR);
        is_lost.then(|| OutputError::new(self, ErrorKind::BrokenPipe.into()))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Output => "standard output",
            Self::Error => "standard error",
        }
    }

    /// Returns whether the stream is a terminal.
    pub(crate) fn is_terminal(self) -> bool {
        match self {
            Self::Output => io::stdout().is_terminal(),
            Self::Error => io::stderr().is_terminal(),
        }
    }

    /// Returns whether to color text: as `--color` says, otherwise only on a terminal without `NO_COLOR` and not dumb.
    pub(crate) fn has_color(self) -> bool {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        match color() {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
                !is_set("NO_COLOR") && !is_dumb && self.is_terminal()
            }
        }
    }
}

/// When to color output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always, also in pipes and files
    Always,
    /// Never
    Never,
}

/// The value of `--color`, as the discriminant of a [`Color`].
static COLOR: AtomicU8 = AtomicU8::new(Color::Auto as u8);

/// Whether standard output is reserved for data.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Stores the value of `--color`.
pub(crate) fn set_color(color: Color) {
    COLOR.store(color as u8, Ordering::Relaxed);
}

/// Returns the value of `--color`.
pub(crate) fn color() -> Color {
    match COLOR.load(Ordering::Relaxed) {
        1 => Color::Always,
        2 => Color::Never,
        _ => Color::Auto,
    }
}

/// Returns the `--color` argument for the ranks that this process starts.
pub(crate) fn color_argument() -> OsString {
    match color() {
        Color::Auto => "--color=auto",
        Color::Always => "--color=always",
        Color::Never => "--color=never",
    }
    .into()
}

/// Reserves standard output for [`data`]: from now on, [`text`] goes to standard error.
pub(crate) fn keep_for_data() {
    TAKEN.store(true, Ordering::Relaxed);
}

/// Returns whether standard output is reserved for data.
pub(crate) fn is_kept_for_data() -> bool {
    TAKEN.load(Ordering::Relaxed)
}

/// Writes text for people, such as tables.
pub(crate) fn text(text: impl Display) -> Result {
    let stream = match is_kept_for_data() {
        true => Stream::Error,
        false => Stream::Output,
    };
    stream.write(text.to_string().as_bytes())
}

/// Writes data for programs to standard output.
pub(crate) fn data(text: &str) -> Result {
    Stream::Output.write(text.as_bytes())
}

/// Writes a line to standard error.
pub(crate) fn note(line: impl Display) -> Result {
    Stream::Error.write(format!("{line}\n").as_bytes())
}

/// Writes an error message. Ignores a failed write, since the exit code tells of the error, too.
pub(crate) fn last_words(reason: impl Display) {
    let _ = match Stream::Error.has_color() {
        true => note(format_args!("\x1b[1;31msymmem:\x1b[0m {reason}")),
        false => note(format_args!("symmem: {reason}")),
    };
}
