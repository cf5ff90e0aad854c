//! GEMM + reduce kernels: none yet for these GPUs.

use crate::instance::CudaBackend;
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::*;
use symmem_gpu::reduced_gemm::unsupported;

/// See [`symmem_core::backend::Gemm::reduced_gemm_limits`]; limits with 0 blocks if there is no kernel.
pub fn limits(
    _backend: &CudaBackend,
    _shape: &GemmLayout,
    _problem: &ReducedProblem,
) -> ReducedLimits {
    ReducedLimits::default()
}

/// See [`symmem_core::backend::Gemm::reduced_gemm`].
///
/// # Errors
/// `UNSUPPORTED`.
///
/// # Safety
/// As [`symmem_core::backend::Gemm::reduced_gemm`].
pub unsafe fn launch(
    _backend: &CudaBackend,
    _arguments: &ReducedGemmArguments,
    _geometry: &Geometry,
    _on: RawStream,
) -> CallResult<()> {
    Err(unsupported())
}
