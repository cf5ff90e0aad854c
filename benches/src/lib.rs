//! The benchmarks behind `symmem bench`: what one-sided memory does on this machine.
//!
//! [`p2p`] measures bandwidth and latency between pairs of ranks, [`collectives`] operations of all
//! ranks, both beside baselines in the same run, as [`ag_gemm`] does all-gather with a GEMM; [`tune`] finds the best
//! algorithms for collectives; [`enqueue`] measures what a call costs the host, and [`bring_up`] notes what a
//! communicator did. All are collective: every rank of a communicator calls them with the same options.

pub mod ag_gemm;
mod baseline;
pub mod bring_up;
mod by_caller;
mod candidates;
mod clock;
pub mod collectives;
mod common;
mod data;
pub mod enqueue;
pub mod environment;
mod error;
mod event;
mod exchange;
mod latency;
mod matrix;
mod outcome;
pub mod p2p;
mod pairing;
mod pairs;
mod points;
mod poison;
mod process;
mod progress;
pub mod report;
mod session;
mod sizes;
mod timer;
mod torch;
pub mod tune;

pub use error::{BenchError, Result};
pub use sizes::Effort;
