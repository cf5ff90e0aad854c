// A product of matrices that gathers its A meanwhile: which tile comes next, when its part of A is there, and
// the blocks that move A. How a tile is multiplied is each target's own; see GatheredGemmArguments.
//
// The first blocks of the grid may move A: they load the peers' shards, or store the own one at the peers, each
// row block once, and raise an arrival word for each chunk. All others compute tiles. A computing block waits for
// what raises its words, and for nothing else: copy engines, or movers, which are resident with it or in a
// peer's grid and wait for nobody. In a grid that is the whole call (GatherMode::push_at_once) movers compute, too,
// once they have stored, and before that wait until all ranks' grids have begun.
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
// cache. Where A is divided by columns all of its rows are one range. Tiles of rows come `together`: as many one
// below the other follow each other, and a range is filled up with tiles that have no rows. A band is some of them.
class TileWalk {
 public:
  SYMMEM_DEVICE TileWalk(const GatheredGemmArguments& arguments, uint32 tile_rows, uint32 tile_columns, uint32 band,
                         uint32 together)
      : arguments_(arguments), tile_rows_(tile_rows), tile_columns_(tile_columns), band_(band), together_(together) {
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

  // Tiles of the first range. These three are asked before the first tile is looked for.
  SYMMEM_DEVICE uint32 first_range() const { return row_tiles_ * columns_; }

  // Tiles in all.
  SYMMEM_DEVICE uint32 count() const {
    TileWalk ranges = *this;
    uint32 tiles = 0;
    do {
      tiles += ranges.row_tiles_ * columns_;
      ++ranges.range_;
    } while (ranges.enter());
    return tiles;
  }

  // Tiles of the bands that have rows of the last chunk.
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

// The value that arrival words reach in a call behind a barrier.
SYMMEM_DEVICE uint32 epoch_of(const GatheredGemmArguments& arguments) {
  return arch::load_relaxed(pointer<const uint32>(arguments.epoch));
}

// The word at a member that says that a chunk of a shard is there.
SYMMEM_DEVICE uint64 arrival_word(const GatheredGemmArguments& arguments, uint32 at, uint32 shard, uint64 chunk) {
  return arguments.arrivals[at] + (static_cast<uint64>(shard) * arguments.chunks + chunk) * signal_stride;
}

// One thread's waits for chunks of A. After one that gave up it waits no more, and the block goes on with
// whatever is there: the call has failed by then, and its output is undefined.
class Arrivals {
 public:
  SYMMEM_DEVICE explicit Arrivals(const GatheredGemmArguments& arguments)
      : arguments_(arguments),
        waiter_(arguments.group.watch),
        expected_(epoch_of(arguments)) {}

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

// Until a member has come to a call that is its own barrier (GatherMode::push_at_once), by one thread.
SYMMEM_DEVICE bool until_member_entered(const GatheredGemmArguments& arguments, Waiter& waiter, uint32 epoch,
                                        uint32 member) {
  const CollectiveGroup& group = arguments.group;
  if (member == group.rank) return true;
  const uint32 kind = static_cast<uint32>(WaitKind::collective) + group.operation;
  const uint32* word = pointer<const uint32>(group.slots[group.rank] + member * signal_stride);
  return waiter.until_reached(word, epoch, static_cast<WaitKind>(kind), group.members[member], group.slot);
}

// The waits of a warp whose product reads nothing but `gathered`, for all chunks that it has to read from. What is there
// is made ready by `ready()`, once a shard. After one that gave up a thread waits no more, as above.
template <class Ready>
class WarpArrivals {
 public:
  SYMMEM_DEVICE WarpArrivals(const GatheredGemmArguments& arguments, uint32 epoch, Ready ready)
      : arguments_(arguments), waiter_(arguments.group.watch), expected_(epoch), ready_(ready) {}

  // Called by every thread of the warp: until so many rows are there, of all shards that have some of them. A is
  // divided by rows.
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

  // Called by every thread of the warp: until those rows of the shard that has the column are there. A is divided by
  // columns.
  SYMMEM_DEVICE void until_column(uint64 column, uint64 row, uint64 rows) {
    if (column - known_ < arguments_.shard) return;
    const uint64 all = arguments_.shape.m;
    const uint64 shard = column / arguments_.shard;
    known_ = shard * arguments_.shard;
    until(static_cast<uint32>(shard), row, row + rows < all ? row + rows : all);
  }

 private:
  // Rows of the shard.
  SYMMEM_DEVICE void until(uint32 shard, uint64 first, uint64 end) {
    const uint64 words = arrival_word(arguments_, arguments_.group.rank, shard, 0);
    const uint32 kind = static_cast<uint32>(WaitKind::collective) + arguments_.group.operation;
    const uint32 lane = arch::thread_index() % arch::warp_size;
    // The own shard comes once all have come to the call: who has not is who is waited for.
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
  uint64 known_ = ~0ull >> 1;  // the first column of the last shard
  bool gave_up_ = false;
};

// ---- the whole call in one launch (GatherMode::push_at_once) ----

// Threads of a block that gather while others do something else: thread `index` of `count`, and their barrier.
struct WholeBlock {
  SYMMEM_DEVICE uint32 index() const { return arch::thread_index(); }
  SYMMEM_DEVICE uint32 count() const { return arch::thread_count(); }
  SYMMEM_DEVICE void barrier() const { arch::block_barrier(); }
  SYMMEM_DEVICE bool all(bool condition) const { return arch::block_all(condition); }
};

// The value that arrival words reach in this call, each block's own count of calls. Read by any thread, once the
// stream's earlier kernels have ended, and raised by one at the end.
SYMMEM_DEVICE uint32* calls_of_block(const GatheredGemmArguments& arguments) {
  return pointer<uint32>(arguments.epoch + arch::block_index() * sizeof(uint32));
}

// Until all members have come to the call. Called by all threads of a crew; false, for all of them: a wait gave up.
template <class Crew>
SYMMEM_DEVICE bool until_entered(const GatheredGemmArguments& arguments, uint32 epoch, Crew crew) {
  Waiter waiter(arguments.group.watch);
  bool entered = true;
  for (uint32 member = crew.index(); entered && member < arguments.group.world; member += crew.count()) {
    entered = until_member_entered(arguments, waiter, epoch, member);
  }
  return crew.all(entered);
}

// The own shard's chunks go to all members, to this rank where they are read or kept there, each by one block, which
// loads it once. First block 0 tells all members that this rank has come to the call, and so no longer reads what the
// last one has gathered; nothing is stored before all have. Called by all threads of a crew in every block. Addresses
// and lengths of rows are multiples of 16.
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
  // Own rows are multiplied from there, together with others; own columns only the caller may want there.
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
        // A member that has not come may still read what the last call has gathered.
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

// Called by every thread of the blocks that move, which are the grid's first. A block moves a chunk alone, and takes
// one of every so many: of the nearest shard first. Arrival words are raised to `epoch`.
template <class Copy>
SYMMEM_DEVICE void move_shards(const GatheredGemmArguments& given, Copy copy, uint32 epoch) {
  // After those of the peers the own shard, where it is kept: nobody waits for that.
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
