//! Products of matrices one of which is spread over the ranks: `C = A · B`, with `A` gathered meanwhile.
//!
//! `shape` says what is multiplied and how `A` is divided, `matrix` where a matrix lies, `options` how it is
//! done; `plan` turns these into the list of steps of one rank, and `selector` chooses where the caller does
//! not, by `stored` rows first; `workspace` is what an operation keeps on the device; `operation` makes one,
//! together with all ranks, and `explain` puts it in words; `call` checks the matrices of a call, `enqueue` does
//! its steps. `tuning` runs the library's products once.
//!
//! All that can block is done when the operation is made: memory, the vendor's plans, comparing them. A call
//! only enqueues, and can be captured. Like every collective it stands between two moments at which all ranks
//! are there: a barrier at its start, before which nobody writes what a peer may still read, and, only where
//! peers read this rank's shard, one at its end. So one gathered `A` is enough for call after call.

mod call;
mod chunk;
mod enqueue;
mod explain;
pub(crate) mod matrix;
pub(crate) mod operation;
pub(crate) mod options;
pub(crate) mod plan;
mod prepared;
mod scratch;
mod selector;
mod stored;
mod tuning;
mod words;
mod workspace;
