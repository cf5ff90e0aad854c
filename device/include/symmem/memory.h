// Publishing data to other devices and waiting for theirs: the two ordering rules, in one place.
//
// 1. A fence is taken to cover no more than the wave that issues it: every storing wave releases before
//    the block barrier.
// 2. The flag is a relaxed store behind a system release, never a release store alone (LLVM up to 22 may
//    let a release store overtake a write-back: see the arch headers).
#pragma once

#include "symmem/arch.h"

namespace symmem {

template <class T>
SYMMEM_DEVICE T* pointer(uint64 address) {
  return reinterpret_cast<T*>(address);
}

// Called by every thread of one block after its stores: makes them visible to whoever sees `value` in
// `word` through acquire_flag.
SYMMEM_DEVICE void publish(uint32* word, uint32 value) {
  arch::release_wave();
  arch::block_barrier();
  if (arch::thread_index() == 0) arch::publish_flag(word, value);
}

// Whether an epoch has reached another. Epochs wrap: those less than 2^31 ahead have reached it.
SYMMEM_DEVICE bool reached(uint32 seen, uint32 expected) {
  return static_cast<int>(seen - expected) >= 0;
}

// Advances a counter in this device's memory and returns its new value; `value` where there is none. One
// thread of one grid at a time may do so: grids that share a counter are ordered by their stream.
SYMMEM_DEVICE uint32 advance(uint64 epoch, uint32 value) {
  if (epoch == 0) return value;
  uint32* counter = pointer<uint32>(epoch);
  const uint32 next = arch::load_relaxed(counter) + 1;
  arch::store_relaxed(counter, next);
  return next;
}

}  // namespace symmem
