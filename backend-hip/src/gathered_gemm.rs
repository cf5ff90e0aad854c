//! The all-gather + GEMM kernels for AMD GPUs, which use MFMA instructions (`symmem/tile_gemm.h`). They take
//! all strides and alignments, of 8-bit floats even ones.

use crate::gemm_rounds::Rounds;
use crate::gemm_tiles::{Names, chosen_tile, has_room, kernel_name, names};
use crate::instance::HipBackend;
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::*;
use symmem_gpu::gathered_gemm::{Rates, countable, grid, in_pairs, unsupported};
use symmem_gpu::{Gpu, Grid};
use symmem_kernels_hip::{GEMM_THREADS as THREADS, GemmTile, Target};

/// The kernels.
const NAMES: &Names = &names!("symmem_gathered_gemm":
    "f16_rows" "f16_columns" "bf16_rows" "bf16_columns" "f8_e4m3_columns");

/// Not measured. A block has 32 KiB of loads in flight, of which each may take two microseconds from a peer.
/// The GEMM rate is half of the peak of MI300's matrix cores.
const RATES: Rates = Rates {
    mover: 16e9,
    product: 650e12,
};

/// Returns the limits of the kernel with a tile, named as by [`GatheredGemmArguments::tile`]; without blocks if there is none.
pub fn limits(
    backend: &HipBackend,
    shape: &GemmLayout,
    sharding: ShardingCode,
    shard: u64,
    tile: u32,
) -> GatheredLimits {
    let Some((shape, shard)) = in_pairs(shape, sharding, shard) else {
        return GatheredLimits::default();
    };
    let shape = &shape;
    let is_f8 = shape.element == ElementTypeCode::F8_E4M3;
    let tile = match tile {
        0 => chosen_tile(shape, sharding, shard),
        named => GemmTile {
            rows: named >> 16,
            columns: named & 0xffff,
        },
    };
    let known = GemmTile::ALL.contains(&tile)
        && kernel_name(NAMES, shape, tile).is_some()
        && (!is_f8 || Target::WITH_MATRICES_OF_F8.contains(&backend.target));
    if !known || !has_room(backend, tile) || !countable(shape) {
        return GatheredLimits::default();
    }
    // One per compute unit that the masks leave: the operands in shared memory, and the registers of
    // eight waves, may leave no room for a second block.
    let blocks = backend.state().description.compute_units;
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
        alignment: if is_f8 { 2 } else { 1 },
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
    let name = kernel_name(NAMES, shape, tile).ok_or_else(unsupported)?;
    let kernel = backend.state().kernels.by_name(name.as_bytes())?;
    let grid = Grid {
        blocks,
        threads: THREADS,
        shared_memory: tile.shared_memory(backend.target),
    };
    let paired = in_pairs(shape, arguments.sharding, arguments.shard);
    let (shape, shard) = paired.ok_or_else(unsupported)?;
    let mut arguments = GatheredGemmArguments {
        shape,
        shard,
        ..*arguments
    };
    arguments.quota = quota(&arguments, tile, blocks);
    let (argument, bytes) = (&raw const arguments, size_of_val(&arguments));
    // SAFETY: the kernel's argument is this struct, which the runtime copies. The caller upholds the rest of
    // the contract.
    unsafe { backend.launch_kernel(kernel, grid, argument.cast(), bytes, on) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm_tiles::tests::check_kernels;

    #[test]
    fn the_kernels_take_the_struct_and_the_threads_that_they_are_launched_with() {
        check_kernels(
            "symmem_gathered_gemm",
            NAMES,
            size_of::<GatheredGemmArguments>(),
        );
    }
}
