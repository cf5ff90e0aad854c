// GEMM for a few hundred rows of an A that is sharded by columns, whose tiles in a cluster share their loads: the tile and
// its stages, the loads, the products and the sums. See cluster_gemm.cu.
#pragma once

#include "gathered_gemm/split_gemm.h"

namespace symmem {

// Columns of a tile: the rows of one matrix instruction.
constexpr uint32 cluster_columns = 64;
constexpr uint32 cluster_b_bytes = cluster_columns * depth * gemm_element_bytes;

// Most parts of K. (With more, split_gemm's tiles would do.)
constexpr uint32 most_cluster_parts = 2;

// The tiles of a cluster. Tiles beside each other have the same rows of A, and tiles below each other the same columns of
// B: each loads its share of a stage for all of them. Each tile has a block per part of K.
struct ClusterTiles {
  uint32 below;
  uint32 beside;
};

// Layout of shared memory; the sums reuse the stages.
template <uint32 rows>
struct ClusterRing {
  static constexpr uint32 a_bytes = rows * depth * gemm_element_bytes;
  static constexpr uint32 stages = ring_bytes / (a_bytes + cluster_b_bytes);
  // As sum_stride.
  static constexpr uint32 stride = cluster_columns + 4;
  static_assert(2 * rows * stride * 4 <= stages * (a_bytes + cluster_b_bytes), "sums do not fit");

  uint32 base;

  SYMMEM_DEVICE uint32 b(uint32 stage) const { return base + stage * cluster_b_bytes; }
  SYMMEM_DEVICE uint32 a(uint32 stage) const { return base + stages * cluster_b_bytes + stage * a_bytes; }
  // Barriers of a stage: B has arrived; A has arrived; the warpgroups of all blocks that share its loads are done with it.
  SYMMEM_DEVICE uint32 full_b(uint32 stage) const { return base + stages * (a_bytes + cluster_b_bytes) + stage * 8; }
  SYMMEM_DEVICE uint32 full_a(uint32 stage) const { return full_b(stages) + stage * 8; }
  SYMMEM_DEVICE uint32 empty(uint32 stage) const { return full_a(stages) + stage * 8; }
  SYMMEM_DEVICE uint32 sum(uint32 warpgroup, uint32 row, uint32 column) const {
    return base + ((warpgroup * rows + row) * stride + column) * 4;
  }
};

// A block's work, as SplitTile, but with tiles of `cluster_columns` columns, and several tiles to a cluster.
struct ClusterTile {
  uint32 part, parts;  // of K
  uint32 group;        // the cluster's rank of the first block with this part; the others follow, tiles below each other first
  uint32 number;       // of this block in that group
  ClusterTiles tiles;
  uint64 row;
  uint64 column;
  uint32 all, begin;  // steps of K, and the first one in order
  uint32 steps;       // of this block

  SYMMEM_DEVICE ClusterTile(const GatheredGemmArguments& arguments, uint32 rows, ClusterTiles tiles) : tiles(tiles) {
    parts = cluster_size() / together();
    part = cluster_rank() / together();
    group = part * together();
    number = cluster_rank() - group;
    const uint32 cluster = arch::block_index() / cluster_size();
    const uint32 row_tiles = static_cast<uint32>((arguments.shape.m + rows - 1) / rows);
    const uint32 bands = (row_tiles + tiles.below - 1) / tiles.below;
    row = static_cast<uint64>(cluster % bands * tiles.below + below()) * rows;
    column = static_cast<uint64>(cluster / bands * tiles.beside + beside()) * cluster_columns;
    all = static_cast<uint32>((arguments.shape.k + depth - 1) / depth);
    begin = first_step(arguments, all);
    steps = (all + parts - 1 - part) / parts;
  }

  SYMMEM_DEVICE uint32 together() const { return tiles.below * tiles.beside; }
  SYMMEM_DEVICE uint32 below() const { return number % tiles.below; }
  SYMMEM_DEVICE uint32 beside() const { return number / tiles.below; }
  // Returns the blocks that share A with this one, and B, a bit each.
  SYMMEM_DEVICE uint32 sharing_a() const {
    uint32 blocks = 0;
    for (uint32 next = 0; next < tiles.beside; ++next) blocks |= 1u << (group + next * tiles.below + below());
    return blocks;
  }
  SYMMEM_DEVICE uint32 sharing_b() const {
    return ((1u << tiles.below) - 1) << (group + beside() * tiles.below);
  }
  // Returns the cluster's rank of the block with another part of this tile.
  SYMMEM_DEVICE uint32 rank_of(uint32 other) const { return other * together() + number; }

