//! GEMM + reduce-scatter and GEMM + all-reduce with every algorithm, checked and timed together with their parts and a
//! GEMM followed by a collective, in one run.
//!
//! Method: A and B are random, and every rank has its own. Each algorithm is called once, then once more with another A into
//! a poisoned C, which is compared with a reference in f64. A stale tile or a stale sum of the first call is therefore found.
//! The ranks also compare the bits of symmem's all-reduced C. Then all contenders take turns in rounds: the GEMM alone
//! (cuBLASLt or hipBLASLt with its fastest heuristic), the collective alone, the GEMM followed by the collective of NCCL or
//! RCCL or of symmem, the selector's choice, and each algorithm with several numbers of chunks and streams. An untimed barrier
//! of all ranks on the stream comes before each call. Times are measured by events; the result is the median over rounds of
//! the slowest rank's time. For small M, calls are also captured and replayed.
//!
//! `gemm` has random matrices, the GEMM alone, and the timing. `reference` computes the expected C. `session` holds
//! one rank's matrices, `calls` enqueues the contenders' calls on them. `variants` lists symmem's algorithms, `lineup` creates
//! the contenders, `rounds` checks and times them. `shapes` checks shapes, `options` says what to measure, and `measure` runs
//! everything.

mod calls;
mod lineup;
mod measure;
mod options;
mod reference;
mod rounds;
mod session;
pub mod shapes;
mod variants;

pub use measure::{UnreportedReduceResults, add};
pub use options::Options;
