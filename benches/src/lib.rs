//! The benchmarks behind `symmem bench` and `symmem tune`.
//!
//! [`p2p`] measures bandwidth and latency between pairs of ranks, [`collectives`] collective operations, and
//! [`ag_gemm`] all-gather + GEMM, [`gemm_reduce`] GEMM + reduce-scatter and GEMM + all-reduce, and [`rms_norm`] all-reduces with
//! RMSNorm, each with baselines in the same run. [`tune`] finds the fastest algorithms for
//! collectives. [`predict`] computes times for machines that nobody has measured. [`enqueue`] measures the host time of a call, and [`bring_up`] reports the time to set up a
//! communicator. All are collective: every rank of a communicator calls them with the same options.

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
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod gemm;
pub mod gemm_reduce;
mod latency;
mod matrix;
mod outcome;
pub mod p2p;
mod pairing;
mod pairs;
mod perftest;
mod points;
mod poison;
pub mod predict;
mod process;
mod progress;
pub mod report;
pub mod rms_norm;
mod session;
mod sizes;
mod timer;
mod torch;
pub mod tune;
mod wire;

pub use error::{BenchError, Result};
pub use sizes::Effort;
