//! The benchmarks behind `symmem bench`: what one-sided memory does on this machine.
//!
//! [`p2p`] measures bandwidth and latency between pairs of ranks, [`collectives`] operations of all
//! ranks, both beside baselines in the same run, as [`ag_gemm`] does all-gather with a GEMM; [`tune`] finds the best
//! algorithms for collectives; [`enqueue`] measures what a call costs the host, and [`bring_up`] notes what a
//! communicator did. All are collective: every rank of a communicator calls them with the same options.

pub mod ag_gemm;
mod baseline;
pub mod bring_up;
mod candidates;
mod clock;
pub mod collectives;
mod data;
pub mod enqueue;
pub mod environment;
mod exchange;
mod latency;
mod matrix;
mod outcome;
pub mod p2p;
mod pairing;
mod points;
mod process;
pub mod report;
mod session;
mod sizes;
mod timer;
mod torch;
pub mod tune;

pub use sizes::Effort;

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
