// Tests GEMM + reduce-scatter and + all-reduce on the host twin, against GEMMs in f64. `cargo xtask twin` builds and runs
// them under AddressSanitizer and UndefinedBehaviorSanitizer, and under ThreadSanitizer. Ranks are host threads that
// launch grids one after the other, without synchronization between calls: between two, each rank draws its inputs anew and
// poisons its C. A seed determines sizes, strides, alignments, grids and schedule.
//
// Verified to fail without the waits until all have entered, for partial sums and for finished sums, or if such a wait leaves
// out a member or a tile; without the block barriers before arrived and finished words; with words that are raised before
// the stores, after a wait that gave up, or for one member only; with one place for the sums of all senders, words at
// another's place, and parts of tiles at a sender's; with two tiles of one number, or numbers that differ between ranks; with
// a bias of every rank or part; if a call is counted at its beginning or not at all; if rows of C are not moved; if partial
// sums are rounded in spite of f32; and if a block waits again after a wait that gave up.
//
// Not visible here: the barrier before a call is counted, since a block that tells or waits has passed others; the barrier
// before a vote, since votes use no shared memory here; and a sender's or receiver's order of places, if it gives each peer
// one.
#include "../entries/reduced_gemm.h"
#include "products.h"

#include <atomic>
#include <memory>
#include <new>

namespace {

const Numbers<ReducedGemmArguments> numbers[] = SYMMEM_NUMBERS(reduced_gemm);

// Memory that begins at a multiple of signal_stride, and ends where the sanitizer detects accesses.
class Aligned {
 public:
  explicit Aligned(uint64 bytes) : bytes(bytes), memory_(static_cast<uint8*>(::operator new(bytes, alignment))) {}

  uint8* data() const { return memory_.get(); }
  uint32 word(uint64 byte) const { return __atomic_load_n(place(byte), __ATOMIC_RELAXED); }
  void raise(uint64 byte, uint32 value) { __atomic_store_n(place(byte), value, __ATOMIC_RELEASE); }

  const uint64 bytes;

 private:
  static constexpr std::align_val_t alignment{signal_stride};
  struct Free {
    void operator()(uint8* memory) const { ::operator delete(memory, alignment); }
  };
  uint32* place(uint64 byte) const { return reinterpret_cast<uint32*>(memory_.get() + byte); }

  std::unique_ptr<uint8, Free> memory_;
};

// What is multiplied, and its division among the ranks.
struct Problem {
  uint64 m, n, shard;
  std::vector<uint64> k;  // of each rank
  uint64 grain;           // of sides, strides and addresses
};

Problem draw_problem(Random& random, uint32 ranks, uint32 kind, uint32 shape) {
  Problem problem;
  // In half of the cases, everything is aligned for vector loads; in a sixth, for halves of them.
  const uint64 grain = problem.grain = up_to(random, 1) == 0 ? 8 : (kind / 4 + shape) % 3 == 1 ? 4 : 1;
  const auto side = [&](uint32 most) { return (1 + up_to(random, most - 1) + grain - 1) / grain * grain; };
  problem.m = side(up_to(random, 2) == 0 ? 300 : 140);
  // Fewer rows than ranks, or more tiles of rows than a band has.
  if (up_to(random, 5) == 0) problem.m = 1 + up_to(random, ranks);
  else if (ranks <= 2 && shapes[shape].rows == 64) problem.m = 64 * gemm_band * ranks + side(300);
  problem.n = up_to(random, 9) == 0 ? 1 : side(up_to(random, 3) == 0 ? 300 : 150);
  problem.shard = (problem.m + ranks - 1) / ranks;
  if (up_to(random, 2) == 0) problem.shard += up_to(random, 40);
  for (uint32 rank = 0; rank < ranks; ++rank) {
    problem.k.push_back(up_to(random, 7) == 0 ? 0 : side(up_to(random, 1) == 0 ? 130 : 40));
  }
  return problem;
}

// The matrices of a rank.
struct Matrices {
  Matrix a, b, bias, c;
};

struct Rank {
  Matrices now;
  std::vector<Matrices> calls;  // a copy from the end of each call
  Aligned inbox, words;
  uint32 quota;
};

// One GEMM + reduce-scatter or + all-reduce on all ranks.
struct Reduction {
  static constexpr uint32 calls = 2;

