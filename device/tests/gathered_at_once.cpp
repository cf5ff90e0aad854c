// Tests the gather of GatherMode::push_at_once on the host twin. `cargo xtask twin` builds and runs them under
// AddressSanitizer and UndefinedBehaviorSanitizer, and under ThreadSanitizer. Ranks are host threads that launch grids
// one after the other, without synchronization between calls; shards change from call to call. A seed determines sizes,
// shards, chunks, grids and schedule.
//
// Verified to fail without the wait until all members have entered, and without the wait for an arrival.
#include "symmem/gathered_gemm.h"
#include "world.h"

namespace {

struct Nothing {
  void operator()() const {}
};

// Gathers A, and copies it to `c` block by block, in the way in which a GEMM reads it.
void gather(const GatheredGemmArguments& arguments) {
  const uint32 epoch = arch::load_relaxed(calls_of_block(arguments)) + 1;
  push_at_once(arguments, epoch, WholeBlock{});
  WarpArrivals<Nothing> arrivals(arguments, epoch, Nothing{});
  const GemmShape& shape = arguments.shape;
  const bool by_rows = arguments.sharding == static_cast<uint32>(Sharding::rows);
  // Tiles of a few rows, as in a GEMM.
  constexpr uint64 rows = 5;
  for (uint64 row = 0; by_rows && row < shape.m; row += rows) arrivals.until_rows(row, rows);
  for (uint64 column = 0; !by_rows && column < shape.k; column += 8) arrivals.until_column(column, 0, shape.m);
  arch::block_barrier();
  const uint32 stride = arch::thread_count() * arch::block_count();
  const uint64 begin = arch::block_index() * arch::thread_count() + arch::thread_index();
  for (uint64 at = begin; at < shape.m * shape.k; at += stride) {
    const uint64 from = arguments.gathered[arguments.group.rank] + (at / shape.k * shape.a_stride + at % shape.k) * 2;
    arch::store(pointer<uint16>(arguments.c) + at, arch::load(pointer<const uint16>(from)));
  }
  arch::block_barrier();
  if (arch::thread_index() == 0) arch::store_relaxed(calls_of_block(arguments), epoch);
}

struct Gather {
  static constexpr uint32 calls = 4;

  World& world;
  const bool by_rows;
  uint64 m, k, stride, shard, chunk;
  uint32 chunks, movers, blocks, threads;
  std::vector<std::vector<uint8>> words;          // per rank: words for entered members, then arrival words
  std::vector<std::vector<uint32>> counts;        // per rank: each block's count of calls
  std::vector<std::vector<arch::Vector16>> a, gathered;  // per rank
  std::vector<std::vector<std::vector<uint16>>> seen;    // [call][rank]

  Gather(World& world, Random& random, uint32 first) : world(world), by_rows(up_to(random, 1) != 0) {
    m = 1 + up_to(random, 20);
    k = 8 * (1 + up_to(random, 12));
    stride = k + 8 * up_to(random, 1);
    const uint64 whole = by_rows ? m : k;
    shard = (whole + world.ranks - 1) / world.ranks;
    if (!by_rows) shard = (shard + 7) / 8 * 8;
    const uint64 rows = by_rows ? shard : m;
    chunk = 1 + up_to(random, static_cast<uint32>(rows) - 1);
    chunks = static_cast<uint32>((rows + chunk - 1) / chunk);
    blocks = 1 + up_to(random, 3);
    movers = 1 + up_to(random, blocks - 1);
    threads = arch::warp_size * (1 + up_to(random, 1));
    seen.assign(calls, std::vector<std::vector<uint16>>(world.ranks));
    for (uint32 rank = 0; rank < world.ranks; ++rank) {
      words.emplace_back(world.ranks * (1 + chunks) * signal_stride);
      for (uint32 word = 0; word < world.ranks * (1 + chunks); ++word)
        std::memcpy(words[rank].data() + word * signal_stride, &first, sizeof first);
      counts.emplace_back(blocks, first);
      a.emplace_back(m * k / 8 + 1);
      gathered.emplace_back(m * stride / 8);
    }
  }

  uint64 begin(uint32 member) const { return std::min(member * shard, by_rows ? m : k); }
  uint64 part(uint32 member) const { return std::min(shard, (by_rows ? m : k) - begin(member)); }

  // Returns an element of the whole A in a call.
  static uint16 element(uint32 call, uint64 row, uint64 column) {
    return static_cast<uint16>(call * 40503 + row * 977 + column * 31 + 1);
  }

