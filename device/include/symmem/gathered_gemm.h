// A product of matrices that gathers its A meanwhile: which tile comes next, when its part of A is there, and
// the blocks that move A. How a tile is multiplied is each target's own; see GatheredGemmArguments.
//
// The first blocks of the grid may move A: they load the peers' shards, or store the own one at the peers, each
// row block once, and raise an arrival word for each chunk. All others compute tiles. A computing block waits for
// what raises its words, and for nothing else: copy engines, or movers, which are resident with it or in a
// peer's grid and wait for nobody.
#pragma once

#include "symmem/copy.h"
#include "symmem/wait.h"

namespace symmem {

// Bytes of an element: f16 and bf16.
constexpr uint32 gemm_element_bytes = 2;

// The same, but read here: what a kernel reads in front of a loop may be kept in registers all through it, where a
// warp's threads have few in common.
SYMMEM_DEVICE const GatheredGemmArguments& read_anew(const GatheredGemmArguments& arguments) {
  return (&arguments)[arch::anew(0u)];
}

// The part of A that a member has: where it begins, in rows or columns, and how long it is.
struct ShardExtent {
  uint64 first;
  uint64 length;
};

SYMMEM_DEVICE ShardExtent shard_extent(const GatheredGemmArguments& arguments, uint32 member) {
  const bool by_rows = arguments.sharding == static_cast<uint32>(Sharding::rows);
  const uint64 whole = by_rows ? arguments.shape.m : arguments.shape.k;
  uint64 first = member * arguments.shard;
  if (first > whole) first = whole;
  const uint64 left = whole - first;
  return {first, left < arguments.shard ? left : arguments.shard};
}

// The member whose shard is the `step`-th that this rank computes with: its own first.
SYMMEM_DEVICE uint32 shard_of_step(const CollectiveGroup& group, uint32 step) {
  const uint32 member = group.rank + step;
  return member < group.world ? member : member - group.world;
}

// ---- tiles ----

// A part of C: `rows_end` and the product's n say where it is cut short.
struct GemmTile {
  uint64 row;
  uint64 rows_end;
  uint64 column;
  uint32 shard;  // whose rows they are, where A is divided by rows
};

// The tiles of C in the order in which they are computed: ranges of rows by the rank whose shard they are, the
// own one first, so that each rank needs another shard when it needs one at all; in a range bands of `band` tiles
// of rows, and in a band column by column, so that what runs at one time shares rows of A and columns of B in the
// cache. Where A is divided by columns all of its rows are one range.
class TileWalk {
 public:
  SYMMEM_DEVICE TileWalk(const GatheredGemmArguments& arguments, uint32 tile_rows, uint32 tile_columns, uint32 band)
      : arguments_(arguments), tile_rows_(tile_rows), tile_columns_(tile_columns), band_(band) {
    columns_ = static_cast<uint32>((arguments.shape.n + tile_columns - 1) / tile_columns);
    enter();
  }

  // Tile number `index`, which never falls from call to call; false behind the last one.
  SYMMEM_DEVICE bool find(uint32 index, GemmTile& tile) {
    while (index - before_ >= row_tiles_ * columns_) {
      before_ += row_tiles_ * columns_;
      ++range_;
      if (!enter()) return false;
    }
    const uint32 inside = index - before_;
    const uint32 number = inside / (band_ * columns_);
    const uint32 rest = inside - number * band_ * columns_;
    const uint32 left = row_tiles_ - number * band_;
    const uint32 height = left < band_ ? left : band_;
    const uint32 column = rest / height;
    tile.row = first_ + static_cast<uint64>(number * band_ + rest - column * height) * tile_rows_;
    tile.rows_end = end_;
    tile.column = static_cast<uint64>(column) * tile_columns_;
    tile.shard = shard_;
    return true;
  }

 private:
  // The range whose turn it is; false behind the last one.
  SYMMEM_DEVICE bool enter() {
    const GatheredGemmArguments& arguments = read_anew(arguments_);
    const bool by_rows = arguments.sharding == static_cast<uint32>(Sharding::rows);
    if (range_ >= (by_rows ? arguments.group.world : 1)) return false;
    shard_ = shard_of_step(arguments.group, range_);
    ShardExtent rows = {0, arguments.shape.m};
    if (by_rows) rows = shard_extent(arguments, shard_);
    first_ = arch::per_thread(rows.first);
    end_ = arch::per_thread(rows.first + rows.length);
    row_tiles_ = static_cast<uint32>((rows.length + tile_rows_ - 1) / tile_rows_);
    return true;
  }

  const GatheredGemmArguments& arguments_;
  const uint32 tile_rows_, tile_columns_, band_;
  uint32 columns_;
  uint32 range_ = 0, before_ = 0, shard_ = 0, row_tiles_ = 0;
  uint64 first_ = 0, end_ = 0;
};

// ---- arrivals ----

// One thread's waits for chunks of A. After one that gave up it waits no more, and the block goes on with
// whatever is there: the call has failed by then, and its output is undefined.
class Arrivals {
 public:
  SYMMEM_DEVICE explicit Arrivals(const GatheredGemmArguments& arguments)
      : arguments_(arguments),
        waiter_(arguments.group.watch),
        expected_(arch::load_relaxed(pointer<const uint32>(arguments.epoch))) {}

