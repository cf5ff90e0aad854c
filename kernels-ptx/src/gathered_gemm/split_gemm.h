// GEMM for few rows, whose K is split among the blocks of a cluster: the tile and its stages, the loads, the products and the sums.
// See split_gemm.cu.
#pragma once

#include "gathered_gemm/tensor_gemm.h"

namespace symmem {

constexpr uint32 tile_columns = 128;
constexpr uint32 b_bytes = tile_columns * depth * gemm_element_bytes;
// Two warpgroups first push A, and then compute 64 columns each, which are a box of B if its rows are
// contiguous. Of the third warpgroup one warp loads B and another one A.
constexpr uint32 threads = 384;
constexpr uint32 half_columns = tile_columns / 2;
// Bytes of shared memory for the stages.
constexpr uint32 ring_bytes = 225 * 1024;
// Stages of B in flight, at most, over all blocks. More would queue up before the signals between ranks, which
// costs 5 of 24 us; these 5.5 MB keep an H200's memory busy.
constexpr uint32 window_of_device = 336;
// Stages in flight of one block. At most the stages of the ring: otherwise the wait for an old stage could find
// it refilled, and wait for the fill after that, which only this thread starts.
SYMMEM_DEVICE uint32 window_of(uint32 blocks, uint32 stages) {
  const uint32 wished = (window_of_device + blocks - 1) / blocks;
  return wished < stages ? wished : stages;
}
// Floats from one row of a block's sums to the next: a multiple of four, such that rows begin in different banks.
constexpr uint32 sum_stride = tile_columns + 4;

// Most blocks of a cluster, and so parts of K, on any device (CUDA Programming Guide, "Thread Block Clusters").
constexpr uint32 most_parts = 8;

// Layout of shared memory; the sums reuse the stages.
template <uint32 rows>
struct SplitRing {
  static constexpr uint32 a_bytes = rows * depth * gemm_element_bytes;
  static constexpr uint32 stages = ring_bytes / (a_bytes + b_bytes);
  static_assert(rows * sum_stride * 4 <= stages * (a_bytes + b_bytes), "sums do not fit");

  uint32 base;

  SYMMEM_DEVICE uint32 b(uint32 stage) const { return base + stage * b_bytes; }
  SYMMEM_DEVICE uint32 a(uint32 stage) const { return base + stages * b_bytes + stage * a_bytes; }
  // Barriers of a stage: B has arrived; A has arrived; both warpgroups are done with them.
  SYMMEM_DEVICE uint32 full_b(uint32 stage) const { return base + stages * (a_bytes + b_bytes) + stage * 8; }
  SYMMEM_DEVICE uint32 full_a(uint32 stage) const { return full_b(stages) + stage * 8; }
  SYMMEM_DEVICE uint32 empty(uint32 stage) const { return full_a(stages) + stage * 8; }
  SYMMEM_DEVICE uint32 sum(uint32 row, uint32 column) const { return base + (row * sum_stride + column) * 4; }
};

// The threads that first push A and then multiply.
struct Warpgroups {
  SYMMEM_DEVICE uint32 index() const { return arch::thread_index() - 128; }
  SYMMEM_DEVICE uint32 count() const { return threads - 128; }
  // Warps come whole: see arch::block_barrier.
  SYMMEM_DEVICE void barrier() const {
    asm volatile(
        "bar.warp.sync 0xffffffff;\n\t"
        "barrier.sync.aligned 1, 256;" ::
            : "memory");
  }
  SYMMEM_DEVICE bool all(bool condition) const {
    uint32 all;
    asm volatile(
        "{ .reg .pred p, q;\n\t"
        "setp.ne.u32 p, %1, 0;\n\t"
        "bar.warp.sync 0xffffffff;\n\t"
        "barrier.red.and.pred.aligned q, 1, 256, p;\n\t"
        "selp.u32 %0, 1, 0, q; }"
        : "=r"(all)
        : "r"(static_cast<uint32>(condition))
        : "memory");
    return all != 0;
  }
};

// A block's work: a tile, and a part of K in steps of `depth`.
struct SplitTile {
  uint32 part, parts;  // of K
  uint64 row;
  uint64 column;
  uint32 first, steps, turn;

