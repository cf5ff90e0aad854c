//! Why a command failed.

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
    /// Anything that needs no more than a sentence.
    #[error("{0}")]
    Said(String),
}

pub type Result<T> = std::result::Result<T, CommandError>;
