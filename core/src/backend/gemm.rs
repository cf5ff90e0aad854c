//! GEMM by cuBLASLt or hipBLASLt, and GEMMs fused with communication by the backend's own kernels.

use super::abi::*;
use super::failure::CallResult;
use enum_dispatch::enum_dispatch;

/// Matrix multiplication: the GEMM library (cuBLASLt, hipBLASLt), the kernel that multiplies while it gathers, and the
/// kernel that multiplies and sums over the ranks.
#[enum_dispatch]
pub trait Gemm {
    /// Describes the GEMM library (cuBLASLt or hipBLASLt), which is opened if necessary. Fails with `LIBRARY_MISSING`
    /// if it is not installed.
    fn gemm_library(&self) -> CallResult<LibraryDescription>;
    /// Prepares a GEMM of one shape: asks the library's heuristic and reserves workspace. May block. Fails with
    /// `UNSUPPORTED` if the library has no algorithm for it.
    fn gemm_prepare(&self, shape: &GemmLayout) -> CallResult<RawGemm>;
    /// Returns how many candidates (heuristic results) the library has, best guess first; at least 1.
    ///
    /// # Safety
    /// `gemm` is live.
    unsafe fn gemm_candidates(&self, gemm: RawGemm) -> CallResult<u32>;
    /// Enqueues the GEMM with the given candidate. Capturable.
    ///
    /// # Safety
    /// `gemm` and all memory are live until the stream has passed this point; `c` overlaps no other operand. All uses
    /// of `gemm` share one workspace, so they must be ordered, for example on one stream.
    unsafe fn gemm(
        &self,
        gemm: RawGemm,
        candidate: u32,
        operands: &GemmOperands,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Destroys a prepared GEMM.
    ///
    /// # Safety
    /// `gemm` is live and not used again, and no stream or graph still uses it.
    unsafe fn gemm_release(&self, gemm: RawGemm) -> CallResult<()>;

    /// Returns the limits of [`Gemm::gathered_gemm`] for a GEMM whose `A` is divided into shards of `shard` rows or
    /// columns; `None` if there is no kernel for it.
    fn gathered_gemm_limits(
        &self,
        shape: &GemmLayout,
        sharding: ShardingCode,
        shard: u64,
    ) -> CallResult<Option<GatheredLimits>>;
    /// Returns the limits of [`Gemm::gathered_gemm`] with the tile that [`GatheredGemmArguments::tile`] asks for; `None`
    /// if there is no such kernel. Unless it is overridden, there is only the tile of [`Gemm::gathered_gemm_limits`].
    fn gathered_gemm_tile(
        &self,
        shape: &GemmLayout,
        sharding: ShardingCode,
        shard: u64,
        rows: u32,
        columns: u32,
    ) -> CallResult<Option<GatheredLimits>> {
        let limits = self.gathered_gemm_limits(shape, sharding, shard)?;
        Ok(limits.filter(|limits| (limits.tile_m, limits.tile_n) == (rows, columns)))
    }
    /// Enqueues a GEMM that gathers its `A` meanwhile. Capturable. With [`GatherMode::WAIT`] the grid may fill the
    /// device: the work that raises the arrival words was enqueued earlier and needs no block.
    ///
    /// # Safety
    /// The named memory and words are live until the stream has passed this point, and every member of the group
    /// makes the same call.
    unsafe fn gathered_gemm(
        &self,
        arguments: &GatheredGemmArguments,
        geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Enqueues a copy of the 32 bits at `epoch`, in this rank's memory, to an arrival word. A reader that sees them
    /// with acquire order also sees the stream's earlier work. The copy engine makes the copy, so it needs no block
    /// on a device that a waiting grid may have filled. Capturable.
    ///
    /// # Safety
    /// Both words are live until the stream has passed this point.
    unsafe fn gathered_arrive(
        &self,
        word: DeviceAddress,
        epoch: DeviceAddress,
        stream: RawStream,
    ) -> CallResult<()>;

    /// Returns the limits of [`Gemm::reduced_gemm`] for a rank's GEMM and its sum over the ranks; `None` if there is
    /// no kernel for it.
    fn reduced_gemm_limits(
        &self,
        shape: &GemmLayout,
        problem: &ReducedProblem,
    ) -> CallResult<Option<ReducedLimits>>;
    /// Enqueues a GEMM and the sum of its products over all ranks, as one launch that is its own barrier. Capturable.
    /// The grid is that of [`ReducedLimits`], and waits for the other members'. Fails with `UNSUPPORTED` if there is no
    /// kernel.
    ///
    /// # Safety
    /// The named memory and words are live until the stream has passed this point, the inboxes and words also until all
    /// members' streams have. Every member of the group makes the same call, with limits equal to this rank's.
    unsafe fn reduced_gemm(
        &self,
        arguments: &ReducedGemmArguments,
        geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()>;
}
