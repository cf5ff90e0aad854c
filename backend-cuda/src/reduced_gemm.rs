//! GEMM + reduce kernels, by mode.

use crate::instance::CudaBackend;
use crate::{push_reduce, split_reduce};
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::*;
use symmem_gpu::reduced_gemm::{check_grid, unsupported};

/// See [`symmem_core::backend::Gemm::reduced_gemm_limits`]; limits with 0 blocks if there is no kernel.
pub fn limits(
    backend: &CudaBackend,
    shape: &GemmLayout,
    problem: &ReducedProblem,
) -> ReducedLimits {
    match problem.mode {
        ReducedMode::PACKETS => split_reduce::limits(backend, shape, problem),
        ReducedMode::PUSH => push_reduce::limits(backend, shape, problem),
        _ => ReducedLimits::default(),
    }
}

/// See [`symmem_core::backend::Gemm::reduced_gemm`].
///
/// # Errors
/// `UNSUPPORTED` for a shape or mode without a kernel; `INVALID_ARGUMENT` for matrices that tensor copies cannot load,
/// and for another grid than the kernel's; the driver's failure.
///
/// # Safety
/// As [`symmem_core::backend::Gemm::reduced_gemm`].
pub unsafe fn launch(
    backend: &CudaBackend,
    arguments: &ReducedGemmArguments,
    geometry: &Geometry,
    on: RawStream,
) -> CallResult<()> {
    let limits = limits(backend, &arguments.shape, &arguments.problem());
    check_grid(&limits, geometry)?;
    match arguments.mode {
        // SAFETY: the caller upholds this function's contract, which is the callee's.
        ReducedMode::PACKETS => unsafe { split_reduce::launch(backend, arguments, on) },
        // SAFETY: as above.
        ReducedMode::PUSH => unsafe { push_reduce::launch(backend, arguments, limits.blocks, on) },
        _ => Err(unsupported()),
    }
}