  World& world;
  const Problem problem;
  const Numbers<ReducedGemmArguments>& type;
  const MatrixOrder b_order;
  const bool all, narrow;  // partial sums are of the element type
  const uint32 shape;      // of the tiles
  const uint32 first;      // of all words
  const uint32 blocks;
  const bool has_bias;
  std::vector<Rank> ranks;

  Reduction(World& world, Random& random, const Problem& problem, uint32 kind, uint32 shape, uint32 first, uint32 blocks)
      : world(world),
        problem(problem),
        type(numbers[kind & 1]),
        b_order(kind >> 1 & 1 ? MatrixOrder::columns : MatrixOrder::rows),
        all(kind >> 2 & 1),
        narrow(kind >> 3 & 1),
        shape(shape),
        first(first),
        blocks(blocks),
        has_bias(up_to(random, 1) != 0) {
    const uint64 grain = problem.grain, m = problem.m, n = problem.n;
    const auto stride = [&](uint64 length) { return length + up_to(random, 2) * grain; };
    const auto offset = [&] { return grain > 1 ? 0 : up_to(random, 9) * 2; };
    const uint64 c_stride = stride(n);
    const bool columns = b_order == MatrixOrder::columns;
    for (uint32 rank = 0; rank < world.ranks; ++rank) {
      const uint64 k = problem.k[rank];
      const uint32 quota = draw_quota(random, last_tiles(), k, blocks);
      // Rows of C that are not the own ones are there at times, and must not be written.
      const uint64 c_rows = all ? m : owned(rank) + up_to(random, 1) * up_to(random, 20);
      ranks.push_back({{Matrix(m, k, stride(k), offset()),
                        Matrix(columns ? n : k, columns ? k : n, stride(columns ? k : n), offset()), Matrix(1, n, n, offset()),
                        Matrix(c_rows, n, all ? c_stride : stride(n), offset())},
                       {},
                       Aligned(counters_at() + part_counters_bytes(blocks) + part_places_bytes(shapes[shape], k, quota, last_tiles())),
                       Aligned(finished_at(world.ranks - 1, 0)),
                       quota});
      // What nobody has stored is not a number in any type.
      std::fill_n(ranks[rank].inbox.data(), ranks[rank].inbox.bytes, uint8(0xFF));
      std::fill_n(ranks[rank].inbox.data() + counters_at(), part_counters_bytes(blocks), uint8(0));
      for (uint64 byte = 0; byte < ranks[rank].words.bytes; byte += sizeof first) ranks[rank].words.raise(byte, first);
    }
  }

  uint64 begin(uint32 member) const { return std::min(member * problem.shard, problem.m); }
  uint64 owned(uint32 member) const { return std::min(problem.shard, problem.m - begin(member)); }

  // Returns the number of the tiles of so many rows.
  uint32 tiles_of(uint64 rows) const {
    const Tile& tile = shapes[shape];
    return static_cast<uint32>((rows + tile.rows - 1) / tile.rows * ((problem.n + tile.columns - 1) / tile.columns));
  }
  uint32 most_tiles() const { return tiles_of(owned(0)); }
  // Returns the number of tiles of the last round, if it does not fill the grid.
  uint32 last_tiles() const {
    uint32 tiles = 0;
    for (uint32 member = 0; member < world.ranks; ++member) tiles += tiles_of(owned(member));
    return tiles % blocks;
  }

  // Returns where an inbox has the counters of parts: behind the sums of all peers.
  uint64 counters_at() const {
    const uint64 bytes = shapes[shape].rows * shapes[shape].columns * (narrow ? gemm_element_bytes : sizeof(float));
    return (world.ranks - 1) * most_tiles() * bytes;
  }

  // Return the places of words: those of the members that have entered, the blocks' counts of calls, and those of
  // partial sums and of sums, by the place of the member that raises them.
  uint64 entered_at(uint32 member) const { return member * signal_stride; }
  uint64 arrived_at(uint32 place, uint32 tile) const {
    return world.ranks * signal_stride + (blocks + static_cast<uint64>(place) * most_tiles() + tile) * sizeof(uint32);
  }
  uint64 finished_at(uint32 place, uint32 tile) const { return arrived_at((all ? world.ranks - 1 : 0) + place, tile); }
  // Returns the place of a member at another one.
  uint32 place_of(uint32 at, uint32 from) const { return (at + world.ranks - from - 1) % world.ranks; }

