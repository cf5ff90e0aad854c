//! A product of matrices as a case.

use serde::{Deserialize, Serialize};
use std::fmt;
use symmem::{GemmAlgorithm, GemmTransport};

/// How a product is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProductWay {
    /// As the selector says.
    Automatic,
    /// All of `A` first.
    Baseline,
    /// Shard by shard, loaded from peers.
    PipelineGet,
    /// Shard by shard, stored to peers.
    PipelinePut,
    /// Shard by shard, by the vendor's library.
    PipelineVendor,
    /// One kernel that loads.
    Pull,
    /// Copy engines, and a kernel that waits for chunks.
    PushPut,
    /// One kernel that stores.
    PushKernel,
}

impl ProductWay {
    /// All of them.
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

    /// Whether it takes the vendor's library of collectives.
    pub fn is_vendor(self) -> bool {
        self == Self::PipelineVendor
    }

    /// As the options name it.
    pub fn named(self) -> (GemmAlgorithm, GemmTransport) {
        use {GemmAlgorithm as A, GemmTransport as T};
        match self {
            Self::Automatic => (A::Automatic, T::Automatic),
            Self::Baseline => (A::Baseline, T::Automatic),
            Self::PipelineGet => (A::Pipeline, T::Get),
            Self::PipelinePut => (A::Pipeline, T::Put),
            Self::PipelineVendor => (A::Pipeline, T::Vendor),
            Self::Pull => (A::Pull, T::Automatic),
            Self::PushPut => (A::Push, T::Put),
            Self::PushKernel => (A::Push, T::Kernel),
        }
    }
}

/// One product, called a few times.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProductCase {
    /// How it is done.
    pub way: ProductWay,
    /// `f16`, or `bf16`.
    pub half: bool,
    /// Rows of `A` and `C`.
    pub m: usize,
    /// Columns of `B` and `C`.
    pub n: usize,
    /// Columns of `A`, rows of `B`.
    pub k: usize,
    /// Whether ranks have columns of `A`, not rows.
    pub by_columns: bool,
    /// Whether `B` is column-major.
    pub b_by_columns: bool,
    /// Elements between two lines of `B`, and of `C`.
    pub gap: usize,
    /// Whether there is a bias.
    pub bias: bool,
    /// Whether the caller has a buffer for the gathered `A`, which is then checked too.
    pub gathered: bool,
    /// Streams of a pipeline.
    pub streams: usize,
    /// Whether copies of a pipeline keep step.
    pub ordered: bool,
    /// Rows of a chunk; 0 for the library's own choice.
    pub chunk_rows: usize,
    /// Whether calls are captured and replayed.
    pub captured: bool,
    /// Seeds the data.
    pub seed: u64,
}

impl fmt::Display for ProductCase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { m, n, k, .. } = self;
        let element = if self.half { "F16" } else { "Bf16" };
        write!(formatter, "Product/{:?}/{element}/{m}x{n}x{k}", self.way)?;
        for (is, what) in [
            (self.by_columns, "columns"),
            (self.b_by_columns, "B-columns"),
            (self.bias, "bias"),
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