  SYMMEM_DEVICE SplitTile(const GemmShape& shape, uint32 rows) {
    part = cluster_rank();
    parts = cluster_size();
    const uint32 cluster = arch::block_index() / parts;
    const uint32 row_tiles = static_cast<uint32>((shape.m + rows - 1) / rows);
    // Clusters that use the same columns of B are neighbors.
    row = static_cast<uint64>(cluster % row_tiles) * rows;
    column = static_cast<uint64>(cluster / row_tiles) * tile_columns;
    const uint32 all = static_cast<uint32>((shape.k + depth - 1) / depth);
    const uint32 each = (all + parts - 1) / parts;
    first = part * each < all ? part * each : all;
    steps = all - first < each ? all - first : each;
    turn = 0;
  }

  SYMMEM_DEVICE SplitTile(const GatheredGemmArguments& arguments, uint32 rows) : SplitTile(arguments.shape, rows) {
    if (arguments.sharding == static_cast<uint32>(Sharding::columns)) {
      const uint64 own = arguments.group.rank * arguments.shard / depth;
      if (own > first && own - first < steps) turn = static_cast<uint32>(own - first);
    }
  }

  // Returns a step's position in K. If A is sharded by columns, starts at the own shard, which needs no gather,
  // and wraps around.
  SYMMEM_DEVICE uint32 at(uint32 step) const {
    const uint32 turned = step + turn;
    return (first + (turned < steps ? turned : turned - steps)) * depth;
  }
};

// Loads a tile of B, with at most `window` stages in flight.
template <bool b_rows, uint32 rows>
SYMMEM_DEVICE void load_b(const TensorMap* b, const SplitRing<rows>& ring, const SplitTile& tile, uint32 window) {
  const uint32 column = static_cast<uint32>(tile.column);
  RingCursor<SplitRing<rows>::stages> cursor, late;
  for (uint32 step = 0; step < tile.steps; ++step, cursor.advance()) {
    if (step >= cursor.count) barrier_wait(ring.empty(cursor.stage), cursor.parity ^ 1);
    if (step >= window) {
      barrier_wait(ring.full_b(late.stage), late.parity);
      late.advance();
    }
    const uint32 at = tile.at(step);
    const uint32 full = ring.full_b(cursor.stage), to = ring.b(cursor.stage);
    barrier_expect(full, b_bytes);
    if (b_rows) {
      tensor_load_once(to, b, column, at, full);
      tensor_load_once(to + b_bytes / 2, b, column + half_columns, at, full);
    } else {
      tensor_load_once(to, b, at, column, full);
    }
  }
}

// The tensor copies read what threads of other blocks and devices wrote. Called once per shard: at each step it
// would cost 7 of 25 us.
struct Copied {
  SYMMEM_DEVICE void operator()() const { arch::fence_async_proxy(); }
};

// Called by every thread of a warp.
template <uint32 rows>
SYMMEM_DEVICE void load_a(const TensorGemmArguments& given, const SplitRing<rows>& ring, const SplitTile& tile,
                          uint32 epoch) {
  using Ring = SplitRing<rows>;
  const GatheredGemmArguments& arguments = given.arguments;
  const bool by_columns = arguments.sharding == static_cast<uint32>(Sharding::columns);
  const bool loads = arch::thread_index() % arch::warp_size == 0;
  WarpArrivals<Copied> arrivals(arguments, epoch, Copied{});
  if (!by_columns && tile.steps != 0) arrivals.until_rows(tile.row, rows);
  const ShardExtent own = shard_extent(arguments, arguments.group.rank);
  RingCursor<Ring::stages> cursor;
  for (uint32 step = 0; step < tile.steps; ++step, cursor.advance()) {
    const uint32 at = tile.at(step);
    const bool here = by_columns && at - own.first < own.length;
    if (by_columns && !here) arrivals.until_column(at, tile.row, rows);
    if (!loads) continue;
    if (step >= cursor.count) barrier_wait(ring.empty(cursor.stage), cursor.parity ^ 1);
    const uint32 full = ring.full_a(cursor.stage);
    barrier_expect(full, Ring::a_bytes);
    tensor_load(ring.a(cursor.stage), here ? &given.own : &given.gathered,
                here ? at - static_cast<uint32>(own.first) : at, static_cast<uint32>(tile.row), full);
  }
}

// Multiplies a warpgroup's columns of the tile by this block's part of K, and writes them to the sums.
template <bool f16, bool b_rows, uint32 rows>
SYMMEM_DEVICE void multiply_part(const SplitRing<rows>& ring, const SplitTile& tile, uint32 warpgroup) {
  using Ring = SplitRing<rows>;
  const uint32 thread = arch::thread_index() % 128;
  float d[rows / 2];
  SYMMEM_UNROLL
  for (uint32 index = 0; index < rows / 2; ++index) d[index] = 0;
  RingCursor<Ring::stages> cursor;
  for (uint32 step = 0; step < tile.steps; ++step, cursor.advance()) {
    barrier_wait(ring.full_b(cursor.stage), cursor.parity);
    barrier_wait(ring.full_a(cursor.stage), cursor.parity);
    const uint32 b_part = ring.b(cursor.stage) + warpgroup * (b_bytes / 2);
    const uint64 b = matrix_descriptor(b_part, b_rows ? b_bytes / 2 : 16, atom_bytes);
    const uint64 a = matrix_descriptor(ring.a(cursor.stage), 16, atom_bytes);
    wgmma_begin();
    SYMMEM_UNROLL
    for (uint32 deep = 0; deep < depth / 16; ++deep) {
      // The next 16 elements: 32 bytes along a row, or two atoms down if rows of B are contiguous.
      Warpgroup<rows>::template multiply<f16, b_rows, false>(d, b + deep * ((b_rows ? 2 * atom_bytes : 32) >> 4),
                                                             a + deep * (32 >> 4), 1);
    }
    wgmma_commit();
    if (step != 0) {
      wgmma_wait<1>();
      if (thread == 0) barrier_arrive(ring.empty(cursor.before()));
    }
  }
  wgmma_wait<0>();
  // Waits until both warpgroups are done with the stages, which the sums overwrite.
  Warpgroups{}.barrier();
  const uint32 column = warpgroup * half_columns + thread / 32 * 16 + thread % 32 / 4;
  SYMMEM_UNROLL
  for (uint32 eight = 0; eight < rows / 8; ++eight) {
    SYMMEM_UNROLL
    for (uint32 index = 0; index < 4; ++index) {
      const uint32 row = eight * 8 + thread % 4 * 2 + index % 2;
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(ring.sum(row, column + index / 2 * 8)), "f"(d[4 * eight + index])
                   : "memory");
    }
  }
}

