//! The GEMM + reduce kernels for AMD GPUs, which use MFMA instructions (`symmem/tile_reduce.h`). They take all strides and
//! alignments, and every `K`. There is none for [`ReducedMode::PACKETS`].

use crate::gemm_rounds::Rounds;
use crate::gemm_tiles::{Names, chosen_tile, has_room, kernel_name, names};
use crate::instance::HipBackend;
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::*;
use symmem_gpu::gathered_gemm::{ELEMENT_BYTES, countable};
use symmem_gpu::reduced_gemm::{check_grid, unsupported};
use symmem_gpu::{Gpu, Grid};
use symmem_kernels_hip::{GEMM_THREADS, GemmTile, Target};

/// The kernels.
const NAMES: &Names = &names!("symmem_reduced_gemm":
    "f16_rows" "f16_columns" "bf16_rows" "bf16_columns");

/// Sizes of a member's memory for a shape, as `symmem/tile_reduce.h` and `symmem/reduced_gemm.h` divide it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    /// Bytes of the peers' sums in an inbox, behind which the parts of this rank's divided tiles lie.
    sums_bytes: u64,
    word_bytes: u64,
}

impl Layout {
    /// `blocks`: those of the grid. Returns `None` for tiles that do not fit the kernel's 32-bit counters.
    fn new(
        shape: &GemmLayout,
        problem: &ReducedProblem,
        tile: GemmTile,
        blocks: u32,
    ) -> Option<Self> {
        let row_tiles = problem.shard.min(shape.m).div_ceil(tile.rows.into());
        let tiles = row_tiles.checked_mul(shape.n.div_ceil(tile.columns.into()))?;
        let (world, peers) = (
            u64::from(problem.world),
            u64::from(problem.world.checked_sub(1)?),
        );
        i32::try_from(tiles.checked_mul(world)?).ok()?;
        let element_bytes = match problem.partial {
            ElementTypeCode::F32 => size_of::<f32>() as u64,
            _ => ELEMENT_BYTES,
        };
        let tile_bytes = u64::from(tile.rows) * u64::from(tile.columns) * element_bytes;
        let sums = if problem.all == 0 { 1 } else { 2 };
        let words = u64::from(blocks) + sums * peers * tiles;
        Some(Self {
            sums_bytes: peers * tiles * tile_bytes,
            word_bytes: world * SIGNAL_STRIDE + words * size_of::<u32>() as u64,
        })
    }
}

/// What a call needs besides its arguments.
struct Plan {
    tile: GemmTile,
    blocks: u32,
    layout: Layout,
    rounds: Rounds,
}

impl Plan {
    fn limits(&self, target: Target) -> ReducedLimits {
        ReducedLimits {
            blocks: self.blocks,
            threads: GEMM_THREADS,
            tile_m: self.tile.rows,
            tile_n: self.tile.columns,
            alignment: 1,
            // Where loads transpose, threads hold other sums of a tile (`symmem/gemm_stage.h`).
            layout: (target == Target::Gfx950).into(),
            inbox_bytes: self.inbox_bytes(),
            word_bytes: self.layout.word_bytes,
        }
    }

    /// Returns the bytes of an inbox: the peers' sums, and the parts of this rank's divided tiles.
    fn inbox_bytes(&self) -> u64 {
        self.layout.sums_bytes + self.rounds.partial_bytes(self.blocks.into())
    }

    /// Returns `None` if there is no kernel.
    fn new(backend: &HipBackend, shape: &GemmLayout, problem: &ReducedProblem) -> Option<Self> {
        let travels = problem.partial == ElementTypeCode::F32 || problem.partial == shape.element;
        let covered = problem.shard.saturating_mul(problem.world.into()) >= shape.m;
        let known = problem.mode == ReducedMode::PUSH && problem.shard != 0 && covered;
        if !known || !travels || !countable(shape) {
            return None;
        }
        let tile = chosen_tile(shape, ShardingCode::ROWS, problem.shard);
        kernel_name(NAMES, shape, tile)?;
        if !has_room(backend, tile) {
            return None;
        }
        // One for each compute unit, as for all-gather + GEMM.
        let blocks = backend.state().description.compute_units;
        let layout = Layout::new(shape, problem, tile, blocks)?;
        let (by, shard) = (ShardingCode::ROWS, problem.shard);
        let rounds = Rounds::new(shape, by, shard, tile, blocks.max(1).into());
        Some(Self {
            tile,
            blocks,
            layout,
            rounds,
        })
    }
}

/// See [`symmem_core::backend::Gemm::reduced_gemm_limits`]; limits with 0 blocks if there is no kernel.
pub fn limits(backend: &HipBackend, shape: &GemmLayout, problem: &ReducedProblem) -> ReducedLimits {
    let plan = Plan::new(backend, shape, problem);
    plan.map_or(ReducedLimits::default(), |plan| plan.limits(backend.target))
}

