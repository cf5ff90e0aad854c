//! Why a command failed, and the exit code that says so.

use crate::output::{self, OutputError};
use std::process::ExitCode;
use symmem_bench::BenchError;
use symmem_bench::report::compare::CompareError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// What the library failed with.
    #[error(transparent)]
    Symmem(#[from] symmem::Error),
    /// What a benchmark failed with.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// Why reports cannot be compared.
    #[error(transparent)]
    Compare(#[from] CompareError),
    /// Standard output or standard error takes no more.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A file or process.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: String,
        /// The operating system's answer.
        error: std::io::Error,
    },
    /// A tuning that not all ways take part in.
    #[error(
        "--tune stores the fastest of all of ours, and {0} leaves some out: leave that option out, or say \
         --transport all"
    )]
    TunePart(String),
    /// Ctrl-C while ranks of a command ran that would go on after them.
    #[cfg(feature = "cuda")]
    #[error("interrupted")]
    Interrupted,
    /// Anything that needs no more than a sentence.
    #[error("{0}")]
    Said(String),
}

pub type Result<T> = std::result::Result<T, CommandError>;

/// The exit code for wrong use, and for output that cannot be written.
const WRONG_USE: u8 = 2;
/// 128 + SIGINT.
#[cfg(feature = "cuda")]
pub const INTERRUPTED: u8 = 130;

impl CommandError {
    /// Says why, and with which code this process ends. A closed pipe is the reader's wish and no failure: like
    /// ripgrep, the command then ends with 0 and says nothing.
    pub fn end(self) -> ExitCode {
        let code = match &self {
            Self::Output(error) if error.is_closed() => return ExitCode::SUCCESS,
            #[cfg(feature = "cuda")]
            Self::Interrupted => return ExitCode::from(INTERRUPTED),
            Self::Symmem(_) | Self::Bench(_) => ExitCode::FAILURE,
            Self::Compare(_)
            | Self::Output(_)
            | Self::System { .. }
            | Self::TunePart(_)
            | Self::Said(_) => ExitCode::from(WRONG_USE),
        };
        output::last_words(&self);
        code
    }
}
