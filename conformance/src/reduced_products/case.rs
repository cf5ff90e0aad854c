//! A GEMM + reduce-scatter or GEMM + all-reduce as a case.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;
use symmem::{
    GemmPartials, GemmReduceAlgorithm, GemmReduceOptions, GemmReduceShape, GemmTransport,
    MatrixOrder, Reduction,
};

/// What is done with the sum, as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReductionName {
    /// [`Reduction::Scatter`].
    Scatter,
    /// [`Reduction::All`].
    All,
}

impl ReductionName {
    /// Both reductions.
    pub const ALL: [Self; 2] = [Self::Scatter, Self::All];

    /// Returns the library's value.
    pub fn named(self) -> Reduction {
        match self {
            Self::Scatter => Reduction::Scatter,
            Self::All => Reduction::All,
        }
    }
}

/// Algorithm, transport and type of parts of a GEMM + reduce-scatter or GEMM + all-reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GemmReduceVariant {
    /// The selector's choice.
    Automatic,
    /// One GEMM, then the collective.
    Baseline,
    /// A ring over blocks of rows, whose sums copy engines send.
    PipelinePut,
    /// A ring over blocks of rows, whose sums GEMMs store at the next rank.
    PipelineKernel,
    /// One kernel that stores tiles at their owners.
    Push,
    /// One kernel that stores tiles in f32 at their owners.
    PushF32,
    /// One kernel that sends packets.
    Packets,
    /// One kernel that sends packets of f32.
    PacketsF32,
}

impl GemmReduceVariant {
    /// All variants.
    pub const ALL: [Self; 8] = [
        Self::Automatic,
        Self::Baseline,
        Self::PipelinePut,
        Self::PipelineKernel,
        Self::Push,
        Self::PushF32,
        Self::Packets,
        Self::PacketsF32,
    ];

    /// Returns the algorithm and transport to set in [`GemmReduceOptions`].
    pub fn named(self) -> (GemmReduceAlgorithm, GemmTransport) {
        use {GemmReduceAlgorithm as A, GemmTransport as T};
        match self {
            Self::Automatic => (A::Automatic, T::Automatic),
            Self::Baseline => (A::Baseline, T::Automatic),
            Self::PipelinePut => (A::Pipeline, T::Put),
            Self::PipelineKernel => (A::Pipeline, T::Kernel),
            Self::Push | Self::PushF32 => (A::Push, T::Automatic),
            Self::Packets | Self::PacketsF32 => (A::Packets, T::Automatic),
        }
    }

    /// Returns the element type of parts of sums to set in [`GemmReduceOptions`].
    pub fn partials(self) -> GemmPartials {
        match self {
            Self::PushF32 | Self::PacketsF32 => GemmPartials::F32,
            _ => GemmPartials::Element,
        }
    }

    /// Returns how often an element is rounded in a group of `world` ranks: at each rank, or only the sum.
    pub(super) fn roundings(self, world: usize) -> usize {
        match self.partials() {
            GemmPartials::F32 if world > 1 => 1,
            _ => world,
        }
    }
}

/// One GEMM + reduce-scatter or GEMM + all-reduce, called several times.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GemmReduceCase {
    /// What is done with the sum.
    pub reduction: ReductionName,
    /// Algorithm and transport.
    pub variant: GemmReduceVariant,
    /// Whether elements are `f16`; otherwise `bf16`.
    pub half: bool,
    /// Rows of the sum. A reduce-scatter has the next multiple of the number of ranks.
    pub rows: usize,
    /// Columns of `B` and of the sum.
    pub n: usize,
    /// Columns of each rank's `A` and rows of its `B`.
    pub k: usize,
    /// Padding after each row of `A`, in elements.
    pub a_gap: usize,
    /// Padding after each row or column of `B`, in elements.
    pub b_gap: usize,
    /// Whether `B` is column-major.
    pub b_by_columns: bool,
    /// Whether there is a bias.
    pub bias: bool,
    /// [`GemmReduceOptions::symmetric_result`]; otherwise `C` is memory that only its rank knows.
    pub symmetric: bool,
    /// Streams of a pipeline.
    pub streams: usize,
    /// Chunks of each rank's rows; 0 for the library's choice.
    pub chunks: usize,
    /// Whether the call is captured and replayed.
    pub captured: bool,
    /// Seeds the data.
    pub seed: u64,
}

impl GemmReduceCase {
    /// Returns the rows of the sum in a group of `world` ranks.
    pub(super) fn m(&self, world: usize) -> usize {
        match self.reduction {
            ReductionName::Scatter => self.rows.next_multiple_of(world),
            ReductionName::All => self.rows,
        }
    }

    /// Returns the rows of the sum that rank `rank` gets: the first, and how many.
    pub(super) fn rows_of(&self, rank: usize, world: usize) -> (usize, usize) {
        let m = self.m(world);
        match self.reduction {
            ReductionName::Scatter => (rank * (m / world), m / world),
            ReductionName::All => (0, m),
        }
    }

    /// Returns the lines in which `B` is stored: their number, and the elements of each without padding.
    pub(super) fn b_lines(&self) -> (usize, usize) {
        match self.b_by_columns {
            true => (self.n, self.k),
            false => (self.k, self.n),
        }
    }

    pub(super) fn shape(&self, world: usize) -> GemmReduceShape {
        GemmReduceShape {
            a_stride: Some(self.k + self.a_gap),
            b_order: match self.b_by_columns {
                true => MatrixOrder::Columns,
                false => MatrixOrder::Rows,
            },
            b_stride: Some(self.b_lines().1 + self.b_gap),
            bias: self.bias,
            ..GemmReduceShape::new(self.m(world), self.n, self.k)
        }
    }

    pub(super) fn options(&self, deadline: Duration) -> GemmReduceOptions {
        let (algorithm, transport) = self.variant.named();
        GemmReduceOptions {
            algorithm,
            transport,
            partials: self.variant.partials(),
            streams: self.streams,
            chunks: (self.chunks > 0).then_some(self.chunks),
            symmetric_result: self.symmetric,
            deadline: Some(deadline),
            ..GemmReduceOptions::default()
        }
    }
}

impl fmt::Display for GemmReduceCase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, n, k, .. } = self;
        let element = if self.half { "F16" } else { "Bf16" };
        write!(
            formatter,
            "ReducedProduct/{:?}/{:?}/{element}/{rows}x{n}x{k}",
            self.reduction, self.variant
        )?;
        for (is, what) in [
            (self.b_by_columns, "B-columns"),
            (self.bias, "bias"),
            (self.symmetric, "symmetric"),
            (self.captured, "graph"),
        ] {
            if is {
                write!(formatter, "/{what}")?;
            }
        }
        let (a_gap, b_gap, streams, chunks) = (self.a_gap, self.b_gap, self.streams, self.chunks);
        write!(formatter, "/+{a_gap}+{b_gap}/s{streams}/c{chunks}")
    }
}
