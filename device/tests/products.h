// What the tests of tile GEMMs share: kernels by type, order of B and tile; matrices that their memory ends with; the
// reference in f64; and the memory for parts of tiles.
#pragma once

#include <iterator>

#include "symmem/tile_gemm.h"
#include "world.h"

namespace {

template <class Arguments>
using Kernel = void (*)(const Arguments&);

struct Tile {
  uint32 rows, columns, shared_bytes;
};

template <uint32 rows, uint32 columns>
constexpr Tile tile_of = {rows, columns, gemm_shared_bytes<rows, columns>};

constexpr Tile shapes[] = {tile_of<256, 256>, tile_of<128, 256>, tile_of<256, 128>, tile_of<64, 256>, tile_of<256, 64>};

template <class Arguments>
struct Numbers {
  ElementType type;
  double half_step;  // largest rounding error of a number near 1
  Kernel<Arguments> kernels[2][std::size(shapes)];  // by the order of B
};

#define SYMMEM_TILE_KERNELS(kernel, matrices)                                                  \
  {                                                                                            \
    symmem_##kernel##_##matrices##_256x256, symmem_##kernel##_##matrices##_128x256,            \
        symmem_##kernel##_##matrices##_256x128, symmem_##kernel##_##matrices##_64x256,         \
        symmem_##kernel##_##matrices##_256x64                                                  \
  }

// The Numbers of the kernels of a module.
#define SYMMEM_NUMBERS(kernel)                                                                                             \
  {                                                                                                                        \
    {ElementType::f16, 0x1p-11, {SYMMEM_TILE_KERNELS(kernel, f16_rows), SYMMEM_TILE_KERNELS(kernel, f16_columns)}},        \
        {ElementType::bf16, 0x1p-8, {SYMMEM_TILE_KERNELS(kernel, bf16_rows), SYMMEM_TILE_KERNELS(kernel, bf16_columns)}},  \
  }

template <ElementType type>
using Element = typename ElementOf<type>::Type;

// A type of 8 bits has two elements in the 16 bits of a pair, which are what kernels call an element.
inline bool in_pairs(ElementType type) { return type == ElementType::f8_e4m3; }

// Returns the type of C and the bias.
inline ElementType output_of(ElementType type) { return in_pairs(type) ? ElementType::bf16 : type; }

inline uint16 narrowed(ElementType type, float number) {
  return type == ElementType::f16 ? Element<ElementType::f16>::narrow(number) : Element<ElementType::bf16>::narrow(number);
}

inline float widened(ElementType type, uint16 bits) {
  return type == ElementType::f16 ? Element<ElementType::f16>::widen(bits) : Element<ElementType::bf16>::widen(bits);
}

// A matrix whose memory ends with its last element. The gaps between its rows must not be written.
class Matrix {
 public:
  Matrix(uint64 rows, uint64 columns, uint64 stride, uint64 offset)
      : rows(rows), columns(columns), stride(stride), buffer_(size(rows, columns, stride), offset) {}

  uint64 at(uint64 row = 0, uint64 column = 0) const { return buffer_.at((row * stride + column) * gemm_element_bytes); }
  uint16 get(uint64 row, uint64 column) const {
    uint16 bits;
    std::memcpy(&bits, place(row, column), sizeof bits);
    return bits;
  }
  void set(uint64 row, uint64 column, uint16 bits) {
    std::memcpy(const_cast<void*>(place(row, column)), &bits, sizeof bits);
  }
  // Sets all memory to what it was at first.
  void poison() { std::fill(buffer_.memory.begin(), buffer_.memory.end(), uint8(untouched)); }
  bool between_is_untouched() const {
    for (uint64 row = 0; row + 1 < rows; ++row)
      for (uint64 column = columns; column < stride; ++column)
        if (get(row, column) != untouched) return false;
    return true;
  }

  static constexpr uint16 untouched = 0xA5A5;
  uint64 rows, columns, stride;

 private:
  static uint64 size(uint64 rows, uint64 columns, uint64 stride) {
    return rows == 0 || columns == 0 ? 0 : ((rows - 1) * stride + columns) * gemm_element_bytes;
  }
  const void* place(uint64 row, uint64 column) const { return reinterpret_cast<const void*>(at(row, column)); }

