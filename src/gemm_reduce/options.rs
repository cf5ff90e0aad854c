//! Options and algorithms of GEMM + reduce-scatter and GEMM + all-reduce.

use crate::backend::abi::ElementTypeCode;
use crate::base::gemm_names::GemmTransport;
use crate::base::names::ElementType;
use std::time::Duration;

/// Algorithm of a GEMM + reduce-scatter or GEMM + all-reduce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GemmReduceAlgorithm {
    /// The selector's choice for the shape.
    #[default]
    Automatic,
    /// One GEMM, then the collective. A partial result is rounded once to the element type, and the sum of all once more:
    /// an element is off by at most one rounding of the sum, plus one of each rank's part.
    Baseline,
    /// One GEMM for each block of rows. Each block's sum goes round the ranks, and every rank's GEMM adds to what the rank
    /// before it has sent; the rank that owns the block is last. So sums travel under the next blocks' GEMMs, and no pass
    /// over memory adds them. A sum is rounded to the element type at each rank: an element is off by at most one rounding of
    /// each partial sum, and by one more if there is a bias, before which cuBLASLt may round.
    Pipeline,
    /// One kernel, for many rows. It multiplies the rows of the other ranks first and stores each tile in its owner's memory;
    /// then it multiplies the own rows, and adds what has arrived for them in registers. Neither the product nor the sum makes a
    /// way through memory of its own, and no GEMM library is needed. An element is off by one rounding of the sum, and, unless
    /// [`GemmReduceOptions::partials`] is [`GemmPartials::F32`], by one of each other rank's part.
    Push,
    /// One kernel, for few rows: small M. The blocks of a cluster divide `K` among them, and what they have multiplied travels in
    /// packets, which carry flags with the data. An element is off by one rounding of the sum, and, unless
    /// [`GemmReduceOptions::partials`] is [`GemmPartials::F32`], by one of each rank's part.
    Packets,
}

impl GemmReduceAlgorithm {
    /// Returns the name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Automatic => "automatic",
            Self::Baseline => "baseline",
            Self::Pipeline => "pipeline",
            Self::Push => "push",
            Self::Packets => "packets",
        }
    }

    /// Returns whether one kernel multiplies and reduces.
    pub fn is_fused(self) -> bool {
        matches!(self, Self::Push | Self::Packets)
    }
}

/// Element type of a rank's part of a sum on its way to the rank that adds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GemmPartials {
    /// The element type of the matrices: each part is rounded once, before it is sent.
    #[default]
    Element,
    /// f32: parts are not rounded, so that an element of the sum is off by a single rounding, but twice the bytes are sent. Only
    /// [`GemmReduceAlgorithm::Push`] and [`GemmReduceAlgorithm::Packets`] can; with [`GemmReduceAlgorithm::Automatic`], the
    /// selector chooses one of them.
    F32,
}

impl GemmPartials {
    /// Returns the name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Element => "element",
            Self::F32 => "f32",
        }
    }

    /// Returns the type of the parts of sums of elements of a type.
    pub(super) fn code(self, element: ElementType) -> ElementTypeCode {
        match self {
            Self::Element => element.into(),
            Self::F32 => ElementTypeCode::F32,
        }
    }
}

/// Options of a GEMM + reduce-scatter or GEMM + all-reduce; by default the selector chooses. Must be the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmReduceOptions {
    /// The algorithm.
    pub algorithm: GemmReduceAlgorithm,
    /// How a pipeline's sums get to the next rank: with [`GemmTransport::Put`] copy engines send what a GEMM has written to
    /// this rank's memory, with [`GemmTransport::Kernel`] GEMMs write to the next rank's memory.
    pub transport: GemmTransport,
    /// Number of streams for a pipeline's GEMMs, used in turn; at least 1. Default 1. With 2, the last blocks of one GEMM and the
    /// first of the next fill the device together, but GEMMs of large blocks take memory bandwidth and caches from each other:
    /// that was slower at most shapes.
    pub streams: usize,
    /// Into how many parts a pipeline cuts each rank's rows; `None` for the selector's choice.
    pub chunks: Option<usize>,
    /// Element type of the parts of a sum that a fused kernel sends.
    pub partials: GemmPartials,
    /// Whether `C` is in a symmetric buffer, in the same place at all ranks. Then a pipeline or a fused kernel of a GEMM + all-reduce
    /// stores sums there, and not in memory of its own, from which it would copy them; and a baseline's collective may have peers read or
    /// write it. Otherwise `C` may be anywhere, at each rank.
    pub symmetric_result: bool,
    /// Whether the heuristic candidates of cuBLASLt or hipBLASLt are timed when the operation is made, as
    /// [`crate::GemmOptions::tune`] says. Default true.
    pub tune: bool,
    /// Channel of the collective that [`GemmReduceAlgorithm::Baseline`] calls; errors name it, too. See
    /// [`crate::CollectiveOptions::channel`].
    pub channel: u32,
    /// Deadline of each wait for a peer; `None` for the communicator's.
    pub deadline: Option<Duration>,
}

impl Default for GemmReduceOptions {
    fn default() -> Self {
        Self {
            algorithm: GemmReduceAlgorithm::Automatic,
            transport: GemmTransport::Automatic,
            streams: 1,
            chunks: None,
            partials: GemmPartials::Element,
            symmetric_result: false,
            tune: true,
            channel: 0,
            deadline: None,
        }
    }
}
