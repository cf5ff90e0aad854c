//! Options of all-gather + GEMM.

use crate::base::gemm_names::{GemmAlgorithm, GemmTile, GemmTransport};
use std::time::Duration;

/// What to do in a world whose ranks are on several nodes.
pub const BESIDE_A_GEMM: &str =
    "call a collective over nodes before or after a GEMM of cuBLASLt or hipBLASLt";

/// The operation's name, in errors too.
pub(super) const NAME: &str = "all_gather_gemm";

/// Options of an all-gather + GEMM; by default the selector chooses. Must be the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmOptions {
    /// The algorithm.
    pub algorithm: GemmAlgorithm,
    /// The transport of the shards.
    pub transport: GemmTransport,
    /// Number of streams for a pipeline's GEMMs, used in turn; at least 1. Default 2, so that the last blocks
    /// of one GEMM and the first of the next fill the device together.
    pub streams: usize,
    /// Whether a pipeline's copies keep step with the neighbor, so that no two share a link; default true. If not,
    /// copies use as many streams as GEMMs do. This concerns devices behind a switch. In a mesh, where each pair of
    /// devices has a link of its own, copies to several peers are under way at once in either case.
    pub ordered: bool,
    /// Rows of a chunk, the part of a shard that arrives at once ([`GemmAlgorithm::Pull`],
    /// [`GemmAlgorithm::Push`]), rounded up to what the kernel supports. With `None`, a chunk is the kernel's
    /// smallest if blocks move it, and at most 256 MiB if copy engines move it. If rows are set, the fused kernel for
    /// small M, which has chunks of its own, is not used.
    pub chunk_rows: Option<usize>,
    /// Blocks of the gathering kernel, for example to leave compute units to others; `None` for as many as can
    /// be co-resident in the operation's share of the device
    /// ([`crate::Communicator::allow_concurrent_collectives`]). If blocks are set, the fused kernel for small M is
    /// not used: its grid nearly fills the device.
    pub blocks: Option<u32>,
    /// Tile of the gathering kernel; `None` for the backend's choice. An algorithm by a kernel is refused on a device
    /// without that tile. If a tile is set, the fused kernel for small M, which has tiles of its own, is not used.
    pub tile: Option<GemmTile>,
    /// Whether the caller provides a buffer for the gathered `A` ([`crate::Operands::gathered`]), in which it
    /// stays; otherwise the operation allocates one.
    pub gathered: bool,
    /// Whether the heuristic candidates of cuBLASLt or hipBLASLt run when the operation is made, on temporary
    /// memory of the matrices' size. They are timed unless a tuning row ([`crate::Configuration::gemm_rows`])
    /// names one. If this is off, or there is not enough memory, the row's or the library's first candidate is
    /// used, and the first call loads its kernels, which may wait for the device: make that call when nothing
    /// on the device waits for a peer. Default true.
    pub tune: bool,
    /// Channel of the all-gather that [`GemmAlgorithm::Baseline`] calls; errors name it, too. See
    /// [`crate::CollectiveOptions::channel`].
    pub channel: u32,
    /// Deadline of each wait for a peer; `None` for the communicator's.
    pub deadline: Option<Duration>,
}

impl Default for GemmOptions {
    fn default() -> Self {
        Self {
            algorithm: GemmAlgorithm::Automatic,
            transport: GemmTransport::Automatic,
            streams: 2,
            ordered: true,
            chunk_rows: None,
            blocks: None,
            tile: None,
            gathered: false,
            tune: true,
            channel: 0,
            deadline: None,
        }
    }
}
