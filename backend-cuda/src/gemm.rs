//! Products of matrices: the library's part is core's.

use crate::gathered_gemm;
use crate::instance::CudaBackend;
use symmem_core::backend::abi::*;
use symmem_core::backend::gpu::gemm;
use symmem_core::backend::matrix_library::Products;
use symmem_core::backend::{CallResult, Gemm};

impl Gemm for CudaBackend {
    fn gemm_library(&self) -> CallResult<VendorDescription> {
        gemm::library(self)
    }

    fn gemm_prepare(&self, shape: &GemmShape) -> CallResult<RawGemm> {
        gemm::prepare(self, shape)
    }

    unsafe fn gemm_candidates(&self, product: RawGemm) -> CallResult<u32> {
        // SAFETY: the caller's word. So for all below.
        Ok(unsafe { Products::candidates(product) })
    }

    #[inline]
    unsafe fn gemm(
        &self,
        product: RawGemm,
        way: u32,
        operands: &GemmOperands,
        on: RawStream,
    ) -> CallResult<()> {
        // SAFETY: as above.
        unsafe { gemm::run(self, product, way, operands, on) }
    }

    unsafe fn gemm_release(&self, product: RawGemm) -> CallResult<()> {
        // SAFETY: as above.
        unsafe { gemm::release(self, product) }
    }

    fn gathered_gemm_limits(
        &self,
        shape: &GemmShape,
        sharding: Sharding,
        shard: u64,
    ) -> CallResult<GatheredLimits> {
        Ok(gathered_gemm::limits(self, shape, sharding, shard))
    }

    unsafe fn gathered_gemm(
        &self,
        arguments: &GatheredGemmArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        // SAFETY: as above.
        unsafe { gathered_gemm::launch(self, arguments, geometry, on) }
    }

    #[inline]
    unsafe fn gathered_arrive(
        &self,
        word: DeviceAddress,
        epoch: DeviceAddress,
        on: RawStream,
    ) -> CallResult<()> {
        // SAFETY: as above.
        unsafe { gemm::arrive(self, word, epoch, on) }
    }
}
