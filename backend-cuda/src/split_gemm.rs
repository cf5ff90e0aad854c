//! The all-gather + GEMM kernel for few rows. It does the whole call, and the blocks of a cluster split `K`
//! among them.

use crate::clusters::{Room, SPLIT_THREADS};
use crate::instance::CudaBackend;
use crate::tensor_maps::TensorGemmArguments;
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::*;
use symmem_gpu::Gpu;
use symmem_gpu::gathered_gemm::{ELEMENT_BYTES, unsupported};
use symmem_kernels_ptx::{SPLIT_GEMM, SPLIT_GEMM_ROWS, SPLIT_GEMM_SHARED_MEMORY};

/// Columns of `C` that a cluster computes at a time (`kernels-ptx/src/gathered_gemm/split_gemm.cu`); the
/// kernel's name has the rows.
pub(crate) const TILE_COLUMNS: u32 = 128;
const DEPTH: u64 = 64;
/// Most tiles along the rows. Tiles that run at the same time read `B` from memory once, but with more than one
/// the kernel with large tiles uses the device better (`2026-11-22-ag-gemm-4xh200`: 512 × 3584 × 8192). With a
/// small `B`, four are good (`2026-11-22-ag-gemm-whole-tiles-2xh200`: 1024³).
const MOST_ROW_TILES: u64 = 1;
const MOST_ROW_TILES_OF_SMALL_B: u64 = 4;
/// Size in bytes up to which `B` stays in L2 beside `A`. Measured with 2 MiB only; assumes that a third of an
/// H200's 50 MiB of L2 is available.
const SMALL_B: u64 = 16 << 20;
/// Largest `A` in bytes, because each block pushes a part of a shard before it multiplies.
const MOST_BYTES_OF_A: u64 = 16 << 20;
/// Grid of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Rows of a tile, which select the kernel.
    pub(crate) rows: u32,
    /// Blocks of a cluster, among which `K` is split.
    pub(crate) parts: u32,
    /// Blocks of the grid.
    pub(crate) blocks: u32,
}

impl Grid {
    /// Chooses the grid for a shape; `None` if no grid is co-resident, or the shape is too large for this kernel.
    pub(crate) fn new(shape: &GemmLayout, room: &Room) -> Option<Self> {
        let grid = Self::dividing(shape, room, &SPLIT_GEMM_ROWS, |_, _| true)?;
        let bytes = |lines: u64| lines.saturating_mul(shape.k).saturating_mul(ELEMENT_BYTES);
        let most_row_tiles = match bytes(shape.n) <= SMALL_B {
            true => MOST_ROW_TILES_OF_SMALL_B,
            false => MOST_ROW_TILES,
        };
        let known = shape.m.div_ceil(grid.rows.into()) <= most_row_tiles
            && bytes(shape.m) <= MOST_BYTES_OF_A
            && grid.blocks <= AT_ONCE_BLOCKS;
        known.then_some(grid)
    }

    /// Chooses the grid that divides `K` as far as its blocks are co-resident and the number of parts and that of blocks
    /// are `good`, of the kernels with `all_rows` rows; `None` if no grid is.
    pub(crate) fn dividing(
        shape: &GemmLayout,
        room: &Room,
        all_rows: &[u32],
        good: impl Fn(u32, u64) -> bool,
    ) -> Option<Self> {
        let (least, most) = (*all_rows.first()?, *all_rows.last()?);
        let enough = |rows: &&u32| u64::from(**rows) >= shape.m.clamp(least.into(), most.into());
        let rows = *all_rows.iter().find(enough)?;
        let row_tiles = shape.m.div_ceil(rows.into());
        let tiles = row_tiles.saturating_mul(shape.n.div_ceil(TILE_COLUMNS.into()));
        let steps = shape.k.div_ceil(DEPTH);
        let fits = |(parts, room): &(u32, u32)| {
            let divided = u64::from(*parts);
            let blocks = tiles.saturating_mul(divided);
            blocks <= u64::from(*room) && divided <= steps.max(1) && good(*parts, blocks)
        };
        let (parts, _) = room.parts.into_iter().zip(room.blocks).find(fits)?;
        Some(Self {
            rows,
            parts,
            blocks: u32::try_from(tiles).ok()? * parts,
        })
    }

    pub(crate) fn kernel_name(&self, shape: &GemmLayout) -> Option<&'static str> {
        Some(SPLIT_GEMM[self.kernel(shape, &SPLIT_GEMM_ROWS)?].name)
    }

    /// Returns the index of a shape's kernel in the list of those with `all_rows` rows; `None` if there is none.
    pub(crate) fn kernel(&self, shape: &GemmLayout, all_rows: &[u32]) -> Option<usize> {
        let matrices = match (shape.element, shape.b_order) {
            (ElementTypeCode::F16, MatrixOrderCode::ROWS) => 0,
            (ElementTypeCode::F16, MatrixOrderCode::COLUMNS) => 1,
            (ElementTypeCode::BF16, MatrixOrderCode::ROWS) => 2,
            (ElementTypeCode::BF16, MatrixOrderCode::COLUMNS) => 3,
            _ => return None,
        };
        let index = all_rows.iter().position(|&rows| rows == self.rows)?;
        Some(matrices * all_rows.len() + index)
    }
}

