//! A product of matrices as files name it.

use crate::base::names::{MatrixOrder, Sharding};
use crate::{GemmAlgorithm, GemmShape, GemmTransport};
use serde::{Deserialize, Serialize};

/// What matrices are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MatrixElement {
    /// IEEE 754's half.
    #[serde(rename = "float16", alias = "f16", alias = "half")]
    F16,
    /// The upper half of a float.
    #[serde(rename = "bfloat16", alias = "bf16")]
    Bf16,
}

impl MatrixElement {
    /// Its name in files of shapes, in JSON and in PyTorch.
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
        }
    }
}

/// What of A a rank has.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Sharded {
    /// Rows.
    #[default]
    Rows,
    /// Columns: K is divided.
    Columns,
}

impl Sharded {
    /// Its name in files of shapes and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Columns => "columns",
        }
    }
}

/// How B lies.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// A row's elements are neighbours.
    #[default]
    RowMajor,
    /// A column's elements are neighbours.
    ColumnMajor,
}

impl Order {
    /// Its name in files of shapes and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::RowMajor => "row-major",
            Self::ColumnMajor => "column-major",
        }
    }
}

/// `C[m, n] = A[m, k] · B[k, n]`, plus `bias[n]` where there is one: an entry of a file of shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Product {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C on each rank.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// What the matrices are made of.
    pub dtype: MatrixElement,
    /// What of A a rank has.
    #[serde(default)]
    pub sharding: Sharded,
    /// How B lies.
    #[serde(default)]
    pub b_order: Order,
    /// Whether there is a bias.
    #[serde(default)]
    pub bias: bool,
}

impl Product {
    /// `MxNxK`.
    pub fn shape(&self) -> String {
        format!("{}x{}x{}", self.m, self.n, self.k)
    }

    /// What tells it from others, in a file's name.
    pub fn file_name(&self) -> String {
        let (dtype, sharding) = (self.dtype.name(), self.sharding.name());
        let order = match self.b_order {
            Order::RowMajor => "",
            Order::ColumnMajor => "-column-major",
        };
        let bias = if self.bias { "-bias" } else { "" };
        format!("{}-{dtype}-{sharding}{order}{bias}", self.shape())
    }

    /// TFLOP/s of one device at a time.
    pub fn teraflops(&self, ns: f64) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.k as f64 / ns / 1e3
    }
}

/// A product as core takes it.
pub fn shape(product: &Product) -> GemmShape {
    GemmShape {
        sharding: match product.sharding {
            Sharded::Rows => Sharding::Rows,
            Sharded::Columns => Sharding::Columns,
        },
        b_order: order(product),
        bias: product.bias,
        ..GemmShape::new(product.m, product.n, product.k)
    }
}

/// How B of a product lies, as core takes it.
pub fn order(product: &Product) -> MatrixOrder {
    match product.b_order {
        Order::RowMajor => MatrixOrder::Rows,
        Order::ColumnMajor => MatrixOrder::Columns,
    }
}

/// The algorithm of that name.
pub fn gemm_algorithm(name: &str) -> Option<GemmAlgorithm> {
    match name {
        "baseline" => Some(GemmAlgorithm::Baseline),
        "pipeline" => Some(GemmAlgorithm::Pipeline),
        "pull" => Some(GemmAlgorithm::Pull),
        "push" => Some(GemmAlgorithm::Push),
        _ => None,
    }
}

/// What moves shards, by that name.
pub fn gemm_transport(name: &str) -> Option<GemmTransport> {
    match name {
        "get" => Some(GemmTransport::Get),
        "put" => Some(GemmTransport::Put),
        "vendor" => Some(GemmTransport::Vendor),
        "kernel" => Some(GemmTransport::Kernel),
        _ => None,
    }
}
