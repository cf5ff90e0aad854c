// The rounds of a tile GEMM, in which a block takes a tile each, and the last one, which may be divided: if it has fewer
// tiles than there are blocks, several blocks can multiply one tile.
//
// The depth of a tile has steps of `gemm_depth`. In a divided round, the steps of all its tiles are numbered tile by tile,
// and each block takes the next `quota` of them: of one tile, or of the end of one and the beginning of the next ("stream-K",
// Osama et al., arXiv 2301.03598; "split-K" where a tile's steps are a multiple of the quota). A block that has not multiplied
// all steps of a tile keeps its sums in memory, and counts that. The tile's last block to count adds the sums of all, in
// the order of their steps, so the result does not depend on which that is. No block waits for another.
#pragma once

#include "symmem/gemm_stage.h"

#if SYMMEM_HAS_MATRIX

namespace symmem {

// Steps `first` to before `end` of tile `tile`, which is number `index` of its round. `passed`: how far the block is behind it.
struct TilePart {
  uint32 tile, index;
  uint32 first, end;
  uint32 passed;
};

// Returns the steps of the whole depth.
SYMMEM_DEVICE uint32 steps_of(const GemmShape& shape) {
  return (static_cast<uint32>(shape.k) + gemm_depth - 1) / gemm_depth;
}

// Returns the number of the grid's first blocks that compute no tiles.
SYMMEM_DEVICE uint32 movers_of(const GatheredGemmArguments& arguments) { return arguments.movers; }
SYMMEM_DEVICE uint32 movers_of(const ReducedGemmArguments&) { return 0; }

// Returns the tile that a computing block takes among `tiles`, at most one per block. Blocks go to a device's dies in
// turn. The blocks of one die take adjacent tiles, whose rows and columns its L2 cache then loads once.
SYMMEM_DEVICE uint32 tile_of_block(uint32 block, uint32 tiles) {
  const uint32 die = block % arch::dies;
  return tiles / arch::dies * die + least(die, tiles % arch::dies) + block / arch::dies;
}

// Returns this block's number among those that compute.
template <class Arguments>
SYMMEM_DEVICE uint32 computing_block(const Arguments& arguments) {
  return arch::block_index() - movers_of(arguments);
}

// The parts of tiles that this block multiplies, one after the other. Between them an object keeps only their number, since
// registers are few.
template <class Arguments>
class GemmRounds {
 public:
  SYMMEM_DEVICE GemmRounds(const Arguments& arguments, uint32 tiles)
      : arguments_(arguments), tiles_(arch::per_thread(tiles)) {}

  // Finds the current part. Returns false if there is none left.
  SYMMEM_DEVICE bool find(TilePart& part) const {
    const Arguments& arguments = read_anew(arguments_);
    const uint32 blocks = arch::block_count() - movers_of(arguments), block = computing_block(arguments);
    const uint32 tiles = arch::uniform(tiles_), done = arch::uniform(done_), full = tiles / blocks;
    const uint32 steps = steps_of(arguments.shape), quota = arguments.quota, last = tiles - full * blocks;
    if (done < full || quota == 0) {
      const uint32 round = done < full ? blocks : last;
      part = {done * blocks + tile_of_block(block, round), 0, 0, steps, 1};
      return done <= full && block < round;
    }
    const uint32 at = block * quota + done - full, end = least((block + 1) * quota, last * steps);
    if (at >= end) return false;
    const uint32 index = at / steps, first = at - index * steps, until = least(first + end - at, steps);
    part = {full * blocks + index, index, first, until, until - first};
    return true;
  }

  // Goes on to the next part.
  SYMMEM_DEVICE void pass(const TilePart& part) { done_ = arch::per_thread(done_ + part.passed); }

 private:
  const Arguments& arguments_;
  const uint32 tiles_;
  uint32 done_ = arch::per_thread(0u);  // whole rounds; in a divided round, plus the steps of this block that are done
};

// The sums of the blocks that share a tile. `memory` has a counter for each block of the grid, of which the tiles of the
// divided round use the first, and then places of `bytes`. Those of a tile's blocks lie in their order, and those of tile i + 1
// follow those of tile i; a block with parts of two tiles has the last place of one and the first of the next.
class PartialSums {
 public:
  template <class Arguments>
  SYMMEM_DEVICE PartialSums(const Arguments& arguments, uint64 memory, const TilePart& part, uint32 bytes)
      : counter_(pointer<uint32>(memory) + part.index) {
    const uint32 steps = steps_of(arguments.shape), quota = arguments.quota;
    const uint32 first = part.index * steps / quota;
    blocks_ = ((part.index + 1) * steps - 1) / quota - first + 1;
    own_ = computing_block(arguments) - first;
    const uint64 counters = (arch::block_count() * sizeof(uint32) + signal_stride - 1) / signal_stride * signal_stride;
    first_ = memory + counters + static_cast<uint64>(first + part.index) * bytes;
    bytes_ = bytes;
  }

  // Returns the number of the tile's blocks.
  SYMMEM_DEVICE uint32 blocks() const { return blocks_; }
  // Returns where a block of the tile keeps its sums.
  SYMMEM_DEVICE uint64 place(uint32 block) const { return first_ + static_cast<uint64>(block) * bytes_; }
  SYMMEM_DEVICE uint64 own_place() const { return place(own_); }

  // Counts that this block has kept its sums. Returns whether all have; this block then sees all sums. Called by every
  // thread, with room for the votes of a block in shared memory.
  SYMMEM_DEVICE bool all_kept(uint32* votes) const {
    arch::release_wave();
    arch::block_barrier();
    bool all = true;
    if (arch::thread_index() == 0) {
      all = arch::arrive(counter_) == blocks_ - 1;
      if (all) arch::reset(counter_);
    }
    return arch::block_all(all, votes);
  }

 private:
  uint32* counter_;
  uint64 first_;
  uint32 bytes_, blocks_, own_;
};

}  // namespace symmem

#endif  // SYMMEM_HAS_MATRIX
