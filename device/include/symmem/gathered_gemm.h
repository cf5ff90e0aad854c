// All-gather + GEMM, independent of the target: the order of tiles, the arrival of A's chunks, and the blocks that move
// A. Each target multiplies tiles in its own way; see GatheredGemmArguments.
//
// The first blocks of the grid may move A: they load the peers' shards or store this rank's shard at the peers, each
// chunk once, and raise an arrival word per chunk. All other blocks compute tiles. A computing block waits only for
// arrival words, which copy engines or movers raise. Movers are co-resident with it or belong to a peer's grid, and
// wait for nothing. In the mode GatherMode::push_at_once, the grid is the whole call: movers first wait until all
// ranks' grids have begun, store, and then compute, too.
//
// A block whose wait gave up still computes its tiles, so that no other block waits for it. After an abort that would
// be the whole time of each GEMM in a queue, so these kernels also ask on entry whether an earlier kernel has seen the
// abort. (Not in push_at_once: those GEMMs take microseconds.)
#pragma once

#include "symmem/copy.h"
#include "symmem/wait.h"

namespace symmem {

// Bytes of an element: f16 and bf16.
constexpr uint32 gemm_element_bytes = 2;

// The first row or column of a member's shard of A, and its length.
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

// Returns the member whose shard this rank uses in step `step`; step 0 is its own.
SYMMEM_DEVICE uint32 shard_of_step(const CollectiveGroup& group, uint32 step) {
  const uint32 member = group.rank + step;
  return member < group.world ? member : member - group.world;
}

// ---- tiles ----

// A tile of C, cut short at `rows_end` and at the shape's n.
struct GemmTile {
  uint64 row;
  uint64 rows_end;
  uint64 column;
  uint32 shard;  // the member whose rows they are, if A is sharded by rows
};

// The order in which the tiles of C are computed. If A is sharded by rows, each shard is a range of rows; this rank's
// shard comes first, so that at any time the ranks need different shards. If A is sharded by columns, all rows are one
// range. A range consists of bands of `band` tiles of rows, computed column by column, so that concurrent tiles share
// rows of A and columns of B in the cache. `together` tiles below each other are consecutive; empty tiles pad a range
// to a multiple, and `band` is one.
class TileWalk {
 public:
  SYMMEM_DEVICE TileWalk(const GatheredGemmArguments& arguments, uint32 tile_rows, uint32 tile_columns, uint32 band,
                         uint32 together)
      : arguments_(arguments), tile_rows_(tile_rows), tile_columns_(tile_columns), band_(band), together_(together) {
    columns_ = static_cast<uint32>((arguments.shape.n + tile_columns - 1) / tile_columns);
    enter();
  }

  // Finds tile `index`, which must not decrease from call to call. Returns false after the last tile.
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

  // Returns the number of tiles of the first range. Call this and the next two before the first `find`.
  SYMMEM_DEVICE uint32 first_range() const { return row_tiles_ * columns_; }

  // Returns the total number of tiles.
  SYMMEM_DEVICE uint32 count() const {
    TileWalk ranges = *this;
    uint32 tiles = 0;
    do {
      tiles += ranges.row_tiles_ * columns_;
      ++ranges.range_;
    } while (ranges.enter());
    return tiles;
  }

  // Returns the number of tiles in bands that have rows of the last chunk.
  SYMMEM_DEVICE uint32 last_chunk() const {
    TileWalk ranges = *this;
    uint32 rows = 0;
    do {
      const uint64 length = ranges.end_ - ranges.first_;
      if (length != 0) {
        const uint64 first = (length - 1) / arguments_.chunk * arguments_.chunk;
        rows = ranges.row_tiles_ - static_cast<uint32>(first / tile_rows_) / band_ * band_;
      }
      ++ranges.range_;
    } while (ranges.enter());
    return rows * columns_;
  }

 private:
  // Enters the current range. Returns false after the last range.
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
    row_tiles_ = (row_tiles_ + together_ - 1) / together_ * together_;
    return true;
  }

  const GatheredGemmArguments& arguments_;
  const uint32 tile_rows_, tile_columns_, band_, together_;
  uint32 columns_;
  uint32 range_ = 0, before_ = 0, shard_ = 0, row_tiles_ = 0;
  uint64 first_ = 0, end_ = 0;
};

