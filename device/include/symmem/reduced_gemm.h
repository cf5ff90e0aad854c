// GEMM + reduce-scatter and + all-reduce in one kernel, independent of the target: the order of tiles, the places of
// partial sums and words, and the waits. Each target multiplies and sends tiles in its own way; see
// ReducedGemmArguments.
//
// Each member owns rows of the sum. A rank first computes the tiles of other members' rows, and stores each at its
// owner: in an inbox, with an arrival word. The tiles of its own rows come last, so the peers' partial sums of a tile
// have mostly arrived when a block needs them. Partial sums wait only for all members to have entered, the sum of a tile
// only for partial sums, and the end of a call for sums: no waits form a circle.
#pragma once

#include "symmem/gathered_gemm.h"

namespace symmem {

// The rows of the sum that a member owns: from `first` to before `end`.
struct OwnedRows {
  uint64 first;
  uint64 end;
};

SYMMEM_DEVICE OwnedRows owned_rows(const ReducedGemmArguments& arguments, uint32 member) {
  const uint64 rows = arguments.shape.m;
  const uint64 first = member * arguments.shard;
  if (first >= rows) return {rows, rows};
  return {first, rows - first < arguments.shard ? rows : first + arguments.shard};
}

// A tile of the sum. Its place is in the whole sum, and its shard is the owner. All members number the tiles of an owner
// alike.
struct ReducedTile {
  GemmTile place;
  uint32 number;

  // Returns whether it has rows: empty tiles pad the rows of an owner.
  SYMMEM_DEVICE bool exists() const { return place.row < place.rows_end; }
};

// Returns whether an owner sends its sums to all members.
SYMMEM_DEVICE bool sends_on(const ReducedGemmArguments& arguments) {
  return arguments.all != 0 && arguments.group.world > 1;
}

// The order of a rank's tiles: owner by owner, beginning with the next member, so that at any time the ranks send to
// different members; the own rows come last. The tiles of an owner come in bands as in TileWalk: `band` tiles of rows,
// column by column. `together` tiles below each other are consecutive, and `band` is a multiple. Between tiles an object
// keeps only their number, since the multiplying threads have no registers to spare.
template <uint32 tile_rows, uint32 tile_columns, uint32 band>
class ReducedTiles {
 public:
  SYMMEM_DEVICE ReducedTiles(const ReducedGemmArguments& arguments, uint32 together)
      : arguments_(arguments), together_(together) {
    uint32 row_tiles = 0;
    SYMMEM_ROLLED
    for (uint32 member = 0; member < arguments.group.world; ++member) {
      row_tiles += padded(owned_rows(arguments, member));
    }
    count_ = row_tiles * columns_of(arguments);
  }

  // Returns the number of tiles.
  SYMMEM_DEVICE uint32 count() const { return count_; }

  // Finds a tile before `count`.
  SYMMEM_DEVICE void find(uint32 index, ReducedTile& tile) const {
    const ReducedGemmArguments& arguments = read_anew(arguments_);
    const uint32 columns = columns_of(arguments);
    SYMMEM_ROLLED
    for (uint32 step = 1; step <= arguments.group.world; ++step) {
      const uint32 owner = shard_of_step(arguments.group, step == arguments.group.world ? 0 : step);
      const OwnedRows rows = owned_rows(arguments, owner);
      const uint32 row_tiles = padded(rows);
      if (index >= row_tiles * columns) {
        index -= row_tiles * columns;
        continue;
      }
      const uint32 number = index / (band * columns);
      const uint32 rest = index - number * band * columns;
      const uint32 left = row_tiles - number * band;
      const uint32 height = left < band ? left : band;
      const uint32 column = rest / height;
      const uint32 row = number * band + rest - column * height;
      tile.place.row = rows.first + static_cast<uint64>(row) * tile_rows;
      tile.place.rows_end = rows.end;
      tile.place.column = static_cast<uint64>(column) * tile_columns;
      tile.place.shard = owner;
      tile.number = row * columns + column;
      return;
    }
  }

  // Returns the number of an owner's tiles that have rows. Their numbers begin with 0.
  SYMMEM_DEVICE uint32 existing(uint32 owner) const {
    const OwnedRows rows = owned_rows(arguments_, owner);
    return row_tiles_of(rows.end - rows.first) * columns_of(arguments_);
  }

  // Returns the number of tiles of a full part, for which inboxes and words have room.
  static SYMMEM_DEVICE uint32 most(const ReducedGemmArguments& arguments) {
    const uint64 rows = arguments.shard < arguments.shape.m ? arguments.shard : arguments.shape.m;
    return row_tiles_of(rows) * columns_of(arguments);
  }

 private:
  static SYMMEM_DEVICE uint32 row_tiles_of(uint64 rows) {
    return static_cast<uint32>((rows + tile_rows - 1) / tile_rows);
  }
  static SYMMEM_DEVICE uint32 columns_of(const ReducedGemmArguments& arguments) {
    return static_cast<uint32>((arguments.shape.n + tile_columns - 1) / tile_columns);
  }
  SYMMEM_DEVICE uint32 padded(OwnedRows rows) const {
    return (row_tiles_of(rows.end - rows.first) + together_ - 1) / together_ * together_;
  }

