//! What the all-gather + GEMM kernels of both vendors share: how many blocks move `A`, and which grids are refused.

use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Failure};

/// Bytes of an element as these kernels count them: of f16 and bf16, or of a pair of 8-bit floats ([`in_pairs`]).
pub const ELEMENT_BYTES: u64 = 2;

/// The number of blocks that move `A` is a multiple of the step and at most the maximum.
const MOVERS_STEP: u32 = 4;
const MOST_MOVERS: u32 = 32;

/// Throughput of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Bytes per second that one moving block transfers.
    pub mover: f64,
    /// FLOP/s of the GEMM, counting `2 * m * n * k`.
    pub product: f64,
}

impl Rates {
    /// Returns the number of blocks that bring the peers' shards in half of the GEMM's time: their first bytes are
    /// needed once the own shard is multiplied. At most half of `blocks`, the co-resident blocks of the device.
    pub fn movers(
        self,
        shape: &GemmLayout,
        sharding: ShardingCode,
        shard: u64,
        blocks: u32,
    ) -> u32 {
        let whole = match sharding {
            ShardingCode::COLUMNS => shape.k,
            _ => shape.m,
        };
        let (m, n, k) = (shape.m as f64, shape.n as f64, shape.k as f64);
        let share = shard.min(whole) as f64 / whole.max(1) as f64;
        let bytes = m * k * ELEMENT_BYTES as f64 * (1.0 - share);
        let seconds = 2.0 * m * n * k / self.product / 2.0;
        let enough = (bytes / seconds / self.mover)
            .ceil()
            .min(MOST_MOVERS.into()) as u32;
        let steps = enough.next_multiple_of(MOVERS_STEP);
        steps.clamp(MOVERS_STEP, MOST_MOVERS).min(blocks / 2).max(1)
    }
}

/// Returns a shape of 8-bit floats with pairs of them as elements along the depth, and the shard's length in them, as their
/// kernels are passed them. `None` if pairs would not fill a line. Other shapes stay as they are.
pub fn in_pairs(
    shape: &GemmLayout,
    sharding: ShardingCode,
    shard: u64,
) -> Option<(GemmLayout, u64)> {
    if shape.element != ElementTypeCode::F8_E4M3 {
        return Some((*shape, shard));
    }
    let half = |elements: u64| elements.is_multiple_of(2).then_some(elements / 2);
    let paired = GemmLayout {
        k: half(shape.k)?,
        a_stride: half(shape.a_stride)?,
        b_stride: half(shape.b_stride)?,
        ..*shape
    };
    let shard = match sharding {
        ShardingCode::COLUMNS => half(shard)?,
        _ => shard,
    };
    Some((paired, shard))
}

/// Returns the place of a shape's element type and order of `B` in lists of kernels: f16 before bf16, and of each rows before
/// columns; `None` for other element types.
pub fn place_of_matrices(shape: &GemmLayout) -> Option<usize> {
    Some(match (shape.element, shape.b_order) {
        (ElementTypeCode::F16, MatrixOrderCode::ROWS) => 0,
        (ElementTypeCode::F16, MatrixOrderCode::COLUMNS) => 1,
        (ElementTypeCode::BF16, MatrixOrderCode::ROWS) => 2,
        (ElementTypeCode::BF16, MatrixOrderCode::COLUMNS) => 3,
        _ => return None,
    })
}

/// Returns whether `m`, `n` and `k` fit the 32-bit counters of the kernels.
pub fn countable(shape: &GemmLayout) -> bool {
    let most = i32::MAX as u64;
    shape.m <= most && shape.n <= most && shape.k <= most
}

/// Returns the number of blocks of a launch.
///
/// # Errors
/// `UNSUPPORTED` if the device has no kernel for this shape or mode; `INVALID_ARGUMENT` for a grid that cannot
/// be co-resident, or in which every block moves `A`.
pub fn grid(
    limits: &GatheredLimits,
    arguments: &GatheredGemmArguments,
    geometry: &Geometry,
) -> CallResult<u32> {
    let [blocks, ..] = geometry.blocks;
    if limits.blocks == 0 || limits.modes & arguments.mode.bit() == 0 {
        return Err(unsupported());
    }
    if blocks > limits.blocks || blocks <= arguments.movers {
        return Err(invalid(format!(
            "{blocks} blocks, of which {} move A: at least one must multiply, and at most {} blocks are \
             co-resident on this device",
            arguments.movers, limits.blocks
        )));
    }
    Ok(blocks)
}

/// Returns `INVALID_ARGUMENT` for an argument that the kernel cannot take.
pub fn invalid(message: String) -> Failure {
    Failure::new(Status::INVALID_ARGUMENT, "gathered_gemm", message)
}

/// Returns `UNSUPPORTED` for a shape or mode without a kernel.
pub fn unsupported() -> Failure {
    Failure::new(
        Status::UNSUPPORTED,
        "gathered_gemm",
        "no all-gather + GEMM kernel for this shape and mode on this device; gather A first, then multiply",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_more_movers_where_the_gather_is_longer_beside_the_product() {
        let rates = Rates {
            mover: 24e9,
            product: 650e12,
        };
        let of = |m: u64, n, k, world| {
            let shape = GemmLayout {
                m,
                n,
                k,
                ..GemmLayout::default()
            };
            rates.movers(&shape, ShardingCode::ROWS, m.div_ceil(world), 132)
        };
        assert_eq!(of(32768, 8192, 16384, 2), 4);
        assert_eq!(of(2048, 3584, 8192, 2), 8);
        assert_eq!(of(32768, 1024, 32768, 8), MOST_MOVERS);
        assert_eq!(of(1024, 64, 64, 1), MOVERS_STEP, "nothing to move");
        let shape = GemmLayout {
            m: 32768,
            n: 1024,
            k: 32768,
            ..GemmLayout::default()
        };
        let on_a_slice = |blocks| rates.movers(&shape, ShardingCode::ROWS, 4096, blocks);
        assert_eq!([16, 3, 1].map(on_a_slice), [8, 1, 1]);
    }

    #[test]
    fn a_grid_is_resident_as_a_whole_and_some_of_it_multiplies() {
        let limits = GatheredLimits {
            blocks: 8,
            modes: GatherMode::PULL.bit(),
            ..GatheredLimits::default()
        };
        // SAFETY: the struct consists of integers and addresses, for which zero is a valid value.
        let mut arguments: GatheredGemmArguments = unsafe { std::mem::zeroed() };
        arguments.movers = 3;
        arguments.mode = GatherMode::PULL;
        let status = |blocks, limits: &GatheredLimits| {
            let geometry = Geometry {
                blocks: [blocks, 1, 1],
                threads: [256, 1, 1],
                shared_memory: 0,
            };
            grid(limits, &arguments, &geometry).map_err(|failure| failure.status)
        };
        assert_eq!(status(8, &limits), Ok(8));
        assert_eq!(status(4, &limits), Ok(4));
        assert_eq!(status(9, &limits), Err(Status::INVALID_ARGUMENT));
        assert_eq!(status(3, &limits), Err(Status::INVALID_ARGUMENT));
        let other = GatheredLimits {
            modes: GatherMode::PUSH.bit(),
            ..limits
        };
        assert_eq!(status(8, &other), Err(Status::UNSUPPORTED));
        let none = GatheredLimits::default();
        assert_eq!(status(1, &none), Err(Status::UNSUPPORTED));
    }
}
