// Publishing data to other devices, with two ordering rules:
//
// 1. A fence covers only the wave that issues it, so every wave that stored releases before the block barrier.
// 2. The flag is a relaxed store after a system release, never a release store alone: LLVM up to 22 may let a release
//    store overtake a write-back (see arch_hip.h).
#pragma once

#include "symmem/arch.h"

namespace symmem {

template <class T>
SYMMEM_DEVICE T* pointer(uint64 address) {
  return reinterpret_cast<T*>(address);
}

// Makes the stores of one block visible to any thread that sees `value` in `word` and calls acquire_flag. Called by
// every thread of the block after its stores.
SYMMEM_DEVICE void publish(uint32* word, uint32 value) {
  arch::release_wave();
  arch::block_barrier();
  if (arch::thread_index() == 0) arch::publish_flag(word, value);
}

// Returns whether epoch `seen` has reached `expected`. Epochs wrap: `seen` may be up to 2^31 - 1 ahead.
SYMMEM_DEVICE bool reached(uint32 seen, uint32 expected) {
  return static_cast<int>(seen - expected) >= 0;
}

// Advances a counter in this device's memory and returns its new value, or returns `value` if the address is 0. Only
// one thread may do this at a time: grids that share a counter must be ordered by one stream.
SYMMEM_DEVICE uint32 advance(uint64 epoch, uint32 value) {
  if (epoch == 0) return value;
  uint32* counter = pointer<uint32>(epoch);
  const uint32 next = arch::load_relaxed(counter) + 1;
  arch::store_relaxed(counter, next);
  return next;
}

}  // namespace symmem
