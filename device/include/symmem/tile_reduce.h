// GEMM + reduce-scatter and + all-reduce for targets whose matrix instructions work per wave: the tiles of tile_gemm.h in the
// order, and with the words and waits, of reduced_gemm.h.
//
// A block stores its sums of another member's tile in that member's inbox as they lie in registers, so that loads and stores
// have 16 bytes a thread, side by side, and the owner adds them without exchanges between threads. Behind the peers' sums, an
// inbox has room for the parts of this rank's own divided tiles (divided_round.h).
#pragma once

#include "symmem/reduced_gemm.h"
#include "symmem/tile_gemm.h"

#if SYMMEM_HAS_MATRIX

namespace symmem {

// All members' sums as targets of TileProduct::store: this rank's, and then in the order of the ranks behind it.
struct AllResults {
  const ReducedGemmArguments& arguments;

  SYMMEM_DEVICE uint32 count() const { return arguments.group.world; }
  SYMMEM_DEVICE uint64 at(uint32 number) const {
    return arch::uniform(arguments.results[shard_of_step(arguments.group, number)]);
  }
};

// What a block does with the sums of its tiles. All functions are called by every thread of the block.
template <ElementType type, MatrixOrder b_order, uint32 rows, uint32 columns>
class TileReduction {
 public:
  using Tiles = ReducedTiles<rows, columns, gemm_band>;
  using Product = TileProduct<type, b_order, rows, columns>;

  // `votes`: room for the votes of a block, in the memory of the stages.
  SYMMEM_DEVICE TileReduction(const ReducedGemmArguments& arguments, uint32* votes) : arguments_(arguments), votes_(votes) {
    epoch_ = arch::uniform(arch::load_relaxed(words(arguments).calls()) + 1);
    if (arch::block_index() == 0 && is_first_wave()) {
      tell_entered(arguments, words(arguments), epoch_);
      arch::drain();  // the barriers of the first tile order only shared memory
    }
  }

  // Returns the memory for parts of tiles.
  SYMMEM_DEVICE uint64 parts() const {
    const ReducedGemmArguments& arguments = read_anew(arguments_);
    return in_inbox(arguments, arguments.group.rank, arguments.group.world - 1, 0);
  }

  // Sends the sums of a tile to its owner; the owner, this rank, adds those of all members and stores them. Returns false if
  // a wait gave up: then the sums lack a part, or nobody may be told of them.
  SYMMEM_DEVICE bool finish(Product& product, const ReducedTile& tile) {
    const ReducedGemmArguments& arguments = read_anew(arguments_);
    return tile.place.shard == arguments.group.rank ? add(product, tile) : send(product, tile);
  }

  // Waits for this block's share of the peers' finished sums.
  SYMMEM_DEVICE void until_finished() {
    const ReducedGemmArguments& arguments = read_anew(arguments_);
    if (!sends_on(arguments) || !is_first_wave()) return;
    const Tiles tiles(arguments, 1);
    const ReducedWords there = words(arguments);
    ReducedWaits waits(arguments, there, epoch_);
    const uint32 lane = thread() % arch::warp_size;
    SYMMEM_ROLLED
    for (uint32 place = 0; place + 1 < arguments.group.world; ++place) {
      const uint32 owner = sender_at(arguments.group, place);
      waits.until_finished(owner, arch::block_index() * arch::warp_size + lane, tiles.existing(owner),
                           arch::block_count() * arch::warp_size, 0);
    }
  }

  // Counts this call.
  SYMMEM_DEVICE void end() const {
    // All threads have read the count.
    arch::block_barrier();
    if (thread() == 0) arch::store_relaxed(words(read_anew(arguments_)).calls(), epoch_);
  }

 private:
  // Returns this thread's index. What the compiler computes from it stays in no register around the product, where there are
  // none to spare.
  static SYMMEM_DEVICE uint32 thread() { return arch::per_thread(arch::thread_index()); }
  static SYMMEM_DEVICE bool is_first_wave() { return arch::uniform(thread() / arch::warp_size) == 0; }
  static SYMMEM_DEVICE ReducedWords words(const ReducedGemmArguments& arguments) {
    return ReducedWords(arguments, Tiles::most(arguments), 1);
  }
  static SYMMEM_DEVICE bool is_wide(const ReducedGemmArguments& arguments) {
    return arguments.partial == static_cast<uint32>(ElementType::f32);
  }
  // Returns the address of the sums of a tile from the sender with a place.
  static SYMMEM_DEVICE uint64 in_inbox(const ReducedGemmArguments& arguments, uint32 at, uint32 place, uint32 tile) {
    const uint64 number = static_cast<uint64>(place) * Tiles::most(arguments) + tile;
    const uint32 bytes = is_wide(arguments) ? Product::sums_bytes : Product::sums_bytes / sizeof(float) * gemm_element_bytes;
    return arguments.inboxes[at] + number * bytes;
  }

  // Lets the first wave wait. Returns whether no wait gave up. All threads then see what the wave has waited for.
  template <class Wait>
  SYMMEM_DEVICE bool waited(const ReducedGemmArguments& arguments, Wait wait) const {
    // Before the votes: all threads have finished with the stages.
    arch::block_barrier();
    bool good = true;
    if (is_first_wave()) {
      const ReducedWords there = words(arguments);
      ReducedWaits waits(arguments, there, epoch_);
      wait(waits);
      good = waits.good();
    }
    return arch::block_all(good, votes_);
  }

