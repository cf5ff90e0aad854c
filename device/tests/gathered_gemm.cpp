// Tests all-gather + GEMM on the host twin, against GEMMs in f64. `cargo xtask twin` builds and runs them under
// AddressSanitizer and UndefinedBehaviorSanitizer, and under ThreadSanitizer. Ranks are host threads that launch grids.
// A thread simulates a copy engine, with delays and in random order. A seed determines sizes, strides, alignments,
// chunks, grids and schedule.
//
// Verified to fail if 8-bit products are not scaled, or scaled with the bias; without the wait for an arrival, without the block barrier after it, without the one before a
// stage's product, and with a mover that publishes before it has copied; also if the sums of a part are counted before they
// are kept, if one part's place is another's, if one tile too few is halved, if all
// halves are left ones, and if a cluster's tiles are in another order.
#include "../entries/gathered_gemm.h"
#include "symmem/halved_tiles.h"
#include "products.h"

#include <map>

namespace {

const Numbers<GatheredGemmArguments> numbers[] = SYMMEM_NUMBERS(gathered_gemm);
const Numbers<GatheredGemmArguments> numbers_f8 = {ElementType::f8_e4m3, 0x1p-8, {{}, SYMMEM_TILE_KERNELS(gathered_gemm, f8_e4m3_columns)}};

// One all-gather + GEMM on all ranks.
struct Product {
  World& world;
  Random& random;
  const Numbers<GatheredGemmArguments>& type;
  const MatrixOrder b_order;
  const Sharding sharding;
  const GatherMode mode;
  const uint32 shape;  // of the tiles
  uint64 m, n, k, shard, chunk;
  uint32 chunks, movers, keep;
  bool has_bias;
  float scale;  // 0 for none
  std::vector<Matrix> shards, gathered, c;
  std::vector<Matrix> b, bias;  // one matrix that all ranks read
  std::vector<std::vector<uint8>> arrivals;
  std::vector<uint32> epochs;
  uint32 computing;  // blocks
  uint32 quota;
  std::vector<std::vector<uint64>> partials;

  Product(World& world, Random& random, uint32 kind, uint32 shape, uint32 first)
      : world(world),
        random(random),
        type(kind >> 1 & 1 && up_to(random, 2) == 0 ? numbers_f8 : numbers[kind & 1]),
        b_order(kind >> 1 & 1 ? MatrixOrder::columns : MatrixOrder::rows),
        sharding(kind >> 2 & 1 ? Sharding::columns : Sharding::rows),
        mode(static_cast<GatherMode>(1 + kind / 8 % 3)),
        shape(shape) {
    // In half of the cases, everything is aligned for vector loads; in a sixth, for halves of them.
    const uint64 grain = up_to(random, 1) == 0 ? 8 : (kind / 4 + shape) % 3 == 1 ? 4 : 1;
    const auto side = [&](uint32 most) { return (1 + up_to(random, most - 1) + grain - 1) / grain * grain; };
    m = side(up_to(random, 2) == 0 ? 300 : 140);
    n = up_to(random, 9) == 0 ? 1 : side(up_to(random, 2) == 0 ? 300 : 150);
    k = side(up_to(random, 2) == 0 ? 200 : 80);
    const auto stride = [&](uint64 length) { return length + up_to(random, 2) * grain; };
    const auto offset = [&] { return grain > 1 ? 0 : up_to(random, 9) * 2; };
    const uint64 whole = by_rows() ? m : k;
    shard = (whole + world.ranks - 1) / world.ranks;
    shard = (shard + grain - 1) / grain * grain;
    if (up_to(random, 3) == 0) shard += up_to(random, 9) * grain;
    // A chunk consists of whole tiles.
    chunk = shapes[shape].rows * (1 + up_to(random, 1));
    const uint64 rows = by_rows() ? shard : m;
    chunks = static_cast<uint32>((rows + chunk - 1) / chunk);
    movers = mode == GatherMode::wait ? 0 : 1 + up_to(random, 2);
    keep = mode == GatherMode::wait ? 0 : up_to(random, 1);
    has_bias = up_to(random, 1) != 0;
    scale = in_pairs(type.type) && up_to(random, 2) != 0 ? -0.6f : 0;
    const uint64 a_stride = stride(k), c_stride = stride(n);
    for (uint32 rank = 0; rank < world.ranks; ++rank) {
      const uint64 length = part(rank);
      shards.emplace_back(by_rows() ? length : m, by_rows() ? k : length, by_rows() ? k : length, offset());
      gathered.emplace_back(m, k, a_stride, offset());
      c.emplace_back(m, n, c_stride, offset());
      arrivals.emplace_back(world.ranks * chunks * signal_stride);
      for (uint32 word = 0; word < world.ranks * chunks; ++word)
        std::memcpy(arrivals[rank].data() + word * signal_stride, &first, sizeof first);
      epochs.push_back(first);
    }
    const bool columns = b_order == MatrixOrder::columns;
    b.emplace_back(columns ? n : k, columns ? k : n, stride(columns ? k : n), offset());
    bias.emplace_back(1, n, n, offset());
    draw(b[0], type.type, random);
    draw(bias[0], output_of(type.type), random);
    computing = world.blocks + up_to(random, 3);
    quota = draw_quota(random, last_tiles(), k, computing);
    const uint64 bytes = part_counters_bytes(computing + movers) + part_places_bytes(shapes[shape], k, quota, last_tiles());
    partials.assign(world.ranks, std::vector<uint64>(bytes / sizeof(uint64)));
  }

