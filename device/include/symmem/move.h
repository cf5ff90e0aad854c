// Copies between two barriers of a group.
#pragma once

#include "symmem/copy.h"
#include "symmem/group.h"

namespace symmem {

// Calls `move(destination, source, bytes, share)` for each copy, between two barriers. `concurrent` copies run at once,
// but at most one per block.
template <class Move>
SYMMEM_DEVICE void between_barriers(const MoveArguments& arguments, Move move) {
  const uint32 blocks = arch::block_count();
  const uint32 block = arch::block_index();
  uint32 concurrent = arguments.concurrent;
  if (concurrent > arguments.copies) concurrent = arguments.copies;
  if (concurrent > blocks) concurrent = blocks;
  if (concurrent == 0) concurrent = 1;
  const uint32 lane = block % concurrent;
  // The blocks of this lane share its copies.
  const Share share = {block / concurrent, (blocks - lane + concurrent - 1) / concurrent};
  enter_collective();
  Members members(arguments.group);
  if (members.barrier(Tells::entered)) {
    for (uint32 copy = lane; copy < arguments.copies; copy += concurrent) {
      const uint64 destination = arguments.destinations[copy];
      const uint64 source = arguments.sources[copy];
      if (destination != source) move(destination, source, arguments.bytes[copy], share);
    }
    members.barrier(Tells::stored);
  }
  members.leave();
}

struct CopyMove {
  SYMMEM_DEVICE void operator()(uint64 destination, uint64 source, uint64 bytes, Share share) const {
    copy_vector<8>(destination, source, bytes, share);
  }
};

// Copies as MoveArguments says. Called by every thread of every block.
SYMMEM_DEVICE void collective_move(const MoveArguments& arguments) { between_barriers(arguments, CopyMove{}); }

}  // namespace symmem
