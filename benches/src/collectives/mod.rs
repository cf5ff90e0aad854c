//! Collectives, with every point checked, and baselines in the same run.
//!
//! Method: sizes, counts and formulas are those of nccl-tests. At each size, every library is first checked,
//! out of place and in place, with random data, poisoned destinations and guards. Then all libraries take
//! turns in rounds, each with calls back to back on a stream and with a graph of calls, captured once and
//! replayed; one untimed call or replay comes first. The result is the median over rounds of the slowest
//! rank's time. Last come single calls, timed by the host from a barrier to the call's completion.
//!
//! `shape` has the ranges of an operation, `call` is one call, `memory` the buffers of one element type, `data`
//! generates elements and checks results, `session` is one rank's buffers and clock. `contender`,
//! `external` and `flashinfer` are the libraries, `points` the rounds. `named` leaves out calls that would use another algorithm than the
//! named one. `between` is a kernel between calls. `options` says what to measure, and `measure` runs everything.

mod between;
pub(super) mod call;
mod contender;
mod data;
mod element;
mod external;
mod flashinfer;
pub(super) mod how;
mod measure;
mod memory;
mod named;
mod options;
mod points;
pub(super) mod session;
pub(super) mod shape;

pub use between::Between;
pub use contender::{baseline_names, is_baseline};
pub use element::nccl_name;
pub use how::algorithm;
pub use measure::{add, run};
pub use options::{DEFAULT, Options};
