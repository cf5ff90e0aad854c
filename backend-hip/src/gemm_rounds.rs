//! How the blocks of a GEMM kernel divide its tiles among them. In a round each takes one; the last round may be
//! divided (`device/include/symmem/divided_round.h`).

use symmem_core::backend::abi::{GemmLayout, SIGNAL_STRIDE, ShardingCode};
use symmem_kernels_hip::GemmTile;

/// Elements of the depth in a step (`gemm_depth` in `device/include/symmem/gemm_stage.h`).
const STEP: u64 = 32;
/// Steps in whose time a block stores its sums of a tile, or loads another's. Not measured: 4 bytes a sum at 17 GB/s, the
/// share of a compute unit of MI300X in its memory's bandwidth, beside a step's 32 multiply-adds a sum at its peak.
const STEPS_OF_SUMS: u64 = 8;
/// Most bytes of partial sums.
const MOST_BYTES: u64 = 128 << 20;

/// The rounds of a GEMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// Rounds in which every block computes a whole tile.
    full: u64,
    /// Steps of a tile.
    steps: u64,
    /// Tiles of the last round, if it is not full.
    last: u64,
    /// Blocks that compute.
    blocks: u64,
    /// Bytes of a tile's sums.
    tile_bytes: u64,
}

impl Rounds {
    /// Returns the rounds of `blocks` blocks that compute, at least one, with a tile.
    pub fn new(
        shape: &GemmLayout,
        sharding: ShardingCode,
        shard: u64,
        tile: GemmTile,
        blocks: u64,
    ) -> Self {
        let (rows, columns) = (u64::from(tile.rows), u64::from(tile.columns));
        // A tile has rows of one range: a shard of rows, or all.
        let range = match sharding {
            ShardingCode::COLUMNS => shape.m,
            _ => shard.min(shape.m),
        }
        .max(1);
        let (ranges, rest) = (shape.m / range, shape.m % range);
        let row_tiles = ranges
            .saturating_mul(range.div_ceil(rows))
            .saturating_add(rest.div_ceil(rows));
        let tiles = row_tiles.saturating_mul(shape.n.div_ceil(columns));
        Self {
            full: tiles / blocks,
            steps: shape.k.div_ceil(STEP),
            last: tiles % blocks,
            blocks,
            tile_bytes: rows * columns * 4,
        }
    }

    /// Returns the number of tiles.
    pub fn tiles(&self) -> u64 {
        self.full * self.blocks + self.last
    }

    /// Returns the steps that a block computes of the last round, and those in whose time it moves sums; all steps of a tile
    /// and none if it is not divided, and 0 if there is no such round.
    fn last_round(&self) -> (u64, u64) {
        let quota = self.quota();
        match (self.last, quota) {
            (0, _) => (0, 0),
            (_, 0) => (self.steps, 0),
            _ => (quota, STEPS_OF_SUMS * self.sharers(quota)),
        }
    }

    /// Returns the time of all rounds, if a step takes `step`, and takes `least` where only its products do.
    pub fn time(&self, step: u64, least: u64) -> u64 {
        let (steps, sums) = self.last_round();
        let whole = self.full.saturating_mul(self.steps);
        whole
            .saturating_add(steps)
            .saturating_mul(step)
            .saturating_add(sums.saturating_mul(least))
    }

    /// Returns the most blocks that share a tile.
    fn sharers(&self, quota: u64) -> u64 {
        match self.steps % quota {
            0 => self.steps / quota,
            // It may begin and end inside a block's quota.
            _ => self.steps.div_ceil(quota) + 1,
        }
    }

    /// Returns the steps that a block computes of the last round; 0 if that is not divided.
    pub fn quota(&self) -> u64 {
        if self.last == 0 || self.steps < 2 {
            return 0;
        }
        let time = |quota: u64| match quota < self.steps {
            true => quota + STEPS_OF_SUMS * self.sharers(quota),
            false => self.steps,
        };
        let all = self.last.saturating_mul(self.steps);
        // A tile divided evenly among two or more blocks; and all tiles among all blocks.
        let even = (2..=self.blocks / self.last).map(|parts| self.steps.div_ceil(parts));
        let best = even
            .chain([all.div_ceil(self.blocks)])
            .min_by_key(|quota| time(*quota));
        let fits = |quota: &u64| {
            // The kernel numbers the steps with 32 bits.
            *quota < self.steps
                && time(*quota) < self.steps
                && all.saturating_add(*quota) <= u32::MAX.into()
                && self.bytes_with(*quota) <= MOST_BYTES
        };
        best.filter(fits).unwrap_or(0)
    }

