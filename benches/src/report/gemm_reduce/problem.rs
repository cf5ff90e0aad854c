//! The shape of a GEMM + reduce-scatter or GEMM + all-reduce as files name it.

use super::super::ag_gemm::{MatrixElement, MatrixOrder};
use serde::{Deserialize, Serialize};
use symmem::Reduction;
pub use symmem::tuning::GemmReduceProblem;

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

/// Returns a shape's sizes, element type, and any option that is not the default, for rows and titles.
pub(super) fn text(problem: &GemmReduceProblem) -> String {
    let element = match problem.dtype {
        MatrixElement::F16 => "f16",
        MatrixElement::Bf16 => "bf16",
        MatrixElement::F32 => "f32",
        MatrixElement::F8E4M3 => "f8e4m3",
    };
    let order = match problem.b_order {
        MatrixOrder::Rows => "",
        MatrixOrder::Columns => ", B column-major",
    };
    let bias = if problem.bias { ", bias" } else { "" };
    format!("{} {element}{order}{bias}", problem.shape())
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
        assert_eq!(text(&short), "8x16x32 bf16");
        let long = r#"{"m": 8, "n": 16, "k": 32, "dtype": "float16", "b_order": "column-major",
            "bias": true}"#;
        let long = read(long).unwrap();
        assert_eq!(long.file_name(), "8x16x32-float16-column-major-bias");
        assert_eq!(text(&long), "8x16x32 f16, B column-major, bias");
        let error = read(r#"{"m": 8, "n": 16, "k": 32, "dtype": "bf16", "sharding": "rows"}"#);
        assert!(error.unwrap_err().to_string().contains("sharding"));
    }
}
