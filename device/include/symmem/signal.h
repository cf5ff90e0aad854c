// Giving a signal from a grid of any number of blocks.
#pragma once

#include "symmem/memory.h"

namespace symmem {

// Called once by every thread of every block, after its stores: once all blocks have called it, one
// thread writes the signal, and whoever sees it sees every store. Bulk stores must be complete
// (bulk_wait_complete by the thread that issued them) before the call. Does nothing without a word.
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
