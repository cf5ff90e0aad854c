// Tiles of a product, and all-gather + GEMM, for targets whose matrix instructions work per wave on operands from shared memory. Addresses,
// strides and sizes are arbitrary; what is aligned moves 16 bytes at a time, 8 if B is stored by rows and turned in
// registers.
//
// A block of eight waves computes a tile. Each wave has 64 columns of it, and an eighth, a quarter or half of its rows.
// Shared memory has stages of depth 32; while the block multiplies one, a feed fills the next (gemm_feed.h). A wave holds
// the fragments of four squares of B and a few of A, and loads those of the next stage before it has finished with this
// one. Nothing in the loop waits for the newest accesses.
#pragma once

#include "symmem/divided_round.h"
#include "symmem/element.h"
#include "symmem/gemm_feed.h"

#if SYMMEM_HAS_MATRIX

namespace symmem {

constexpr uint32 gemm_square = 16;  // rows and columns of a matrix instruction
constexpr uint32 gemm_across = 4;   // squares of a wave across
constexpr uint32 gemm_ring = 4;     // fragments of A that a wave holds
// Tiles of rows in a band: see TileWalk. The tiles that an eighth of a device computes at one time, 32 or 38, then have
// about as many rows as columns.
constexpr uint32 gemm_band = 8;

// Bytes of dynamic shared memory. Two stages of the largest tile are all that gfx90a and gfx942 have, so nothing else in
// these kernels may use shared memory.
template <uint32 rows, uint32 columns>
constexpr uint32 gemm_shared_bytes = GemmStages<rows, columns>::count * GemmStages<rows, columns>::elements * gemm_element_bytes;

// One matrix as the target of TileProduct::store.
struct OneMatrix {
  uint64 address;

  SYMMEM_DEVICE uint32 count() const { return 1; }
  SYMMEM_DEVICE uint64 at(uint32) const { return address; }
};

// A block's tile of C during accumulation.
template <ElementType type, MatrixOrder b_order, uint32 rows, uint32 columns>
class TileProduct {
 public:
  SYMMEM_DEVICE TileProduct() {
    const uint32 wave = arch::uniform(arch::thread_index() / arch::warp_size);
    row_ = wave / waves_across * down * gemm_square;
    column_ = wave % waves_across * gemm_across * gemm_square;
  }

  // Begins with zeros.
  SYMMEM_DEVICE void begin() {
    SYMMEM_UNROLL
    for (uint32 row = 0; row < down; ++row) {
      SYMMEM_UNROLL
      for (uint32 across = 0; across < gemm_across; ++across) parts_[row][across] = arch::MatrixPart{};
    }
  }

  // Begins with the bias of the tile's columns in each row; with zeros if there is none. At the end of a tile there would be no
  // registers for it. Products that are scaled begin with zeros: see `scale`.
  SYMMEM_DEVICE void begin(uint64 bias, uint64 n, uint64 first) {
    begin();
    if (scaled || bias == 0) return;
    SYMMEM_UNROLL
    for (uint32 run = 0; run < arch::matrix_values; run += 4) {
      const uint32 of_wave = arch::per_thread(arch::matrix_column(run));
      const uint64 column = first + column_ + of_wave * gemm_across;
      float numbers[wide];
      SYMMEM_UNROLL
      for (uint32 next = 0; next < wide; ++next) numbers[next] = bias_of(bias, n, column + next);
      SYMMEM_UNROLL
      for (uint32 row = 0; row < down; ++row) {
        SYMMEM_UNROLL
        for (uint32 next = 0; next < wide; ++next) {
          if constexpr (transposed) {
            parts_[row][next / 4].values[run + next % 4] = exchanged(of_wave) ? numbers[next ^ 4] : numbers[next];
          } else {
            parts_[row][next % gemm_across].values[run + next / gemm_across] = numbers[next];
          }
        }
      }
    }
  }

