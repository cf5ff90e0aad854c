//! Products of matrices: by the vendor's library, and the launch of the kernel that gathers, which is the
//! vendor's own.

use crate::gpu::Gpu;
use crate::matrix_library::Products;
use crate::open::OpenGpu;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Gemm, SymmetricMemory};

impl<G: Gpu> Gemm for OpenGpu<G> {
    fn gemm_library(&self) -> CallResult<VendorDescription> {
        self.settle(|| {
            let library = G::matrix_library()?;
            let _entered = self.enter()?;
            self.parts().products.describe(library)
        })
    }

    /// The workspace is ordinary memory of the device.
    fn gemm_prepare(&self, shape: &GemmShape) -> CallResult<RawGemm> {
        self.settle(|| {
            let library = G::matrix_library()?;
            let _entered = self.enter()?;
            let parts = self.parts();
            let [kind, ..] = parts.capabilities.share_kinds;
            let allocate = |bytes| self.allocate(kind, bytes);
            // SAFETY: allocated above, and nothing was enqueued that uses it.
            let free = |workspace| unsafe { self.free(workspace) };
            parts.products.prepare(library, shape, allocate, free)
        })
    }

    unsafe fn gemm_candidates(&self, gemm: RawGemm) -> CallResult<u32> {
        // SAFETY: the caller's word. So for all below.
        Ok(unsafe { Products::candidates(gemm) })
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
            // SAFETY: as above.
            unsafe { Products::run(gemm, candidate, operands, on) }
        })
    }

    unsafe fn gemm_release(&self, gemm: RawGemm) -> CallResult<()> {
        // SAFETY: the product's own, and by the caller's word no work uses it.
        let free = |workspace| unsafe { self.free(workspace) };
        self.settle(|| {
            // SAFETY: as above.
            self.give_back(|| unsafe { self.parts().products.release(gemm, free) })
        })
    }

    fn gathered_gemm_limits(
        &self,
        shape: &GemmShape,
        sharding: Sharding,
        shard: u64,
    ) -> CallResult<Option<GatheredLimits>> {
        let limits = self.gathered_limits(shape, sharding, shard);
        Ok((limits.blocks != 0).then_some(limits))
    }

    #[inline]
    unsafe fn gathered_gemm(
        &self,
        arguments: &GatheredGemmArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        // SAFETY: as above.
        unsafe { self.launch_gathered(arguments, geometry, on) }
    }

    /// What a stream copies, it copies in order.
    #[inline]
    unsafe fn gathered_arrive(
        &self,
        word: DeviceAddress,
        epoch: DeviceAddress,
        on: RawStream,
    ) -> CallResult<()> {
        let _entered = self.enter()?;
        let copy = Transfer {
            direction: Direction::PUT,
            ..Transfer::by_engine(word, epoch, size_of::<u32>() as u64)
        };
        // SAFETY: the caller keeps both words live.
        unsafe { self.copy(&copy, on) }
    }
}