// ---- arrivals ----

// Returns the value that arrival words reach in this call, which follows a barrier.
SYMMEM_DEVICE uint32 epoch_of(const GatheredGemmArguments& arguments) {
  return arch::load_relaxed(pointer<const uint32>(arguments.epoch));
}

// Returns the address at a member of the arrival word of a shard's chunk.
SYMMEM_DEVICE uint64 arrival_word(const GatheredGemmArguments& arguments, uint32 at, uint32 shard, uint64 chunk) {
  return arguments.arrivals[at] + (static_cast<uint64>(shard) * arguments.chunks + chunk) * signal_stride;
}

// One thread's waits for chunks of A. After a wait that gave up, it waits no more and the block continues with whatever
// data is there: the call has failed, and its output is undefined.
class Arrivals {
 public:
  SYMMEM_DEVICE explicit Arrivals(const GatheredGemmArguments& arguments)
      : arguments_(arguments),
        waiter_(arguments.group.watch),
        expected_(epoch_of(arguments)) {}

  // Waits until the chunk with row `row` of the shard has arrived and this thread sees its bytes.
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

// Waits until a member has entered the call (GatherMode::push_at_once). Called by one thread.
SYMMEM_DEVICE bool until_member_entered(const GatheredGemmArguments& arguments, Waiter& waiter, uint32 epoch,
                                        uint32 member) {
  const CollectiveGroup& group = arguments.group;
  if (member == group.rank) return true;
  const uint32 kind = static_cast<uint32>(WaitKind::collective) + group.operation;
  const uint32* word = pointer<const uint32>(group.slots[group.rank] + member * signal_stride);
  return waiter.until_reached(word, epoch, static_cast<WaitKind>(kind), group.members[member], group.slot);
}

// One warp's waits for chunks, if its GEMM reads all of A from `gathered`. Calls `ready()` after the waits for each
// shard. After a wait that gave up, a thread waits no more, as above.
template <class Ready>
class WarpArrivals {
 public:
  SYMMEM_DEVICE WarpArrivals(const GatheredGemmArguments& arguments, uint32 epoch, Ready ready)
      : arguments_(arguments), waiter_(arguments.group.watch), expected_(epoch), ready_(ready) {}

  // Waits for `rows` rows from `row` on, in all shards that have some of them. For an A sharded by rows. Called by
  // every thread of the warp.
  SYMMEM_DEVICE void until_rows(uint64 row, uint64 rows) {
    const uint64 all = arguments_.shape.m;
    const uint64 end = row + rows < all ? row + rows : all;
    while (row < end) {
      const uint64 shard = row / arguments_.shard;
      const uint64 first = shard * arguments_.shard;
      const uint64 next = first + arguments_.shard < end ? first + arguments_.shard : end;
      until(static_cast<uint32>(shard), row - first, next - first);
      row = next;
    }
  }

  // Waits for these rows of the shard that has the column. For an A sharded by columns. Called by every thread of the
  // warp.
  SYMMEM_DEVICE void until_column(uint64 column, uint64 row, uint64 rows) {
    if (column - known_ < arguments_.shard) return;
    const uint64 all = arguments_.shape.m;
    const uint64 shard = column / arguments_.shard;
    known_ = shard * arguments_.shard;
    until(static_cast<uint32>(shard), row, row + rows < all ? row + rows : all);
  }

 private:
  // Waits for rows `first` to `end` of the shard.
  SYMMEM_DEVICE void until(uint32 shard, uint64 first, uint64 end) {
    const uint64 words = arrival_word(arguments_, arguments_.group.rank, shard, 0);
    const uint32 kind = static_cast<uint32>(WaitKind::collective) + arguments_.group.operation;
    const uint32 lane = arch::thread_index() % arch::warp_size;
    // This rank's shard arrives only after all members have entered, so wait for them, to record the one that is
    // missing.
    const uint32 members = shard == arguments_.group.rank ? arguments_.group.world : 0;
    for (uint32 member = lane; member < members && !gave_up_; member += arch::warp_size) {
      gave_up_ = !until_member_entered(arguments_, waiter_, expected_, member);
    }
    for (uint64 chunk = first / arguments_.chunk + lane; chunk * arguments_.chunk < end; chunk += arch::warp_size) {
      if (gave_up_) break;
      gave_up_ = !waiter_.until_reached(pointer<const uint32>(words + chunk * signal_stride), expected_,
                                        static_cast<WaitKind>(kind), arguments_.group.members[shard],
                                        arguments_.group.slot);
    }
    arch::warp_barrier();
    ready_();
  }