  // Returns the number of tiles of the last round, if it does not fill the grid.
  uint32 last_tiles() {
    const GatheredGemmArguments mine = arguments(0);
    return TileWalk(mine, shapes[shape].rows, shapes[shape].columns, gemm_band, 1).count() % computing;
  }

  bool by_rows() const { return sharding == Sharding::rows; }
  uint64 begin(uint32 member) const { return std::min(member * shard, by_rows() ? m : k); }
  uint64 part(uint32 member) const { return std::min(shard, (by_rows() ? m : k) - begin(member)); }

  // Returns an element of the whole A from its member's shard.
  uint16 a(uint64 row, uint64 column) const {
    const uint32 member = static_cast<uint32>((by_rows() ? row : column) / shard);
    return shards[member].get(by_rows() ? row - begin(member) : row, by_rows() ? column : column - begin(member));
  }

  GatheredGemmArguments arguments(uint32 rank) {
    GatheredGemmArguments arguments{};
    arguments.group = world.group(rank);
    // Sets peers' addresses only in the modes that need them.
    for (uint32 member = 0; member < world.ranks; ++member) {
      const bool own = member == rank;
      if (own || mode == GatherMode::pull) arguments.sources[member] = shards[member].at();
      if (own || mode == GatherMode::push) arguments.gathered[member] = gathered[member].at();
      if (own || mode == GatherMode::push) arguments.arrivals[member] = address(arrivals[member].data());
    }
    arguments.epoch = address(&epochs[rank]);
    arguments.b = b[0].at();
    arguments.c = c[rank].at();
    arguments.bias = has_bias ? bias[0].at() : 0;
    arguments.shape = {m, n, k, gathered[rank].stride, b[0].stride, c[rank].stride, static_cast<uint32>(type.type),
                       static_cast<uint32>(b_order), has_bias, 0};
    arguments.shard = shard;
    arguments.chunk = chunk;
    arguments.chunks = chunks;
    arguments.sharding = static_cast<uint32>(sharding);
    arguments.mode = static_cast<uint32>(mode);
    arguments.movers = movers;
    arguments.keep = keep;
    arguments.quota = quota;
    arguments.scale = scale == 0 ? 0 : address(&scale);
    if (!partials.empty()) arguments.partials = address(partials[rank].data());
    return arguments;
  }

  Kernel<GatheredGemmArguments> kernel() const { return type.kernels[b_order == MatrixOrder::columns][shape]; }
  uint32 shared_bytes() const { return shapes[shape].shared_bytes; }