    fn bytes_with(&self, quota: u64) -> u64 {
        let steps = self.last.saturating_mul(self.steps);
        let places = steps.div_ceil(quota) + self.last;
        places.saturating_mul(self.tile_bytes)
    }

    /// Returns the bytes of partial sums and their counters in a grid; 0 if the last round is not divided.
    pub fn partial_bytes(&self, grid: u64) -> u64 {
        match self.quota() {
            0 => 0,
            quota => (grid * 4).next_multiple_of(SIGNAL_STRIDE) + self.bytes_with(quota),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: GemmTile = GemmTile {
        rows: 256,
        columns: 256,
    };
    const LOW: GemmTile = GemmTile {
        rows: 64,
        columns: 256,
    };

    fn rounds(m: u64, n: u64, k: u64, tile: GemmTile, blocks: u64) -> Rounds {
        let shape = GemmLayout {
            m,
            n,
            k,
            ..GemmLayout::default()
        };
        Rounds::new(&shape, ShardingCode::COLUMNS, k.div_ceil(8), tile, blocks)
    }

    #[test]
    fn few_tiles_are_divided_as_far_as_it_pays_to_move_sums() {
        // 28 tiles of 256 steps: sums of six blocks take 48 steps, a sixth of the steps 43.
        let few = rounds(64, 28 * 256, 8192, LOW, 300);
        assert_eq!((few.full, few.quota()), (0, 64));
        assert_eq!(few.partial_bytes(304), 1280 + (4 * 28 + 28) * 64 * 1024);
        // A short depth is not worth it.
        assert_eq!(rounds(64, 28 * 256, 512, LOW, 300).quota(), 0);
    }

    #[test]
    fn a_last_round_of_more_than_half_of_the_blocks_is_divided_among_all() {
        let some = rounds(64, 200 * 256, 16384, LOW, 300);
        assert_eq!(some.quota(), (200 * 512_u64).div_ceil(300));
        let after_a_full_round = rounds(64, 500 * 256, 16384, LOW, 300);
        assert_eq!(
            (after_a_full_round.full, after_a_full_round.quota()),
            (1, some.quota())
        );
    }

    #[test]
    fn full_rounds_and_large_ones_are_not_divided() {
        assert_eq!(rounds(64, 600 * 256, 16384, LOW, 300).quota(), 0);
        assert_eq!(rounds(64, 290 * 256, 16384, LOW, 300).quota(), 0);
        assert_eq!(rounds(0, 0, 8192, LARGE, 300).quota(), 0);
        assert_eq!(rounds(256, 256, 0, LARGE, 300).quota(), 0);
        let too_long = rounds(256, 256 * 64, i32::MAX as u64, LARGE, 300);
        assert_eq!(too_long.quota(), 0, "the steps would not fit 32 bits");
        let too_large = rounds(256, 256 * 290, 1 << 20, LARGE, 304);
        assert_eq!(too_large.quota(), 0, "the sums would take 150 MiB");
    }

    #[test]
    fn every_step_has_a_block_and_every_part_a_place() {
        for blocks in [1, 2, 3, 7, 104, 300] {
            for columns in [1, 2, 5, 90, 200, 299] {
                for k in [1, 64, 100, 4096, 8190] {
                    let rounds = rounds(64, columns * 256, k, LOW, blocks);
                    let quota = rounds.quota();
                    if quota == 0 {
                        continue;
                    }
                    let all = rounds.last * rounds.steps;
                    assert!(quota * blocks >= all && quota < rounds.steps);
                    // The last part's place, as the kernel numbers them: block plus tile.
                    let place = (all - 1) / quota + rounds.last - 1;
                    assert!(place * rounds.tile_bytes < rounds.bytes_with(quota));
                }
            }
        }
    }

    #[test]
    fn sides_without_bound_are_counted() {
        let most = u64::MAX;
        let endless = rounds(most, most, most, LARGE, 304);
        assert_eq!(endless.time(1, 1), most);
        assert_eq!(rounds(1, 1, most, LARGE, 304).quota(), 0);
    }

    #[test]
    fn ranges_of_rows_have_tiles_of_their_own() {
        let shape = GemmLayout {
            m: 300,
            n: 256,
            k: 64,
            ..GemmLayout::default()
        };
        // Shards of 128, 128 and 44 rows.
        let tiles = |tile| Rounds::new(&shape, ShardingCode::ROWS, 128, tile, 1).full;
        assert_eq!((tiles(LOW), tiles(LARGE)), (2 + 2 + 1, 3));
    }
}