  void draw_inputs(uint32 rank, Random& random) {
    Matrices& now = ranks[rank].now;
    draw(now.a, type.type, random);
    draw(now.b, type.type, random);
    draw(now.bias, type.type, random);
    now.c.poison();
  }

  ReducedGemmArguments arguments(uint32 rank) const {
    const Matrices& now = ranks[rank].now;
    ReducedGemmArguments arguments{};
    arguments.group = world.group(rank);
    for (uint32 member = 0; member < world.ranks; ++member) {
      arguments.inboxes[member] = address(ranks[member].inbox.data());
      arguments.words[member] = address(ranks[member].words.data());
      if (all) arguments.results[member] = ranks[member].now.c.at();
    }
    arguments.a = now.a.at();
    arguments.b = now.b.at();
    arguments.c = now.c.at();
    arguments.bias = has_bias ? now.bias.at() : 0;
    arguments.shape = {problem.m, problem.n, problem.k[rank], now.a.stride, now.b.stride, now.c.stride,
                       static_cast<uint32>(type.type), static_cast<uint32>(b_order), has_bias, 0};
    arguments.shard = problem.shard;
    arguments.mode = static_cast<uint32>(ReducedMode::push);
    arguments.all = all;
    arguments.partial = static_cast<uint32>(narrow ? type.type : ElementType::f32);
    arguments.quota = ranks[rank].quota;
    return arguments;
  }

  void launch(uint32 rank) const {
    const ReducedGemmArguments mine = arguments(rank);
    const Kernel<ReducedGemmArguments> multiply = type.kernels[b_order == MatrixOrder::columns][shape];
    arch::launch(blocks, gemm_threads, shapes[shape].shared_bytes, [&] { multiply(mine); });
  }

  // Runs all calls on all ranks.
  void run(uint32 seed) {
    std::vector<std::thread> running;
    for (uint32 rank = 0; rank < world.ranks; ++rank) {
      running.emplace_back([this, rank, seed] {
        Random random(seed + rank);
        // The bias is the same on all ranks, if all get the whole sum.
        Random alike(seed - 1);
        for (uint32 call = 0; call < calls; ++call) {
          draw_inputs(rank, random);
          if (all) draw(ranks[rank].now.bias, type.type, alike);
          std::this_thread::sleep_for(std::chrono::microseconds(up_to(random, 300)));
          launch(rank);
          ranks[rank].calls.push_back(ranks[rank].now);
        }
      });
    }
    for (auto& thread : running) thread.join();
  }

  // Checks the elements of C of a call against R in f64. Each of the rounded partial sums P adds u |P| to the error E, and the
  // sums in f32 add sqrt(K + ranks) 2^-22 sum |a b|; E + u (|R| + E) bounds |C - R|, but for half of the smallest f16 each.
  void check(uint32 call, const std::string& what) const {
    const uint64 m = problem.m, n = problem.n;
    std::vector<std::vector<double>> right;
    double depth = world.ranks;
    for (uint32 rank = 0; rank < world.ranks; ++rank) {
      right.push_back(widened_b(ranks[rank].calls[call].b, b_order, type.type));
      depth += static_cast<double>(problem.k[rank]);
    }
    uint32 wrong = 0, unlike = 0;
    for (uint64 row = 0; row < m; ++row) {
      const uint32 owner = static_cast<uint32>(row / problem.shard);
      std::vector<double> sums(n), sizes(n), errors(n);
      for (uint64 column = 0; has_bias && column < n; ++column) {
        sums[column] = widened(type.type, ranks[owner].calls[call].bias.get(0, column));
        sizes[column] = std::fabs(sums[column]);
      }
      for (uint32 rank = 0; rank < world.ranks; ++rank) {
        std::vector<double> left(problem.k[rank] + 1), partial(n);
        for (uint64 at = 0; at < problem.k[rank]; ++at) left[at] = widened(type.type, ranks[rank].calls[call].a.get(row, at));
        add_product(left.data(), right[rank], partial, sizes);
        for (uint64 column = 0; column < n; ++column) {
          sums[column] += partial[column];
          if (narrow && rank != owner) errors[column] += type.half_step * std::fabs(partial[column]) + 0x1p-25;
        }
      }
      for (uint64 column = 0; column < n; ++column) {
        const double error = errors[column] + std::sqrt(depth) * 0x1p-22 * sizes[column];
        const double bound = error + type.half_step * (std::fabs(sums[column]) + error) + 0x1p-25;
        const uint16 made = all ? c(0, call).get(row, column) : c(owner, call).get(row - begin(owner), column);
        if (!(std::fabs(widened(type.type, made) - sums[column]) <= bound)) ++wrong;
        for (uint32 rank = 1; all && rank < world.ranks; ++rank) unlike += c(rank, call).get(row, column) != made;
      }
    }
    expect(wrong == 0, what + ": " + std::to_string(wrong) + " elements of C are wrong");
    expect(unlike == 0, what + ": " + std::to_string(unlike) + " elements of C are not those of rank 0");
    for (uint32 rank = 0; rank < world.ranks; ++rank) {
      expect(c(rank, call).between_is_untouched(), what + ": nothing between rows is touched");
      expect(all || is_untouched(c(rank, call), owned(rank)), what + ": rows of other ranks are not touched");
    }
  }

