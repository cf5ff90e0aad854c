// Signals from a grid of any number of blocks.
#pragma once

#include "symmem/memory.h"

namespace symmem {

// Writes the signal once all blocks have called it; a rank that acquires the signal sees every earlier store of the
// grid. Called once by every thread of every block. Bulk stores must be complete before the call (bulk_wait_complete
// by the thread that issued them). Does nothing if the target's word is 0.
SYMMEM_DEVICE void give_signal(const SignalTarget& target) {
  if (target.word == 0) return;
  arch::release_wave();
  arch::block_barrier();
  if (arch::thread_index() != 0) return;
  const uint32 blocks = arch::block_count();
  if (blocks > 1) {
    uint32* arrivals = pointer<uint32>(target.arrivals);
    if (arch::arrive(arrivals) != blocks - 1) return;
    arch::reset(arrivals);
  }
  arch::publish_flag(pointer<uint32>(target.word), advance(target.epoch, target.value));
}

}  // namespace symmem
