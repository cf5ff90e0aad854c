//! All-gather + GEMM kernels for Hopper: warpgroup MMA, fed by tensor copies (TMA).

use crate::clusters::{CLUSTER, THREADS};
use crate::instance::CudaBackend;
use crate::split_gemm;
use crate::tensor_maps::{ALIGNMENT, BOX_LENGTH, Boxes, Fetch, TensorGemmArguments, are_aligned};
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::*;
use symmem_gpu::Gpu;
use symmem_gpu::gathered_gemm::{Rates, countable, grid, unsupported};
use symmem_kernels_ptx::{GATHERED_GEMM_SHARED_MEMORY, SPLIT_GEMM_SHARED_MEMORY};

/// Tile of `C` that a block computes (`kernels-ptx/src/gathered_gemm`).
const TILE_ROWS: u32 = 128;
const TILE_COLUMNS: u32 = 256;
/// Columns of a TMA box of `B`: half of a tile. In a cluster of two, each block loads one half for both.
const BOX_COLUMNS: u32 = 128;
/// Measured on H200 (`2026-11-21-gathered-gemm-2xh200`).
const RATES: Rates = Rates {
    mover: 24e9,
    product: 650e12,
};

/// Returns the kernel's name for a shape; `None` if there is no such kernel. The device may lack it all the same.
fn kernel_name(shape: &GemmLayout) -> Option<&'static str> {
    Some(match (shape.element, shape.b_order) {
        (ElementTypeCode::F16, MatrixOrderCode::ROWS) => "symmem_tensor_gemm_f16_rows",
        (ElementTypeCode::F16, MatrixOrderCode::COLUMNS) => "symmem_tensor_gemm_f16_columns",
        (ElementTypeCode::BF16, MatrixOrderCode::ROWS) => "symmem_tensor_gemm_bf16_rows",
        (ElementTypeCode::BF16, MatrixOrderCode::COLUMNS) => "symmem_tensor_gemm_bf16_columns",
        _ => return None,
    })
}

/// Returns whether tensor copies can load the matrices of a shape. They need aligned strides and, if `A` is
/// sharded by columns, shards of whole boxes.
fn fits(shape: &GemmLayout, sharding: ShardingCode, shard: u64) -> bool {
    let boxes = sharding == ShardingCode::ROWS || shard.is_multiple_of(BOX_LENGTH.into());
    let lines = [shape.k, shape.a_stride, shape.b_stride];
    lines.into_iter().all(are_aligned) && boxes && countable(shape)
}

/// See [`symmem_core::backend::Gemm::gathered_gemm_limits`].
pub fn limits(
    backend: &CudaBackend,
    shape: &GemmLayout,
    sharding: ShardingCode,
    shard: u64,
) -> GatheredLimits {
    let state = backend.state();
    let kernel = kernel_name(shape).and_then(|name| state.kernels.by_name(name.as_bytes()).ok());
    let launches = backend.driver.table.cuLaunchKernelEx.is_some();
    let blocks = backend.clusters.gathered;
    let room = state.capabilities.shared_memory_per_block >= GATHERED_GEMM_SHARED_MEMORY;
    let encodes = backend.driver.table.cuTensorMapEncodeTiled.is_some();
    if kernel.is_none()
        || blocks == 0
        || !launches
        || !room
        || !encodes
        || !fits(shape, sharding, shard)
    {
        return GatheredLimits::default();
    }
    let known = |name: &str| state.kernels.by_name(name.as_bytes()).is_ok();
    let at_once = split_gemm::Grid::new(shape, sharding, &backend.clusters.split)
        .filter(|grid| grid.kernel_name(shape).is_some_and(known))
        .filter(|_| state.capabilities.shared_memory_per_block >= SPLIT_GEMM_SHARED_MEMORY);
    let at_once_mode = at_once.map_or(0, |_| GatherMode::PUSH_AT_ONCE.bit());
    GatheredLimits {
        blocks,
        threads: THREADS,
        tile_m: TILE_ROWS,
        tile_n: TILE_COLUMNS,
        chunk_alignment: TILE_ROWS,
        movers: RATES.movers(shape, sharding, shard, blocks),
        modes: GatherMode::WAIT.bit()
            | GatherMode::PULL.bit()
            | GatherMode::PUSH.bit()
            | at_once_mode,
        alignment: ALIGNMENT as u32,
        at_once_blocks: at_once.map_or(0, |grid| grid.blocks),
        ..GatheredLimits::default()
    }
}