  // Checks what is left of all calls.
  void check_end(const std::string& what) const {
    for (const Rank& rank : ranks) {
      expect(part_counters_are_zero(rank.inbox.data() + counters_at(), blocks), what + ": the counters of parts are ready for the next call");
    }
    expect(world.record.state == 0, what + ": no wait gave up");
  }

  const Matrix& c(uint32 rank, uint32 call) const { return ranks[rank].calls[call].c; }

  // Returns whether the elements from a row and column on are untouched.
  static bool is_untouched(const Matrix& matrix, uint64 first_row, uint64 first_column = 0) {
    for (uint64 row = first_row; row < matrix.rows; ++row)
      for (uint64 column = first_column; column < matrix.columns; ++column)
        if (matrix.get(row, column) != Matrix::untouched) return false;
    return true;
  }
};

void reductions(uint32 seed, uint32 ranks) {
  Random random(seed * 31 + ranks);
  arch::schedule() = seed;
  // Each seed and world tests one or two of the 16 kinds, which differ in the type of partial sums; 16 seeds cover all.
  for (uint32 turn = 0; turn < (ranks == 2 || ranks == 3 ? 2 : 1); ++turn) {
    World world(ranks, 1, gemm_threads, 16, 0);
    const uint32 kind = (seed * 7 + ranks * 5 + turn * 8) % 16;
    const uint32 shape = (seed * 3 + ranks + turn) % std::size(shapes);
    const Problem problem = draw_problem(random, ranks, kind, shape);
    // The words wrap during the test, unless they begin with zeros.
    Reduction reduction(world, random, problem, kind, shape, 0u - up_to(random, 2), 1 + up_to(random, 5));
    reduction.run(static_cast<uint32>(random()));
    std::string what = "seed " + std::to_string(seed) + ", world " + std::to_string(ranks) + ", kind " + std::to_string(kind) +
                       ", tiles of " + std::to_string(shapes[shape].rows) + " x " + std::to_string(shapes[shape].columns) + ", " +
                       std::to_string(problem.m) + " x " + std::to_string(problem.n) + ", shard " + std::to_string(problem.shard);
    for (uint32 rank = 0; rank < ranks; ++rank) {
      what += ", k " + std::to_string(problem.k[rank]) + " quota " + std::to_string(reduction.ranks[rank].quota);
    }
    for (uint32 call = 0; call < Reduction::calls; ++call) reduction.check(call, what + ", call " + std::to_string(call));
    reduction.check_end(what);
  }
  arch::schedule() = 0;
}

// What rank 0 waits for in vain, since its peers never call.
enum class Missing { entered, partial_sums, sums };

// Rank 0 must leave at the deadline, or when the host has aborted, and raise no word for a sum that lacks a part. Member
// `behind`, if not 0, has done everything, and the other one what comes before tile `absent`: of the finished sums, also
// what comes after it.
void wait_ends(bool aborts, bool all, Missing missing, uint32 behind, uint32 absent) {
  Random random(5);
  constexpr uint32 before = 4, now = 5, tile_columns = 64;
  World world(3, 1, gemm_threads, 16, 0);
  if (!aborts) world.deadline = second / 100;
  const Problem problem = {100, 300, 34, {0, 20, 20}, 1};
  // With one block it is known which wait comes first.
  const uint32 blocks = missing == Missing::sums && !aborts ? 2 : 1;
  Reduction reduction(world, random, problem, all ? 4 : 0, 4, before, blocks);
  const std::string what = std::string(aborts ? "the host aborts" : "at its deadline") + (all ? ", all-reduce" : ", reduce-scatter") +
                           ", missing " + std::to_string(static_cast<int>(missing)) + ", behind " + std::to_string(behind) +
                           ", absent " + std::to_string(absent) + ": ";
  for (uint32 rank = 0; rank < 3; ++rank) reduction.draw_inputs(rank, random);
  Rank& own = reduction.ranks[0];
  for (uint32 peer = 1; peer < 3; ++peer) {
    if (peer == behind || missing > Missing::entered) own.words.raise(reduction.entered_at(peer), now);
    for (uint32 tile = 0; tile < reduction.most_tiles(); ++tile) {
      const uint32 place = reduction.place_of(0, peer);
      const bool partial = missing == Missing::partial_sums && (peer == behind || tile < absent);
      if (partial || missing == Missing::sums) own.words.raise(reduction.arrived_at(place, tile), now);
      const bool done = peer == behind || (behind != 0 && tile != absent);
      if (missing == Missing::sums && done) own.words.raise(reduction.finished_at(place, tile), now);
    }
  }
  std::thread host([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (aborts) __atomic_store_n(&world.abort, 1u, __ATOMIC_RELEASE);
  });
  reduction.launch(0);
  host.join();
  const WaitRecord& record = world.record;
  const bool names = behind == 0 ? record.peer == 11 || record.peer == 12 : record.peer == 10 + 3 - behind;
  expect(record.state == 2 && record.kind == 16 + operation && record.rank == 10 && record.slot == 5 && names &&
             record.expected == now && record.seen == before && record.reason == (aborts ? 2u : 1u),
         what + "the record tells who waited for what");
  expect(world.aborted[0] == aborts, what + "the device of the rank that saw the abort knows of it");
  // The own tiles that have all parts.
  const uint32 whole = missing == Missing::entered ? 0 : missing == Missing::partial_sums ? absent : reduction.most_tiles();
  for (uint32 peer = 1; peer < 3; ++peer) {
    const Rank& there = reduction.ranks[peer];
    const uint32 place = reduction.place_of(peer, 0);
    uint32 wrong = 0;
    for (uint64 byte = 0; byte < there.words.bytes; byte += sizeof(uint32)) {
      const bool arrived = byte >= reduction.arrived_at(place, 0) && byte < reduction.arrived_at(place + 1, 0);
      const bool finished = all && byte >= reduction.finished_at(place, 0) && byte < reduction.finished_at(place, whole);
      const bool raised = byte == reduction.entered_at(0) || (arrived && missing > Missing::entered) || finished;
      wrong += there.words.word(byte) != (raised ? now : before);
    }
    expect(wrong == 0, what + "the words of a peer are raised for whole sums, and for no others");
    if (missing == Missing::entered) {
      expect(std::all_of(there.inbox.data(), there.inbox.data() + reduction.counters_at(), [](uint8 byte) { return byte == 0xFF; }),
             what + "who has not entered may still read what came before: nothing is stored there");
    }
  }
  for (const Rank& rank : reduction.ranks) {
    expect(Reduction::is_untouched(rank.now.c, 0, whole * tile_columns), what + "no sum that lacks a part is stored");
  }
  if (!aborts) return;
  // The next call neither waits nor computes.
  world.abort = 0;
  world.record = {};
  own.now.c.poison();
  reduction.launch(0);
  expect(world.record.state == 0 && Reduction::is_untouched(own.now.c, 0), what + "the next call leaves at once");
}

void waits_end() {
  for (const bool aborts : {false, true}) {
    for (const bool all : {false, true}) {
      for (const Missing missing : {Missing::entered, Missing::partial_sums, Missing::sums}) {
        // Only an all-reduce waits for sums.
        if (!all && missing == Missing::sums) continue;
        wait_ends(aborts, all, missing, 0, 0);
        for (uint32 behind = 1; behind < 3; ++behind) {
          for (const uint32 absent : {0, 1, 4}) {
            if (absent == 1 || (!aborts && missing != Missing::entered)) wait_ends(aborts, all, missing, behind, absent);
          }
        }
      }
    }
  }
}

// A block whose wait has given up waits no more: a second wait would leave a record in place of the first, which is taken away.
void waits_end_once() {
  Random random(5);
  World world(2, 1, gemm_threads, 16, 0);
  world.deadline = second / 5;
  Reduction reduction(world, random, {100, 70, 50, {0, 0}, 1}, 4, 3, 4, 1);
  std::atomic<bool> over{false};
  bool taken = false;
  std::thread taker([&] {
    while (!taken && !over) {
      taken = __atomic_load_n(&world.record.state, __ATOMIC_ACQUIRE) == 2;
      std::this_thread::yield();
    }
    if (taken) __atomic_store_n(&world.record.state, 0u, __ATOMIC_RELEASE);
  });
  reduction.launch(0);
  over = true;
  taker.join();
  // The kernel may end before the thread looks.
  expect(taken ? world.record.state == 0 : world.record.state == 2, "a rank waits until its deadline once");
}

// In every reduction, the tiles of all ranks cover the sum once, those of the own rows come last, and all ranks give
// the tiles of an owner the same numbers, from 0.
void tiles_are_numbered(uint32 seed) {
  Random random(seed);
  constexpr uint32 rows = 64, columns = 256, band = 4;
  ReducedGemmArguments arguments{};
  arguments.group.world = 1 + up_to(random, 7);
  arguments.shape.m = 1 + up_to(random, up_to(random, 1) != 0 ? 4999 : 499);
  arguments.shape.n = 1 + up_to(random, up_to(random, 1) != 0 ? 2999 : 299);
  arguments.shard = (arguments.shape.m + arguments.group.world - 1) / arguments.group.world + up_to(random, 1) * up_to(random, 200);
  const uint32 together = 1 + up_to(random, 1);
  const uint32 across = static_cast<uint32>((arguments.shape.n + columns - 1) / columns);
  bool once = true, last = true, alike = true, in_pairs = true;
  for (uint32 rank = 0; rank < arguments.group.world; ++rank) {
    arguments.group.rank = rank;
    const ReducedTiles<rows, columns, band> tiles(arguments, together);
    // How often each tile is computed.
    std::vector<uint32> computed((arguments.shape.m / rows + 2 * arguments.group.world) * across);
    ReducedTile tile, other;
    uint64 existing = 0;
    bool own = false;
    for (uint32 index = 0; index < tiles.count(); ++index) {
      tiles.find(index, tile);
      if (together == 2 && index % 2 != 0) {
        tiles.find(index - 1, other);
        in_pairs = in_pairs && other.place.shard == tile.place.shard && other.place.column == tile.place.column &&
                   other.place.row + rows == tile.place.row;
      }
      last = last && (!own || tile.place.shard == rank);
      own = tile.place.shard == rank;
      if (!tile.exists()) continue;
      ++existing;
      const uint32 owner = tile.place.shard;
      const uint64 first = owner * arguments.shard, end = std::min(first + arguments.shard, arguments.shape.m);
      const uint64 row = (tile.place.row - first) / rows, column = tile.place.column / columns;
      once = once && tile.place.row >= first && tile.place.row < end && tile.place.rows_end == end &&
             tile.place.column < arguments.shape.n && ++computed[(first / rows + owner + row) * across + column] == 1;
      alike = alike && tile.number == row * across + column && tile.number < tiles.existing(owner) &&
              tiles.existing(owner) <= tiles.most(arguments);
    }
    uint64 wanted = 0;
    for (uint64 first = 0; first < arguments.shape.m; first += arguments.shard)
      wanted += (std::min(arguments.shard, arguments.shape.m - first) + rows - 1) / rows * across;
    once = once && existing == wanted;
  }
  const std::string what = ", seed " + std::to_string(seed);
  expect(once, "each tile of the sum is computed once" + what);
  expect(last, "the own rows come last" + what);
  expect(alike, "all ranks number the tiles of an owner alike" + what);
  expect(in_pairs, "tiles that belong together are below each other" + what);
}

}  // namespace

int main(int count, char** words) {
  waits_end();
  waits_end_once();
  for (uint32 seed = 0; seed < 400; ++seed) tiles_are_numbered(seed);
  return run_seeds(count, words, "reduced products' host twin", 4, reductions);
}
