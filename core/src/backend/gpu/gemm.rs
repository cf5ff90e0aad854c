//! The part of [`Gemm`](crate::backend::Gemm) that is alike on every vendor: products by its library, and an
//! arrival by the copy engine.

use super::Gpu;
use crate::backend::abi::*;
use crate::backend::matrix_library::Products;
use crate::backend::{CallResult, SymmetricMemory};

/// [`gemm_library`](crate::backend::Gemm::gemm_library).
///
/// # Errors
/// As there.
pub fn library<G: Gpu>(gpu: &G) -> CallResult<VendorDescription> {
    let library = G::matrix_library()?;
    let _entered = gpu.enter()?;
    gpu.parts().products.describe(library)
}

/// [`gemm_prepare`](crate::backend::Gemm::gemm_prepare): the workspace is ordinary memory of the device.
///
/// # Errors
/// As there.
pub fn prepare<G: Gpu>(gpu: &G, shape: &GemmShape) -> CallResult<RawGemm> {
    let library = G::matrix_library()?;
    let _entered = gpu.enter()?;
    let parts = gpu.parts();
    let [kind, ..] = parts.capabilities.share_kinds;
    let allocate = |bytes| gpu.allocate(kind, bytes);
    // SAFETY: allocated above, and nothing was enqueued that uses it.
    let free = |workspace| unsafe { gpu.free(workspace) };
    parts.products.prepare(library, shape, allocate, free)
}

/// [`gemm`](crate::backend::Gemm::gemm).
///
/// # Errors
/// As there.
///
/// # Safety
/// As there.
#[inline]
pub unsafe fn run<G: Gpu>(
    gpu: &G,
    gemm: RawGemm,
    candidate: u32,
    operands: &GemmOperands,
    on: RawStream,
) -> CallResult<()> {
    let _entered = gpu.enter()?;
    // SAFETY: the caller's word.
    unsafe { Products::run(gemm, candidate, operands, on) }
}

/// [`gemm_release`](crate::backend::Gemm::gemm_release).
///
/// # Errors
/// As there.
///
/// # Safety
/// As there.
pub unsafe fn release<G: Gpu>(gpu: &G, gemm: RawGemm) -> CallResult<()> {
    // SAFETY: the product's own, and by the caller's word no work uses it.
    let free = |workspace| unsafe { gpu.free(workspace) };
    // SAFETY: the caller's word.
    gpu.give_back(|| unsafe { gpu.parts().products.release(gemm, free) })
}

/// [`gathered_arrive`](crate::backend::Gemm::gathered_arrive): what a stream copies, it copies in order.
///
/// # Errors
/// As there.
///
/// # Safety
/// As there.
#[inline]
pub unsafe fn arrive<G: Gpu>(
    gpu: &G,
    word: DeviceAddress,
    epoch: DeviceAddress,
    on: RawStream,
) -> CallResult<()> {
    let _entered = gpu.enter()?;
    let copy = Transfer {
        direction: Direction::PUT,
        ..Transfer::by_engine(word, epoch, size_of::<u32>() as u64)
    };
    // SAFETY: the caller keeps both words live.
    unsafe { gpu.copy(&copy, on) }
}
