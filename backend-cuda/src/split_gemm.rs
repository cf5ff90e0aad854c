//! The all-gather + GEMM kernels for few rows, which do the whole call in one launch.
//!
//! `split_gemm` is for few rows: the blocks of a cluster split `K` among them. `cluster_gemm` is for a few hundred rows: the
//! tiles of a cluster load `A` and `B` for each other.

use crate::clusters::{Room, SPLIT_THREADS};
use crate::instance::CudaBackend;
use crate::tensor_maps::{BOX_LENGTH, Boxes, Fetch, TensorGemmArguments};
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::*;
use symmem_gpu::Gpu;
use symmem_gpu::gathered_gemm::{ELEMENT_BYTES, place_of_matrices, unsupported};
use symmem_kernels_ptx::{
    CLUSTER_GEMM, CLUSTER_GEMM_ROWS, SPLIT_GEMM, SPLIT_GEMM_ROWS, SPLIT_GEMM_SHARED_MEMORY,
};

/// Columns of a tile of `C` of `split_gemm` (`kernels-ptx/src/gathered_gemm/split_gemm.h`); the kernel's name has the rows.
pub(crate) const TILE_COLUMNS: u32 = 128;
/// Columns of a tile of `C` of `cluster_gemm` (`kernels-ptx/src/gathered_gemm/cluster_gemm.h`).
const CLUSTER_COLUMNS: u32 = 64;
/// Tiles beside each other in a cluster of `cluster_gemm`, which share `A`.
const BESIDE: u32 = 4;
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
    /// Blocks of a cluster with the same tile, among which `K` is split.
    pub(crate) parts: u32,
    /// The tiles of a cluster of `cluster_gemm`; `None` for `split_gemm`, whose clusters have one.
    tiles: Option<Tiles>,
    /// Blocks of the grid.
    pub(crate) blocks: u32,
}

/// The tiles of a cluster: those below each other share `B`, and those beside each other share `A`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tiles {
    below: u32,
    beside: u32,
}

impl Grid {
    /// Chooses the kernel and the grid for a shape; `None` if no grid is co-resident, or the shape is too large for these
    /// kernels. Of two kernels, the one that occupies more of the device.
    pub(crate) fn new(shape: &GemmLayout, sharding: ShardingCode, room: &Room) -> Option<Self> {
        let bytes_of_a = shape
            .m
            .saturating_mul(shape.k)
            .saturating_mul(ELEMENT_BYTES);
        let split = Self::split(shape, room);
        let shared = match sharding {
            ShardingCode::COLUMNS => Self::shared(shape, room),
            // Every row waits for the gather, so it does not pay to compute faster.
            _ => None,
        };
        let fewer = |other: &Self| split.is_some_and(|split| other.blocks < split.blocks);
        let grid = shared.filter(|shared| !fewer(shared)).or(split)?;
        let known = bytes_of_a <= MOST_BYTES_OF_A && grid.blocks <= AT_ONCE_BLOCKS;
        known.then_some(grid)
    }

    /// Chooses the grid of `split_gemm`.
    fn split(shape: &GemmLayout, room: &Room) -> Option<Self> {
        let grid = Self::dividing(shape, room, &SPLIT_GEMM_ROWS, |_, _| true)?;
        let bytes_of_b = shape
            .n
            .saturating_mul(shape.k)
            .saturating_mul(ELEMENT_BYTES);
        let most_row_tiles = match bytes_of_b <= SMALL_B {
            true => MOST_ROW_TILES_OF_SMALL_B,
            false => MOST_ROW_TILES,
        };
        (shape.m.div_ceil(grid.rows.into()) <= most_row_tiles).then_some(grid)
    }

