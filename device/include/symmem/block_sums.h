// Reductions over the threads of a block, always in the same order: along each line, then over the lines.
#pragma once

#include "symmem/arch.h"

namespace symmem {

// It uses the block's dynamic shared memory: two numbers for each line of threads. Blocks have whole warps, and at most as many
// lines as a line has threads. Every thread makes the same calls, and gets the same number.
//
// Both steps are exchanges along a line. In a loop over the lines instead, each thread would take a dozen instructions a line: with
// 1024 threads that is a microsecond.
class BlockSums {
 public:
  SYMMEM_DEVICE float sum(float value) { return line_sum(of_lines(line_sum(value))); }

  // Returns the largest of the block's numbers. They are at least 0, and a NaN may be left out; as in the next function.
  SYMMEM_DEVICE float maximum(float value) {
    return maximum_of<arch::line_threads>(of_lines(maximum_of<arch::line_threads>(value)));
  }

  // The same for `width` adjacent threads of a line, of which the first has a multiple of `width` as index; a power of two.
  template <uint32 width>
  SYMMEM_DEVICE static float maximum_of(float value) {
    static_assert(width <= arch::line_threads, "threads of several lines");
    SYMMEM_UNROLL
    for (uint32 distance = width / 2; distance != 0; distance /= 2) {
      const float other = exchanged(value, distance);
      value = other > value ? other : value;
    }
    return value;
  }

 private:
  SYMMEM_DEVICE static float exchanged(float value, uint32 distance) {
    return arch::float_of(arch::line_exchange(arch::bits_of(value), distance));
  }

  SYMMEM_DEVICE static float line_sum(float value) {
    SYMMEM_UNROLL
    for (uint32 distance = arch::line_threads / 2; distance != 0; distance /= 2) value += exchanged(value, distance);
    return value;
  }

  // Returns the value of a thread of the line whose number is this thread's place in its own line; 0 if there is no such line. The
  // next call uses the other half, so that no thread overwrites what another still reads.
  SYMMEM_DEVICE float of_lines(float value) {
    const uint32 count = arch::thread_count() / arch::line_threads;
    float* lines = reinterpret_cast<float*>(arch::dynamic_shared()) + half_ * count;
    half_ ^= 1;
    const uint32 thread = arch::thread_index(), place = thread % arch::line_threads;
    if (place == 0) lines[thread / arch::line_threads] = value;
    arch::block_barrier();
    return place < count ? lines[place] : 0;
  }

  uint32 half_ = 0;
};

}  // namespace symmem
