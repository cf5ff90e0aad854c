//! Errors of the commands, and their exit codes.

use crate::output::{self, OutputError};
use std::process::ExitCode;
use symmem_bench::BenchError;
use symmem_bench::report::compare::CompareError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// An error of the library.
    #[error(transparent)]
    Symmem(#[from] symmem::Error),
    /// An error of a benchmark.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// Reports that cannot be compared.
    #[error(transparent)]
    Compare(#[from] CompareError),
    /// A failed write to standard output or standard error.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A failed operation on a file or process.
    #[error("{what}: {error}")]
    System {
        /// The operation that failed.
        what: String,
        /// The operating system's error.
        error: std::io::Error,
    },
    /// `--tune` with an option that excludes algorithms.
    #[error(
        "--tune stores the fastest of all algorithms of symmem, but {0} excludes some; omit that option, or use \
         --transport all"
    )]
    TunePart(String),
    /// Ctrl-C during a command that would start more ranks afterwards.
    #[cfg(feature = "cuda")]
    #[error("interrupted")]
    Interrupted,
    /// Any other error, as one sentence.
    #[error("{0}")]
    Said(String),
}

pub type Result<T> = std::result::Result<T, CommandError>;

/// The exit code for wrong use and for output that cannot be written.
const WRONG_USE: u8 = 2;
/// 128 + SIGINT.
#[cfg(feature = "cuda")]
pub const INTERRUPTED: u8 = 130;

impl CommandError {
    /// Prints the error and returns the exit code. A closed pipe is not a failure: as in ripgrep, the command then
    /// prints nothing and exits with 0.
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