  SYMMEM_DEVICE uint32 at(uint32 step) const {
    const uint32 turned = begin + part + step * parts;
    return (turned < all ? turned : turned - all) * depth;
  }
};

// Initializes the barriers of the ring. Called by every thread of the cluster.
template <uint32 rows>
SYMMEM_DEVICE void prepare(const ClusterRing<rows>& ring, const ClusterTile& tile) {
  if (arch::thread_index() == 0) {
    for (uint32 stage = 0; stage < ClusterRing<rows>::stages; ++stage) {
      barrier_initialise(ring.full_b(stage), 1);
      barrier_initialise(ring.full_a(stage), 1);
      barrier_initialise(ring.empty(stage), tile.together());
    }
    barriers_initialised();
    arch::fence_async_proxy();
  }
  cluster_arrive();
  cluster_wait();
}

// Loads this block's share of B for the tiles below each other, whose height or width is that of a box. Called by one
// thread.
template <bool b_rows, uint32 rows>
SYMMEM_DEVICE void load_b(const TensorMap* b, const ClusterRing<rows>& ring, const ClusterTile& tile) {
  const uint32 blocks = tile.sharing_b();
  const uint32 lines = depth / tile.tiles.below, first = tile.below() * lines;
  const uint32 column = static_cast<uint32>(tile.column);
  RingCursor<ClusterRing<rows>::stages> cursor;
  for (uint32 step = 0; step < tile.steps; ++step, cursor.advance()) {
    if (step >= cursor.count) barrier_wait(ring.empty(cursor.stage), cursor.parity ^ 1);
    const uint32 at = tile.at(step);
    const uint32 full = ring.full_b(cursor.stage);
    const uint32 to = ring.b(cursor.stage) + first * depth * gemm_element_bytes;
    const uint32 x = b_rows ? column : at, y = (b_rows ? at : column) + first;
    barrier_expect(full, cluster_b_bytes);
    if (tile.tiles.below == 1) {
      tensor_load_once(to, b, x, y, full);
    } else {
      tensor_load_once_shared(to, b, x, y, full, blocks);
    }
  }
}

// Loads this block's share of A for the tiles beside each other. Called by every thread of a warp.
template <uint32 rows>
SYMMEM_DEVICE void load_a(const TensorGemmArguments& given, const ClusterRing<rows>& ring, const ClusterTile& tile,
                          uint32 epoch) {
  using Ring = ClusterRing<rows>;
  const GatheredGemmArguments& arguments = given.arguments;
  const bool loads = arch::thread_index() % arch::warp_size == 0;
  WarpArrivals<Copied> arrivals(arguments, epoch, Copied{});
  const ShardExtent own = shard_extent(arguments, arguments.group.rank);
  const uint32 blocks = tile.sharing_a();
  const uint32 lines = rows / tile.tiles.beside, first = tile.beside() * lines;
  const uint32 y = static_cast<uint32>(tile.row) + first;
  RingCursor<Ring::stages> cursor;
  for (uint32 step = 0; step < tile.steps; ++step, cursor.advance()) {
    const uint32 at = tile.at(step);
    const bool here = at - own.first < own.length;
    if (!here) arrivals.until_column(at, tile.row, rows);
    if (!loads) continue;
    if (step >= cursor.count) barrier_wait(ring.empty(cursor.stage), cursor.parity ^ 1);
    const uint32 full = ring.full_a(cursor.stage);
    const uint32 to = ring.a(cursor.stage) + first * depth * gemm_element_bytes;
    const TensorMap* a = here ? &given.own : &given.gathered;
    const uint32 x = here ? at - static_cast<uint32>(own.first) : at;
    barrier_expect(full, Ring::a_bytes);
    if (tile.tiles.beside == 1) {
      tensor_load(to, a, x, y, full);
    } else {
      tensor_load_shared(to, a, x, y, full, blocks);
    }
  }
}

// Multiplies the tile by every second step of this block's part of K, and writes the result to the warpgroup's sums. While
// one warpgroup waits for its stage, the other one multiplies.
template <bool f16, bool b_rows, uint32 rows>
SYMMEM_DEVICE void multiply_part(const ClusterRing<rows>& ring, const ClusterTile& tile, uint32 warpgroup) {
  using Ring = ClusterRing<rows>;
  const uint32 thread = arch::thread_index() % 128;
  float d[rows / 2];
  SYMMEM_UNROLL
  for (uint32 index = 0; index < rows / 2; ++index) d[index] = 0;
  RingCursor<Ring::stages> cursor;
  if (warpgroup != 0) cursor.advance();
  for (uint32 step = warpgroup; step < tile.steps; step += 2) {
    barrier_wait(ring.full_b(cursor.stage), cursor.parity);
    barrier_wait(ring.full_a(cursor.stage), cursor.parity);
    const uint64 b = matrix_descriptor(ring.b(cursor.stage), b_rows ? cluster_b_bytes : 16, atom_bytes);
    const uint64 a = matrix_descriptor(ring.a(cursor.stage), 16, atom_bytes);
    wgmma_begin();
    SYMMEM_UNROLL
    for (uint32 deep = 0; deep < depth / 16; ++deep) {
      // The next 16 elements: 32 bytes along a row, or two atoms down if rows of B are contiguous.
      Warpgroup<rows>::template multiply<f16, b_rows, false>(d, b + deep * ((b_rows ? 2 * atom_bytes : 32) >> 4),
                                                             a + deep * (32 >> 4), 1);
    }
    wgmma_commit();
    // A later wait would leave few of the stages to the loads.
    wgmma_wait<0>();
    if (thread < tile.together()) barrier_arrive_at(ring.empty(cursor.stage), tile.group + thread);
    cursor.advance();
    cursor.advance();
  }
  // Waits until both warpgroups are done with the stages, which the sums overwrite.
  Warpgroups{}.barrier();
  const uint32 column = thread / 32 * 16 + thread % 32 / 4;
  SYMMEM_UNROLL
  for (uint32 eight = 0; eight < rows / 8; ++eight) {
    SYMMEM_UNROLL
    for (uint32 index = 0; index < 4; ++index) {
      const uint32 row = eight * 8 + thread % 4 * 2 + index % 2;
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(ring.sum(warpgroup, row, column + index / 2 * 8)),
                   "f"(d[4 * eight + index])
                   : "memory");
    }
  }
}

