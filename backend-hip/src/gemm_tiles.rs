//! The tiles of AMD's GEMM kernels: which one a product has, and its kernel.

use crate::gemm_rounds::Rounds;
use crate::instance::HipBackend;
use symmem_core::backend::abi::*;
use symmem_gpu::Gpu;
use symmem_kernels_hip::GemmTile;

/// Compute units of MI300X. The choice of the tile does not ask the device, since all members must choose alike.
const COMPUTE_UNITS: u64 = 304;
/// Multiply-adds that take as long as loading one element, for each block: 1024 per cycle, and 32 bytes from the L2
/// cache.
const PRODUCTS_PER_LOAD: u64 = 64;
/// Multiply-adds that take as long as what a step costs besides, for each element of the depth: 150 clocks of a step, by the
/// cost model (`benches/results/2026-11-29-amd-cost-model-after.json`).
const PRODUCTS_PER_STEP: u64 = 4800;

/// Returns the tile with which a GEMM takes least time, and least work if there are several.
pub fn chosen_tile(shape: &GemmLayout, sharding: ShardingCode, shard: u64) -> GemmTile {
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

/// Returns the name of a family's kernel for a shape; `None` for an element type or an order of `B` without one.
pub fn kernel_name(family: &str, shape: &GemmLayout, tile: GemmTile) -> Option<String> {
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
    Some(format!("{family}_{element}_{order}_{rows}x{columns}"))
}

/// Returns whether a block has enough shared memory for a tile.
pub fn has_room(backend: &HipBackend, tile: GemmTile) -> bool {
    let capabilities = &backend.state().capabilities;
    capabilities.shared_memory_per_block >= tile.shared_memory(backend.target)
}

#[cfg(test)]
mod tests {
    use super::*;

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
