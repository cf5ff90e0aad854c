// Module `gathered_gemm`: all-gather + GEMM by warpgroup MMA. sm_90a only.
//
// A block computes tiles of 128 by 256. Two warpgroups compute 64 rows each, and a third one loads the operands
// by tensor copies into a ring of stages, 64 deep. The ring runs on from tile to tile, so that the first stages
// of the next tile arrive while the last tile is stored, as in CUTLASS's cooperative kernels. If a cluster has
// two blocks, their tiles lie below each other, and each block loads half of B for both. If there are too few
// last tiles for all blocks, the last tiles are halves, by columns.
#include "gathered_gemm/tensor_gemm.h"
#include "symmem/halved_tiles.h"

using namespace symmem;

namespace {

constexpr uint32 tile_rows = 128;
constexpr uint32 tile_columns = 256;
constexpr uint32 stages = 4;
constexpr uint32 a_bytes = tile_rows * depth * gemm_element_bytes;
constexpr uint32 b_bytes = tile_columns * depth * gemm_element_bytes;
// Columns of a box of B. `b_rows`: the rows of B are contiguous; otherwise its columns are.
template <bool b_rows>
constexpr uint32 box_columns = b_rows ? 64 : 128;
template <bool b_rows>
constexpr uint32 box_bytes = box_columns<b_rows>* depth* gemm_element_bytes;
// Tiles along the rows that are computed side by side: with this many the device is full and uses the fewest
// rows of A and columns of B at a time. Half as many do nearly as well.
constexpr uint32 band = 16;

// Layout of shared memory.
struct Ring {
  uint32 base;

  SYMMEM_DEVICE uint32 a(uint32 stage) const { return base + stage * a_bytes; }
  SYMMEM_DEVICE uint32 b(uint32 stage) const { return base + stages * a_bytes + stage * b_bytes; }
  // Barriers: both operands of a stage have arrived; all warpgroups of the cluster are done with them.
  SYMMEM_DEVICE uint32 full(uint32 stage) const { return base + stages * (a_bytes + b_bytes) + stage * 8; }
  SYMMEM_DEVICE uint32 empty(uint32 stage) const { return full(stages) + stage * 8; }
  // A word that is not 0 if an earlier kernel has seen an abort.
  SYMMEM_DEVICE uint32 aborted() const { return empty(stages); }
};

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
  const uint32 sharers = cluster_size(), sharer = cluster_rank();
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
        barrier_wait(ring.empty(cursor.stage), cursor.parity ^ 1);
        const uint32 full = ring.full(cursor.stage);
        barrier_expect(full, a_bytes + needed * box_bytes<b_rows>);
        tensor_load(ring.a(cursor.stage), a, a_begin + at, a_row, full);
        SYMMEM_UNROLL
        for (uint32 box = 0; box < boxes; ++box) {
          if (box == needed) break;
          const uint32 to = ring.b(cursor.stage) + box * box_bytes<b_rows>;
          const uint32 from = column + box * box_columns<b_rows>;
          const uint32 x = b_rows ? from : b_begin + at;
          const uint32 y = b_rows ? b_begin + at : from;
          if (sharers == 1) {
            tensor_load(to, &tensors.b, x, y, full);
          } else if (box * sharers / needed == sharer) {
            tensor_load_shared(to, &tensors.b, x, y, full, 3);
          }
        }
        cursor.advance();
      }
    }
  }
}

SYMMEM_DEVICE uint32 from_lane(uint32 value, uint32 distance) {
  uint32 other;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(other) : "r"(value), "r"(distance));
  return other;
}

// Two lanes exchange words: the upper lane's `low` for the lower lane's `high`.
SYMMEM_DEVICE void swap_words(uint32& low, uint32& high, bool upper, uint32 distance) {
  const uint32 other = from_lane(upper ? low : high, distance);
  low = upper ? other : low;
  high = upper ? high : other;
}

// Transposes the words of four lanes: lane q's word i becomes lane i's word q.
SYMMEM_DEVICE void transpose_quad(uint32 (&words)[4], uint32 quad) {
  swap_words(words[0], words[1], (quad & 1) != 0, 1);
  swap_words(words[2], words[3], (quad & 1) != 0, 1);
  swap_words(words[0], words[2], (quad & 2) != 0, 2);
  swap_words(words[1], words[3], (quad & 2) != 0, 2);
}

