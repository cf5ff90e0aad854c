// A barrier among ranks: each rank signals all others directly.
#pragma once

#include "symmem/wait.h"

namespace symmem {

// Waits for all ranks. Called by every thread of one block. If it returns true, this block and later kernels see what
// each rank's earlier kernels, and the blocks in this barrier, stored. Returns false if a wait gave up.
SYMMEM_DEVICE bool barrier(const Barrier& arguments) {
  Waiter waiter(arguments.watch);
  uint32* counter = pointer<uint32>(arguments.epoch);
  const uint32 epoch = arch::load_relaxed(counter) + 1;
  const uint32 first = arch::thread_index();
  const uint32 stride = arch::thread_count();
  arch::release_wave();
  arch::block_barrier();
  if (first == 0) arch::store_relaxed(counter, epoch);
  for (uint32 peer = first; peer < arguments.world; peer += stride) {
    if (arguments.peers[peer] != 0) arch::publish_flag(pointer<uint32>(arguments.peers[peer]), epoch);
  }
  bool arrived = true;
  for (uint32 peer = first; arrived && peer < arguments.world; peer += stride) {
    if (arguments.peers[peer] == 0) continue;
    const uint32* word = pointer<uint32>(arguments.own + peer * signal_stride);
    arrived = waiter.until_reached(word, epoch, WaitKind::barrier, peer, arguments.slot);
  }
  return arch::block_all(arrived);
}

}  // namespace symmem
