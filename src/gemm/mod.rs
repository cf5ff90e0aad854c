//! All-gather + GEMM: `C = A · B` with `A` spread over the ranks, gathered while it is multiplied.
//!
//! `base::gemm_shape` has the shape and the division of `A`, `matrix` the layout of a matrix, `options` the
//! options, `streams` the streams of a plan. `plan` turns these into the list of steps of one rank. `selector` chooses what the caller leaves
//! open, after the tuning rows in `stored`. `workspace` is the operation's memory on the device. `operation`
//! makes an operation together with all ranks, and `explain` describes it. `call` checks the matrices of a
//! call with `check`, `enqueue` enqueues its steps. `tuning` times the heuristic candidates of cuBLASLt or hipBLASLt.
//!
//! Everything that can block happens when the operation is made: allocation, GEMM preparation, the comparison
//! of plans. A call only enqueues, and can be captured. Like every collective it synchronizes all ranks: a
//! barrier at its start, before which no rank writes memory that a peer may still read, and, only if peers read
//! this rank's shard, one at its end. So one gathered `A` serves call after call.

mod call;
pub(crate) mod check;
mod chunk;
mod enqueue;
mod explain;
pub(crate) mod matrix;
pub(crate) mod operation;
pub(crate) mod options;
pub(crate) mod plan;
pub(crate) mod prepared;
mod scratch;
pub(crate) mod selector;
pub(crate) mod side_streams;
pub(crate) mod stored;
#[cfg(test)]
pub(crate) mod stream_model;
pub(crate) mod streams;
pub(crate) mod tuning;
mod words;
mod workspace;