// Adds the bias of each column to the accumulators of a warpgroup.
template <bool f16, uint32 count>
SYMMEM_DEVICE void add_bias(const GatheredGemmArguments& arguments, const GemmTile& tile, float (&d)[count]) {
  const uint64 first = tile.column + arch::thread_index() % 4 * 2;
  SYMMEM_UNROLL
  for (uint32 index = 0; index < count; index += 4) {
    SYMMEM_UNROLL
    for (uint32 next = 0; next < 2; ++next) {
      const uint64 column = first + index * 2 + next;
      if (column >= arguments.shape.n) continue;
      const float bias = widen<f16>(arch::load(pointer<const uint16>(arguments.bias) + column));
      d[index + next] += bias;
      d[index + next + 2] += bias;
    }
  }
}

// Stores a warpgroup's 64 rows to C; each lane stores eight neighbors of a row at once.
template <bool f16, uint32 count>
SYMMEM_DEVICE void store_tile(const GatheredGemmArguments& arguments, const GemmTile& tile, uint32 skip,
                              const float (&d)[count]) {
  const uint32 thread = arch::thread_index() % 128;
  const uint32 quad = thread % 4;
  const uint64 row = tile.row + skip + thread / 32 * 16 + thread % 32 / 4;
  const uint64 n = arguments.shape.n;
  const bool vectors = (arguments.c & 15) == 0 && arguments.shape.c_stride % 8 == 0;
  SYMMEM_UNROLL
  for (uint32 eights = 0; eights < count / 16; ++eights) {
    const uint64 column = tile.column + (4 * eights + quad) * 8;
    SYMMEM_UNROLL
    for (uint32 half = 0; half < 2; ++half) {
      arch::Vector16 vector;
      SYMMEM_UNROLL
      for (uint32 word = 0; word < 4; ++word) {
        const uint32 at = (4 * eights + word) * 4 + 2 * half;
        vector.words[word] = narrow<f16>(d[at], d[at + 1]);
      }
      transpose_quad(vector.words, quad);
      const uint64 at = row + 8 * half;
      if (at >= tile.rows_end || column >= n) continue;
      const uint64 address = arguments.c + (at * arguments.shape.c_stride + column) * gemm_element_bytes;
      if (vectors && column + 8 <= n) {
        arch::store(pointer<arch::Vector16>(address), vector);
        continue;
      }
      const uint32 left = n - column < 8 ? static_cast<uint32>(n - column) : 8;
      uint64 low = static_cast<uint64>(vector.words[1]) << 32 | vector.words[0];
      uint64 high = static_cast<uint64>(vector.words[3]) << 32 | vector.words[2];
      SYMMEM_ROLLED
      for (uint32 element = 0; element < left; ++element) {
        arch::store(pointer<uint16>(address) + element, static_cast<uint16>(low));
        low = low >> 16 | high << 48;
        high >>= 16;
      }
    }
  }
}

// Signals that a stage is empty, by one thread per block of the cluster: each block loads a part of B into this
// stage, so all of them must know.
SYMMEM_DEVICE void give_back(const Ring& ring, uint32 stage) {
  const uint32 thread = arch::thread_index() % 128;
  if (thread < cluster_size()) barrier_arrive_at(ring.empty(stage), thread);
}

// Computes a warpgroup's rows of a tile with `columns` columns.
template <bool f16, bool b_rows, uint32 columns>
SYMMEM_DEVICE void multiply_tile(const GatheredGemmArguments& arguments, const Ring& ring, uint32 skip,
                                 const GemmTile& tile, RingCursor<stages>& cursor) {
  const uint32 steps = static_cast<uint32>((arguments.shape.k + depth - 1) / depth);
  float d[columns / 2];
  for (uint32 step = 0; step < steps; ++step) {
    barrier_wait(ring.full(cursor.stage), cursor.parity);
    const uint64 a = matrix_descriptor(ring.a(cursor.stage) + skip * depth * gemm_element_bytes, 16, atom_bytes);
    const uint64 b = matrix_descriptor(ring.b(cursor.stage), b_rows ? box_bytes<b_rows> : 16, atom_bytes);
    wgmma_begin();
    SYMMEM_UNROLL
    for (uint32 part = 0; part < depth / 16; ++part) {
      // The next 16 elements: 32 bytes along a row, or two atoms down if rows of B are contiguous.
      const uint64 next_a = a + part * (32 >> 4);
      const uint64 next_b = b + part * ((b_rows ? 2 * atom_bytes : 32) >> 4);
      Warpgroup<columns>::template multiply<f16, false, b_rows>(d, next_a, next_b, step | part);
    }
    wgmma_commit();
    if (step != 0) {
      wgmma_wait<1>();
      give_back(ring, cursor.before());
    }
    cursor.advance();
  }
  wgmma_wait<0>();
  give_back(ring, cursor.before());
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
    for (uint32 stage = 0; stage < stages; ++stage) {
      barrier_initialise(ring.full(stage), 1);
      barrier_initialise(ring.empty(stage), 2 * cluster_size());
    }
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
