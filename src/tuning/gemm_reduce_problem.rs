//! The shape of a GEMM + reduce-scatter or GEMM + all-reduce as files name it.

use crate::base::names::MatrixOrder;
use crate::tuning::problem::MatrixElement;
use crate::{GemmReduceAlgorithm, GemmReduceShape, Reduction};
use serde::{Deserialize, Serialize};

/// The shape of `C[m, n] = Σ A[m, k] · B[k, n]` over the ranks, plus an optional `bias[n]`: an entry of a shape file. Sizes
/// are in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GemmReduceProblem {
    /// Rows of A and of the sum.
    pub m: usize,
    /// Columns of B and of the sum.
    pub n: usize,
    /// Columns of each rank's A, rows of its B.
    pub k: usize,
    /// Element type of the matrices.
    pub dtype: MatrixElement,
    /// Storage order of B.
    #[serde(default)]
    pub b_order: MatrixOrder,
    /// Whether there is a bias.
    #[serde(default)]
    pub bias: bool,
}

impl GemmReduceProblem {
    /// Returns the sizes as `MxNxK`.
    pub fn shape(&self) -> String {
        format!("{}x{}x{}", self.m, self.n, self.k)
    }

    /// Returns the shape as the library takes it.
    pub fn gemm_shape(&self) -> GemmReduceShape {
        GemmReduceShape {
            b_order: self.b_order,
            bias: self.bias,
            ..GemmReduceShape::new(self.m, self.n, self.k)
        }
    }

    /// Returns a name that identifies the shape in file names.
    pub fn file_name(&self) -> String {
        let order = match self.b_order {
            MatrixOrder::Rows => "",
            MatrixOrder::Columns => "-column-major",
        };
        let bias = if self.bias { "-bias" } else { "" };
        format!("{}-{}{order}{bias}", self.shape(), self.dtype.name())
    }

    /// Returns the TFLOP/s of one device that takes `ns` nanoseconds.
    pub fn teraflops(&self, ns: f64) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.k as f64 / ns / 1e3
    }
}

/// Returns the algorithm of this name.
pub fn gemm_reduce_algorithm(name: &str) -> Option<GemmReduceAlgorithm> {
    let all = [
        GemmReduceAlgorithm::Baseline,
        GemmReduceAlgorithm::Pipeline,
        GemmReduceAlgorithm::Push,
        GemmReduceAlgorithm::Packets,
    ];
    all.into_iter().find(|known| known.name() == name)
}

/// Returns what a row's operation does with the sum: `gemm_reduce_scatter` or `gemm_all_reduce`.
pub(super) fn reduction(name: &str) -> Option<Reduction> {
    let all = [Reduction::Scatter, Reduction::All];
    all.into_iter().find(|known| known.name() == name)
}