  const ReducedGemmArguments& arguments_;
  const uint32 together_;
  uint32 count_;
};

// Returns the place, at member `at`, of what `from` sends: 0 for the member before it, then the one before that.
SYMMEM_DEVICE uint32 place_of_sender(const CollectiveGroup& group, uint32 at, uint32 from) {
  return (at < from ? at + group.world : at) - from - 1;
}

// Returns the sender with a place at this rank.
SYMMEM_DEVICE uint32 sender_at(const CollectiveGroup& group, uint32 place) {
  const uint32 before = place + 1;
  return group.rank < before ? group.rank + group.world - before : group.rank - before;
}

// The words of a member: those of the members that have entered, signal_stride apart; a count of calls for each block;
// and for each peer's place, tile and part of a tile a word for a partial sum that has arrived, and, behind all these, a
// word for a sum that its owner has stored here.
class ReducedWords {
 public:
  // `tiles`: those of a full part; `parts`: words of a tile.
  SYMMEM_DEVICE ReducedWords(const ReducedGemmArguments& arguments, uint32 tiles, uint32 parts)
      : arguments_(arguments), tiles_(tiles), parts_(parts) {}

  // Returns the word of a member, at member `at`, that says which call it has entered.
  SYMMEM_DEVICE uint32* entered(uint32 at, uint32 member) const {
    return pointer<uint32>(arguments_.words[at] + member * signal_stride);
  }
  // Returns this block's count of calls; one thread increments it when all have read it.
  SYMMEM_DEVICE uint32* calls() const { return pointer<uint32>(own_counts() + arch::block_index() * sizeof(uint32)); }
  // Returns the word of a partial sum from `from` at its owner `at`.
  SYMMEM_DEVICE uint32* arrived(uint32 at, uint32 from, uint32 tile, uint32 part) const {
    return word(at, place_of_sender(arguments_.group, at, from), tile, part);
  }
  // Returns the word of a sum from its owner `from` at member `at`.
  SYMMEM_DEVICE uint32* finished(uint32 at, uint32 from, uint32 tile, uint32 part) const {
    const CollectiveGroup& group = arguments_.group;
    return word(at, group.world - 1 + place_of_sender(group, at, from), tile, part);
  }

 private:
  SYMMEM_DEVICE uint64 counts(uint32 at) const {
    return arguments_.words[at] + arguments_.group.world * signal_stride;
  }
  SYMMEM_DEVICE uint64 own_counts() const { return counts(arguments_.group.rank); }
  SYMMEM_DEVICE uint32* word(uint32 at, uint32 place, uint32 tile, uint32 part) const {
    const uint64 number = (static_cast<uint64>(place) * tiles_ + tile) * parts_ + part;
    return pointer<uint32>(counts(at) + (arch::block_count() + number) * sizeof(uint32));
  }

  const ReducedGemmArguments& arguments_;
  const uint32 tiles_, parts_;
};

// The waits of a warp in one call. After a wait that gave up, it waits no more, and neither sends sums nor raises words,
// since they would lack a part. All functions are called by every thread of the warp.
class ReducedWaits {
 public:
  SYMMEM_DEVICE ReducedWaits(const ReducedGemmArguments& arguments, const ReducedWords& words, uint32 epoch)
      : arguments_(arguments), words_(words), waiter_(arguments.group.watch), epoch_(epoch) {}

  // Returns whether no wait has given up.
  SYMMEM_DEVICE bool good() const { return good_; }

  // Waits until all members have entered.
  SYMMEM_DEVICE void until_entered() {
    const CollectiveGroup& group = arguments_.group;
    bool here = good_;
    for (uint32 member = lane(); here && member < group.world; member += arch::warp_size) {
      if (member != group.rank) here = until(words_.entered(group.rank, member), member);
    }
    good_ = arch::warp_all(here);
  }

  // Waits for a partial sum. Returns good().
  SYMMEM_DEVICE bool until_arrived(uint32 from, uint32 tile, uint32 part) {
    bool here = good_;
    if (here && lane() == 0) here = until(words_.arrived(arguments_.group.rank, from, tile, part), from);
    return good_ = arch::warp_all(here);
  }

  // Waits for this warp's share of the sums of a peer: tiles `first`, `first + step` and so on before `end`, a thread each.
  SYMMEM_DEVICE void until_finished(uint32 owner, uint32 first, uint32 end, uint32 step, uint32 part) {
    bool here = good_;
    for (uint32 tile = first; here && tile < end; tile += step) {
      here = until(words_.finished(arguments_.group.rank, owner, tile, part), owner);
    }
    good_ = arch::warp_all(here);
  }

 private:
  static SYMMEM_DEVICE uint32 lane() { return arch::per_thread(arch::thread_index()) % arch::warp_size; }

  SYMMEM_DEVICE bool until(const uint32* word, uint32 member) {
    const CollectiveGroup& group = arguments_.group;
    const uint32 kind = static_cast<uint32>(WaitKind::collective) + group.operation;
    return waiter_.until_reached(word, epoch_, static_cast<WaitKind>(kind), group.members[member], group.slot);
  }

  const ReducedGemmArguments& arguments_;
  const ReducedWords& words_;
  Waiter waiter_;
  const uint32 epoch_;
  bool good_ = true;
};

// Tells all members that this rank has entered the call. Called by every thread of one warp of the grid.
SYMMEM_DEVICE void tell_entered(const ReducedGemmArguments& arguments, const ReducedWords& words, uint32 epoch) {
  const CollectiveGroup& group = arguments.group;
  for (uint32 member = arch::thread_index() % arch::warp_size; member < group.world; member += arch::warp_size) {
    if (member != group.rank) arch::publish_flag(words.entered(member, group.rank), epoch);
  }
}

}  // namespace symmem