  // Simulates copy engines: copies each chunk of each peer and then raises its word.
  void bring(uint32 rank, uint32 seed) {
    Random dice(seed);
    struct Item {
      uint32 member, chunk;
    };
    std::vector<Item> items;
    for (uint32 member = 0; member < world.ranks; ++member)
      for (uint32 chunk = 0; member != rank && chunk < chunks; ++chunk) items.push_back({member, chunk});
    std::shuffle(items.begin(), items.end(), dice);
    for (const Item& item : items) {
      std::this_thread::sleep_for(std::chrono::microseconds(up_to(dice, 300)));
      const Matrix& from = shards[item.member];
      // An empty shard has no chunks, and its words are not raised.
      if (from.rows == 0 || from.columns == 0) continue;
      for (uint64 row = item.chunk * chunk; row < std::min(from.rows, (item.chunk + 1) * chunk); ++row) {
        const uint64 to = by_rows() ? gathered[rank].at(begin(item.member) + row) : gathered[rank].at(row, begin(item.member));
        std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from.at(row)), from.columns * gemm_element_bytes);
      }
      uint8* word = arrivals[rank].data() + (item.member * chunks + item.chunk) * signal_stride;
      arch::publish_flag(reinterpret_cast<uint32*>(word), epochs[rank]);
    }
  }

  // Runs one call. Joining the threads acts as the barriers around it.
  void call() {
    for (Matrix& shard : shards) draw(shard, type.type, random);
    for (uint32& epoch : epochs) ++epoch;
    std::vector<std::thread> running;
    for (uint32 rank = 0; rank < world.ranks; ++rank) {
      const uint32 seed = static_cast<uint32>(random());
      running.emplace_back([this, rank] {
        const GatheredGemmArguments mine = arguments(rank);
        const Kernel<GatheredGemmArguments> multiply = kernel();
        arch::launch(computing + movers, gemm_threads, shared_bytes(), [&] { multiply(mine); });
      });
      if (mode == GatherMode::wait) running.emplace_back([this, rank, seed] { bring(rank, seed); });
    }
    for (auto& thread : running) thread.join();
  }

  // Checks |C - R| <= u |R| + sqrt(K) 2^-22 sum |a b| for each element, with R in f64, plus half of the smallest f16.
  void check(const std::string& what) const {
    const uint64 depth = depth_of(type.type, k);
    const double factor = scale == 0 ? 1 : static_cast<double>(scale);
    std::vector<double> left(m * depth);
    for (uint64 row = 0; row < m; ++row)
      for (uint64 place = 0; place < depth; ++place)
        left[row * depth + place] = factor * along_depth(type.type, place, [&](uint64 column) { return a(row, column); });
    const std::vector<double> right = widened_b(b[0], b_order, type.type);
    std::vector<unsigned> wrong(world.ranks);
    std::vector<double> sums(n), sizes(n);
    for (uint64 row = 0; row < m; ++row) {
      for (uint64 column = 0; column < n; ++column) {
        sums[column] = has_bias ? widened(output_of(type.type), bias[0].get(0, column)) : 0;
        sizes[column] = std::fabs(sums[column]);
      }
      add_product(&left[row * depth], right, sums, sizes);
      for (uint64 column = 0; column < n; ++column) {
        const double bound = type.half_step * std::fabs(sums[column]) +
                             std::sqrt(static_cast<double>(depth)) * 0x1p-22 * sizes[column] + 0x1p-25;
        for (uint32 rank = 0; rank < world.ranks; ++rank) {
          const double made = widened(output_of(type.type), c[rank].get(row, column));
          if (!(std::fabs(made - sums[column]) <= bound)) ++wrong[rank];
        }
      }
    }
    for (uint32 rank = 0; rank < world.ranks; ++rank) {
      expect(wrong[rank] == 0, what + ": " + std::to_string(wrong[rank]) + " elements of C are wrong");
      expect(c[rank].between_is_untouched() && gathered[rank].between_is_untouched(), what + ": nothing between rows is touched");
      expect(part_counters_are_zero(partials[rank].data(), computing + movers), what + ": the counters of parts are ready for the next call");
      expect(gathers(rank), what + ": the gathered A is all of A, the own shard where it is kept");
    }
    expect(world.record.state == 0, what + ": no wait gave up");
  }

  bool gathers(uint32 rank) const {
    for (uint64 row = 0; row < m; ++row) {
      for (uint64 column = 0; column < k; ++column) {
        const bool own = (by_rows() ? row : column) / shard == rank;
        if (gathered[rank].get(row, column) != (own && keep == 0 ? Matrix::untouched : a(row, column))) return false;
      }
    }
    return true;
  }
};

void products(uint32 seed, uint32 ranks) {
  Random random(seed * 31 + ranks);
  arch::schedule() = seed;
  World world(ranks, 1 + up_to(random, 2), gemm_threads, 16, 0);
  // Each seed and world tests one of the 24 kinds per mode; eight seeds cover all.
  for (uint32 turn = 0; turn < 3; ++turn) {
    const uint32 kind = (seed * 7 + ranks * 5 + turn * 8) % 24;
    const uint32 shape = (seed * 3 + ranks + turn) % std::size(shapes);
    Product product(world, random, kind, shape, 0u - 1 - up_to(random, 2));
    for (int call = 0; call < 2; ++call) {
      product.call();
      product.check("seed " + std::to_string(seed) + ", world " + std::to_string(ranks) + ", kind " + std::to_string(kind) +
                    ", call " + std::to_string(call) + ", tiles of " + std::to_string(shapes[shape].rows) + " x " +
                    std::to_string(shapes[shape].columns) + ", quota " + std::to_string(product.quota) + ", " + std::to_string(product.m) + " x " + std::to_string(product.n) +
                    " x " + std::to_string(product.k));
    }
  }
  arch::schedule() = 0;
}