/// Launches the kernel, by programmatic dependent launch if the driver can.
///
/// # Errors
/// `UNSUPPORTED` for a shape without a grid; else as [`crate::gathered_gemm::launch`].
///
/// # Safety
/// As [`crate::gathered_gemm::launch`].
pub(crate) unsafe fn launch(
    backend: &CudaBackend,
    arguments: &GatheredGemmArguments,
    on: RawStream,
) -> CallResult<()> {
    let state = backend.state();
    let shape = &arguments.shape;
    let grid = Grid::new(shape, &backend.clusters.split).ok_or_else(unsupported)?;
    let kernel = grid.kernel_name(shape).ok_or_else(unsupported)?;
    let kernel = state.kernels.by_name(kernel.as_bytes())?;
    let mut tensors = TensorGemmArguments::new(backend.driver, arguments, grid.rows, TILE_COLUMNS)?;
    tensors.arguments.movers = arguments.movers.clamp(1, grid.blocks);
    let blocks = symmem_gpu::Grid {
        blocks: grid.blocks,
        threads: SPLIT_THREADS,
        shared_memory: SPLIT_GEMM_SHARED_MEMORY,
    };
    // SAFETY: the kernel's argument is a `TensorGemmArguments`, and it waits for its predecessor before it
    // accesses memory. The caller upholds the rest of the contract.
    unsafe { backend.launch_clusters(kernel, blocks, grid.parts, (&raw const tensors).cast(), on) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusters::PARTS;

    /// An H200, with its largest clusters in GPCs of 16 and 18 SMs.
    fn room() -> Room {
        Room::new(132, PARTS, [16, 32, 66, 132])
    }

    fn grid(m: u64, n: u64, k: u64) -> Option<(u32, u32, u32)> {
        let shape = GemmLayout {
            m,
            n,
            k,
            ..GemmLayout::default()
        };
        Grid::new(&shape, &room()).map(|grid| (grid.rows, grid.parts, grid.blocks))
    }

    #[test]
    fn rows_choose_the_kernel_and_columns_how_far_k_is_divided() {
        assert_eq!(grid(1, 3584, 8192), Some((16, 4, 112)));
        assert_eq!(grid(17, 3584, 8192), Some((32, 4, 112)));
        assert_eq!(grid(128, 4096, 8192), Some((128, 2, 64)));
        assert_eq!(grid(64, 8192, 8192), Some((64, 2, 128)));
        assert_eq!(grid(256, 3584, 8192), Some((256, 4, 112)));
        assert_eq!(grid(300, 512, 8192), Some((256, 8, 64)));
        assert_eq!(grid(1024, 1024, 1024), Some((256, 2, 64)));
        assert_eq!(grid(1, 16, 64), Some((16, 1, 1)), "K is one step");
        assert_eq!(grid(1, 16, 1024), Some((16, 8, 8)));
    }

    #[test]
    fn a_kernel_is_named_by_its_matrices_and_rows() {
        let name = |element, b_order, m| {
            let shape = GemmLayout {
                m,
                n: 128,
                k: 128,
                element,
                b_order,
                ..GemmLayout::default()
            };
            Grid::new(&shape, &room()).and_then(|grid| grid.kernel_name(&shape))
        };
        let (f16, bf16) = (ElementTypeCode::F16, ElementTypeCode::BF16);
        let (rows, columns) = (MatrixOrderCode::ROWS, MatrixOrderCode::COLUMNS);
        assert_eq!(name(f16, rows, 1), Some("symmem_split_gemm_f16_rows_16"));
        assert_eq!(
            name(f16, columns, 100),
            Some("symmem_split_gemm_f16_columns_128")
        );
        assert_eq!(
            name(bf16, rows, 300),
            Some("symmem_split_gemm_bf16_rows_256")
        );
        assert_eq!(
            name(bf16, columns, 33),
            Some("symmem_split_gemm_bf16_columns_64")
        );
        assert_eq!(name(ElementTypeCode::F32, rows, 1), None);
    }

    #[test]
    fn a_device_on_which_fewer_clusters_are_resident_divides_k_less() {
        let shape = GemmLayout {
            m: 1,
            n: 3584,
            k: 8192,
            ..GemmLayout::default()
        };
        let blocks =
            |clusters| Grid::new(&shape, &Room::new(132, PARTS, clusters)).map(|grid| grid.blocks);
        assert_eq!(blocks([16, 32, 66, 132]), Some(4 * 28));
        assert_eq!(blocks([12, 27, 66, 132]), Some(2 * 28));
        assert_eq!(blocks([0, 0, 20, 132]), Some(28));
        assert_eq!(blocks([0; 4]), None);
    }

    #[test]
    fn what_does_not_fit_on_the_device_at_once_has_no_grid() {
        assert_eq!(grid(300, 3584, 8192), None, "B is large");
        assert_eq!(grid(513, 128 * 128, 8192), None);
        assert_eq!(grid(1025, 128, 1024), None);
        assert_eq!(grid(512, 128, 16385), None, "A is large");
        assert_eq!(grid(1, 133 * 128, 8192), None);
        assert_eq!(grid(1, u64::MAX, 8192), None);
    }
}
