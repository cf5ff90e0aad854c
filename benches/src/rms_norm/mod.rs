//! All-reduces of rows with a residual and RMSNorm in one kernel, beside the all-reduce alone, in one run.
//!
//! Method: rows, residual and weights are random. Each kind of output is first checked, in a call and in a graph replay: results
//! are poisoned, and sampled rows are compared with a reference in f64. Then the contenders take turns in rounds: symmem's fused
//! call, symmem's all-reduce of the same rows, and that of NCCL or RCCL. Each makes calls back to back on a stream, and replays a
//! graph of calls; an untimed call or replay comes first. The result is the median over rounds of the slowest rank's time.
//!
//! `options` says what to measure, `element` are the types of rows, `session` is one rank's memory and clock, `reference` has what
//! is expected, `rounds` are the rounds of one point, and `measure` runs everything.

mod element;
mod measure;
mod options;
mod reference;
mod rounds;
mod session;

pub use measure::run;
pub use options::Options;
