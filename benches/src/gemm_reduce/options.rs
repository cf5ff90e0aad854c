//! Options of the benchmark of GEMM + reduce-scatter and GEMM + all-reduce.

use crate::report::gemm_reduce::{GemmCollective, GemmReduceProblem};
use crate::sizes::Effort;
use serde::{Deserialize, Serialize};

/// Options of [`super::add`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// The collective that adds up the GEMMs.
    pub collective: GemmCollective,
    /// Determines the number of rounds, unless `rounds` is set.
    pub effort: Effort,
    /// Shapes to measure.
    pub problems: Vec<GemmReduceProblem>,
    /// Names of symmem's algorithms ([`crate::report::gemm_reduce::ALGORITHMS`]); empty for all.
    pub algorithms: Vec<String>,
    /// Transports of pipelines ([`crate::report::gemm_reduce::TRANSPORTS`]); empty for all.
    pub transports: Vec<String>,
    /// Numbers of a pipeline's streams; empty for 1 and 2.
    pub streams: Vec<usize>,
    /// Numbers of a pipeline's chunks of each rank's rows; empty for 1, 2 and 4.
    pub chunks: Vec<usize>,
    /// Whether to compare results with a reference.
    pub validate: bool,
    /// Whether to time.
    pub benchmark: bool,
    /// Whether to return each rank's plans.
    pub explain: bool,
    /// Number of rounds.
    pub rounds: Option<u32>,
}

impl Options {
    /// Whether anything runs, instead of plans only.
    pub(super) fn runs(&self) -> bool {
        self.validate || self.benchmark
    }
}
