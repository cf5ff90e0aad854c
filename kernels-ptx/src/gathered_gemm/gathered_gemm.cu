// Module `gathered_gemm`: all-gather + GEMM by warpgroup MMA. sm_90a only.
//
// A block computes tiles of 128 by 256. Two warpgroups compute 64 rows each, and a third one loads the operands
// by tensor copies into a ring of stages, 64 deep. The ring runs on from tile to tile, so that the first stages
// of the next tile arrive while the last tile is stored, as in CUTLASS's cooperative kernels. If a cluster has
// two blocks, their tiles lie below each other, and each block loads half of B for both. If there are too few
// last tiles for all blocks, the last tiles are halves, by columns.
#include "gathered_gemm/tile_ring.h"
#include "gathered_gemm/tile_store.h"
#include "symmem/halved_tiles.h"

using namespace symmem;

namespace {

constexpr uint32 stages = 4;
using Ring = TileRing<stages>;

// The blocks after the movers compute.
SYMMEM_DEVICE uint32 first_tile(const GatheredGemmArguments& arguments) {
  return arch::block_index() - arguments.movers;
}
SYMMEM_DEVICE uint32 tile_step(const GatheredGemmArguments& arguments) {
  return arch::block_count() - arguments.movers;
}

SYMMEM_DEVICE HalvedTiles<tile_rows, tile_columns, band> tiles_of(const GatheredGemmArguments& arguments) {
  return {arguments, cluster_size(), tile_step(arguments)};
}

// Keeps the ring full; run by one thread.
template <bool b_rows>
SYMMEM_DEVICE void load_tiles(const TensorGemmArguments& tensors, const Ring& ring) {
  const GatheredGemmArguments& arguments = tensors.arguments;
  const bool by_rows = arguments.sharding == static_cast<uint32>(Sharding::rows);
  const auto tiles = tiles_of(arguments);
  Arrivals arrivals(arguments);
  RingCursor<stages> cursor;
  constexpr uint32 boxes = tile_columns / box_columns<b_rows>;
  GemmTile tile;
  bool half;
  for (uint32 index = first_tile(arguments); tiles.find(index, tile, half); index += tile_step(arguments)) {
    const uint32 column = static_cast<uint32>(tile.column);
    const uint32 needed = half ? boxes / 2 : boxes;
    // If A is sharded by columns, a tile needs all shards in turn, the own one first.
    const uint32 parts = by_rows ? 1 : arguments.group.world;
    for (uint32 part = 0; part < parts; ++part) {
      const uint32 shard = by_rows ? tile.shard : shard_of_step(arguments.group, part);
      const ShardExtent extent = shard_extent(arguments, shard);
      if (extent.length == 0) continue;  // nobody may ever signal an empty shard
      const bool own = shard == arguments.group.rank;
      const uint64 row_of_shard = by_rows ? tile.row - extent.first : tile.row;
      // A tile without rows has nothing to wait for that its neighbor does not wait for.
      if (tile.row < tile.rows_end) arrivals.until(shard, row_of_shard);
      // The tensor copies read what other threads, a copy engine, or an earlier kernel wrote.
      arch::fence_async_proxy();
      const TensorMap* a = own ? &tensors.own : &tensors.gathered;
      const uint32 a_row = static_cast<uint32>(own ? row_of_shard : tile.row);
      const uint32 a_begin = static_cast<uint32>(by_rows || own ? 0 : extent.first);
      const uint32 b_begin = static_cast<uint32>(by_rows ? 0 : extent.first);
      const uint32 length = static_cast<uint32>(by_rows ? arguments.shape.k : extent.length);
      for (uint32 at = 0; at < length; at += depth) {
        load_stage<b_rows>(ring, cursor, a, a_begin + at, a_row, &tensors.b, column, b_begin + at, needed);
      }
    }
  }
}

// Computes a warpgroup's rows of a tile with `columns` columns.
template <bool f16, bool b_rows, uint32 columns>
SYMMEM_DEVICE void multiply_tile(const GatheredGemmArguments& arguments, const Ring& ring, uint32 skip,
                                 const GemmTile& tile, RingCursor<stages>& cursor) {
  const uint32 steps = static_cast<uint32>((arguments.shape.k + depth - 1) / depth);
  float d[columns / 2];
  multiply_steps<f16, b_rows, columns>(ring, skip, steps, cursor, d);
  if (arguments.bias != 0) add_bias<f16>(arguments, tile, d);
  store_tile<f16>(arguments, tile, skip, d);
}

// Computes a warpgroup's rows of every tile of the block.
template <bool f16, bool b_rows>
SYMMEM_DEVICE void multiply_tiles(const GatheredGemmArguments& arguments, const Ring& ring, uint32 warpgroup) {
  const auto tiles = tiles_of(arguments);
  RingCursor<stages> cursor;
  GemmTile tile;
  bool half;
  const uint32 skip = warpgroup * 64;
  for (uint32 index = first_tile(arguments); tiles.find(index, tile, half); index += tile_step(arguments)) {
    if (half) {
      multiply_tile<f16, b_rows, tile_columns / 2>(arguments, ring, skip, tile, cursor);
    } else {
      multiply_tile<f16, b_rows, tile_columns>(arguments, ring, skip, tile, cursor);
    }
  }
}

// Called by all 384 threads of every block, with shared memory for the ring and 1024 bytes to align it.
template <bool f16, bool b_rows>
SYMMEM_DEVICE void gathered_gemm(const TensorGemmArguments& tensors) {
  const GatheredGemmArguments& arguments = tensors.arguments;
  if (arch::block_index() < arguments.movers) {
    if (!arch::block_all(!aborted_before(arguments.group.watch))) return;
    move_shards(arguments, CopyAlignedRows{}, epoch_of(arguments));
    return;
  }
  const Ring ring = {(arch::shared_address(arch::dynamic_shared()) + atom_bytes - 1) / atom_bytes * atom_bytes};
  if (arch::thread_index() == 0) {
    ring_initialise(ring);
    barriers_initialised();
    const uint32 aborted = aborted_before(arguments.group.watch);
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(ring.aborted()), "r"(aborted) : "memory");
    arch::fence_async_proxy();
  }
  cluster_arrive();
  cluster_wait();
  // The blocks of a cluster load for each other, so what the first one saw counts for all.
  if (load_one(shared_at(ring.aborted(), 0)) != 0) {
    cluster_arrive();
    cluster_wait();
    return;
  }
  const uint32 warpgroup = arch::thread_index() / 128;
  if (warpgroup == 0) {
    give_registers<56>();
    if (arch::thread_index() == 0) load_tiles<b_rows>(tensors, ring);
    arch::warp_barrier();
  } else {
    take_registers<224>();
    multiply_tiles<f16, b_rows>(arguments, ring, warpgroup - 1);
  }
  // No block exits while the other may still load for it, or arrive at its barriers.
  cluster_arrive();
  cluster_wait();
}

}  // namespace

SYMMEM_KERNEL(384) symmem_tensor_gemm_f16_rows(SYMMEM_ARGUMENTS(TensorGemmArguments) tensors) {
  gathered_gemm<true, true>(tensors);
}

SYMMEM_KERNEL(384) symmem_tensor_gemm_f16_columns(SYMMEM_ARGUMENTS(TensorGemmArguments) tensors) {
  gathered_gemm<true, false>(tensors);
}

SYMMEM_KERNEL(384) symmem_tensor_gemm_bf16_rows(SYMMEM_ARGUMENTS(TensorGemmArguments) tensors) {
  gathered_gemm<false, true>(tensors);
}

SYMMEM_KERNEL(384) symmem_tensor_gemm_bf16_columns(SYMMEM_ARGUMENTS(TensorGemmArguments) tensors) {
  gathered_gemm<false, false>(tensors);
}