  const GatheredGemmArguments& arguments_;
  Waiter waiter_;
  const uint32 expected_;
  const Ready ready_;
  uint64 known_ = ~0ull >> 1;  // first column of the last shard waited for
  bool gave_up_ = false;
};

// ---- the whole call in one launch (GatherMode::push_at_once) ----

// The threads of a block that gather, here all of them: index, count and barrier.
struct WholeBlock {
  SYMMEM_DEVICE uint32 index() const { return arch::thread_index(); }
  SYMMEM_DEVICE uint32 count() const { return arch::thread_count(); }
  SYMMEM_DEVICE void barrier() const { arch::block_barrier(); }
  SYMMEM_DEVICE bool all(bool condition) const { return arch::block_all(condition); }
};

// Returns the address of this block's count of calls; arrival words reach that count plus 1 in this call. Any thread
// may read it after the stream's earlier kernels have ended; one thread increments it at the end.
SYMMEM_DEVICE uint32* calls_of_block(const GatheredGemmArguments& arguments) {
  return pointer<uint32>(arguments.epoch + arch::block_index() * sizeof(uint32));
}

// Waits until all members have entered the call. Called by all threads of a crew; returns false to all of them if a
// wait gave up.
template <class Crew>
SYMMEM_DEVICE bool until_entered(const GatheredGemmArguments& arguments, uint32 epoch, Crew crew) {
  Waiter waiter(arguments.group.watch);
  bool entered = true;
  for (uint32 member = crew.index(); entered && member < arguments.group.world; member += crew.count()) {
    entered = until_member_entered(arguments, waiter, epoch, member);
  }
  return crew.all(entered);
}

// Pushes the chunks of this rank's shard to all members, and to this rank's gathered A if they are read or kept there.
// One block loads a chunk once and stores it everywhere. First, block 0 signals all members that this rank has entered
// the call and no longer reads the previous call's A; blocks store only after all members have entered. Called by all
// threads of a crew in every block. Addresses and lengths of rows are multiples of 16.
template <class Crew>
SYMMEM_DEVICE void push_at_once(const GatheredGemmArguments& arguments, uint32 epoch, Crew crew) {
  constexpr uint32 unroll = 8;
  const CollectiveGroup& group = arguments.group;
  if (arch::block_index() == 0) {
    arch::release_wave();
    for (uint32 member = crew.index(); member < group.world; member += crew.count()) {
      if (member == group.rank) continue;
      arch::publish_flag(pointer<uint32>(group.slots[member] + group.rank * signal_stride), epoch);
    }
  }
  if (arch::block_index() >= arguments.movers) return;
  const bool by_rows = arguments.sharding == static_cast<uint32>(Sharding::rows);
  const ShardExtent extent = shard_extent(arguments, group.rank);
  const uint64 rows_here = by_rows ? extent.length : arguments.shape.m;
  const uint64 bytes = (by_rows ? arguments.shape.k : extent.length) * gemm_element_bytes;
  const uint64 stride = arguments.shape.a_stride * gemm_element_bytes;
  const uint64 corner = by_rows ? extent.first * stride : extent.first * gemm_element_bytes;
  const uint32 width = static_cast<uint32>(bytes / 16);
  // With sharding by rows, the GEMM reads this rank's rows from the gathered A; with columns, only the caller may.
  const bool keeps = by_rows || arguments.keep != 0;
  bool entered = false;
  for (uint32 chunk = arch::block_index(); chunk < arguments.chunks; chunk += arguments.movers) {
    const uint64 first = chunk * arguments.chunk;
    if (first >= rows_here || width == 0) break;
    const uint64 left = rows_here - first;
    const uint32 count = width * static_cast<uint32>(left < arguments.chunk ? left : arguments.chunk);
    const uint64 from = arguments.sources[group.rank] + first * bytes;
    for (uint32 begin = crew.index(); begin < count || !entered; begin += unroll * crew.count()) {
      arch::Vector16 vectors[unroll];
      SYMMEM_UNROLL
      for (uint32 step = 0; step < unroll; ++step) {
        const uint32 index = begin + step * crew.count();
        if (index < count) vectors[step] = arch::load(pointer<arch::Vector16>(from) + index);
      }
      if (!entered) {
        // A member that has not entered may still read the previous call's A.
        if (!until_entered(arguments, epoch, crew)) return;
        entered = true;
      }
      for (uint32 step = keeps ? 0 : 1; step < group.world; ++step) {
        const uint64 to = arguments.gathered[shard_of_step(group, step)] + corner + first * stride;
        SYMMEM_UNROLL
        for (uint32 next = 0; next < unroll; ++next) {
          const uint32 index = begin + next * crew.count();
          if (index >= count) break;
          const uint32 row = index / width;
          arch::store(pointer<arch::Vector16>(to + row * stride) + (index - row * width), vectors[next]);
        }
      }
    }
    arch::release_wave();
    crew.barrier();
    for (uint32 member = crew.index(); member < group.world; member += crew.count()) {
      arch::publish_flag(pointer<uint32>(arrival_word(arguments, member, group.rank, chunk)), epoch);
    }
  }
}

// ---- moving A ----

// The address of rows of bytes, and the bytes from one row to the next.
struct RowsAt {
  uint64 address;
  uint64 stride;
};

// Copies rows of `bytes` bytes each. Called by every thread of one block.
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

// The same if all addresses, strides and `bytes` are multiples of 16.
//
// A thread's vectors lie `threads` apart, so it divides by the width once, and then steps. With a division for each
// vector, which the compiler placed between the loads, a fused GEMM took 19 % longer (benches/NOTES.md).
struct CopyAlignedRows {
  SYMMEM_DEVICE void operator()(RowsAt to, RowsAt from, uint64 bytes, uint64 rows) const {
    constexpr uint32 unroll = 8;
    const uint32 width = static_cast<uint32>(bytes / 16), height = static_cast<uint32>(rows);
    const Place step = Place::of(arch::thread_count(), width);
    for (Place load = Place::of(arch::thread_index(), width); load.row < height;) {
      Place store = load;
      arch::Vector16 vectors[unroll];
      SYMMEM_UNROLL
      for (uint32 vector = 0; vector < unroll; ++vector) {
        vectors[vector] = load.row < height ? arch::load(load.in(from)) : arch::Vector16{};
        load.advance(step, width);
      }
      SYMMEM_UNROLL
      for (uint32 vector = 0; vector < unroll; ++vector) {
        if (store.row < height) arch::store(store.in(to), vectors[vector]);
        store.advance(step, width);
      }
    }
  }

 private:
  struct Place {
    uint32 row, column;  // the column in vectors

    static SYMMEM_DEVICE Place of(uint32 index, uint32 width) { return {index / width, index % width}; }

    SYMMEM_DEVICE void advance(const Place& step, uint32 width) {
      row += step.row;
      column += step.column;
      if (column >= width) {
        column -= width;
        ++row;
      }
    }

    SYMMEM_DEVICE arch::Vector16* in(RowsAt rows) const {
      return pointer<arch::Vector16>(rows.address + row * rows.stride + column * 16ull);
    }
  };
};

// Moves shards and raises their arrival words to `epoch`. Called by every thread of the movers, the grid's first
// blocks. Each chunk is moved by one block, in turn, the nearest peer's first.
template <class Copy>
SYMMEM_DEVICE void move_shards(const GatheredGemmArguments& given, Copy copy, uint32 epoch) {
  // This rank's shard comes last, if it is kept: nothing waits for it.
  const uint32 items = (given.group.world - 1 + (given.keep != 0 ? 1 : 0)) * given.chunks;
  for (uint32 item = arch::block_index(); item < items; item += read_anew(given).movers) {
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
    publish(pointer<uint32>(word), epoch);
  }
}

}  // namespace symmem
