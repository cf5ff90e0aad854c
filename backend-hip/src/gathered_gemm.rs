//! The all-gather + GEMM kernels for AMD GPUs, which use MFMA instructions (`symmem/tile_gemm.h`). They take
//! all strides and alignments.

use crate::gemm_rounds::Rounds;
use crate::instance::HipBackend;
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::*;
use symmem_gpu::gathered_gemm::{Rates, countable, grid, unsupported};
use symmem_gpu::{Gpu, Grid};
use symmem_kernels_hip::{GEMM_THREADS as THREADS, GemmTile};

/// Not measured. A block has 32 KiB of loads in flight, of which each may take two microseconds from a peer.
/// The GEMM rate is half of the peak of MI300's matrix cores.
const RATES: Rates = Rates {
    mover: 16e9,
    product: 650e12,
};

/// Compute units of MI300X. The choice of the tile does not ask the device, since all members must choose alike.
const COMPUTE_UNITS: u64 = 304;
/// Multiply-adds that take as long as loading one element, for each block: 1024 per cycle, and 32 bytes from the L2
/// cache.
const PRODUCTS_PER_LOAD: u64 = 64;
/// Multiply-adds that take as long as what a step costs besides, for each element of the depth: 150 clocks of a step, by the
/// cost model (`benches/results/2026-11-29-amd-cost-model-after.json`).
const PRODUCTS_PER_STEP: u64 = 4800;

/// Returns the tile with which the GEMM takes least time, and least work if there are several.
fn chosen_tile(shape: &GemmLayout, sharding: ShardingCode, shard: u64) -> GemmTile {
    let range = match sharding {
        ShardingCode::COLUMNS => shape.m,
        _ => shard.min(shape.m),
    };
    let cost = |tile: &GemmTile| {
        let (rows, columns) = (u64::from(tile.rows), u64::from(tile.columns));
        let rounds = Rounds::new(shape, sharding, shard, *tile, COMPUTE_UNITS);
        let products = rows * columns;
        // Lines outside the matrix are multiplied, but not loaded.
        let loads = rows.min(range) + columns.min(shape.n);
        let step = products.max(PRODUCTS_PER_LOAD * loads) + PRODUCTS_PER_STEP;
        (
            rounds.time(step, products),
            rounds.tiles().saturating_mul(step),
        )
    };
    let best = GemmTile::ALL.into_iter().min_by_key(cost);
    best.unwrap_or(GemmTile::ALL[0])
}

/// Returns the name of the kernel for a shape, if any.
fn kernel_name(shape: &GemmLayout, tile: GemmTile) -> Option<String> {
    let element = match shape.element {
        ElementTypeCode::F16 => "f16",
        ElementTypeCode::BF16 => "bf16",
        _ => return None,
    };
    let order = match shape.b_order {
        MatrixOrderCode::ROWS => "rows",
        MatrixOrderCode::COLUMNS => "columns",
        _ => return None,
    };
    let GemmTile { rows, columns } = tile;
    Some(format!(
        "symmem_gathered_gemm_{element}_{order}_{rows}x{columns}"
    ))
}

/// Returns the limits of the kernel with a tile, named as by [`GatheredGemmArguments::tile`]; without blocks if there is none.
pub fn limits(
    backend: &HipBackend,
    shape: &GemmLayout,
    sharding: ShardingCode,
    shard: u64,
    tile: u32,
) -> GatheredLimits {
    let tile = match tile {
        0 => chosen_tile(shape, sharding, shard),
        named => GemmTile {
            rows: named >> 16,
            columns: named & 0xffff,
        },
    };
    let state = backend.state();
    let room = state.capabilities.shared_memory_per_block >= tile.shared_memory(backend.target);
    let known = GemmTile::ALL.contains(&tile) && kernel_name(shape, tile).is_some();
    if !known || !room || !countable(shape) {
        return GatheredLimits::default();
    }
    // One per compute unit that the masks leave: the operands in shared memory, and the registers of
    // eight waves, may leave no room for a second block.
    let blocks = state.description.compute_units;
    let movers = RATES.movers(shape, sharding, shard, blocks);
    let computing = u64::from(blocks.saturating_sub(movers).max(1));
    let rounds = Rounds::new(shape, sharding, shard, tile, computing);
    GatheredLimits {
        blocks,
        threads: THREADS,
        tile_m: tile.rows,
        tile_n: tile.columns,
        chunk_alignment: tile.rows,
        movers,
        // Not WAIT: the runtime may copy rows, and small sizes, with a kernel, which has no room beside a grid
        // that fills the device.
        modes: GatherMode::PULL.bit() | GatherMode::PUSH.bit(),
        alignment: 1,
        at_once_blocks: 0,
        reserved: 0,
        partial_bytes: rounds.partial_bytes(blocks.into()),
    }
}

