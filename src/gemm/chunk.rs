//! Sizes of the chunks that copy engines move.

use crate::backend::abi::GatheredLimits;

/// Bytes of a chunk that a copy engine moves, if the caller sets none. Each chunk costs two copies, which pays
/// only if the gather takes as long as the GEMM (`2026-11-21-gathered-gemm-2xh200`).
const ENGINE_CHUNK: u64 = 256 << 20;
/// Least bytes of a shortened chunk. Short chunks leave little to multiply behind the last one, but cost more
/// copies.
const LEAST_ENGINE_CHUNK: u64 = 64 << 20;

/// Returns the rows of a chunk that a copy engine moves, for a shard of `rows` rows and `bytes` bytes and a
/// GEMM of `n` columns.
pub(super) fn copied(rows: u64, bytes: u64, n: u64, limits: &GatheredLimits) -> u64 {
    let most = rows.div_ceil(bytes.div_ceil(ENGINE_CHUNK).max(1));
    // In the last chunk a quarter of the blocks have a tile, or half of them half a tile, while the others
    // finish earlier chunks.
    let columns = n.div_ceil(limits.tile_n.max(1).into()).max(1);
    let few = u64::from(limits.blocks / 4) / columns * u64::from(limits.tile_m);
    match few * bytes >= LEAST_ENGINE_CHUNK * rows {
        true => most.min(few),
        false => most,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gather_as_long_as_its_product_comes_in_chunks_that_leave_little_to_multiply() {
        let limits = GatheredLimits {
            blocks: 132,
            tile_m: 128,
            tile_n: 256,
            ..GatheredLimits::default()
        };
        let chunk = |m: u64, n, k: u64, world| copied(m / world, m / world * k * 2, n, &limits);
        // As measured: four columns of tiles, eight of rows, 64 MiB.
        assert_eq!(chunk(32768, 1024, 32768, 2), 1024);
        assert_eq!(chunk(32768, 1024, 32768, 4), 1024);
        // Rows are short: chunks of as many bytes as two copies are worth.
        assert_eq!(chunk(32768, 1024, 4096, 4), 8192);
        // There are more columns than a quarter of the blocks.
        assert_eq!(chunk(32768, 8192, 16384, 4), 8192);
        assert_eq!(chunk(32768, 16384, 16384, 2), 8192);
        let none = GatheredLimits::default();
        assert_eq!(copied(100, 1 << 20, 64, &none), 100);
    }
}
