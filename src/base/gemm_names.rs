//! The algorithms and transports of all-gather + GEMM.

/// Algorithm of an all-gather + GEMM: how `A` is gathered and when it is multiplied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GemmAlgorithm {
    /// The algorithm of a stored tuning row ([`crate::Configuration::gemm_rows`]) if the transport is
    /// automatic, too; otherwise the selector's choice for the shape.
    #[default]
    Automatic,
    /// Gathers all of `A` first, then runs one GEMM. Uses NCCL or RCCL for the gather if it is open and this algorithm is
    /// asked for; where the selector chooses it, symmem's all-gather. Needs a GEMM library: cuBLASLt, hipBLASLt or the host
    /// backend's own.
    Baseline,
    /// Passes shards round one by one, and multiplies each once it has arrived: nvFuser's pipeline. Needs a
    /// GEMM library, as [`GemmAlgorithm::Baseline`] does.
    Pipeline,
    /// One kernel loads the peers' shards and multiplies them as they arrive.
    Pull,
    /// Copy engines, or blocks of the kernel, push chunks of shards to the peers; one kernel on each rank
    /// multiplies each chunk as it arrives.
    Push,
}

impl GemmAlgorithm {
    /// Returns the transports that the algorithm accepts, for error texts.
    pub(crate) fn transports(self) -> &'static str {
        match self {
            Self::Automatic => "any",
            Self::Baseline => "`Automatic` or `Nccl`",
            Self::Pipeline => "`Automatic`, `Get`, `Put` or `Nccl`",
            Self::Pull => "`Automatic` or `Kernel`",
            Self::Push => "`Automatic`, `Put` or `Kernel`",
        }
    }
}

/// The part of C that a block of a fused kernel computes at a time, written as `256x128`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmTile {
    /// Rows.
    pub rows: u16,
    /// Columns.
    pub columns: u16,
}

impl GemmTile {
    /// Returns the number by which the contract names the tile.
    pub(crate) fn code(self) -> u32 {
        u32::from(self.rows) << 16 | u32::from(self.columns)
    }
}

impl std::fmt::Display for GemmTile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}x{}", self.rows, self.columns)
    }
}

impl std::str::FromStr for GemmTile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sizes = text.split_once('x').and_then(|(rows, columns)| {
            let size = |text: &str| text.parse().ok().filter(|&size: &u16| size != 0);
            Some((size(rows)?, size(columns)?))
        });
        let (rows, columns) = sizes.ok_or_else(|| {
            format!("`{text}` is not a tile; write rows and columns, as in 256x128")
        })?;
        Ok(Self { rows, columns })
    }
}

/// Transport of the shards in an all-gather + GEMM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GemmTransport {
    /// The default of the algorithm. [`GemmAlgorithm::Baseline`]: NCCL if it is open, otherwise symmem's
    /// all-gather. [`GemmAlgorithm::Pipeline`]: [`GemmTransport::Put`]. [`GemmAlgorithm::Pull`]: blocks of the
    /// kernel. [`GemmAlgorithm::Push`]: for small M, blocks of the fused kernel that is its own barrier, if the
    /// device has it; else, for `A` sharded by columns, blocks of the kernel (copy engines for 2048 to 8191
    /// rows); else copy engines, if the kernel can wait for them, and otherwise blocks of the kernel.
    #[default]
    Automatic,
    /// Copy engines load from the peers ([`GemmAlgorithm::Pipeline`]).
    Get,
    /// Copy engines store to the peers ([`GemmAlgorithm::Pipeline`], [`GemmAlgorithm::Push`]).
    Put,
    /// NCCL or RCCL sends and receives ([`GemmAlgorithm::Pipeline`]) or gathers ([`GemmAlgorithm::Baseline`]).
    /// It must be open ([`crate::Communicator::open_nccl`]).
    Nccl,
    /// Blocks of the kernel move the shards: they store to the peers ([`GemmAlgorithm::Push`]) or load from them
    /// ([`GemmAlgorithm::Pull`]).
    Kernel,
}

impl GemmTransport {
    /// Returns the name used in reports and tuning tables. [`GemmTransport::Nccl`] is `vendor` there.
    pub fn name(self) -> &'static str {
        match self {
            Self::Automatic => "automatic",
            Self::Get => "get",
            Self::Put => "put",
            Self::Nccl => "vendor",
            Self::Kernel => "kernel",
        }
    }
}
