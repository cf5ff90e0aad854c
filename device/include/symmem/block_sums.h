// Reductions over the threads of a block, always in the same order: a line at a time, then line after line.
#pragma once

#include "symmem/arch.h"

namespace symmem {

// It uses the block's dynamic shared memory: two numbers for each line of threads. Blocks have whole warps. Every thread makes the
// same calls.
class BlockSums {
 public:
  SYMMEM_DEVICE float sum(float value) {
    SYMMEM_UNROLL
    for (uint32 distance = arch::line_threads / 2; distance != 0; distance /= 2) {
      value += arch::float_of(arch::line_exchange(arch::bits_of(value), distance));
    }
    const float* lines = shown(value);
    // Four sums, so that no addition waits for the one right before it.
    float parts[4] = {};
    SYMMEM_ROLLED
    for (uint32 line = 0; line < count(); line += 4) {
      SYMMEM_UNROLL
      for (uint32 part = 0; part < 4; ++part) parts[part] += line + part < count() ? lines[line + part] : 0;
    }
    return (parts[0] + parts[1]) + (parts[2] + parts[3]);
  }

  // Returns the largest of the block's numbers. They are at least 0, and a NaN may be left out; as in the next function.
  SYMMEM_DEVICE float maximum(float value) { return largest(line_maximum<arch::line_threads>(value), 0, count()); }

  // The same for `width` adjacent threads, of which the first has a multiple of `width` as index. Both are powers of two.
  template <uint32 width>
  SYMMEM_DEVICE float maximum_of(float value) {
    if (width <= arch::line_threads) return line_maximum<width>(value);
    constexpr uint32 lines = width / arch::line_threads;
    return largest(line_maximum<arch::line_threads>(value), arch::thread_index() / width * lines, lines);
  }

 private:
  template <uint32 width>
  SYMMEM_DEVICE static float line_maximum(float value) {
    SYMMEM_UNROLL
    for (uint32 distance = width / 2; distance != 0; distance /= 2) {
      const float other = arch::float_of(arch::line_exchange(arch::bits_of(value), distance));
      value = other > value ? other : value;
    }
    return value;
  }

  // Returns the largest of the values of `lines` lines from `first` on.
  SYMMEM_DEVICE float largest(float value, uint32 first, uint32 lines) {
    const float* shown_lines = shown(value);
    float most = 0;
    for (uint32 line = first; line < first + lines && line < count(); ++line) {
      most = shown_lines[line] > most ? shown_lines[line] : most;
    }
    return most;
  }

  SYMMEM_DEVICE static uint32 count() { return arch::thread_count() / arch::line_threads; }

  // Shows the value of each line's first thread to all threads. The next call uses the other half, so that no thread overwrites
  // what another still reads.
  SYMMEM_DEVICE const float* shown(float value) {
    float* lines = reinterpret_cast<float*>(arch::dynamic_shared()) + half_ * count();
    half_ ^= 1;
    const uint32 thread = arch::thread_index();
    if (thread % arch::line_threads == 0) lines[thread / arch::line_threads] = value;
    arch::block_barrier();
    return lines;
  }

  uint32 half_ = 0;
};

}  // namespace symmem
