// From a warpgroup's accumulators to rows of C. Shared by the warpgroup GEMM kernels with large tiles.
#pragma once

#include "gathered_gemm/tensor_gemm.h"

namespace symmem {

SYMMEM_DEVICE uint32 from_lane(uint32 value, uint32 distance) {
  uint32 other;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(other) : "r"(value), "r"(distance));
  return other;
}

// Two lanes exchange words: the upper lane's `low` for the lower lane's `high`.
SYMMEM_DEVICE void swap_words(uint32& low, uint32& high, bool upper, uint32 distance) {
  const uint32 other = from_lane(upper ? low : high, distance);
  low = upper ? other : low;
  high = upper ? high : other;
}

// Transposes the words of four lanes: lane q's word i becomes lane i's word q.
SYMMEM_DEVICE void transpose_quad(uint32 (&words)[4], uint32 quad) {
  swap_words(words[0], words[1], (quad & 1) != 0, 1);
  swap_words(words[2], words[3], (quad & 1) != 0, 1);
  swap_words(words[0], words[2], (quad & 2) != 0, 2);
  swap_words(words[1], words[3], (quad & 2) != 0, 2);
}

// Adds the bias of each column to the accumulators of a warpgroup.
template <bool f16, class Arguments, uint32 count>
SYMMEM_DEVICE void add_bias(const Arguments& arguments, const GemmTile& tile, float (&d)[count]) {
  const uint64 first = tile.column + arch::thread_index() % 4 * 2;
  SYMMEM_UNROLL
  for (uint32 index = 0; index < count; index += 4) {
    SYMMEM_UNROLL
    for (uint32 next = 0; next < 2; ++next) {
      const uint64 column = first + index * 2 + next;
      if (column >= arguments.shape.n) continue;
      const float bias = widen<f16>(arch::load(pointer<const uint16>(arguments.bias) + column));
      d[index + next] += bias;
      d[index + next + 2] += bias;
    }
  }
}

// Stores a warpgroup's 64 rows to C; each lane stores eight neighbors of a row at once.
template <bool f16, class Arguments, uint32 count>
SYMMEM_DEVICE void store_tile(const Arguments& arguments, const GemmTile& tile, uint32 skip, const float (&d)[count]) {
  const uint32 thread = arch::thread_index() % 128;
  const uint32 quad = thread % 4;
  const uint64 row = tile.row + skip + thread / 32 * 16 + thread % 32 / 4;
  const uint64 n = arguments.shape.n;
  const bool vectors = (arguments.c & 15) == 0 && arguments.shape.c_stride % 8 == 0;
  SYMMEM_UNROLL
  for (uint32 eights = 0; eights < count / 16; ++eights) {
    const uint64 column = tile.column + (4 * eights + quad) * 8;
    SYMMEM_UNROLL
    for (uint32 half = 0; half < 2; ++half) {
      arch::Vector16 vector;
      SYMMEM_UNROLL
      for (uint32 word = 0; word < 4; ++word) {
        const uint32 at = (4 * eights + word) * 4 + 2 * half;
        vector.words[word] = narrow<f16>(d[at], d[at + 1]);
      }
      transpose_quad(vector.words, quad);
      const uint64 at = row + 8 * half;
      if (at >= tile.rows_end || column >= n) continue;
      const uint64 address = arguments.c + (at * arguments.shape.c_stride + column) * gemm_element_bytes;
      if (vectors && column + 8 <= n) {
        arch::store(pointer<arch::Vector16>(address), vector);
        continue;
      }
      const uint32 left = n - column < 8 ? static_cast<uint32>(n - column) : 8;
      uint64 low = static_cast<uint64>(vector.words[1]) << 32 | vector.words[0];
      uint64 high = static_cast<uint64>(vector.words[3]) << 32 | vector.words[2];
      SYMMEM_ROLLED
      for (uint32 element = 0; element < left; ++element) {
        arch::store(pointer<uint16>(address) + element, static_cast<uint16>(low));
        low = low >> 16 | high << 48;
        high >>= 16;
      }
    }
  }
}

}  // namespace symmem