  Buffer buffer_;
};

// Draws elements from -1 to 1; of 8 bits all that are numbers, as often -0 as any other.
inline uint16 drawn(ElementType type, Random& random) {
  if (!in_pairs(type)) return narrowed(type, static_cast<float>(up_to(random, 1u << 20)) * 0x1p-19f - 1);
  uint32 bits = up_to(random, 0xffff);
  for (const uint32 all : {0x7fu, 0x7f00u})
    if ((bits & all) == all) bits ^= all;
  return static_cast<uint16>(bits);
}

inline void draw(Matrix& matrix, ElementType type, Random& random) {
  for (uint64 row = 0; row < matrix.rows; ++row)
    for (uint64 column = 0; column < matrix.columns; ++column) matrix.set(row, column, drawn(type, random));
}

// ---- the reference ----

// Returns element `place` along the depth of what `pairs` has there: an element, or pairs.
template <class Pairs>
double along_depth(ElementType type, uint64 place, Pairs pairs) {
  if (!in_pairs(type)) return widened(type, pairs(place));
  return Element<ElementType::f8_e4m3>::widen(static_cast<uint8>(pairs(place / 2) >> place % 2 * 8));
}

// Returns the elements of the depth in `length` elements or pairs.
inline uint64 depth_of(ElementType type, uint64 length) { return in_pairs(type) ? 2 * length : length; }

// Returns the elements of B, row by row.
inline std::vector<double> widened_b(const Matrix& b, MatrixOrder order, ElementType type) {
  const bool by_rows = order == MatrixOrder::rows;
  std::vector<double> right;
  for (uint64 place = 0; place < depth_of(type, by_rows ? b.rows : b.columns); ++place)
    for (uint64 column = 0; column < (by_rows ? b.columns : b.rows); ++column)
      right.push_back(along_depth(type, place, [&](uint64 depth) { return by_rows ? b.get(depth, column) : b.get(column, depth); }));
  return right;
}

// Adds the product of a row of A and B to `sums`, and the magnitudes of what it adds to `sizes`.
inline void add_product(const double* left, const std::vector<double>& right, std::vector<double>& sums,
                        std::vector<double>& sizes) {
  const uint64 n = sums.size(), k = right.size() / n;
  for (uint64 depth = 0; depth < k; ++depth) {
    for (uint64 column = 0; column < n; ++column) {
      const double product = left[depth] * right[depth * n + column];
      sums[column] += product;
      sizes[column] += std::fabs(product);
    }
  }
}

// ---- parts of tiles ----

// Draws how the last round is divided: 0, for not at all, in a third of the cases. `tiles`: the tiles of the last round, if
// it does not fill the grid.
inline uint32 draw_quota(Random& random, uint32 tiles, uint64 k, uint32 blocks) {
  const uint32 steps = static_cast<uint32>((k + gemm_depth - 1) / gemm_depth);
  if (tiles == 0 || steps == 0 || up_to(random, 2) == 0) return 0;
  const uint32 least = (tiles * steps + blocks - 1) / blocks;
  return least + up_to(random, steps - least);
}

// Return the bytes of the memory for parts of tiles, as large as the backend provides it: of the counters of a grid, and of the
// places behind them.
inline uint64 part_counters_bytes(uint32 blocks) {
  return (blocks * sizeof(uint32) + signal_stride - 1) / signal_stride * signal_stride;
}
inline uint64 part_places_bytes(const Tile& tile, uint64 k, uint32 quota, uint32 last_tiles) {
  if (quota == 0) return 0;
  const uint64 steps = last_tiles * ((k + gemm_depth - 1) / gemm_depth), places = (steps + quota - 1) / quota + last_tiles;
  return places * tile.rows * tile.columns * sizeof(float);
}

// Returns whether the counters are ready for the next call.
inline bool part_counters_are_zero(const void* memory, uint32 blocks) {
  const uint32* counters = static_cast<const uint32*>(memory);
  return std::all_of(counters, counters + blocks, [](uint32 counter) { return counter == 0; });
}

}  // namespace
