// A warpgroup's mailbox: memory that its accumulators pass through on their way to and from other ranks. The warpgroup
// writes or reads shared memory and multiplies on, while another warp lets bulk copies carry the bytes over the link:
// stores of the warpgroup itself would wait for the link, and the matrix units with them.
//
// A box holds one piece at a time. A piece is up to 16 vectors of 16 bytes of each thread, in the order of the
// accumulators, so that the same thread of the owner reads them back; or 64 rows of the finished sum.
#pragma once

#include "gathered_gemm/tile_ring.h"
#include "gathered_gemm/tile_store.h"

namespace symmem {

constexpr uint32 piece_vectors = 16;
// Bytes of a warp's vectors.
constexpr uint32 vector_bytes = arch::warp_size * 16;
// Bytes from a row of the finished sum to the next. Two rows, whose vectors are written at once, lie in different banks.
constexpr uint32 row_stride = tile_columns * gemm_element_bytes + 64;
constexpr uint32 warp_rows = 16;
constexpr uint32 region_bytes = warp_rows * row_stride;
static_assert(piece_vectors * vector_bytes <= region_bytes, "a piece does not fit");

struct Mailbox {
  uint32 base;  // a multiple of 128

  static constexpr uint32 bytes = 4 * region_bytes + 128;

  // Each of the four warps has a region.
  SYMMEM_DEVICE uint32 region(uint32 warp) const { return base + 128 + warp * region_bytes; }
  // Barriers: all warps have written a piece to send, or have read one; a piece has been loaded; what was sent has left.
  SYMMEM_DEVICE uint32 ready() const { return base; }
  SYMMEM_DEVICE uint32 loaded() const { return base + 8; }
  SYMMEM_DEVICE uint32 sent() const { return base + 16; }

  SYMMEM_DEVICE void initialise() const {
    barrier_initialise(ready(), 4);
    barrier_initialise(loaded(), 1);
    barrier_initialise(sent(), 1);
  }
};

// The number of vectors of a thread's `count` accumulators. `wide`: they travel as f32, otherwise as elements.
template <bool wide, uint32 count>
constexpr uint32 vectors_of = count / (wide ? 4 : 8);

// The warpgroup's side of its mailbox. All functions are called by every thread of the warpgroup.
class Sender {
 public:
  SYMMEM_DEVICE explicit Sender(Mailbox box) : box_(box) {}

  // Sends the accumulators.
  template <bool f16, bool wide, uint32 count>
  SYMMEM_DEVICE void send(const float (&d)[count]) {
    constexpr uint32 vectors = vectors_of<wide, count>;
    const uint32 at = own_vectors();
    SYMMEM_UNROLL
    for (uint32 first = 0; first < vectors; first += piece_vectors) {
      until_sent();
      SYMMEM_UNROLL
      for (uint32 index = 0; index < piece_vectors && first + index < vectors; ++index) {
        const uint32 vector = first + index;
        arch::Vector16 value;
        SYMMEM_UNROLL
        for (uint32 word = 0; word < 4; ++word) {
          value.words[word] = wide ? arch::bits_of(d[(vector * 4 + word) % count])
                                   : narrow<f16>(d[(vector * 8 + word * 2) % count], d[(vector * 8 + word * 2 + 1) % count]);
        }
        store_shared(at + index * vector_bytes, value);
      }
      written();
    }
  }

  // Adds what has been loaded to the accumulators.
  template <bool f16, bool wide, uint32 count>
  SYMMEM_DEVICE void add(float (&d)[count]) {
    constexpr uint32 vectors = vectors_of<wide, count>;
    const uint32 at = own_vectors();
    SYMMEM_UNROLL
    for (uint32 first = 0; first < vectors; first += piece_vectors) {
      barrier_wait(box_.loaded(), loads_ & 1);
      ++loads_;
      SYMMEM_UNROLL
      for (uint32 index = 0; index < piece_vectors && first + index < vectors; ++index) {
        const uint32 vector = first + index;
        const arch::Vector16 value = load_shared(at + index * vector_bytes);
        SYMMEM_UNROLL
        for (uint32 word = 0; word < 4; ++word) {
          if (wide) {
            d[(vector * 4 + word) % count] += arch::float_of(value.words[word]);
          } else {
            d[(vector * 8 + word * 2) % count] += widen<f16>(static_cast<uint16>(value.words[word]));
            d[(vector * 8 + word * 2 + 1) % count] += widen<f16>(static_cast<uint16>(value.words[word] >> 16));
          }
        }
      }
      ready();
    }
  }

  // Sends the rows of the finished sum, rounded to elements.
  template <bool f16, uint32 count>
  SYMMEM_DEVICE void send_rows(const float (&d)[count]) {
    const uint32 lane = arch::thread_index() % arch::warp_size;
    const uint32 quad = lane % 4;
    const uint32 at = region() + lane / 4 * row_stride + quad * 16;
    until_sent();
    SYMMEM_UNROLL
    for (uint32 eights = 0; eights < count / 16; ++eights) {
      SYMMEM_UNROLL
      for (uint32 half = 0; half < 2; ++half) {
        arch::Vector16 vector;
        SYMMEM_UNROLL
        for (uint32 word = 0; word < 4; ++word) {
          const uint32 first = (4 * eights + word) * 4 + 2 * half;
          vector.words[word] = narrow<f16>(d[first], d[first + 1]);
        }
        transpose_quad(vector.words, quad);
        store_shared(at + 8 * half * row_stride + eights * 64, vector);
      }
    }
    written();
  }

 private:
  static SYMMEM_DEVICE void store_shared(uint32 address, const arch::Vector16& value) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.words[0]), "r"(value.words[1]),
                 "r"(value.words[2]), "r"(value.words[3])
                 : "memory");
  }
  static SYMMEM_DEVICE arch::Vector16 load_shared(uint32 address) {
    arch::Vector16 value;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.words[0]), "=r"(value.words[1]), "=r"(value.words[2]), "=r"(value.words[3])
                 : "r"(address)
                 : "memory");
    return value;
  }

  SYMMEM_DEVICE uint32 region() const { return box_.region(arch::thread_index() / arch::warp_size % 4); }
  SYMMEM_DEVICE uint32 own_vectors() const { return region() + arch::thread_index() % arch::warp_size * 16; }

  SYMMEM_DEVICE void until_sent() {
    barrier_wait(box_.sent(), (sends_ & 1) ^ 1);
    ++sends_;
  }
  SYMMEM_DEVICE void ready() const {
    arch::warp_barrier();
    if (arch::thread_index() % arch::warp_size == 0) barrier_arrive(box_.ready());
  }
  // The bulk stores read what these threads wrote.
  SYMMEM_DEVICE void written() const {
    arch::fence_async_proxy();
    ready();
  }

  const Mailbox box_;
  uint32 sends_ = 0, loads_ = 0;
};

}  // namespace symmem