  // Multiplies the sums of products by the number at `scale`, if there is one, and adds the bias of the tile's columns to each
  // row, if there is one. A column at a time, for want of registers.
  SYMMEM_DEVICE void scale(uint64 scale, uint64 bias, uint64 n, uint64 first) {
    static_assert(!transposed, "a thread's sums are in the order of C");
    const float factor = arch::matrix_f8_unit * (scale == 0 ? 1 : arch::float_of(arch::load(pointer<const uint32>(scale))));
    SYMMEM_UNROLL
    for (uint32 run = 0; run < arch::matrix_values; run += 4) {
      const uint64 column = first + column_ + arch::per_thread(arch::matrix_column(run)) * gemm_across;
      SYMMEM_UNROLL
      for (uint32 next = 0; next < wide; ++next) {
        const float added = bias == 0 ? 0 : bias_of(bias, n, column + next);
        SYMMEM_UNROLL
        for (uint32 row = 0; row < down; ++row) {
          float& sum = parts_[row][next % gemm_across].values[run + next / gemm_across];
          sum = sum * factor + added;
        }
      }
    }
  }

  // Adds the product of lines of A and B over `depth`. Called by every thread.
  SYMMEM_DEVICE void add(const GemmLines& a, const GemmLines& b, uint32 depth) {
    uint32 at = 0;
    if (Feed::takes(a, b)) {
      at = depth / gemm_depth * gemm_depth;
      if (at != 0) add_whole(a, b, at / gemm_depth);
    }
    SYMMEM_ROLLED
    for (; at < depth; at += gemm_depth) {
      // Before and after: all threads have finished with the stage; all have stored it.
      arch::shared_barrier();
      if constexpr (transposed) {
        fill_transposed(a, b, at);
      } else {
        fill_stage<type, rows, false, false>(Stages::a(0), a, at);
        fill_stage<type, columns, true, b_order == MatrixOrder::rows>(Stages::b(0), b, at);
      }
      arch::shared_barrier();
      load_first(0);
      SYMMEM_UNROLL
      for (uint32 row = 0; row < down; ++row) {
        if (row + 2 < down) load_a(0, row + 2, row + 2);
        multiply_row(row);
      }
    }
  }

  // Keeps the sums of a part of the tile in `memory`. Returns whether all parts are kept; then adds all of them. Called by
  // every thread, with room for the votes of a block.
  template <class Arguments>
  SYMMEM_DEVICE bool adds_parts(const Arguments& arguments, uint64 memory, const TilePart& part, uint32* votes) {
    const PartialSums sums(arguments, memory, part, sums_bytes);
    keep_sums(sums.own_place(), true);
    if (!sums.all_kept(votes)) return false;
    begin();
    SYMMEM_ROLLED
    for (uint32 block = 0; block < sums.blocks(); ++block) add_sums(sums.place(block), true);
    return true;
  }

  // Bytes of the sums of a tile.
  static constexpr uint32 sums_bytes = rows * columns * sizeof(float);

  // Stores the sums, as f32 if `wide`, otherwise rounded and in half of the bytes, in an order that only add_sums knows.
  SYMMEM_DEVICE void keep_sums(uint64 to, bool wide) {
    each_row(to, wide, [&](uint32 row, const SumPlaces& places) {
      SYMMEM_UNROLL
      for (uint32 pair = 0; pair < pairs; ++pair) {
        const float* const first = four(row, 2 * pair);
        const float* const second = four(row, 2 * pair + 1);
        arch::Vector16 vector;
        if (wide) {
          SYMMEM_UNROLL
          for (uint32 word = 0; word < 4; ++word) vector.words[word] = arch::bits_of(first[word]);
          arch::store(places.at(pair), vector);
          SYMMEM_UNROLL
          for (uint32 word = 0; word < 4; ++word) vector.words[word] = arch::bits_of(second[word]);
          arch::store(places.behind(pair, ~0u), vector);
        } else {
          SYMMEM_UNROLL
          for (uint32 word = 0; word < 2; ++word) {
            vector.words[word] = rounded_pair(first + 2 * word);
            vector.words[word + 2] = rounded_pair(second + 2 * word);
          }
          arch::store(places.at(pair), vector);
        }
      }
    });
  }