  // Until the chunk that has `row`, a row of the shard, is there, and its bytes visible to this thread.
  SYMMEM_DEVICE void until(uint32 shard, uint64 row) {
    if (shard == arguments_.group.rank || gave_up_) return;
    const GatheredGemmArguments& arguments = read_anew(arguments_);
    const uint32 number = shard * arguments.chunks + static_cast<uint32>(row / arguments.chunk);
    if (number == last_) return;
    last_ = number;
    const uint64 words = arguments.arrivals[arguments.group.rank];
    const uint32* word = pointer<const uint32>(words + static_cast<uint64>(number) * signal_stride);
    const uint32 kind = static_cast<uint32>(WaitKind::collective) + arguments.group.operation;
    gave_up_ = !waiter_.until_reached(word, expected_, static_cast<WaitKind>(kind), arguments.group.members[shard],
                                      arguments.group.slot);
  }

 private:
  const GatheredGemmArguments& arguments_;
  Waiter waiter_;
  const uint32 expected_;
  uint32 last_ = ~0u;
  bool gave_up_ = false;
};

// ---- moving A ----

// A matrix of bytes: where it begins, and from one row to the next.
struct RowsAt {
  uint64 address;
  uint64 stride;
};

// Called by every thread of one block: copies rows of `bytes` each.
struct CopyAnyRows {
  SYMMEM_DEVICE void operator()(RowsAt to, RowsAt from, uint64 bytes, uint64 rows) const {
    const Share alone = {0, 1};
    const bool gapless = to.stride == bytes && from.stride == bytes;
    const uint64 pieces = gapless ? 1 : rows;
    const uint64 piece = gapless ? bytes * rows : bytes;
    for (uint64 row = 0; row < pieces; ++row) {
      copy_vector<4>(to.address + row * to.stride, from.address + row * from.stride, piece, alone);
    }
  }
};

// The same where all addresses, strides and bytes are multiples of 16.
struct CopyAlignedRows {
  SYMMEM_DEVICE void operator()(RowsAt to, RowsAt from, uint64 bytes, uint64 rows) const {
    constexpr uint32 unroll = 8;
    const uint32 width = static_cast<uint32>(bytes / 16);
    const uint32 count = width * static_cast<uint32>(rows);
    const uint32 threads = arch::thread_count();
    for (uint32 begin = arch::thread_index(); begin < count; begin += unroll * threads) {
      arch::Vector16 vectors[unroll];
      SYMMEM_UNROLL
      for (uint32 step = 0; step < unroll; ++step) {
        const uint32 index = begin + step * threads;
        if (index < count) vectors[step] = arch::load(vector_at(from, index, width));
      }
      SYMMEM_UNROLL
      for (uint32 step = 0; step < unroll; ++step) {
        const uint32 index = begin + step * threads;
        if (index < count) arch::store(vector_at(to, index, width), vectors[step]);
      }
    }
  }

 private:
  static SYMMEM_DEVICE arch::Vector16* vector_at(RowsAt rows, uint32 index, uint32 width) {
    const uint32 row = index / width;
    return pointer<arch::Vector16>(rows.address + row * rows.stride + (index - row * width) * 16ull);
  }
};

// How many blocks move A.
SYMMEM_DEVICE uint32 movers(const GatheredGemmArguments& arguments) {
  return arguments.movers == 0 ? arch::block_count() : arguments.movers;
}

// Called by every thread of the blocks that move: the first ones, or all where none are set aside. A block moves
// a chunk alone, and takes one of every so many: of the nearest shard first.
template <class Copy>
SYMMEM_DEVICE void move_shards(const GatheredGemmArguments& given, Copy copy) {
  const uint32 expected = arch::load_relaxed(pointer<const uint32>(given.epoch));
  // After those of the peers the own shard, where it is kept: nobody waits for that.
  const uint32 items = (given.group.world - 1 + (given.keep != 0 ? 1 : 0)) * given.chunks;
  for (uint32 item = arch::block_index(); item < items; item += movers(read_anew(given))) {
    const GatheredGemmArguments& arguments = read_anew(given);
    const CollectiveGroup& group = arguments.group;
    const bool by_rows = arguments.sharding == static_cast<uint32>(Sharding::rows);
    const bool pulls = arguments.mode == static_cast<uint32>(GatherMode::pull);
    const uint32 step = item / arguments.chunks + 1;
    const uint32 chunk = item - (step - 1) * arguments.chunks;
    const uint32 peer = step == group.world ? group.rank
                        : pulls             ? shard_of_step(group, step)
                                            : shard_of_step(group, group.world - step);
    const uint32 shard = pulls ? peer : group.rank;
    const uint32 at = pulls ? group.rank : peer;
    const ShardExtent extent = shard_extent(arguments, shard);
    const uint64 rows_there = by_rows ? extent.length : arguments.shape.m;
    const uint64 first = chunk * arguments.chunk;
    if (first < rows_there && extent.length != 0) {
      const uint64 left = rows_there - first;
      const uint64 rows = left < arguments.chunk ? left : arguments.chunk;
      const uint64 width = (by_rows ? arguments.shape.k : extent.length) * gemm_element_bytes;
      const uint64 stride = arguments.shape.a_stride * gemm_element_bytes;
      const uint64 corner = by_rows ? extent.first * stride : extent.first * gemm_element_bytes;
      copy({arguments.gathered[at] + corner + first * stride, stride},
           {arguments.sources[shard] + first * width, width}, width, rows);
    }
    if (peer == group.rank) continue;
    const uint64 word = arguments.arrivals[at] + static_cast<uint64>(shard * arguments.chunks + chunk) * signal_stride;
    publish(pointer<uint32>(word), expected);
  }
}

}  // namespace symmem