    /// Chooses the grid of `cluster_gemm`: one or two tiles of rows, where `split_gemm` would need its largest tiles, and
    /// columns that occupy at least half of the device.
    fn shared(shape: &GemmLayout, room: &Room) -> Option<Self> {
        let rows = u64::from(CLUSTER_GEMM_ROWS);
        let below = u32::try_from(shape.m.div_ceil(rows)).ok()?;
        if shape.m <= rows / 2 || below > 2 {
            return None;
        }
        let clusters = shape.n.div_ceil((CLUSTER_COLUMNS * BESIDE).into());
        let [cluster, ..] = room.parts;
        let blocks = u32::try_from(clusters.saturating_mul(cluster.into())).ok()?;
        let [room, ..] = room.blocks;
        (blocks <= room && blocks >= room / 2).then_some(Self {
            rows: CLUSTER_GEMM_ROWS,
            parts: cluster / BESIDE / below,
            tiles: Some(Tiles {
                below,
                beside: BESIDE,
            }),
            blocks,
        })
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
            tiles: None,
            blocks: u32::try_from(tiles).ok()? * parts,
        })
    }

    /// Returns the blocks of a cluster.
    fn cluster(&self) -> u32 {
        self.parts * self.tiles.map_or(1, |tiles| tiles.below * tiles.beside)
    }

    /// Returns the boxes of the kernel, of which each block of a cluster loads its own for the blocks that share it.
    fn boxes(&self) -> Boxes {
        let fetch = Fetch::Bytes64;
        match self.tiles {
            None => Boxes {
                a: self.rows,
                b_rows: BOX_LENGTH,
                b_columns: TILE_COLUMNS,
                fetch,
            },
            Some(Tiles { below, beside }) => Boxes {
                a: self.rows / beside,
                b_rows: BOX_LENGTH / below,
                b_columns: CLUSTER_COLUMNS / below,
                fetch,
            },
        }
    }

    pub(crate) fn kernel_name(&self, shape: &GemmLayout) -> Option<&'static str> {
        let entry = match self.tiles {
            Some(_) => &CLUSTER_GEMM[self.kernel(shape, &[CLUSTER_GEMM_ROWS])?],
            None => &SPLIT_GEMM[self.kernel(shape, &SPLIT_GEMM_ROWS)?],
        };
        Some(entry.name)
    }

    /// Returns the index of a shape's kernel in the list of those with `all_rows` rows; `None` if there is none.
    pub(crate) fn kernel(&self, shape: &GemmLayout, all_rows: &[u32]) -> Option<usize> {
        let matrices = place_of_matrices(shape)?;
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
    let grid =
        Grid::new(shape, arguments.sharding, &backend.clusters.split).ok_or_else(unsupported)?;
    let kernel = grid.kernel_name(shape).ok_or_else(unsupported)?;
    let kernel = state.kernels.by_name(kernel.as_bytes())?;
    let mut tensors = TensorGemmArguments::new(backend.driver, arguments, grid.boxes())?;
    tensors.arguments.movers = arguments.movers.clamp(1, grid.blocks);
    if let Some(Tiles { below, beside }) = grid.tiles {
        (tensors.below, tensors.beside) = (below, beside);
    }
    let blocks = symmem_gpu::Grid {
        blocks: grid.blocks,
        threads: SPLIT_THREADS,
        shared_memory: SPLIT_GEMM_SHARED_MEMORY,
    };
    // SAFETY: the kernel's argument is a `TensorGemmArguments`, and it waits for its predecessor before it
    // accesses memory. The caller upholds the rest of the contract.
    unsafe {
        backend.launch_clusters(
            kernel,
            blocks,
            grid.cluster(),
            (&raw const tensors).cast(),
            on,
        )
    }
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
        let grid = Grid::new(&shape, ShardingCode::ROWS, &room())?;
        assert_eq!(grid.tiles, None);
        Some((grid.rows, grid.parts, grid.blocks))
    }

    /// Rows, tiles below and beside each other in a cluster, and blocks.
    type SharedGrid = (u32, Option<(u32, u32)>, u32);

    /// As `grid`, of an `A` in columns, with the tiles of a cluster.
    fn grid_of_columns(m: u64, n: u64, k: u64) -> Option<SharedGrid> {
        let shape = GemmLayout {
            m,
            n,
            k,
            ..GemmLayout::default()
        };
        let grid = Grid::new(&shape, ShardingCode::COLUMNS, &room())?;
        let tiles = grid.tiles.map(|tiles| (tiles.below, tiles.beside));
        Some((grid.parts, tiles, grid.blocks))
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
    fn a_few_hundred_rows_of_an_a_in_columns_share_their_loads_where_that_fills_the_device() {
        assert_eq!(grid_of_columns(128, 3584, 8192), Some((4, None, 112)));
        assert_eq!(
            grid_of_columns(129, 3584, 8192),
            Some((2, Some((1, 4)), 112))
        );
        assert_eq!(
            grid_of_columns(256, 3584, 8192),
            Some((2, Some((1, 4)), 112))
        );
        assert_eq!(
            grid_of_columns(257, 3584, 8192),
            Some((1, Some((2, 4)), 112))
        );
        assert_eq!(
            grid_of_columns(512, 3584, 8192),
            Some((1, Some((2, 4)), 112))
        );
        assert_eq!(grid_of_columns(513, 3584, 8192), None);
        assert_eq!(
            grid_of_columns(256, 3841, 8192),
            Some((2, None, 62)),
            "16 clusters of eight do not fit"
        );
        assert_eq!(
            grid_of_columns(512, 1024, 8192),
            Some((4, None, 64)),
            "more blocks split K"
        );
        assert_eq!(
            grid_of_columns(512, 1024, 16384),
            None,
            "a quarter of the device, and B is large"
        );
        assert_eq!(grid_of_columns(512, 3584, 16385), None, "A is large");
    }

    #[test]
    fn blocks_that_share_a_stage_load_equal_boxes_of_it() {
        let shape = |m| GemmLayout {
            m,
            n: 3584,
            k: 8192,
            ..GemmLayout::default()
        };
        let of = |m| {
            let grid = Grid::new(&shape(m), ShardingCode::COLUMNS, &room()).unwrap();
            let Boxes {
                a,
                b_rows,
                b_columns,
                ..
            } = grid.boxes();
            (a, b_rows, b_columns, grid.cluster())
        };
        assert_eq!(of(64), (64, 64, 128, 4));
        assert_eq!(of(256), (64, 64, 64, 8));
        assert_eq!(of(512), (64, 32, 32, 8));
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
            Grid::new(&shape, ShardingCode::ROWS, &room()).and_then(|grid| grid.kernel_name(&shape))
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
        let blocks = |clusters| {
            let room = Room::new(132, PARTS, clusters);
            Grid::new(&shape, ShardingCode::ROWS, &room).map(|grid| grid.blocks)
        };
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