  // Adds what keep_sums has stored. Both forms take one path, by masks: with a branch for each, a large tile's sums do not stay
  // in registers.
  SYMMEM_DEVICE void add_sums(uint64 from, bool wide) {
    const uint32 mask = wide ? ~0u : 0;
    each_row(from, wide, [&](uint32 row, const SumPlaces& places) {
      arch::Vector16 first[pairs], second[pairs];
      SYMMEM_UNROLL
      for (uint32 pair = 0; pair < pairs; ++pair) {
        first[pair] = arch::load(places.at(pair));
        // Rounded sums have one vector, which is loaded again.
        second[pair] = arch::load(places.behind(pair, mask));
      }
      SYMMEM_UNROLL
      for (uint32 pair = 0; pair < pairs; ++pair) {
        SYMMEM_UNROLL
        for (uint32 word = 0; word < 4; ++word) {
          const uint32* const rounded = first[pair].words + word / 2;
          const uint32 turn = word % 2 * 16;
          four(row, 2 * pair)[word] += chosen(first[pair].words[word], rounded[0] >> turn, mask);
          four(row, 2 * pair + 1)[word] += chosen(second[pair].words[word], rounded[2] >> turn, mask);
        }
      }
    });
  }

  // Stores the part of the tile inside C, rounded once, in each of the targets: `count()` addresses `at(number)`.
  template <class Targets>
  SYMMEM_DEVICE void store(const Targets& targets, const GemmShape& shape, const GemmTile& tile) const {
    SYMMEM_UNROLL
    for (uint32 run = 0; run < arch::matrix_values; run += 4) {
      const uint64 column = tile.column + column_ + arch::matrix_column(run) * gemm_across;
      if (column >= shape.n) continue;
      const uint64 left = shape.n - column;
      const uint32 width = left < wide ? static_cast<uint32>(left) : wide;
      SYMMEM_UNROLL
      for (uint32 row = 0; row < down; ++row) {
        const uint64 line = tile.row + row_ + row * gemm_square + arch::matrix_row(run);
        if (line >= tile.rows_end) continue;
        arch::Vector16 vectors[2] = {};
        SYMMEM_UNROLL
        for (uint32 next = 0; next < wide; ++next) {
          vectors[next / 8].words[next % 8 / 2] |= static_cast<uint32>(Element::narrow(sum_of(row, run, next))) << next % 2 * 16;
        }
        const uint64 place = (line * shape.c_stride + column) * gemm_element_bytes;
        SYMMEM_ROLLED
        for (uint32 target = 0; target < targets.count(); ++target) {
          const uint64 address = targets.at(target) + place;
          if (width == wide && (address & 15) == 0) {
            arch::store(pointer<arch::Vector16>(address), vectors[0]);
            arch::store(pointer<arch::Vector16>(address) + 1, vectors[1]);
            continue;
          }
          SYMMEM_UNROLL
          for (uint32 next = 0; next < wide; ++next) {
            const uint32 bits = vectors[next / 8].words[next % 8 / 2] >> next % 2 * 16;
            if (next < width) arch::store(pointer<uint16>(address) + next, static_cast<uint16>(bits));
          }
        }
      }
    }
  }

 private:
  static constexpr bool scaled = type == ElementType::f8_e4m3;
  using Element = typename ElementOf<scaled ? ElementType::bf16 : type>::Type;  // of C and the bias
  static constexpr uint32 wide = 4 * gemm_across;  // adjacent elements of C that a thread has
  static constexpr uint32 waves_across = columns / (gemm_across * gemm_square);
  static constexpr uint32 down = rows * waves_across / (8 * gemm_square);  // squares of a wave
  static constexpr bool transposed = arch::loads_transposed && b_order == MatrixOrder::rows;  // B: see GemmAcross
  // The ring's place for the next stage's first fragment of A: not one of the last two of this stage.
  static constexpr uint32 turned = down % gemm_ring;
  static_assert(down == 2 || down % gemm_ring == 0, "the ring begins anew in each stage, or is moved");
  static_assert(!scaled || b_order == MatrixOrder::columns, "pairs of 8-bit elements lie along the depth");

  using Stages = GemmStages<rows, columns>;
  using Feed = typename FeedOf<type, rows, columns, b_order, arch::loads_to_shared, down == 2 ? 1 : down - 2>::Type;

  // Returns the bias of a column; 0 behind the last.
  static SYMMEM_DEVICE float bias_of(uint64 bias, uint64 n, uint64 column) {
    return column < n ? Element::widen(arch::load(pointer<const uint16>(bias) + column)) : 0;
  }

  // Fills the first stage from a B that is not aligned to 16 bytes, or with the end of the depth.
  static SYMMEM_DEVICE void fill_transposed(const GemmLines& a, const GemmLines& b, uint32 at) {
    using LoadsA = AlongDepth<type, rows, false>;
    if (LoadsA::takes(a) && at + gemm_depth <= a.length) {
      LoadsA loads(a.behind(at));
      loads.load(0, false);
      loads.store(0, Stages::a(0));
    } else {
      fill_stage<type, rows, false, false>(Stages::a(0), a, at);
    }
    fill_across<columns>(Stages::b(0), b, at);
  }