  SYMMEM_DEVICE bool send(Product& product, const ReducedTile& tile) {
    const ReducedGemmArguments& arguments = read_anew(arguments_);
    // Once: until all members have entered, they may still read what the last call stored.
    entered_ = entered_ || waited(arguments, [](ReducedWaits& waits) { waits.until_entered(); });
    if (!entered_) return false;
    const CollectiveGroup& group = arguments.group;
    const uint32 owner = tile.place.shard;
    const uint64 to = in_inbox(arguments, owner, place_of_sender(group, owner, group.rank), tile.number);
    product.keep_sums(to, is_wide(arguments));
    arch::release_wave();
    arch::block_barrier();
    if (thread() == 0) {
      arch::publish_flag(words(arguments).arrived(owner, group.rank, tile.number, 0), epoch_);
    }
    return true;
  }

  SYMMEM_DEVICE bool add(Product& product, const ReducedTile& tile) {
    const ReducedGemmArguments& arguments = read_anew(arguments_);
    const uint32 peers = arguments.group.world - 1;
    const auto wait = [&](ReducedWaits& waits) {
      SYMMEM_ROLLED
      for (uint32 place = 0; place < peers; ++place) waits.until_arrived(sender_at(arguments.group, place), tile.number, 0);
    };
    if (peers != 0 && !waited(arguments, wait)) return false;
    SYMMEM_ROLLED
    for (uint32 place = 0; place < peers; ++place) {
      product.add_sums(in_inbox(arguments, arguments.group.rank, place, tile.number), is_wide(arguments));
    }
    if (sends_on(arguments)) {
      send_on(product, tile);
      return true;
    }
    GemmTile place = tile.place;
    if (arguments.all == 0) {
      // C begins with the own rows.
      const uint64 first = owned_rows(arguments, arguments.group.rank).first;
      place.row -= first;
      place.rows_end -= first;
    }
    product.store(OneMatrix{arguments.c}, arguments.shape, place);
    return true;
  }

  // Stores the sums at all members, which have entered: a peer has waited for that before it sent its part.
  SYMMEM_DEVICE void send_on(const Product& product, const ReducedTile& tile) const {
    const ReducedGemmArguments& arguments = read_anew(arguments_);
    const CollectiveGroup& group = arguments.group;
    product.store(AllResults{arguments}, arguments.shape, tile.place);
    arch::release_wave();
    arch::block_barrier();
    const uint32 member = thread();
    if (member < group.world && member != group.rank) {
      arch::publish_flag(words(arguments).finished(member, group.rank, tile.number, 0), epoch_);
    }
  }

  const ReducedGemmArguments& arguments_;
  uint32* const votes_;
  uint32 epoch_;
  bool entered_ = false;
};

// Computes as ReducedGemmArguments says. Called by every thread of every block, with gemm_threads threads and
// gemm_shared_bytes of dynamic shared memory. All sides of the matrices are below 2^31.
template <ElementType type, MatrixOrder b_order, uint32 rows, uint32 columns>
SYMMEM_DEVICE void reduced_gemm(const ReducedGemmArguments& given) {
  using Reduction = TileReduction<type, b_order, rows, columns>;
  // A vote, since another stream's kernel may see the abort just now.
  uint32* const votes = reinterpret_cast<uint32*>(arch::dynamic_shared());
  if (!arch::block_all(!aborted_before(given.group.watch), votes)) return;
  const typename Reduction::Tiles tiles(given, 1);
  GemmRounds<ReducedGemmArguments> rounds(given, tiles.count());
  Reduction reduction(given, votes);
  typename Reduction::Product product;
  ReducedTile tile;
  TilePart part;
  bool good = true;
  while (good && rounds.find(part)) {
    tiles.find(part.tile, tile);
    const ReducedGemmArguments& arguments = read_anew(given);
    const GemmShape& shape = arguments.shape;
    // The owner adds the bias.
    const bool has_bias = part.first == 0 && tile.place.shard == arguments.group.rank;
    product.begin(has_bias ? arguments.bias : 0, shape.n, tile.place.column);
    const uint32 first = part.first * gemm_depth, end = least(part.end * gemm_depth, static_cast<uint32>(shape.k));
    const uint32 depth = end - first;
    const GemmLines a(arguments.a, shape.a_stride, tile.place.row, first, tile.place.rows_end - tile.place.row, depth);
    const uint64 width = shape.n - tile.place.column;
    const GemmLines b = b_order == MatrixOrder::rows
                            ? GemmLines(arguments.b, shape.b_stride, first, tile.place.column, depth, width)
                            : GemmLines(arguments.b, shape.b_stride, tile.place.column, first, width, depth);
    if (depth != 0) product.add(a, b, depth);
    // Found anew: there are no registers for them beside the product.
    rounds.find(part);
    tiles.find(part.tile, tile);
    const bool whole = part.end - part.first == steps_of(read_anew(given).shape);
    if (whole || product.adds_parts(read_anew(given), reduction.parts(), part, votes)) good = reduction.finish(product, tile);
    rounds.pass(part);
    arch::drain();  // the barriers of the next tile order only shared memory
  }
  // A block whose wait gave up waits for nothing else, or it would leave a deadline later.
  if (good) reduction.until_finished();
  reduction.end();
}

}  // namespace symmem

#endif  // SYMMEM_HAS_MATRIX