/// Returns the quota of [`GatheredGemmArguments::quota`] for a grid: 0 if the memory for partial sums does not suffice.
fn quota(arguments: &GatheredGemmArguments, tile: GemmTile, blocks: u32) -> u32 {
    let GatheredGemmArguments {
        shape,
        sharding,
        shard,
        movers,
        partials,
        partial_bytes,
        ..
    } = arguments;
    let computing = u64::from(blocks - movers);
    let rounds = Rounds::new(shape, *sharding, *shard, tile, computing);
    let room =
        *partials != DeviceAddress::NULL && rounds.partial_bytes(blocks.into()) <= *partial_bytes;
    let quota = if room { rounds.quota() } else { 0 };
    u32::try_from(quota).unwrap_or(0)
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
    let limits = limits(
        backend,
        shape,
        arguments.sharding,
        arguments.shard,
        arguments.tile,
    );
    let blocks = grid(&limits, arguments, geometry)?;
    let tile = GemmTile {
        rows: limits.tile_m,
        columns: limits.tile_n,
    };
    let name = kernel_name(shape, tile).ok_or_else(unsupported)?;
    let kernel = backend.state().kernels.by_name(name.as_bytes())?;
    let grid = Grid {
        blocks,
        threads: THREADS,
        shared_memory: tile.shared_memory(backend.target),
    };
    let arguments = GatheredGemmArguments {
        quota: quota(arguments, tile, blocks),
        ..*arguments
    };
    let (argument, bytes) = (&raw const arguments, size_of_val(&arguments));
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
                for tile in GemmTile::ALL {
                    let name = kernel_name(&shape, tile).unwrap();
                    let mut all = symmem_kernels_hip::modules().iter().flat_map(|m| m.entries);
                    let entry = all.find(|entry| entry.name == name).unwrap();
                    let bytes = size_of::<GatheredGemmArguments>();
                    assert_eq!(
                        (entry.argument_bytes as usize, entry.threads),
                        (bytes, THREADS)
                    );
                }
            }
        }
        let other = GemmLayout {
            element: ElementTypeCode::F32,
            ..GemmLayout::default()
        };
        assert_eq!(kernel_name(&other, GemmTile::ALL[0]), None);
    }

    #[test]
    fn small_products_have_small_tiles_so_that_more_compute_units_work() {
        let of = |m: u64, n, sharding, world: u64| {
            let shape = GemmLayout {
                m,
                n,
                k: 8192,
                ..GemmLayout::default()
            };
            let whole = match sharding {
                ShardingCode::COLUMNS => shape.k,
                _ => m,
            };
            let GemmTile { rows, columns } = chosen_tile(&shape, sharding, whole.div_ceil(world));
            (rows, columns)
        };
        assert_eq!(of(16384, 8192, ShardingCode::ROWS, 8), (256, 256));
        assert_eq!(of(2048, 3584, ShardingCode::ROWS, 2), (128, 256));
        assert_eq!(of(512, 8192, ShardingCode::ROWS, 8), (64, 256));
        assert_eq!(of(128, 8192, ShardingCode::COLUMNS, 8), (64, 256));
        assert_eq!(of(0, 0, ShardingCode::ROWS, 2), (256, 256));
    }
}