  // The fours of adjacent sums that a thread has in a row of squares.
  static constexpr uint32 fours = gemm_across * (arch::matrix_values / 4);

  SYMMEM_DEVICE float* four(uint32 row, uint32 number) {
    constexpr uint32 runs = arch::matrix_values / 4;
    return parts_[row][number / runs].values + number % runs * 4;
  }

  static constexpr uint32 pairs = fours / 2;

  // A thread's places for the sums of a row of squares: a vector for a pair of fours, or two. Those of adjacent threads are
  // beside each other.
  struct SumPlaces {
    uint64 base;
    uint32 step;

    SYMMEM_DEVICE arch::Vector16* at(uint32 pair) const { return place(pair * step); }
    // With a mask of zeros, the same place again.
    SYMMEM_DEVICE arch::Vector16* behind(uint32 pair, uint32 mask) const { return place(pair * step + (vector_bytes & mask)); }

   private:
    SYMMEM_DEVICE arch::Vector16* place(uint32 bytes) const {
      uint32 offset = arch::per_thread(arch::thread_index()) * sizeof(arch::Vector16);
      return place_in<arch::Vector16>(base + bytes, offset);
    }
  };

  // Bytes of a vector of each thread.
  static constexpr uint32 vector_bytes = gemm_threads * sizeof(arch::Vector16);

  // Calls `use` for every row of squares, with its places in what begins at `base`.
  template <class Use>
  SYMMEM_DEVICE void each_row(uint64 base, bool wide, Use use) {
    // Anew, or a table of multiples would stay in scalar registers.
    SumPlaces places = {arch::uniform(base), arch::anew(wide ? 2 * vector_bytes : vector_bytes)};
    SYMMEM_UNROLL
    for (uint32 row = 0; row < down; ++row) {
      use(row, places);
      places.base += pairs * places.step;
      arch::keep_order();  // not more loads at once than there are registers for
    }
  }

  // Returns the sum with the bits of `whole` where the mask has ones, or of a rounded one in the lower half of `rounded`.
  static SYMMEM_DEVICE float chosen(uint32 whole, uint32 rounded, uint32 mask) {
    const uint32 widened = arch::bits_of(Element::widen(static_cast<uint16>(rounded)));
    return arch::float_of((whole & mask) | (widened & ~mask));
  }

  // Returns the bits of two adjacent sums, rounded.
  static SYMMEM_DEVICE uint32 rounded_pair(const float* sums) {
    return Element::narrow(sums[0]) | static_cast<uint32>(Element::narrow(sums[1])) << 16;
  }

  SYMMEM_DEVICE void load_a(uint32 stage, uint32 row, uint32 place) {
    const uint16* const lines = Stages::a(stage) + (row_ + row * gemm_square) * gemm_depth;
    a_[place % gemm_ring] = arch::load_fragment<type, GemmPlace>(lines);
  }

  SYMMEM_DEVICE void load_b(uint32 stage, uint32 across) {
    if constexpr (transposed) {
      const auto place = [&](uint32 depth, uint32 quarter) {
        return GemmAcross<columns>::at(depth, column_, across, quarter);
      };
      b_[across] = arch::load_transposed<type, columns>(Stages::b(stage), place);
    } else {
      const uint16* const lines = Stages::b(stage) + (across * (columns / 4) + column_ / 4) * gemm_depth;
      b_[across] = arch::load_fragment<type, GemmPlace>(lines);
    }
  }

  // Returns whether transposed reads have put a thread's sums of adjacent squares into each other's place.
  static SYMMEM_DEVICE bool exchanged(uint32 matrix_column) { return matrix_column / 4 % 2 != 0; }

  // Returns element `next` of the adjacent elements of C that a thread has in a row of squares.
  SYMMEM_DEVICE float sum_of(uint32 row, uint32 run, uint32 next) const {
    if constexpr (transposed) {
      const float sum = parts_[row][next / 4].values[run + next % 4];
      const float other = parts_[row][next / 4 ^ 1].values[run + next % 4];
      return exchanged(arch::matrix_column(run)) ? other : sum;
    } else {
      return parts_[row][next % gemm_across].values[run + next / gemm_across];
    }
  }

