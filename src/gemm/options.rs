//! How a product is done.

use std::time::Duration;

/// How `A` is gathered beside the product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GemmAlgorithm {
    /// What was measured of the product before ([`crate::Configuration::gemm_rows`]), where the transport is
    /// automatic, too; or else what the selector says for the shape.
    #[default]
    Automatic,
    /// All of `A` is gathered first; then one product. By the vendor's libraries where they are there.
    Baseline,
    /// Shards go round one by one, and each is multiplied once it is here: nvFuser's pipeline.
    Pipeline,
    /// One kernel loads the peers' shards, and multiplies what it has.
    Pull,
    /// Copy engines, or blocks of the kernel, push chunks of shards to the peers, where one kernel multiplies each
    /// as it arrives.
    Push,
}

/// What moves the shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GemmTransport {
    /// What suits the algorithm: of a baseline the vendor's library of collectives where it is open, of a pipeline
    /// [`GemmTransport::Put`], of [`GemmAlgorithm::Pull`] blocks of the kernel, and of [`GemmAlgorithm::Push`]
    /// copy engines where they can, but of columns blocks of the kernel, and of few rows those of a kernel that does
    /// it all, where there is one.
    #[default]
    Automatic,
    /// Copy engines load from the peers ([`GemmAlgorithm::Pipeline`]).
    Get,
    /// Copy engines store to the peers ([`GemmAlgorithm::Pipeline`], [`GemmAlgorithm::Push`]).
    Put,
    /// The vendor's library sends and receives ([`GemmAlgorithm::Pipeline`]); it has to be open
    /// ([`crate::Communicator::open_vendor`]).
    Vendor,
    /// Blocks of the kernel store to the peers ([`GemmAlgorithm::Push`]).
    Kernel,
}

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
    /// Whether the caller gives a buffer for the gathered `A` ([`super::Operands::gathered`]), in which it
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
