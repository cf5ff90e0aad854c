// In-place all-to-all: swaps bytes between two barriers of a group. In each pair of members, one swaps the first half
// of their data and the other the second half. One thread loads and stores each byte, so no buffer and no ordering is
// needed.
#pragma once

#include "symmem/move.h"

namespace symmem {

// Swaps words, shared among all threads of all sharing blocks. A thread has `unroll` words of each side in flight and
// loads all before it stores the first.
template <int unroll, class Word>
SYMMEM_DEVICE void swap_words(uint64 one, uint64 other, uint64 count, Share share) {
  const uint64 stride = static_cast<uint64>(arch::thread_count()) * share.count;
  uint64 index = static_cast<uint64>(arch::thread_count()) * share.index + arch::thread_index();
  for (; index < count; index += stride * unroll) {
    Word ones[unroll];
    Word others[unroll];
    SYMMEM_UNROLL
    for (int row = 0; row < unroll; ++row) {
      if (index + row * stride >= count) continue;
      ones[row] = arch::load(pointer<const Word>(one) + (index + row * stride));
      others[row] = arch::load(pointer<const Word>(other) + (index + row * stride));
    }
    SYMMEM_UNROLL
    for (int row = 0; row < unroll; ++row) {
      if (index + row * stride >= count) continue;
      arch::store(pointer<Word>(one) + (index + row * stride), others[row]);
      arch::store(pointer<Word>(other) + (index + row * stride), ones[row]);
    }
  }
}

// Swaps sides whose addresses agree modulo a word: aligned words, and the bytes before and after them.
template <int unroll, class Word>
SYMMEM_DEVICE void swap_aligned(uint64 one, uint64 other, uint64 bytes, Share share) {
  uint64 head = (0 - one) & (sizeof(Word) - 1);
  if (head > bytes) head = bytes;
  const uint64 count = (bytes - head) / sizeof(Word);
  const uint64 end = head + count * sizeof(Word);
  swap_words<unroll, Word>(one + head, other + head, count, share);
  swap_words<1, uint8>(one, other, head, share);
  swap_words<1, uint8>(one + end, other + end, bytes - end, share);
}

// Swaps with the widest access that both addresses allow. Called by every thread of every sharing block.
template <int unroll>
SYMMEM_DEVICE void swap_vector(uint64 one, uint64 other, uint64 bytes, Share share) {
  const uint64 difference = one - other;
  if ((difference & 15) == 0) {
    swap_aligned<unroll, arch::Vector16>(one, other, bytes, share);
  } else if ((difference & 7) == 0) {
    swap_aligned<unroll, uint64>(one, other, bytes, share);
  } else if ((difference & 3) == 0) {
    swap_aligned<unroll, uint32>(one, other, bytes, share);
  } else if ((difference & 1) == 0) {
    swap_aligned<unroll, uint16>(one, other, bytes, share);
  } else {
    swap_words<unroll, uint8>(one, other, bytes, share);
  }
}

struct SwapMove {
  SYMMEM_DEVICE void operator()(uint64 destination, uint64 source, uint64 bytes, Share share) const {
    swap_vector<4>(destination, source, bytes, share);
  }
};

// Swaps each source with its destination, as MoveArguments says. Called by every thread of every block.
SYMMEM_DEVICE void collective_swap(const MoveArguments& arguments) { between_barriers(arguments, SwapMove{}); }

}  // namespace symmem