  // Loads the first two fragments of A and all of B, in the order of the loop, so that the compiler counts alike on both
  // ways into it.
  SYMMEM_DEVICE void load_first(uint32 stage) {
    load_a(stage, 0, 0);
    load_a(stage, 1, 1);
    arch::keep_order();
    SYMMEM_UNROLL
    for (uint32 across = 0; across < gemm_across; ++across) {
      load_b(stage, across);
      arch::keep_order();
    }
  }

  SYMMEM_DEVICE void multiply(uint32 row, uint32 across, uint32 step) {
    arch::matrix_multiply_add<type>(parts_[row][across], a_[row % gemm_ring], b_[across], step);
  }

  // Multiplies a row of squares. No instruction needs the result of the one before.
  SYMMEM_DEVICE void multiply_row(uint32 row) {
    SYMMEM_UNROLL
    for (uint32 step = 0; step < arch::matrix_steps<type>; ++step) {
      SYMMEM_UNROLL
      for (uint32 across = 0; across < gemm_across; ++across) multiply(row, across, step);
    }
  }

  // Multiplies all rows but two from `row` on, with a part of the feed's work behind each instruction.
  template <uint32 row>
  SYMMEM_DEVICE void multiply_rows_beside(Feed& feed, uint32 at) {
    static_assert(Feed::turns_of_row == arch::matrix_steps<type> * gemm_across, "a turn behind each matrix instruction");
    if constexpr (row + 2 < down) {
      load_a(at, row + 2, row + 2);
      multiply_row_beside<row, 0>(feed);
      feed.template behind<row>(at);
      arch::keep_order();
      multiply_rows_beside<row + 1>(feed, at);
    }
  }

  template <uint32 row, uint32 number>
  SYMMEM_DEVICE void multiply_row_beside(Feed& feed) {
    if constexpr (number < Feed::turns_of_row) {
      multiply(row, number % gemm_across, number / gemm_across);
      feed.template beside<row, number>();
      arch::keep_order();
      multiply_row_beside<row, number + 1>(feed);
    }
  }

  // Adds the products of `steps` whole stages, at least one.
  SYMMEM_DEVICE void add_whole(const GemmLines& from_a, const GemmLines& from_b, uint32 steps) {
    Feed feed(from_a, from_b);
    arch::shared_barrier();  // all threads have finished with the stages
    feed.begin(steps);
    arch::shared_barrier();
    load_first(0);
    uint32 at = 0;
    SYMMEM_ROLLED
    for (; at + Feed::sets <= steps; at += Feed::sets) {
      multiply_stage<0>(feed, at);
      if constexpr (Feed::sets == 2) multiply_stage<1>(feed, at + 1);
    }
    if (Feed::sets == 2 && at != steps) multiply_stage<0>(feed, at);
    arch::set_priority<0>();
    feed.end();
  }

  // Multiplies stage `at` and loads the first fragments of the next.
  template <uint32 set>
  SYMMEM_DEVICE void multiply_stage(Feed& feed, uint32 at) {
    arch::set_priority<1>();
    if constexpr (Feed::works_beside) {
      multiply_rows_beside<0>(feed, at);
    } else {
      SYMMEM_UNROLL
      for (uint32 row = 0; row + 2 < down; ++row) {
        load_a(at, row + 2, row + 2);
        multiply_row(row);
        feed.template part<set>(row, at);
        arch::keep_order();
      }
      if (down == 2) feed.template part<set>(0, at);
    }
    arch::set_priority<0>();
    // All waves have loaded this stage and filled the next.
    feed.finish();
    arch::shared_barrier();
    arch::set_priority<1>();
    // The last two rows, column by column: each column frees a fragment of B for the next stage.
    load_a(at + 1, 0, turned);
    load_a(at + 1, 1, turned + 1);
    SYMMEM_UNROLL
    for (uint32 across = 0; across < gemm_across; ++across) {
      SYMMEM_UNROLL
      for (uint32 step = 0; step < arch::matrix_steps<type>; ++step) {
        multiply(down - 2, across, step);
        multiply(down - 1, across, step);
      }
      load_b(at + 1, across);
      arch::keep_order();
    }
    if (turned != 0) {
      a_[0] = a_[turned];
      a_[1] = a_[turned + 1];
    }
  }

