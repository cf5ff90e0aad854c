//! Why a benchmark could not be run to its end.

use symmem::backend::Failure;

/// Result of a benchmark.
pub type Result<T> = std::result::Result<T, BenchError>;

/// Why a benchmark could not be run to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// What symmem itself failed with.
    #[error(transparent)]
    Symmem(#[from] symmem::Error),
    /// A call to the backend failed.
    #[error("rank {rank}: {operation}: {failure}")]
    Backend {
        /// The rank that called.
        rank: usize,
        /// What the benchmark was doing.
        operation: &'static str,
        /// The backend's own words.
        failure: Failure,
    },
    /// The baseline's process could not be started, broke off or said what nobody understands.
    #[error("rank {rank}: baseline {program}: {message}")]
    Baseline {
        /// The rank whose process it was.
        rank: usize,
        /// Its file.
        program: String,
        /// What happened and what to do.
        message: String,
    },
    /// Figures from another rank that this version does not understand.
    #[error(
        "rank {rank}: figures of rank {peer} cannot be read ({reason}); is it the same version?"
    )]
    Exchange {
        /// The rank that read.
        rank: usize,
        /// The rank that wrote.
        peer: usize,
        /// What is wrong with them.
        reason: String,
    },
    /// A world in which there is nothing to measure.
    #[error("rank {rank}: {message}")]
    World {
        /// This rank.
        rank: usize,
        /// What is missing.
        message: String,
    },
    /// A clock that did not advance, or a kernel that gave up.
    #[error("rank {rank}: {what} gave no time; {advice}")]
    NoTime {
        /// This rank.
        rank: usize,
        /// What was timed.
        what: String,
        /// What to do.
        advice: &'static str,
    },
}
