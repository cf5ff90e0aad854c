//! Errors of benchmarks.

use symmem::backend::Failure;

/// Result of a benchmark.
pub type Result<T> = std::result::Result<T, BenchError>;

/// Why a benchmark failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// An error of the library.
    #[error(transparent)]
    Symmem(#[from] symmem::Error),
    /// A call to the backend failed.
    #[error("rank {rank}: {operation}: {failure}")]
    Backend {
        /// The rank that called.
        rank: usize,
        /// The operation of the benchmark.
        operation: &'static str,
        /// The backend's error.
        failure: Failure,
    },
    /// The process of a baseline could not be started, failed, or gave an unexpected answer.
    #[error("rank {rank}: baseline {program}: {message}")]
    Baseline {
        /// The rank that owns the process.
        rank: usize,
        /// The program's file.
        program: String,
        /// What happened, and what to do.
        message: String,
    },
    /// Measurements from another rank could not be parsed.
    #[error(
        "rank {rank}: cannot read the measurements of rank {peer} ({reason}); use the same version on all ranks"
    )]
    Exchange {
        /// The rank that read.
        rank: usize,
        /// The rank that wrote.
        peer: usize,
        /// The parser's error.
        reason: String,
    },
    /// The world does not fit the benchmark, for example has too few ranks.
    #[error("rank {rank}: {message}")]
    World {
        /// This rank.
        rank: usize,
        /// What is missing, and what to do.
        message: String,
    },
    /// A prediction that cannot be made.
    #[error("{message}")]
    Prediction {
        /// What is wrong, and what to do.
        message: String,
    },
    /// A clock did not advance, or a kernel timed out.
    #[error("rank {rank}: {what} could not be timed; {advice}")]
    NoTime {
        /// This rank.
        rank: usize,
        /// The operation to be timed.
        what: String,
        /// What to do.
        advice: &'static str,
    },
}
