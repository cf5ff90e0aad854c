// All-gather + GEMM for targets whose matrix instructions work per wave on operands from shared memory. Addresses,
// strides and sizes are arbitrary; aligned data moves 16 bytes at a time.
//
// A block of four waves computes tiles of 128 by 128; each wave computes a quarter as four by four squares, in steps of
// depth 32. During a step, the next operands are loaded to registers, and from there stored to the other of two stages
// in shared memory. This takes one block barrier per step.
#pragma once

#include "symmem/element.h"
#include "symmem/gathered_gemm.h"

#if SYMMEM_HAS_MATRIX

namespace symmem {

constexpr uint32 gemm_threads = 4 * arch::warp_size;
constexpr uint32 gemm_tile = 128;   // rows and columns of a tile
constexpr uint32 gemm_depth = 32;
constexpr uint32 gemm_square = 16;  // rows, columns and depth of a matrix instruction
constexpr uint32 gemm_squares = 4;  // squares of a wave, down and across
// Elements from line to line in shared memory. Lines without gaps would begin in only two banks; lines 18 words apart
// let 16 lanes read 8 bytes each from 32 banks.
constexpr uint32 gemm_pitch = gemm_depth + 4;
constexpr uint32 gemm_operand_elements = gemm_tile * gemm_pitch;
constexpr uint32 gemm_stage_elements = 2 * gemm_operand_elements;
constexpr uint32 gemm_shared_bytes = 2 * gemm_stage_elements * gemm_element_bytes;
// Tiles of rows in a band. On a device with some hundred compute units, the rows of A and the columns of B in use at
// one time are then about equal in number.
constexpr uint32 gemm_band = 16;

// A block's part of a matrix: `lines` lines of `length` adjacent elements; everything else reads as zero.
struct GemmLines {
  uint64 address;
  uint64 stride;  // bytes from line to line
  uint32 lines;
  uint32 length;
  bool vectors;  // whether each eight elements of a line begin at a multiple of 16 bytes

  SYMMEM_DEVICE GemmLines(uint64 matrix, uint64 elements, uint64 line, uint64 first, uint64 lines_there,
                          uint64 length_there)
      : address(arch::per_thread(matrix + (line * elements + first) * gemm_element_bytes)),
        stride(arch::per_thread(elements * gemm_element_bytes)),
        lines(arch::per_thread(static_cast<uint32>(lines_there))),
        length(arch::per_thread(static_cast<uint32>(length_there))),
        vectors(((address | stride) & 15) == 0) {}

  // Loads eight elements of a line from `first` on.
  SYMMEM_DEVICE arch::Vector16 eight(uint32 line, uint32 first) const {
    const uint64 begin = address + line * stride + static_cast<uint64>(first) * gemm_element_bytes;
    if (vectors && line < lines && first + 8 <= length) return arch::load_reused(pointer<const arch::Vector16>(begin));
    arch::Vector16 vector = {};
    if (line >= lines || first >= length) return vector;
    const uint32 left = length - first;
    SYMMEM_UNROLL
    for (uint32 element = 0; element < 8; ++element) {
      if (element >= left) continue;
      const uint32 bits = arch::load(pointer<const uint16>(begin) + element);
      vector.words[element / 2] |= bits << element % 2 * 16;
    }
    return vector;
  }
};

// An operand's next step in the registers of all threads, on its way from global to shared memory. Lines in shared
// memory run along the depth.
class GemmSlice {
 public:
  // Loads from a matrix whose lines run along the depth.
  SYMMEM_DEVICE void load(const GemmLines& from, uint32 depth) {
    SYMMEM_UNROLL
    for (uint32 number = 0; number < vectors; ++number) {
      const uint32 index = arch::thread_index() + number * gemm_threads;
      vectors_[number] = from.eight(index / eights, depth + index % eights * 8);
    }
  }

  SYMMEM_DEVICE void store(uint16* to) const {
    SYMMEM_UNROLL
    for (uint32 number = 0; number < vectors; ++number) {
      const uint32 index = arch::thread_index() + number * gemm_threads;
      uint16* const line = to + index / eights * gemm_pitch + index % eights * 8;
      arch::store_shared(line, joined(vectors_[number].words[0], vectors_[number].words[1]));
      arch::store_shared(line + 4, joined(vectors_[number].words[2], vectors_[number].words[3]));
    }
  }

