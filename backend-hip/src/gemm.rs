//! Products of matrices: by hipBLASLt, as core does it.
//!
//! The library calls the runtime on the caller's thread, so what fails there is taken off the thread's last
//! error here.

use crate::gathered_gemm;
use crate::instance::HipBackend;
use symmem_core::backend::abi::*;
use symmem_core::backend::gpu::gemm;
use symmem_core::backend::matrix_library::Products;
use symmem_core::backend::{CallResult, Gemm};

impl HipBackend {
    /// A result of the library's, whose failure nobody else is to find.
    fn settle<T>(&self, result: CallResult<T>) -> CallResult<T> {
        result.inspect_err(|_| self.device.runtime.forget_last_error())
    }
}

// What callers promise is what the functions ask for.
impl Gemm for HipBackend {
    fn gemm_library(&self) -> CallResult<VendorDescription> {
        self.settle(gemm::library(self))
    }

    fn gemm_prepare(&self, shape: &GemmShape) -> CallResult<RawGemm> {
        self.settle(gemm::prepare(self, shape))
    }

    unsafe fn gemm_candidates(&self, handle: RawGemm) -> CallResult<u32> {
        // SAFETY: as said above. So for all below.
        let count = unsafe { Products::candidates(handle) };
        Ok(count)
    }

    #[inline]
    unsafe fn gemm(
        &self,
        handle: RawGemm,
        candidate: u32,
        matrices: &GemmOperands,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: as above.
        self.settle(unsafe { gemm::run(self, handle, candidate, matrices, stream) })
    }

    unsafe fn gemm_release(&self, handle: RawGemm) -> CallResult<()> {
        // SAFETY: as above.
        self.settle(unsafe { gemm::release(self, handle) })
    }

    fn gathered_gemm_limits(
        &self,
        shape: &GemmShape,
        sharding: Sharding,
        shard: u64,
    ) -> CallResult<GatheredLimits> {
        Ok(gathered_gemm::limits(self, shape, sharding, shard))
    }

    #[inline]
    unsafe fn gathered_gemm(
        &self,
        arguments: &GatheredGemmArguments,
        geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: as above.
        unsafe { gathered_gemm::launch(self, arguments, geometry, stream) }
    }

    #[inline]
    unsafe fn gathered_arrive(
        &self,
        to: DeviceAddress,
        from: DeviceAddress,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: as above.
        unsafe { gemm::arrive(self, to, from, stream) }
    }
}
