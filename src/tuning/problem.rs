//! The shape of an all-gather + GEMM as files name it.

use crate::base::names::{ElementType, MatrixOrder, Sharding};
use crate::{GemmAlgorithm, GemmShape, GemmTransport};
use serde::{Deserialize, Serialize};

/// Element type of the matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MatrixElement {
    /// IEEE 754 half precision.
    #[serde(rename = "float16", alias = "f16", alias = "half")]
    F16,
    /// bfloat16.
    #[serde(rename = "bfloat16", alias = "bf16")]
    Bf16,
    /// IEEE 754 single precision.
    #[serde(rename = "float32", alias = "f32", alias = "float")]
    F32,
    /// fp8 with 4 bits of exponent (OCP E4M3); C and the bias are bfloat16.
    #[serde(rename = "float8_e4m3fn", alias = "f8e4m3", alias = "fp8")]
    F8E4M3,
}

impl MatrixElement {
    /// Returns its name in shape files, in JSON and in PyTorch.
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
            Self::F32 => "float32",
            Self::F8E4M3 => "float8_e4m3fn",
        }
    }

    /// Returns the library's element type.
    pub fn element(self) -> ElementType {
        match self {
            Self::F16 => ElementType::F16,
            Self::Bf16 => ElementType::Bf16,
            Self::F32 => ElementType::F32,
            Self::F8E4M3 => ElementType::F8E4M3,
        }
    }

    /// Returns the type of a file for one of the library's; `None` if files have no such matrices.
    pub(super) fn of(element: ElementType) -> Option<Self> {
        [Self::F16, Self::Bf16, Self::F32, Self::F8E4M3]
            .into_iter()
            .find(|known| known.element() == element)
    }
}

/// The shape of `C[m, n] = A[m, k] · B[k, n]`, plus an optional `bias[n]`: an entry of a shape file. Sizes are
/// in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GemmProblem {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C on each rank.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// Element type of the matrices.
    pub dtype: MatrixElement,
    /// Division of A among the ranks.
    #[serde(default)]
    pub sharding: Sharding,
    /// Storage order of B.
    #[serde(default)]
    pub b_order: MatrixOrder,
    /// Whether there is a bias.
    #[serde(default)]
    pub bias: bool,
}

impl GemmProblem {
    /// Returns the sizes as `MxNxK`.
    pub fn shape(&self) -> String {
        format!("{}x{}x{}", self.m, self.n, self.k)
    }

    /// Returns the sharding's name in shape files and in JSON.
    pub fn sharding_name(&self) -> &'static str {
        match self.sharding {
            Sharding::Rows => "rows",
            Sharding::Columns => "columns",
        }
    }

    /// Returns the name of B's storage order in shape files and in JSON.
    pub fn b_order_name(&self) -> &'static str {
        match self.b_order {
            MatrixOrder::Rows => "row-major",
            MatrixOrder::Columns => "column-major",
        }
    }

    /// Returns the shape as the library takes it.
    pub fn gemm_shape(&self) -> GemmShape {
        GemmShape {
            sharding: self.sharding,
            b_order: self.b_order,
            bias: self.bias,
            ..GemmShape::new(self.m, self.n, self.k)
        }
    }

    /// Returns a name that identifies the shape in file names.
    pub fn file_name(&self) -> String {
        let (dtype, sharding) = (self.dtype.name(), self.sharding_name());
        let order = match self.b_order {
            MatrixOrder::Rows => "",
            MatrixOrder::Columns => "-column-major",
        };
        let bias = if self.bias { "-bias" } else { "" };
        format!("{}-{dtype}-{sharding}{order}{bias}", self.shape())
    }

    /// Returns the TFLOP/s of one device that takes `ns` nanoseconds.
    pub fn teraflops(&self, ns: f64) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.k as f64 / ns / 1e3
    }
}

/// Returns the algorithm of this name.
pub fn gemm_algorithm(name: &str) -> Option<GemmAlgorithm> {
    match name {
        "baseline" => Some(GemmAlgorithm::Baseline),
        "pipeline" => Some(GemmAlgorithm::Pipeline),
        "pull" => Some(GemmAlgorithm::Pull),
        "push" => Some(GemmAlgorithm::Push),
        _ => None,
    }
}

/// Returns the transport of this name in a row: `automatic` is the algorithm's default.
pub(super) fn stored_transport(name: &str) -> Option<GemmTransport> {
    match name == GemmTransport::Automatic.name() {
        true => Some(GemmTransport::Automatic),
        false => gemm_transport(name),
    }
}

/// Returns the transport of this name.
pub fn gemm_transport(name: &str) -> Option<GemmTransport> {
    match name {
        "get" => Some(GemmTransport::Get),
        "put" => Some(GemmTransport::Put),
        "vendor" | "nccl" => Some(GemmTransport::Nccl),
        "kernel" => Some(GemmTransport::Kernel),
        _ => None,
    }
}
