// The order of tiles in an all-gather + GEMM (gathered_gemm.h), with the last tiles cut in halves.
#pragma once

#include "symmem/gathered_gemm.h"

namespace symmem {

// The tiles in TileWalk's order. The last tiles are cut in halves if then no block gets more than one half: those of
// the last round, which does not fill the grid, or those of the last chunk, for which all blocks wait. All tiles are
// cut if this rank's own tiles occupy at most half of the blocks. The left halves of `together` tiles come first, then
// their right halves. Between tiles the class keeps only one number, since the multiplying threads have no registers to
// spare. `blocks` blocks compute.
template <uint32 tile_rows, uint32 tile_columns, uint32 band>
class HalvedTiles {
 public:
  SYMMEM_DEVICE HalvedTiles(const GatheredGemmArguments& arguments, uint32 together, uint32 blocks)
      : arguments_(arguments), together_(together) {
    const TileWalk walk = from_the_first();
    const bool waits = arguments.group.world > 1 && arguments.sharding == static_cast<uint32>(Sharding::rows);
    const uint32 tiles = walk.count();
    const auto if_few = [blocks](uint32 some) { return 2 * some <= blocks ? some : 0; };
    const uint32 round = if_few(tiles % blocks), late = waits ? if_few(walk.last_chunk()) : 0;
    whole_ = tiles - (late > round ? late : round);
    if (waits && if_few(walk.first_range()) != 0) whole_ = 0;
    // The right halves would be empty.
    if (arguments.shape.n <= tile_columns / 2) whole_ = tiles;
  }

  // Returns the number of whole tiles, which come first.
  SYMMEM_DEVICE uint32 whole() const { return whole_; }

  // Finds a tile as TileWalk does; `half` says whether it is a half.
  SYMMEM_DEVICE bool find(uint32 index, GemmTile& tile, bool& half) const {
    half = index >= whole_;
    const uint32 halves = half ? (index - whole_) / together_ : 0;
    if (half) index = whole_ + halves / 2 * together_ + (index - whole_) % together_;
    if (!from_the_first().find(index, tile)) return false;
    tile.column += halves % 2 * (tile_columns / 2);
    return true;
  }

 private:
  SYMMEM_DEVICE TileWalk from_the_first() const {
    const GatheredGemmArguments& arguments = read_anew(arguments_);
    // If copy engines deliver chunks shorter than a band, a band waits for its last chunk; halve the bands.
    const bool cut = arguments.mode == static_cast<uint32>(GatherMode::wait) && arguments.chunks > 1;
    const uint32 rows = cut && arguments.chunk < band * tile_rows ? band / 2 : band;
    return TileWalk(arguments, tile_rows, tile_columns, rows, together_);
  }

  const GatheredGemmArguments& arguments_;
  const uint32 together_;
  uint32 whole_;
};

}  // namespace symmem
