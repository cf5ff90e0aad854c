//! Options of the all-gather + GEMM benchmark.

use crate::report::ag_gemm::{GemmProblem, MatrixElement, MatrixOrder, Sharding};
use crate::sizes::Effort;
use serde::{Deserialize, Serialize};

/// Options of [`super::add`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Determines the number of rounds, unless `rounds` is set.
    pub effort: Effort,
    /// Shapes to measure; empty for two default shapes.
    pub problems: Vec<GemmProblem>,
    /// Names of symmem's algorithms ([`crate::report::ag_gemm::ALGORITHMS`]); empty for all.
    pub algorithms: Vec<String>,
    /// Transport of the shards, for algorithms that have a choice: `get`, `put`, `vendor` or `kernel`; `None` for the
    /// default, [`ALL_TRANSPORTS`] for the default and all others ([`crate::report::ag_gemm::VARIANTS`]).
    pub transport: Option<String>,
    /// Tile of symmem's kernels; `None` for the backend's choice.
    pub tile: Option<(u16, u16)>,
    /// Whether to compare results with a reference.
    pub validate: bool,
    /// Whether to time.
    pub benchmark: bool,
    /// Whether to return each rank's plans.
    pub explain: bool,
    /// Whether to measure by DDLB's method too.
    pub ddlb: bool,
    /// Whether to measure PyTorch; `None` for the default: yes, except on the host backend.
    pub torch: Option<bool>,
    /// Number of rounds.
    pub rounds: Option<u32>,
}

impl Options {
    /// Returns the options of the command without arguments: two shapes, few rounds, no PyTorch.
    pub fn short() -> Self {
        Self {
            effort: Effort::Quick,
            problems: Vec::new(),
            algorithms: Vec::new(),
            transport: None,
            tile: None,
            validate: true,
            benchmark: true,
            explain: false,
            ddlb: false,
            torch: Some(false),
            rounds: None,
        }
    }

    /// Whether anything runs, instead of plans only.
    pub(super) fn runs(&self) -> bool {
        self.validate || self.benchmark
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.algorithms.is_empty() || self.algorithms.iter().any(|known| known == name)
    }

    /// Returns the shapes to measure; the defaults are small on the host backend, which is slow.
    pub(super) fn problems(&self, on_host: bool) -> Vec<GemmProblem> {
        if !self.problems.is_empty() {
            return self.problems.clone();
        }
        let problem = |m, n, k, sharding, dtype| GemmProblem {
            m,
            n,
            k,
            dtype,
            sharding,
            b_order: MatrixOrder::Rows,
            bias: false,
        };
        let (rows, columns) = (Sharding::Rows, Sharding::Columns);
        let (f16, bf16) = (MatrixElement::F16, MatrixElement::Bf16);
        match on_host {
            true => vec![
                problem(64, 32, 64, rows, bf16),
                problem(16, 32, 128, columns, f16),
            ],
            false => vec![
                problem(8192, 8192, 8192, rows, bf16),
                problem(64, 3584, 8192, columns, f16),
            ],
        }
    }
}

/// Value of [`Options::transport`] for every transport of `pipeline` and `push`.
pub const ALL_TRANSPORTS: &str = "all";
