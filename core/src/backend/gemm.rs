//! Products of matrices.

use super::abi::*;
use super::failure::CallResult;
use enum_dispatch::enum_dispatch;

/// The vendor's library of matrix products, and the kernel that multiplies while it gathers.
#[enum_dispatch]
pub trait Gemm {
    /// The library of products, opened if need be. `LIBRARY_MISSING` where there is none.
    fn gemm_library(&self) -> CallResult<VendorDescription>;
    /// Prepares a product of one shape: asks the library how it would do it, and sets workspace aside. May
    /// block. `UNSUPPORTED` where the library has no way to do it.
    fn gemm_prepare(&self, shape: &GemmShape) -> CallResult<RawGemm>;
    /// How many ways the library offers, its best guess first; at least 1.
    ///
    /// # Safety
    /// `gemm` is live.
    unsafe fn gemm_candidates(&self, gemm: RawGemm) -> CallResult<u32>;
    /// Enqueues the product in the given way. Capturable.
    ///
    /// # Safety
    /// `gemm` is live, and so is all memory, until the stream has passed this point; `c` overlaps nothing.
    /// One workspace serves all uses of `gemm`, so they follow one another, as on one stream they do.
    unsafe fn gemm(
        &self,
        gemm: RawGemm,
        candidate: u32,
        operands: &GemmOperands,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Gives a product up.
    ///
    /// # Safety
    /// `gemm` is live and not used again, and no stream or graph still uses it.
    unsafe fn gemm_release(&self, gemm: RawGemm) -> CallResult<()>;

    /// What [`Gemm::gathered_gemm`] can do for a product whose `A` is divided into shards of `shard` rows or
    /// columns; `None` if there is no kernel for it.
    fn gathered_gemm_limits(
        &self,
        shape: &GemmShape,
        sharding: Sharding,
        shard: u64,
    ) -> CallResult<Option<GatheredLimits>>;
    /// Enqueues a product that gathers its `A` meanwhile. Capturable. In [`GatherMode::WAIT`] the grid may
    /// fill the device: whatever raises the arrival words was enqueued before, and needs no block.
    ///
    /// # Safety
    /// All memory and words named are live until the stream has passed this point; every member of the group
    /// makes the call alike.
    unsafe fn gathered_gemm(
        &self,
        arguments: &GatheredGemmArguments,
        geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Copies the 32 bits at `epoch`, in this rank's memory, to an arrival word, once what the stream did
    /// before is visible to whoever sees them with acquire order. By the copy engine, so that it needs no
    /// block of a device that a waiting grid may have filled. Capturable.
    ///
    /// # Safety
    /// Both words are live until the stream has passed this point.
    unsafe fn gathered_arrive(
        &self,
        word: DeviceAddress,
        epoch: DeviceAddress,
        stream: RawStream,
    ) -> CallResult<()>;
}
