//! The algorithms of GEMM + reduce-scatter and GEMM + all-reduce, and what they do with the sum.

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
    /// [`crate::GemmReduceOptions::partials`] is [`crate::GemmPartials::F32`], by one of each other rank's part.
    Push,
    /// One kernel, for few rows: small M. The blocks of a cluster divide `K` among them, and what they have multiplied travels in
    /// packets, which carry flags with the data. An element is off by one rounding of the sum, and, unless
    /// [`crate::GemmReduceOptions::partials`] is [`crate::GemmPartials::F32`], by one of each rank's part.
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

/// What is done with the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reduction {
    /// Rank `r` gets part `r` of its rows.
    Scatter,
    /// All ranks get all of it.
    All,
    /// All ranks get all of it, with a residual and a norm.
    Norm,
}

impl Reduction {
    /// Returns the operation's name, in errors, reports and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scatter => "gemm_reduce_scatter",
            Self::All => "gemm_all_reduce",
            Self::Norm => "gemm_all_reduce_norm",
        }
    }
}