// Adds this block's share of the tile's sums, `parts` times two, always in the same order, and stores it in units of four
// columns of a row.
template <bool f16, uint32 parts, uint32 rows>
SYMMEM_DEVICE void add_parts_of(const GatheredGemmArguments& arguments, const ClusterRing<rows>& ring,
                                const ClusterTile& tile) {
  constexpr uint32 fours = cluster_columns / 4;
  constexpr uint32 stride = parts * threads;
  const GemmShape& shape = arguments.shape;
  const bool vectors = (arguments.c & 7) == 0 && shape.c_stride % 4 == 0;
  SYMMEM_UNROLL
  for (uint32 begin = 0; begin < rows * fours; begin += stride) {
    const uint32 index = begin + tile.part * threads + arch::thread_index();
    const uint32 row_here = index / fours, column_here = index % fours * 4;
    const uint64 row = tile.row + row_here, column = tile.column + column_here;
    if (index >= rows * fours || row >= shape.m || column >= shape.n) continue;
    float numbers[2 * parts][4];
    SYMMEM_UNROLL
    for (uint32 sum = 0; sum < 2 * parts; ++sum) {
      load_four(shared_at(ring.sum(sum % 2, row_here, column_here), tile.rank_of(sum / 2)), numbers[sum]);
    }
    float sums[4] = {0, 0, 0, 0};
    SYMMEM_UNROLL
    for (uint32 sum = 0; sum < 2 * parts; ++sum) {
      SYMMEM_UNROLL
      for (uint32 next = 0; next < 4; ++next) sums[next] += numbers[sum][next];
    }
    const uint32 left = shape.n - column < 4 ? static_cast<uint32>(shape.n - column) : 4;
    store_four<f16>(arguments, row, column, sums, left, vectors);
  }
}

template <bool f16, uint32 rows>
SYMMEM_DEVICE void add_parts(const GatheredGemmArguments& arguments, const ClusterRing<rows>& ring,
                             const ClusterTile& tile) {
  if (tile.parts == 1) {
    add_parts_of<f16, 1>(arguments, ring, tile);
  } else {
    add_parts_of<f16, most_cluster_parts>(arguments, ring, tile);
  }
}

}  // namespace symmem
