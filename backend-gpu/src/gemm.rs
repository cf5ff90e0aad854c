//! GEMM by cuBLASLt or hipBLASLt, and the launches of the vendor's own kernels that fuse it with communication.

use crate::blaslt::PreparedGemms;
use crate::gpu::Gpu;
use crate::open::OpenGpu;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Gemm, SymmetricMemory};

impl<G: Gpu> Gemm for OpenGpu<G> {
    fn gemm_library(&self) -> CallResult<LibraryDescription> {
        self.settle(|| {
            let library = G::blaslt()?;
            let _entered = self.enter()?;
            self.state().gemms.describe(library)
        })
    }

    /// Allocates the workspace in ordinary device memory.
    fn gemm_prepare(&self, shape: &GemmLayout) -> CallResult<RawGemm> {
        self.settle(|| {
            let library = G::blaslt()?;
            let _entered = self.enter()?;
            let state = self.state();
            let [kind, ..] = state.capabilities.share_kinds;
            let allocate = |bytes| self.allocate(kind, bytes);
            // SAFETY: `allocate` returned this workspace, and no enqueued work uses it yet.
            let free = |workspace| unsafe { self.free(workspace) };
            state.gemms.prepare(library, shape, allocate, free)
        })
    }

    unsafe fn gemm_candidates(&self, gemm: RawGemm) -> CallResult<u32> {
        // SAFETY: the caller passes a live handle.
        Ok(unsafe { PreparedGemms::candidates(gemm) })
    }

    #[inline]
    unsafe fn gemm(
        &self,
        gemm: RawGemm,
        candidate: u32,
        operands: &GemmOperands,
        on: RawStream,
    ) -> CallResult<()> {
        self.settle(|| {
            let _entered = self.enter()?;
            // SAFETY: the caller upholds the contract of `Gemm::gemm`, which is the callee's.
            unsafe { PreparedGemms::run(gemm, candidate, operands, on) }
        })
    }

    unsafe fn gemm_release(&self, gemm: RawGemm) -> CallResult<()> {
        // SAFETY: the workspace belongs to this GEMM, and the caller says that no work uses it any more.
        let free = |workspace| unsafe { self.free(workspace) };
        self.settle(|| {
            // SAFETY: the caller passes a live handle that no enqueued work uses.
            self.give_back(|| unsafe { self.state().gemms.release(gemm, free) })
        })
    }

    fn gathered_gemm_limits(
        &self,
        shape: &GemmLayout,
        sharding: ShardingCode,
        shard: u64,
    ) -> CallResult<Option<GatheredLimits>> {
        let limits = self.gathered_limits(shape, sharding, shard, 0);
        Ok((limits.blocks != 0).then_some(limits))
    }

    fn gathered_gemm_tile(
        &self,
        shape: &GemmLayout,
        sharding: ShardingCode,
        shard: u64,
        rows: u32,
        columns: u32,
    ) -> CallResult<Option<GatheredLimits>> {
        let limits = self.gathered_limits(shape, sharding, shard, rows << 16 | columns);
        Ok((limits.blocks != 0).then_some(limits))
    }

    #[inline]
    unsafe fn gathered_gemm(
        &self,
        arguments: &GatheredGemmArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the caller upholds the contract of `Gemm::gathered_gemm`, which is the callee's.
        unsafe { self.launch_gathered(arguments, geometry, on) }
    }

    /// Copies with the copy engine: stream order puts the copy behind the stream's earlier work.
    #[inline]
    unsafe fn gathered_arrive(
        &self,
        word: DeviceAddress,
        epoch: DeviceAddress,
        on: RawStream,
    ) -> CallResult<()> {
        let _entered = self.enter()?;
        let copy = Transfer {
            direction: DirectionCode::PUT,
            ..Transfer::by_engine(word, epoch, size_of::<u32>() as u64)
        };
        // SAFETY: the caller keeps both words live until the stream has passed this point.
        unsafe { self.copy(&copy, on) }
    }

    fn reduced_gemm_limits(
        &self,
        shape: &GemmLayout,
        problem: &ReducedProblem,
    ) -> CallResult<Option<ReducedLimits>> {
        let limits = self.reduced_limits(shape, problem);
        Ok((limits.blocks != 0).then_some(limits))
    }

    #[inline]
    unsafe fn reduced_gemm(
        &self,
        arguments: &ReducedGemmArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the caller upholds the contract of `Gemm::reduced_gemm`, which is the callee's.
        unsafe { self.launch_reduced(arguments, geometry, on) }
    }
}
