//! The shape of a GEMM + reduce-scatter or GEMM + all-reduce as files name it.

use super::super::ag_gemm::{MatrixElement, MatrixOrder};
use serde::{Deserialize, Serialize};
use symmem::{GemmReduceShape, Reduction};

/// The collective that adds up the ranks' GEMMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GemmCollective {
    /// Each rank gets its rows of the sum.
    ReduceScatter,
    /// Each rank gets the sum.
    AllReduce,
}

impl GemmCollective {
    /// Returns the collective's name in text: `reduce-scatter` or `all-reduce`.
    pub fn label(self) -> &'static str {
        match self {
            Self::ReduceScatter => "reduce-scatter",
            Self::AllReduce => "all-reduce",
        }
    }

    /// Returns the name of the benchmark's command, which is also in file names.
    pub fn command(self) -> &'static str {
        match self {
            Self::ReduceScatter => "gemm-rs",
            Self::AllReduce => "gemm-ar",
        }
    }

    /// Returns the rows of the sum that a rank gets of `m`. For a reduce-scatter, `m` is a multiple of `world`.
    pub fn rows(self, m: usize, world: usize) -> usize {
        match self {
            Self::ReduceScatter => m / world,
            Self::AllReduce => m,
        }
    }
}

impl From<GemmCollective> for Reduction {
    fn from(collective: GemmCollective) -> Self {
        match collective {
            GemmCollective::ReduceScatter => Self::Scatter,
            GemmCollective::AllReduce => Self::All,
        }
    }
}

/// The shape of `C[m, n] = Σ A[m, k] · B[k, n]` over the ranks, plus an optional `bias[n]`: an entry of a shape file. Sizes
/// are in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

    /// Returns sizes, element type, and any option that is not the default, for rows and titles.
    pub(super) fn text(&self) -> String {
        let element = match self.dtype {
            MatrixElement::F16 => "f16",
            MatrixElement::Bf16 => "bf16",
        };
        let order = match self.b_order {
            MatrixOrder::Rows => "",
            MatrixOrder::Columns => ", B column-major",
        };
        let bias = if self.bias { ", bias" } else { "" };
        format!("{} {element}{order}{bias}", self.shape())
    }

    /// Returns the TFLOP/s of one device that takes `ns` nanoseconds.
    pub fn teraflops(&self, ns: f64) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.k as f64 / ns / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_read_with_what_is_usual_left_out_and_an_unknown_field_refused() {
        let read = serde_json::from_str::<GemmReduceProblem>;
        let short = read(r#"{"m": 8, "n": 16, "k": 32, "dtype": "bf16"}"#).unwrap();
        assert_eq!((short.b_order, short.bias), (MatrixOrder::Rows, false));
        assert_eq!(short.file_name(), "8x16x32-bfloat16");
        assert_eq!(short.text(), "8x16x32 bf16");
        let long = r#"{"m": 8, "n": 16, "k": 32, "dtype": "float16", "b_order": "column-major",
            "bias": true}"#;
        let long = read(long).unwrap();
        assert_eq!(long.file_name(), "8x16x32-float16-column-major-bias");
        assert_eq!(long.text(), "8x16x32 f16, B column-major, bias");
        let error = read(r#"{"m": 8, "n": 16, "k": 32, "dtype": "bf16", "sharding": "rows"}"#);
        assert!(error.unwrap_err().to_string().contains("sharding"));
    }
}