  // Loads from a matrix whose lines run across the depth. A thread loads eight adjacent elements of two lines at a
  // time; neighboring threads take neighboring pairs of lines, so that their stores go to different banks.
  SYMMEM_DEVICE void load_across(const GemmLines& from, uint32 first_line) {
    SYMMEM_UNROLL
    for (uint32 number = 0; number < vectors; ++number) {
      const uint32 index = arch::thread_index() + number / 2 * gemm_threads;
      vectors_[number] = from.eight(first_line + index % pairs * 2 + number % 2, index / pairs * 8);
    }
  }

  SYMMEM_DEVICE void store_across(uint16* to) const {
    SYMMEM_UNROLL
    for (uint32 number = 0; number < vectors; number += 2) {
      const uint32 index = arch::thread_index() + number / 2 * gemm_threads;
      uint16* const corner = to + index / pairs * 8 * gemm_pitch + index % pairs * 2;
      SYMMEM_UNROLL
      for (uint32 word = 0; word < 4; ++word) {
        const uint32 upper = vectors_[number].words[word], lower = vectors_[number + 1].words[word];
        arch::store_shared(corner + 2 * word * gemm_pitch, (upper & 0xffff) | lower << 16);
        arch::store_shared(corner + (2 * word + 1) * gemm_pitch, upper >> 16 | (lower & 0xffff0000));
      }
    }
  }

 private:
  static constexpr uint32 eights = gemm_depth / 8;
  static constexpr uint32 pairs = gemm_depth / 2;
  static constexpr uint32 vectors = gemm_tile * eights / gemm_threads;
  static_assert(vectors % 2 == 0 && gemm_tile * eights % gemm_threads == 0, "each thread has as much");

  static SYMMEM_DEVICE uint64 joined(uint32 low, uint32 high) { return static_cast<uint64>(high) << 32 | low; }

  arch::Vector16 vectors_[vectors];
};

// A block's tile of C during accumulation.
template <ElementType type, MatrixOrder b_order>
class TileProduct {
 public:
  SYMMEM_DEVICE TileProduct() {
    const uint32 wave = arch::thread_index() / arch::warp_size;
    row_ = wave / 2 * gemm_squares * gemm_square;
    column_ = wave % 2 * gemm_squares * gemm_square;
  }

  SYMMEM_DEVICE void begin() {
    SYMMEM_UNROLL
    for (uint32 down = 0; down < gemm_squares; ++down) {
      SYMMEM_UNROLL
      for (uint32 across = 0; across < gemm_squares; ++across) parts_[down][across] = arch::MatrixPart{};
    }
  }

  // Adds the product of lines of A and B over `depth`. Called by every thread.
  SYMMEM_DEVICE void add(const GemmLines& a, const GemmLines& b, uint32 depth) {
    if (depth == 0) return;
    load(a, b, 0);
    for (uint32 at = 0; at < depth; at += gemm_depth) {
      uint16* const stage = reinterpret_cast<uint16*>(arch::dynamic_shared()) + stage_ * gemm_stage_elements;
      a_.store(stage);
      if (b_order == MatrixOrder::rows) {
        b_.store_across(stage + gemm_operand_elements);
      } else {
        b_.store(stage + gemm_operand_elements);
      }
      // After the barrier, all threads have stored this stage and finished with the other.
      arch::block_barrier();
      if (at + gemm_depth < depth) load(a, b, at + gemm_depth);
      multiply(stage);
      stage_ ^= 1;
    }
  }

  // Stores the part of the tile inside C, rounded once.
  SYMMEM_DEVICE void store(const GatheredGemmArguments& arguments, const GemmTile& tile) const {
    SYMMEM_UNROLL
    for (uint32 across = 0; across < gemm_squares; ++across) {
      SYMMEM_UNROLL
      for (uint32 run = 0; run < arch::matrix_values; run += 4) {
        const uint64 column = tile.column + column_ + across * gemm_square + arch::matrix_column(run);
        if (column >= arguments.shape.n) continue;
        const uint64 left = arguments.shape.n - column;
        const uint32 columns = left < 4 ? static_cast<uint32>(left) : 4;
        float bias[4] = {};
        if (arguments.bias != 0) {
          SYMMEM_UNROLL
          for (uint32 next = 0; next < 4; ++next) {
            if (next < columns) bias[next] = Element::widen(arch::load(pointer<const uint16>(arguments.bias) + column + next));
          }
        }
        SYMMEM_UNROLL
        for (uint32 down = 0; down < gemm_squares; ++down) {
          const uint64 row = tile.row + row_ + down * gemm_square + arch::matrix_row(run);
          if (row >= tile.rows_end) continue;
          uint64 bits = 0;
          SYMMEM_UNROLL
          for (uint32 next = 0; next < 4; ++next) {
            bits |= static_cast<uint64>(Element::narrow(parts_[down][across].values[run + next] + bias[next])) << 16 * next;
          }
          const uint64 address = arguments.c + (row * arguments.shape.c_stride + column) * gemm_element_bytes;
          if (columns == 4 && (address & 7) == 0) {
            arch::store(pointer<uint64>(address), bits);
            continue;
          }
          SYMMEM_UNROLL
          for (uint32 next = 0; next < 4; ++next) {
            if (next < columns) arch::store(pointer<uint16>(address) + next, static_cast<uint16>(bits >> 16 * next));
          }
        }
      }
    }
  }

