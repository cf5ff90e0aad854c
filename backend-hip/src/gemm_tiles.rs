//! The tiles of AMD's GEMM kernels: which one a product has, and its kernel.

use crate::gemm_rounds::Rounds;
use crate::instance::HipBackend;
use symmem_core::backend::abi::*;
use symmem_gpu::Gpu;
use symmem_gpu::gathered_gemm::place_of_matrices;
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

/// The names of a family of kernels, by element type and order of `B`, as [`kernel_name`] counts them, and by tile, in the order
/// of [`GemmTile::ALL`].
pub type Names = [[&'static str; GemmTile::ALL.len()]];

/// Makes the [`Names`] of a family, of the element types and orders of `B` that it has.
macro_rules! names {
    ($family:literal: $($matrices:literal)*) => {
        [$([
            concat!($family, "_", $matrices, "_256x256"),
            concat!($family, "_", $matrices, "_128x256"),
            concat!($family, "_", $matrices, "_256x128"),
            concat!($family, "_", $matrices, "_64x256"),
            concat!($family, "_", $matrices, "_256x64"),
        ]),*]
    };
}
pub(crate) use names;

/// Returns the name of a family's kernel for a shape; `None` for an element type, an order of `B` or a tile without one.
pub fn kernel_name(names: &Names, shape: &GemmLayout, tile: GemmTile) -> Option<&'static str> {
    let matrices = match (shape.element, shape.b_order) {
        // Behind the others, in families that have it.
        (ElementTypeCode::F8_E4M3, MatrixOrderCode::COLUMNS) => 4,
        _ => place_of_matrices(shape)?,
    };
    let tile = GemmTile::ALL.into_iter().position(|one| one == tile)?;
    Some(names.get(matrices)?[tile])
}

/// Returns whether a block has enough shared memory for a tile.
pub fn has_room(backend: &HipBackend, tile: GemmTile) -> bool {
    let capabilities = &backend.state().capabilities;
    capabilities.shared_memory_per_block >= tile.shared_memory(backend.target)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use symmem_kernels_hip::GEMM_THREADS;

    /// Checks that each kernel of a family exists, by its own name, and takes a struct of this size.
    pub fn check_kernels(family: &str, names: &Names, argument_bytes: usize) {
        let (rows, columns) = (MatrixOrderCode::ROWS, MatrixOrderCode::COLUMNS);
        let all = [
            (ElementTypeCode::F16, rows, "f16_rows"),
            (ElementTypeCode::F16, columns, "f16_columns"),
            (ElementTypeCode::BF16, rows, "bf16_rows"),
            (ElementTypeCode::BF16, columns, "bf16_columns"),
            (ElementTypeCode::F8_E4M3, columns, "f8_e4m3_columns"),
        ];
        for &(element, b_order, matrices) in &all[..names.len()] {
            let shape = GemmLayout {
                element,
                b_order,
                ..GemmLayout::default()
            };
            for tile in GemmTile::ALL {
                let name = kernel_name(names, &shape, tile).unwrap();
                let GemmTile { rows, columns } = tile;
                assert_eq!(name, format!("{family}_{matrices}_{rows}x{columns}"));
                let mut all = symmem_kernels_hip::modules().iter().flat_map(|m| m.entries);
                let entry = all.find(|entry| entry.name == name).unwrap();
                assert_eq!(
                    (entry.argument_bytes as usize, entry.threads),
                    (argument_bytes, GEMM_THREADS)
                );
            }
        }
        let without = [
            (ElementTypeCode::F32, columns),
            (ElementTypeCode::F8_E4M3, rows),
        ];
        for (element, b_order) in without {
            let shape = GemmLayout {
                element,
                b_order,
                ..GemmLayout::default()
            };
            assert_eq!(kernel_name(names, &shape, GemmTile::ALL[0]), None);
        }
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