  void draw(uint32 rank, uint32 call) {
    uint16* to = reinterpret_cast<uint16*>(a[rank].data());
    const uint64 rows = by_rows ? part(rank) : m, columns = by_rows ? k : part(rank);
    for (uint64 row = 0; row < rows; ++row)
      for (uint64 column = 0; column < columns; ++column)
        *to++ = element(call, by_rows ? begin(rank) + row : row, by_rows ? column : begin(rank) + column);
  }

  GatheredGemmArguments arguments(uint32 rank, uint32 call) {
    GatheredGemmArguments arguments{};
    arguments.group = world.group(rank);
    for (uint32 member = 0; member < world.ranks; ++member) {
      if (member == rank) arguments.sources[member] = address(a[member].data());
      arguments.group.slots[member] = address(words[member].data());
      arguments.gathered[member] = address(gathered[member].data());
      arguments.arrivals[member] = address(words[member].data()) + world.ranks * signal_stride;
    }
    arguments.epoch = address(counts[rank].data());
    arguments.c = address(seen[call][rank].data());
    arguments.shape = {m, 0, k, stride, 0, 0, 0, 0, 0, 0};
    arguments.shard = shard;
    arguments.chunk = chunk;
    arguments.chunks = chunks;
    arguments.sharding = static_cast<uint32>(by_rows ? Sharding::rows : Sharding::columns);
    arguments.mode = static_cast<uint32>(GatherMode::push_at_once);
    arguments.movers = movers;
    arguments.keep = 1;
    return arguments;
  }

  void run(const std::string& what) {
    std::vector<std::thread> running;
    for (uint32 rank = 0; rank < world.ranks; ++rank) {
      running.emplace_back([this, rank] {
        for (uint32 call = 0; call < calls; ++call) {
          seen[call][rank].resize(m * k);
          draw(rank, call);
          const GatheredGemmArguments mine = arguments(rank, call);
          arch::launch(blocks, threads, 0, [&] { gather(mine); });
        }
      });
    }
    for (auto& thread : running) thread.join();
    for (uint32 call = 0; call < calls; ++call) {
      for (uint32 rank = 0; rank < world.ranks; ++rank) {
        uint64 wrong = 0;
        for (uint64 at = 0; at < m * k; ++at) wrong += seen[call][rank][at] != element(call, at / k, at % k);
        expect(wrong == 0, what + ", call " + std::to_string(call) + ": " + std::to_string(wrong) + " elements are wrong");
      }
    }
    expect(world.record.state == 0, what + ": no wait gave up");
  }
};

void gathers(uint32 seed, uint32 ranks) {
  Random random(seed * 31 + ranks);
  arch::schedule() = seed;
  World world(ranks, 1, arch::warp_size, 16, 0);
  // The counts of calls wrap during the test.
  Gather gather(world, random, 0u - up_to(random, 3));
  gather.run("seed " + std::to_string(seed) + ", world " + std::to_string(ranks));
  arch::schedule() = 0;
}

// A member never calls: the others must leave at the deadline, and the record must name that member.
void waits_end() {
  Random random(5);
  World world(3, 1, arch::warp_size, 16, 0);
  world.deadline = second / 50;
  Gather gather(world, random, 4);
  gather.seen[0][0].resize(gather.m * gather.k);
  gather.draw(0, 0);
  const GatheredGemmArguments arguments = gather.arguments(0, 0);
  const auto words = gather.words;
  const auto untouched = [&](uint32 rank) {
    const uint64 bytes = gather.gathered[rank].size() * sizeof(arch::Vector16);
    const std::vector<uint8> zeros(bytes);
    const bool arrived = std::memcmp(gather.words[rank].data() + world.ranks * signal_stride,
                                     words[rank].data() + world.ranks * signal_stride,
                                     gather.chunks * world.ranks * signal_stride) != 0;
    return std::memcmp(gather.gathered[rank].data(), zeros.data(), bytes) == 0 && !arrived;
  };
  arch::launch(gather.blocks, gather.threads, 0, [&] { ::gather(arguments); });
  const WaitRecord& record = world.record;
  expect(record.state == 2 && record.kind == 16 + operation && record.rank == 10 && record.slot == 5 &&
             (record.peer == 11 || record.peer == 12) && record.expected == 5 && record.seen == 4 && record.reason == 1,
         "a gather gives up at its deadline, and the record tells who waited for what");
  expect(untouched(1) && untouched(2), "who has not come may still read what was gathered before: nothing is stored there");
}

}  // namespace

int main(int count, char** words) {
  waits_end();
  return run_seeds(count, words, "gathers at once, host twin", 4, gathers);
}
