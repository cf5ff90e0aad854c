//! Collectives, every point checked, beside their baselines in the same run.
//!
//! Method: sizes, counts and formulas are nccl-tests'. At each size every library is first checked, out
//! of place and in place, on random data in poisoned memory with a guard behind it. Then come rounds in
//! which all libraries take turns, each with calls back to back on a stream and with a graph of calls,
//! captured once and replayed; one call, or replay, goes before the clock starts. The slowest rank of a
//! round counts, and of the rounds the median. Last come single calls, timed by the host from a barrier
//! to the call's end.
//!
//! `shape` says what moves where, `call` is one call of it, `memory` holds the buffers of one element type, `data`
//! makes elements and checks results, `session` is one rank's buffers and clock, `contender` and `external` are the
//! libraries, `points` the rounds; `named` leaves out what would be measured under another's name; `options` says what
//! to measure, and `measure` does it all.

pub(super) mod call;
mod contender;
mod data;
mod element;
mod external;
pub(super) mod how;
mod measure;
mod memory;
mod named;
mod options;
mod points;
pub(super) mod session;
pub(super) mod shape;

pub use contender::{baseline_names, is_baseline};
pub use element::nccl_name;
pub use how::algorithm;
pub use measure::{add, run};
pub use options::{DEFAULT, Options};
