//! GEMM + reduce-scatter and GEMM + all-reduce: `C = Σ A_r · B_r` over the ranks `r`, added up while it is multiplied.
//!
//! `shape` has the shape, `options` the options and the algorithms. `plan` turns these into the list of steps of one rank.
//! `selector` chooses what the caller leaves open, `fused` knows the kernels that multiply and reduce in one launch. `words` has the words with which ranks signal sums, `workspace` the
//! operation's memory on the device. `operation` makes an operation together with all ranks, and `explain` describes it.
//! `call` checks the matrices of a call, `enqueue` enqueues its steps.
//!
//! As in `gemm`, everything that can block happens when the operation is made. A call only enqueues, and can be captured.

pub(crate) mod call;
mod enqueue;
mod explain;
mod fused;
pub(crate) mod operation;
pub(crate) mod options;
pub(crate) mod plan;
mod selector;
pub(crate) mod shape;
mod words;
mod workspace;
