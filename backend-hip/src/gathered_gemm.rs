//! The all-gather + GEMM kernels for AMD GPUs, which use MFMA instructions (`symmem/tile_gemm.h`). They take
//! all strides and alignments.

use crate::instance::HipBackend;
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::*;
use symmem_gpu::gathered_gemm::{Rates, countable, grid, unsupported};
use symmem_gpu::{Gpu, Grid};
use symmem_kernels_hip::{GATHERED_GEMM_SHARED_MEMORY, GATHERED_GEMM_TILE};

/// Threads of a block: four wavefronts.
const THREADS: u32 = 256;
/// Not measured. A block has 16 KiB of loads in flight, of which each may take two microseconds from a peer.
/// The GEMM rate is a third of the peak of MI300's matrix cores.
const RATES: Rates = Rates {
    mover: 8e9,
    product: 400e12,
};

/// Returns the name of the kernel for a shape, if any.
fn kernel_name(shape: &GemmLayout) -> Option<&'static str> {
    Some(match (shape.element, shape.b_order) {
        (ElementTypeCode::F16, MatrixOrderCode::ROWS) => "symmem_gathered_gemm_f16_rows",
        (ElementTypeCode::F16, MatrixOrderCode::COLUMNS) => "symmem_gathered_gemm_f16_columns",
        (ElementTypeCode::BF16, MatrixOrderCode::ROWS) => "symmem_gathered_gemm_bf16_rows",
        (ElementTypeCode::BF16, MatrixOrderCode::COLUMNS) => "symmem_gathered_gemm_bf16_columns",
        _ => return None,
    })
}

/// See [`symmem_core::backend::Gemm::gathered_gemm_limits`].
pub fn limits(
    backend: &HipBackend,
    shape: &GemmLayout,
    sharding: ShardingCode,
    shard: u64,
) -> GatheredLimits {
    let state = backend.state();
    let room = state.capabilities.shared_memory_per_block >= GATHERED_GEMM_SHARED_MEMORY;
    if kernel_name(shape).is_none() || !room || !countable(shape) {
        return GatheredLimits::default();
    }
    GatheredLimits {
        // One per compute unit that the masks leave: two stages of operands in shared memory may leave no room
        // for a second block.
        blocks: state.description.compute_units,
        threads: THREADS,
        tile_m: GATHERED_GEMM_TILE,
        tile_n: GATHERED_GEMM_TILE,
        chunk_alignment: GATHERED_GEMM_TILE,
        movers: RATES.movers(shape, sharding, shard, state.description.compute_units),
        // Not WAIT: the runtime may copy rows, and small sizes, with a kernel, which has no room beside a grid
        // that fills the device.
        modes: GatherMode::PULL.bit() | GatherMode::PUSH.bit(),
        alignment: 1,
        at_once_blocks: 0,
    }
}

/// See [`symmem_core::backend::Gemm::gathered_gemm`].
///
/// # Errors
/// `UNSUPPORTED` for a shape or mode without a kernel; `INVALID_ARGUMENT` for a grid that cannot be
/// co-resident, or in which every block moves `A`; the runtime's failure.
///
/// # Safety
/// As [`symmem_core::backend::Gemm::gathered_gemm`].
pub unsafe fn launch(
    backend: &HipBackend,
    arguments: &GatheredGemmArguments,
    geometry: &Geometry,
    on: RawStream,
) -> CallResult<()> {
    let shape = &arguments.shape;
    let limits = limits(backend, shape, arguments.sharding, arguments.shard);
    let blocks = grid(&limits, arguments, geometry)?;
    let name = kernel_name(shape).ok_or_else(unsupported)?;
    let kernel = backend.state().kernels.by_name(name.as_bytes())?;
    let grid = Grid {
        blocks,
        threads: THREADS,
        shared_memory: GATHERED_GEMM_SHARED_MEMORY,
    };
    let (argument, bytes) = (std::ptr::from_ref(arguments), size_of_val(arguments));
    // SAFETY: the kernel's argument is this struct, which the runtime copies. The caller upholds the rest of
    // the contract.
    unsafe { backend.launch_kernel(kernel, grid, argument.cast(), bytes, on) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_take_the_struct_and_the_threads_that_they_are_launched_with() {
        for element in [ElementTypeCode::F16, ElementTypeCode::BF16] {
            for b_order in [MatrixOrderCode::ROWS, MatrixOrderCode::COLUMNS] {
                let shape = GemmLayout {
                    element,
                    b_order,
                    ..GemmLayout::default()
                };
                let name = kernel_name(&shape).unwrap();
                let mut all = symmem_kernels_hip::modules().iter().flat_map(|m| m.entries);
                let entry = all.find(|entry| entry.name == name).unwrap();
                let bytes = size_of::<GatheredGemmArguments>();
                assert_eq!(
                    (entry.argument_bytes as usize, entry.threads),
                    (bytes, THREADS)
                );
            }
        }
        let other = GemmLayout {
            element: ElementTypeCode::F32,
            ..GemmLayout::default()
        };
        assert_eq!(kernel_name(&other), None);
    }
}