/// See [`symmem_core::backend::Gemm::gathered_gemm`].
///
/// # Errors
/// `UNSUPPORTED` for a shape or mode without a kernel; `INVALID_ARGUMENT` for matrices that tensor copies cannot load,
/// and for a grid that cannot be co-resident or in which every block moves `A`; the driver's failure.
///
/// # Safety
/// As [`symmem_core::backend::Gemm::gathered_gemm`].
pub unsafe fn launch(
    backend: &CudaBackend,
    arguments: &GatheredGemmArguments,
    geometry: &Geometry,
    on: RawStream,
) -> CallResult<()> {
    let shape = &arguments.shape;
    if arguments.mode == GatherMode::PUSH_AT_ONCE {
        if !fits(shape, arguments.sharding, arguments.shard) {
            return Err(unsupported());
        }
        // SAFETY: the caller upholds this function's contract, which is the callee's.
        return unsafe { split_gemm::launch(backend, arguments, on) };
    }
    let limits = limits(backend, shape, arguments.sharding, arguments.shard);
    let blocks = grid(&limits, arguments, geometry)?;
    let kernel = kernel_name(shape).ok_or_else(unsupported)?;
    let kernel = backend.state().kernels.by_name(kernel.as_bytes())?;
    let boxes = Boxes {
        a: TILE_ROWS,
        b_rows: BOX_LENGTH,
        b_columns: BOX_COLUMNS,
        fetch: Fetch::Bytes256,
    };
    let tensors = TensorGemmArguments::new(backend.driver, arguments, boxes)?;
    let argument = (&raw const tensors).cast();
    let grid = symmem_gpu::Grid {
        blocks,
        threads: THREADS,
        shared_memory: GATHERED_GEMM_SHARED_MEMORY,
    };
    // In a cluster of two, the blocks' tiles lie below each other and share `B`. All multiplying blocks, and
    // all moving ones, must form pairs.
    let pairs = blocks.is_multiple_of(CLUSTER) && arguments.movers.is_multiple_of(CLUSTER);
    let cluster = if pairs { CLUSTER } else { 1 };
    // SAFETY: the kernel's argument is a `TensorGemmArguments`. The caller upholds the rest of the contract.
    unsafe { backend.launch_clusters(kernel, grid, cluster, argument, on) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(n: u64, k: u64) -> GemmLayout {
        GemmLayout {
            m: 100,
            n,
            k,
            a_stride: k,
            b_stride: n,
            c_stride: n,
            element: ElementTypeCode::BF16,
            b_order: MatrixOrderCode::ROWS,
            bias: 0,
            addend: 0,
        }
    }

    #[test]
    fn strides_and_shards_that_tensor_copies_refuse_have_no_kernel() {
        assert!(fits(&shape(264, 1096), ShardingCode::ROWS, 7));
        assert!(
            !fits(&shape(265, 1096), ShardingCode::ROWS, 7),
            "a stride of B"
        );
        assert!(
            !fits(&shape(264, 1097), ShardingCode::ROWS, 7),
            "a stride of A"
        );
        assert!(fits(&shape(264, 1096), ShardingCode::COLUMNS, 576));
        assert!(
            !fits(&shape(264, 1096), ShardingCode::COLUMNS, 548),
            "half a box"
        );
        assert!(!fits(&shape(1 << 32, 64), ShardingCode::ROWS, 7));
    }
}