// A chunk never arrives: the rank must leave at the deadline, or when the host has aborted.
void waits_end() {
  for (const bool aborts : {false, true}) {
    Random random(5);
    World world(3, 1, gemm_threads, 16, 0);
    if (!aborts) world.deadline = second / 50;
    Product product(world, random, 0, 3, 4);
    for (uint32& epoch : product.epochs) ++epoch;
    std::thread host([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      if (aborts) __atomic_store_n(&world.abort, 1u, __ATOMIC_RELEASE);
    });
    const GatheredGemmArguments arguments = product.arguments(0);
    const Kernel<GatheredGemmArguments> multiply = product.kernel();
    arch::launch(2, gemm_threads, product.shared_bytes(), [&] { multiply(arguments); });
    host.join();
    const WaitRecord& record = world.record;
    expect(record.state == 2 && record.kind == 16 + operation && record.rank == 10 && record.slot == 5 &&
               (record.peer == 11 || record.peer == 12) && record.expected == 5 && record.seen == 4 &&
               record.reason == (aborts ? 2u : 1u),
           std::string("a product ") + (aborts ? "leaves when the host aborts" : "gives up at its deadline") +
               ", and the record tells who waited for what");
    expect(world.aborted[0] == aborts, "the device of the rank that saw the abort knows of it");
    if (!aborts) continue;
    // The next GEMM neither waits nor computes.
    world.abort = 0;
    world.record = {};
    constexpr uint16 mark = 0x1234;
    product.c[0].set(0, 0, mark);
    arch::launch(2, gemm_threads, product.shared_bytes(), [&] { multiply(arguments); });
    expect(world.record.state == 0 && product.c[0].get(0, 0) == mark, "a product after an abort leaves at once");
  }
}

// In every GEMM, each part of C belongs to exactly one tile or half; the blocks of a cluster have tiles below each
// other; and no block has two halves, unless all tiles are halved.
void tiles_are_cut(uint32 seed) {
  Random random(seed);
  constexpr uint32 rows = 128, columns = 256;
  GatheredGemmArguments arguments{};
  arguments.group.world = 1 + up_to(random, 7);
  arguments.group.rank = up_to(random, arguments.group.world - 1);
  arguments.shape.m = 1 + up_to(random, 9999);
  arguments.shape.n = 1 + up_to(random, up_to(random, 1) != 0 ? 2999 : 299);
  arguments.mode = 1 + up_to(random, 2);
  const bool by_rows = up_to(random, 3) != 0;
  arguments.sharding = static_cast<uint32>(by_rows ? Sharding::rows : Sharding::columns);
  arguments.shape.k = arguments.shard = 64;
  if (by_rows) arguments.shard = (arguments.shape.m + arguments.group.world - 1) / arguments.group.world;
  const uint64 divided = by_rows ? arguments.shard : arguments.shape.m;
  arguments.chunk = std::min<uint64>((1 + up_to(random, 19)) * rows, divided);
  arguments.chunks = static_cast<uint32>((divided + arguments.chunk - 1) / arguments.chunk);
  const uint32 together = 1 + up_to(random, 1), blocks = (1 + up_to(random, 69)) * together;
  const HalvedTiles<rows, columns, 16> tiles(arguments, together, blocks);
  // How often each part is computed, by shard, row and half of a tile's columns.
  std::map<std::array<uint64, 3>, uint32> computed;
  uint32 count = 0, cut = 0;
  bool in_pairs = tiles.whole() % together == 0;
  GemmTile tile, other;
  bool half, other_half;
  for (; tiles.find(count, tile, half); ++count) {
    const uint64 column = tile.column / (columns / 2);
    ++computed[{tile.shard, tile.row, column}];
    if (half) ++cut;
    else ++computed[{tile.shard, tile.row, column + 1}];
    if (together == 2 && count % 2 != 0) {
      in_pairs = in_pairs && tiles.find(count - 1, other, other_half) && other_half == half &&
                 other.column == tile.column && other.shard == tile.shard && other.row + rows == tile.row;
    }
  }
  bool once = true;
  for (const auto& part : computed) once = once && part.second == 1;
  for (uint64 row = 0; row < arguments.shape.m; ++row) {
    const uint64 shard = by_rows ? row / arguments.shard : arguments.group.rank;
    const uint64 first = by_rows ? shard * arguments.shard : 0;
    if ((row - first) % rows != 0) continue;
    for (uint64 column = 0; column * (columns / 2) < arguments.shape.n; ++column) {
      once = once && computed.count({shard, row, column}) == 1;
    }
  }
  const std::string what = ", seed " + std::to_string(seed);
  expect(once, "each part of C is computed once" + what);
  expect(in_pairs && count % together == 0, "blocks of a cluster have neighbours" + what);
  expect(cut == 0 || tiles.whole() == 0 || cut <= blocks, "no block has two halves" + what);
}

}  // namespace

int main(int count, char** words) {
  waits_end();
  for (uint32 seed = 0; seed < 400; ++seed) tiles_are_cut(seed);
  return run_seeds(count, words, "gathered products' host twin", 4, products);
}