// Adds this block's share of the cluster's sums, part by part, and stores it in units of four columns of a row.
template <bool f16, uint32 rows>
SYMMEM_DEVICE void add_parts(const GatheredGemmArguments& arguments, const SplitRing<rows>& ring,
                             const SplitTile& tile) {
  constexpr uint32 fours = tile_columns / 4;
  const GemmShape& shape = arguments.shape;
  const bool vectors = (arguments.c & 7) == 0 && shape.c_stride % 4 == 0;
  const uint32 stride = tile.parts * threads;
  for (uint32 index = tile.part * threads + arch::thread_index(); index < rows * fours; index += stride) {
    const uint64 row = tile.row + index / fours;
    const uint64 column = tile.column + index % fours * 4;
    if (row >= shape.m || column >= shape.n) continue;
    float numbers[most_parts][4] = {};
    SYMMEM_UNROLL
    for (uint32 part = 0; part < most_parts; ++part) {
      if (part >= tile.parts) continue;
      load_four(shared_at(ring.sum(index / fours, index % fours * 4), part), numbers[part]);
    }
    float sums[4] = {0, 0, 0, 0};
    SYMMEM_UNROLL
    for (uint32 part = 0; part < most_parts; ++part) {
      SYMMEM_UNROLL
      for (uint32 next = 0; next < 4; ++next) sums[next] += numbers[part][next];
    }
    const uint32 left = shape.n - column < 4 ? static_cast<uint32>(shape.n - column) : 4;
    SYMMEM_UNROLL
    for (uint32 next = 0; next < 4; ++next) {
      if (arguments.bias == 0 || next >= left) continue;
      sums[next] += widen<f16>(arch::load(pointer<const uint16>(arguments.bias) + column + next));
    }
    const uint64 address = arguments.c + (row * shape.c_stride + column) * gemm_element_bytes;
    uint64 four = static_cast<uint64>(narrow<f16>(sums[2], sums[3])) << 32 | narrow<f16>(sums[0], sums[1]);
    if (vectors && left == 4) {
      arch::store(pointer<uint64>(address), four);
      continue;
    }
    for (uint32 next = 0; next < left; ++next, four >>= 16) {
      arch::store(pointer<uint16>(address) + next, static_cast<uint16>(four));
    }
  }
}

}  // namespace symmem
