//! The algorithms of all-gather + GEMM, and what moves the shards.

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
