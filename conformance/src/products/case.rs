//! An all-gather + GEMM as a case.

use serde::{Deserialize, Serialize};
use std::fmt;
use symmem::{GemmAlgorithm, GemmTransport};

/// Algorithm and transport of an all-gather + GEMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GemmVariant {
    /// The selector's choice.
    Automatic,
    /// Gathers all of `A`, then multiplies.
    Baseline,
    /// Multiplies shard by shard, with gets from peers.
    PipelineGet,
    /// Multiplies shard by shard, with puts to peers.
    PipelinePut,
    /// Multiplies shard by shard, with transfers by NCCL or RCCL.
    PipelineVendor,
    /// One kernel that loads `A` from peers and multiplies.
    Pull,
    /// Copy engines put chunks, and one kernel waits for them and multiplies.
    PushPut,
    /// One kernel that stores `A` to peers and multiplies.
    PushKernel,
}

impl GemmVariant {
    /// All variants.
    pub const ALL: [Self; 8] = [
        Self::Automatic,
        Self::Baseline,
        Self::PipelineGet,
        Self::PipelinePut,
        Self::PipelineVendor,
        Self::Pull,
        Self::PushPut,
        Self::PushKernel,
    ];

    /// Whether the variant needs NCCL or RCCL.
    pub fn is_nccl(self) -> bool {
        self == Self::PipelineVendor
    }

    /// Returns the algorithm and transport to set in [`symmem::GemmOptions`].
    pub fn named(self) -> (GemmAlgorithm, GemmTransport) {
        use {GemmAlgorithm as A, GemmTransport as T};
        match self {
            Self::Automatic => (A::Automatic, T::Automatic),
            Self::Baseline => (A::Baseline, T::Automatic),
            Self::PipelineGet => (A::Pipeline, T::Get),
            Self::PipelinePut => (A::Pipeline, T::Put),
            Self::PipelineVendor => (A::Pipeline, T::Nccl),
            Self::Pull => (A::Pull, T::Automatic),
            Self::PushPut => (A::Push, T::Put),
            Self::PushKernel => (A::Push, T::Kernel),
        }
    }
}

/// The element type of `A` and `B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GemmCaseElement {
    /// bfloat16.
    Bf16,
    /// IEEE 754 half precision.
    F16,
    /// 8-bit floats, of whose products `C` is in bfloat16.
    F8E4M3,
}

/// One all-gather + GEMM, called several times.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GemmCase {
    /// Algorithm and transport.
    #[serde(rename = "way")]
    pub variant: GemmVariant,
    /// Element type of `A` and `B`.
    pub element: GemmCaseElement,
    /// Rows of `A` and `C`.
    pub m: usize,
    /// Columns of `B` and `C`.
    pub n: usize,
    /// Columns of `A` and rows of `B`.
    pub k: usize,
    /// Whether `A` is sharded by columns; otherwise by rows.
    pub by_columns: bool,
    /// Whether `B` is column-major.
    pub b_by_columns: bool,
    /// Padding after each row or column of `B` and each row of `C`, in elements.
    pub gap: usize,
    /// Whether there is a bias.
    pub bias: bool,
    /// Whether the product is scaled; for 8-bit floats only.
    pub scaled: bool,
    /// Whether an element of `A` and one of `B` are NaN; for 8-bit floats only.
    pub nan: bool,
    /// Whether the caller passes a buffer for the gathered `A`, which is then checked too.
    pub gathered: bool,
    /// Streams of a pipeline.
    pub streams: usize,
    /// [`symmem::GemmOptions::ordered`].
    pub ordered: bool,
    /// Rows per chunk; 0 for the library's choice.
    pub chunk_rows: usize,
    /// Whether the call is captured and replayed.
    pub captured: bool,
    /// Seeds the data.
    pub seed: u64,
}

impl fmt::Display for GemmCase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { m, n, k, .. } = self;
        write!(
            formatter,
            "Product/{:?}/{:?}/{m}x{n}x{k}",
            self.variant, self.element
        )?;
        for (is, what) in [
            (self.by_columns, "columns"),
            (self.b_by_columns, "B-columns"),
            (self.bias, "bias"),
            (self.scaled, "scaled"),
            (self.nan, "NaN"),
            (self.gathered, "gathered"),
            (!self.ordered, "unordered"),
            (self.captured, "graph"),
        ] {
            if is {
                write!(formatter, "/{what}")?;
            }
        }
        let (gap, streams, chunk) = (self.gap, self.streams, self.chunk_rows);
        write!(formatter, "/+{gap}/s{streams}/c{chunk}")
    }
}