/// See [`symmem_core::backend::Gemm::reduced_gemm`].
///
/// # Errors
/// `UNSUPPORTED` for a shape or mode without a kernel; `INVALID_ARGUMENT` for another grid than the kernel's; the runtime's
/// failure.
///
/// # Safety
/// As [`symmem_core::backend::Gemm::reduced_gemm`].
pub unsafe fn launch(
    backend: &HipBackend,
    arguments: &ReducedGemmArguments,
    geometry: &Geometry,
    on: RawStream,
) -> CallResult<()> {
    let (shape, problem) = (&arguments.shape, arguments.problem());
    let plan = Plan::new(backend, shape, &problem).ok_or_else(unsupported)?;
    check_grid(&plan.limits(backend.target), geometry)?;
    let name = kernel_name(NAMES, shape, plan.tile).ok_or_else(unsupported)?;
    let kernel = backend.state().kernels.by_name(name.as_bytes())?;
    let grid = Grid {
        blocks: plan.blocks,
        threads: GEMM_THREADS,
        shared_memory: plan.tile.shared_memory(backend.target),
    };
    let arguments = ReducedGemmArguments {
        quota: u32::try_from(plan.rounds.quota()).unwrap_or(0),
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
    use crate::gemm_tiles::tests::check_kernels;

    const TILE: GemmTile = GemmTile::ALL[1];

    fn problem(world: u32, all: u32, partial: ElementTypeCode) -> ReducedProblem {
        ReducedProblem {
            shard: 150,
            world,
            mode: ReducedMode::PUSH,
            all,
            partial,
        }
    }

    fn layout(shape: &GemmLayout, problem: &ReducedProblem) -> Option<Layout> {
        Layout::new(shape, problem, TILE, 304)
    }

    #[test]
    fn the_kernels_take_the_struct_and_the_threads_that_they_are_launched_with() {
        check_kernels(
            "symmem_reduced_gemm",
            NAMES,
            size_of::<ReducedGemmArguments>(),
        );
    }

    #[test]
    fn an_inbox_has_room_for_the_tiles_of_each_peer_and_words_for_each() {
        // A part has 150 rows, and the sum 264 columns: two tiles by two.
        let shape = GemmLayout {
            m: 300,
            n: 264,
            k: 100,
            ..GemmLayout::default()
        };
        let scatter = layout(&shape, &problem(2, 0, ElementTypeCode::BF16)).unwrap();
        assert_eq!(scatter.sums_bytes, 4 * 128 * 256 * 2);
        assert_eq!(scatter.word_bytes, 2 * 128 + (304 + 4) * 4);
        let all = layout(&shape, &problem(2, 1, ElementTypeCode::F32)).unwrap();
        assert_eq!(all.sums_bytes, 4 * 128 * 256 * 4);
        assert_eq!(all.word_bytes, 2 * 128 + (304 + 2 * 4) * 4);
        let eight = layout(&shape, &problem(8, 0, ElementTypeCode::BF16)).unwrap();
        assert_eq!(eight.sums_bytes, 7 * scatter.sums_bytes);
        let alone = layout(&shape, &problem(1, 0, ElementTypeCode::BF16)).unwrap();
        assert_eq!(alone.sums_bytes, 0);
    }

    #[test]
    fn parts_of_divided_tiles_lie_behind_the_peers_sums() {
        let shape = GemmLayout {
            m: 300,
            n: 264,
            k: 8192,
            ..GemmLayout::default()
        };
        let problem = problem(2, 0, ElementTypeCode::BF16);
        let rounds = Rounds::new(&shape, ShardingCode::ROWS, problem.shard, TILE, 304);
        let layout = layout(&shape, &problem).unwrap();
        let plan = Plan {
            tile: TILE,
            blocks: 304,
            layout,
            rounds,
        };
        // 256 steps of each of eight tiles, four tiles for each of two owners, a place for each part and for each tile.
        let places = (8 * 256_u64).div_ceil(rounds.quota()) + 8;
        let counters = 1280;
        assert!(rounds.quota() != 0);
        assert_eq!(
            plan.inbox_bytes(),
            layout.sums_bytes + counters + places * 128 * 256 * 4
        );
    }

    #[test]
    fn more_tiles_than_the_kernel_counts_have_no_layout() {
        let large = GemmLayout {
            m: 1 << 31,
            n: 1 << 31,
            k: 64,
            ..GemmLayout::default()
        };
        let all_rows = ReducedProblem {
            shard: 1 << 31,
            ..problem(2, 0, ElementTypeCode::BF16)
        };
        assert_eq!(layout(&large, &all_rows), None);
        assert_eq!(layout(&large, &problem(0, 0, ElementTypeCode::F32)), None);
    }
}
