//! Time and bytes of hierarchical collectives by a formula, for machines that nobody has measured.
//!
//! A hierarchical collective has a stage inside each node, a *leg* between nodes for each local rank, and another
//! stage inside. [`traffic()`] counts what a stage asks of one rank; [`cost`] multiplies the counts with the constants
//! of a [`Machine`]; [`best`] tries every algorithm and number of chunks, [`best_of`] those that a
//! program has; [`fit`] finds constants from measured runs.
//! These functions neither block nor read anything.
//!
//! # The formula
//!
//! A stage whose messages follow each other in `s` steps takes
//!
//! ```text
//! t = s·α + m·g + b/β + r/γ
//! ```
//!
//! α is the latency of the link in seconds and β its bandwidth in bytes per second (Hockney, *The communication
//! challenge for MPP*, 1994); g is the time for which one more message occupies its sender (LogGP: Alexandrov and
//! others, 1995), and γ the rate of the reduction in bytes per second. m, b and r are messages, bytes and reduced
//! bytes of the busiest rank, added over the steps. Links are full duplex. Messages that a rank sends in the same
//! step share one latency and the link. Ranks that share a rail add their messages and bytes.
//!
//! With `c` equal chunks, the stages of different chunks overlap:
//!
//! ```text
//! T(c) = Σ t(B/c) + (c − 1) · max(i, l, d)
//! ```
//!
//! The first term is the time of one chunk through all stages. The second is the time that each further chunk adds:
//! that of the busiest resource. `i` is the time of the chunk's stages inside the node, latency included, because
//! kernels on one stream follow each other. `l = m'·g + b'/β` is the time for which the chunk occupies the rail, and
//! `d = r'/γ` the time that its reductions in the leg take; m', b' and r' are those of one rank in one direction.
//! Latency between nodes occupies nothing: the chunks that it needs are assumed to be in flight together. T is convex
//! in `c`, so its least value is found by bisection.
//!
//! # Sources of the counts
//!
//! - Ring, binomial tree, recursive halving and doubling: Thakur, Rabenseifner and Gropp, *Optimization of Collective
//!   Communication Operations in MPICH*, 2005.
//! - The same for numbers of nodes that are no powers of two: Bruck and others, 1997, for all-gather and all-to-all;
//!   Träff, *Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms*, 2024, for the reductions.
//! - Rings over rails, and stages inside the node before and after: NCCL. Its double binary trees are not among the
//!   algorithms here: halving and doubling has the same bytes and as few steps.
//!
//! What the formula leaves out: congestion in the fabric, which halving and doubling over many nodes meets sooner than
//! a ring does, stragglers, the protocol's switch from eager to rendezvous,
//! and the time to start the first kernel. Small calls inside a node take other algorithms than the formula's direct
//! exchange, so compare its times with measured ones before you trust them; [`Fit`] has the error.

mod algorithm;
mod fit;
mod machine;
mod preset;
#[cfg(test)]
mod schedule;
#[cfg(test)]
mod schedule_tests;
mod stages;
#[cfg(test)]
mod tests;
mod time;
mod traffic;

pub use algorithm::{Hierarchical, LegAlgorithm, NodeStage};
pub use fit::{Fit, Measurement, fit};
pub use machine::{CONSTANTS, Constant, Link, MOST, Machine};
pub use preset::{Origin, Preset};
pub use time::{Cost, MOST_CHUNKS, best, best_of, cost, fastest_chunks};
pub use traffic::{Traffic, Work, traffic};
