//! How a product is done.

use crate::base::gemm_names::{GemmAlgorithm, GemmTransport};
use std::time::Duration;

/// The name of the operation, in errors too.
pub(super) const NAME: &str = "all_gather_gemm";

/// How a product is done; the default lets the selector choose. Alike on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmOptions {
    /// The algorithm.
    pub algorithm: GemmAlgorithm,
    /// What moves the shards.
    pub transport: GemmTransport,
    /// Streams that a pipeline's products go on in turn. Two, where the caller does not say, so that the last
    /// blocks of one product and the first of the next fill the device together.
    pub streams: usize,
    /// In a pipeline, whether each copy follows the one before it, in step with the neighbour, so that no two
    /// share a link; else copies go on as many streams as products do. Where each pair of devices has a link
    /// of its own, copies to several peers are under way at once in either case.
    pub ordered: bool,
    /// Rows of a shard that arrive together ([`GemmAlgorithm::Pull`], [`GemmAlgorithm::Push`]), rounded up to
    /// what the kernel can have; `None` for as few as there can be where blocks move them, and by copy engines
    /// for chunks of up to 256 MiB. A kernel for few rows that is its own barrier takes none: it is not used
    /// where rows or blocks are given.
    pub chunk_rows: Option<usize>,
    /// Blocks of the kernel that gathers, so that callers can leave compute units to others; `None` for all
    /// that there can be. Kernels of several operations that are under way at once have to fit on the device
    /// together, as grids of collectives do: give them fewer blocks then. The kernel for few rows, which is its
    /// own barrier, has a grid of its own that nearly fills the device, and is not used where blocks are given.
    pub blocks: Option<u32>,
    /// Whether the caller gives a buffer for the gathered `A` ([`crate::Operands::gathered`]), in which it
    /// stays; else the operation has memory of its own.
    pub gathered: bool,
    /// Whether the ways that the vendor's library offers are run when the operation is made, on memory of the
    /// matrices' size that is given back then, and timed where no row ([`crate::Configuration::gemm_rows`])
    /// says which one is taken. Else, and where there is no such memory, the row's or the library's own first
    /// guess is taken, and its kernels are loaded by the first call, which may wait for the device: make that
    /// one at a time when nothing on the device waits for a peer.
    pub tune: bool,
    /// For error messages, and for the collectives behind [`GemmAlgorithm::Baseline`]: see
    /// [`crate::CollectiveOptions::channel`].
    pub channel: u32,
    /// Bound of its waits; `None` for the communicator's.
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
            gathered: false,
            tune: true,
            channel: 0,
            deadline: None,
        }
    }
}
