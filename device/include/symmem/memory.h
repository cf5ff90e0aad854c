// Accesses at any address, and publishing data to other devices, with two ordering rules:
//
// 1. A thread publishes for its block only after every wave that stored has called release_wave and then the block
//    barrier. On NVIDIA, release_wave is a fence, since a fence covers only its own warp. On AMD, it waits until the
//    stores are complete, and the write-back of the thread that publishes covers the block.
// 2. The flag is a relaxed store after a system release, never a release store alone: LLVM up to 22 may let a release
//    store overtake a write-back (see arch_hip.h).
#pragma once

#include "symmem/arch.h"

namespace symmem {

// Returns the same arguments, to be read again here. Otherwise the compiler may keep arguments that it reads before a
// loop in scalar registers, which are few on AMD, during the whole loop.
template <class Arguments>
SYMMEM_DEVICE const Arguments& read_anew(const Arguments& arguments) {
  return (&arguments)[arch::anew(0u)];
}

template <class T>
SYMMEM_DEVICE T* pointer(uint64 address) {
  return reinterpret_cast<T*>(address);
}

// Load and store 16 bytes at any address: by one access if it is a multiple of 16, else by words, and the bytes before the
// first word and behind the last one by bytes. (Byte by byte, an all-gather of 1 MiB on two H200s took 9.3 us, by words
// 4.2.)
SYMMEM_DEVICE arch::Vector16 load_anywhere(uint64 source) {
  if ((source & 15) == 0) return arch::load(pointer<const arch::Vector16>(source));
  const uint64 first = source & ~3ull;
  const uint32 before = source & 3;
  uint32 words[5] = {};  // from `first` on
  SYMMEM_UNROLL
  for (uint32 word = 1; word < 4; ++word) words[word] = arch::load(pointer<const uint32>(first) + word);
  if (before == 0) return {{arch::load(pointer<const uint32>(first)), words[1], words[2], words[3]}};
  SYMMEM_UNROLL
  for (uint32 byte = 0; byte < 4; ++byte) {
    const bool behind = byte < before;
    const uint32 bits = arch::load(pointer<const uint8>(first + byte + (behind ? 16 : 0)));
    (behind ? words[4] : words[0]) |= bits << (byte * 8);
  }
  arch::Vector16 value;
  SYMMEM_UNROLL
  for (int word = 0; word < 4; ++word) {
    const uint64 pair = static_cast<uint64>(words[word + 1]) << 32 | words[word];
    value.words[word] = static_cast<uint32>(pair >> (before * 8));
  }
  return value;
}

SYMMEM_DEVICE void store_anywhere(uint64 destination, const arch::Vector16& value) {
  if ((destination & 15) == 0) return arch::store(pointer<arch::Vector16>(destination), value);
  const uint64 first = destination & ~3ull;
  const uint32 before = destination & 3;
  uint32 words[5];  // from `first` on
  SYMMEM_UNROLL
  for (int word = 0; word < 5; ++word) {
    const uint32 low = word == 0 ? 0 : value.words[word - 1];
    const uint32 high = word == 4 ? 0 : value.words[word];
    const uint64 pair = static_cast<uint64>(high) << 32 | low;
    words[word] = static_cast<uint32>(pair >> (32 - before * 8));
  }
  SYMMEM_UNROLL
  for (uint32 word = 1; word < 4; ++word) arch::store(pointer<uint32>(first) + word, words[word]);
  if (before == 0) return arch::store(pointer<uint32>(first), words[0]);
  SYMMEM_UNROLL
  for (uint32 byte = 0; byte < 4; ++byte) {
    const bool behind = byte < before;
    const uint32 bits = (behind ? words[4] : words[0]) >> (byte * 8);
    arch::store(pointer<uint8>(first + byte + (behind ? 16 : 0)), static_cast<uint8>(bits));
  }
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