 private:
  using Element = typename ElementOf<type>::Type;

  SYMMEM_DEVICE void load(const GemmLines& a, const GemmLines& b, uint32 depth) {
    a_.load(a, depth);
    if (b_order == MatrixOrder::rows) {
      b_.load_across(b, depth);
    } else {
      b_.load(b, depth);
    }
  }

  // Multiplies this wave's squares from a stage.
  SYMMEM_DEVICE void multiply(const uint16* stage) {
    const uint16* const a = stage + row_ * gemm_pitch;
    const uint16* const b = stage + gemm_operand_elements + column_ * gemm_pitch;
    SYMMEM_UNROLL
    for (uint32 depth = 0; depth < gemm_depth; depth += gemm_square) {
      SYMMEM_UNROLL
      for (uint32 down = 0; down < gemm_squares; ++down) {
        SYMMEM_UNROLL
        for (uint32 across = 0; across < gemm_squares; ++across) {
          arch::matrix_multiply_add<type>(parts_[down][across], a + down * gemm_square * gemm_pitch + depth, gemm_pitch,
                                          b + across * gemm_square * gemm_pitch + depth, gemm_pitch);
        }
      }
    }
  }

  arch::MatrixPart parts_[gemm_squares][gemm_squares];
  GemmSlice a_, b_;
  uint32 row_, column_;
  uint32 stage_ = 0;
};

// Computes as GatheredGemmArguments says. Called by every thread of every block, with gemm_threads threads and
// gemm_shared_bytes of dynamic shared memory. All sides of the matrices are below 2^31.
template <ElementType type, MatrixOrder b_order>
SYMMEM_DEVICE void gathered_gemm(const GatheredGemmArguments& given) {
  // A vote, since another stream's kernel may see the abort just now.
  if (!arch::block_all(!aborted_before(given.group.watch))) return;
  if (arch::block_index() < given.movers) {
    move_shards(given, CopyAnyRows{}, epoch_of(given));
    return;
  }
  TileWalk walk(given, gemm_tile, gemm_tile, gemm_band, 1);
  Arrivals arrivals(given);
  TileProduct<type, b_order> product;
  GemmTile tile;
  for (uint32 number = arch::block_index(); walk.find(number - read_anew(given).movers, tile);
       number += arch::block_count() - read_anew(given).movers) {
    product.begin();
    // If A is sharded by columns, a tile needs all shards in turn, this rank's first.
    for (uint32 part = 0;; ++part) {
      const GatheredGemmArguments& arguments = read_anew(given);
      const bool by_rows = arguments.sharding == static_cast<uint32>(Sharding::rows);
      if (part == (by_rows ? 1 : arguments.group.world)) break;
      const GemmShape& shape = arguments.shape;
      const uint32 shard = by_rows ? tile.shard : shard_of_step(arguments.group, part);
      const ShardExtent extent = shard_extent(arguments, shard);
      if (extent.length == 0) continue;  // nobody may ever signal its arrival
      const bool own = shard == arguments.group.rank;
      const uint64 row_of_shard = by_rows ? tile.row - extent.first : tile.row;
      if (!own) {
        // One thread acquires; after the barrier, all threads see the chunk.
        if (arch::thread_index() == 0) arrivals.until(shard, row_of_shard);
        arch::block_barrier();
      }
      const uint64 length = by_rows ? shape.k : extent.length;
      const uint64 first = by_rows ? 0 : extent.first;
      const GemmLines a(own ? arguments.sources[shard] : arguments.gathered[arguments.group.rank],
                        own ? length : shape.a_stride, own ? row_of_shard : tile.row, own ? 0 : first,
                        tile.rows_end - tile.row, length);
      const uint64 columns = shape.n - tile.column;
      const GemmLines b = b_order == MatrixOrder::rows
                              ? GemmLines(arguments.b, shape.b_stride, first, tile.column, length, columns)
                              : GemmLines(arguments.b, shape.b_stride, tile.column, first, columns, length);
      product.add(a, b, static_cast<uint32>(length));
    }
    product.store(read_anew(given), tile);
  }
}

}  // namespace symmem

#endif  // SYMMEM_HAS_MATRIX