  arch::MatrixPart parts_[down][gemm_across];
  arch::MatrixFragment a_[gemm_ring], b_[gemm_across];
  uint32 row_, column_;
};

// Computes as GatheredGemmArguments says. Called by every thread of every block, with gemm_threads threads and
// gemm_shared_bytes of dynamic shared memory. All sides of the matrices are below 2^31.
template <ElementType type, MatrixOrder b_order, uint32 rows, uint32 columns>
SYMMEM_DEVICE void gathered_gemm(const GatheredGemmArguments& given) {
  // A vote, since another stream's kernel may see the abort just now.
  uint32* const votes = reinterpret_cast<uint32*>(arch::dynamic_shared());
  if (!arch::block_all(!aborted_before(given.group.watch), votes)) return;
  if (arch::block_index() < given.movers) {
    move_shards(given, CopyAnyRows{}, epoch_of(given));
    return;
  }
  TileWalk walk(given, rows, columns, gemm_band, 1);
  GemmRounds<GatheredGemmArguments> rounds(given, walk.count());
  Arrivals arrivals(given);
  TileProduct<type, b_order, rows, columns> product;
  GemmTile tile;
  TilePart part;
  while (rounds.find(part)) {
    walk.find(part.tile, tile);
    {
      const GatheredGemmArguments& arguments = read_anew(given);
      product.begin(part.first == 0 ? arguments.bias : 0, arguments.shape.n, tile.column);
    }
    // If A is sharded by columns, a tile needs all shards in turn, this rank's first, and its steps follow this order.
    // `before` and `until`: where the part begins and ends in the depth, less the shards that were passed.
    uint32 before = arch::per_thread(part.first * gemm_depth), until = arch::per_thread(part.end * gemm_depth);
    for (uint32 turn = 0;; ++turn) {
      const GatheredGemmArguments& arguments = read_anew(given);
      const bool by_rows = arguments.sharding == static_cast<uint32>(Sharding::rows);
      if (turn == (by_rows ? 1 : arguments.group.world)) break;
      const GemmShape& shape = arguments.shape;
      const uint32 shard = by_rows ? tile.shard : shard_of_step(arguments.group, turn);
      const ShardExtent extent = shard_extent(arguments, shard);
      const uint32 length = static_cast<uint32>(by_rows ? shape.k : extent.length);
      const uint32 skipped = least(arch::uniform(before), length), end = least(arch::uniform(until), length);
      before = arch::per_thread(before - skipped);
      until = arch::per_thread(until - end);
      // Also if the shard is empty: nobody may ever signal its arrival.
      if (skipped == end) continue;
      const uint32 depth = end - skipped;
      const bool own = shard == arguments.group.rank;
      const uint64 row_of_shard = by_rows ? tile.row - extent.first : tile.row;
      if (!own) {
        // One thread acquires; after the barrier, all threads see the chunk.
        if (arch::thread_index() == 0) arrivals.until(shard, row_of_shard);
        arch::block_barrier();
      }
      const uint64 first = (by_rows ? 0 : extent.first) + skipped;
      const GemmLines a(own ? arguments.sources[shard] : arguments.gathered[arguments.group.rank],
                        own ? length : shape.a_stride, own ? row_of_shard : tile.row, own ? skipped : first,
                        tile.rows_end - tile.row, depth);
      const uint64 width = shape.n - tile.column;
      const GemmLines b = b_order == MatrixOrder::rows
                              ? GemmLines(arguments.b, shape.b_stride, first, tile.column, depth, width)
                              : GemmLines(arguments.b, shape.b_stride, tile.column, first, width, depth);
      product.add(a, b, depth);
    }
    rounds.find(part);
    const GatheredGemmArguments& arguments = read_anew(given);
    const bool whole = part.end - part.first == steps_of(arguments.shape);
    if (whole || product.adds_parts(arguments, arguments.partials, part, votes)) {
      if constexpr (type == ElementType::f8_e4m3) {
        product.scale(arguments.scale, arguments.bias, arguments.shape.n, tile.column);
      }
      product.store(OneMatrix{arguments.c}, arguments.shape, tile);
    }
    rounds.pass(part);
    arch::drain();  // the barriers of the next tile order only shared memory
  }
}

}  // namespace symmem

#endif  // SYMMEM_HAS_MATRIX
