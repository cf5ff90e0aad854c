// Tests the example's kernel, which puts, signals and waits with its Handle, on ranks that are host threads. Part of
// twin.cpp, whose helpers it uses.
#pragma once

#include "../../examples/kernels/ring.cu"

namespace {

// One rank's memory.
struct RingRank {
  static constexpr uint32 most = 4;
  static constexpr uint64 count = 200;
  struct alignas(128) Word {
    uint32 value;
    uint8 padding[124];
  };
  alignas(16) uint32 inbox[count] = {};
  alignas(16) uint32 outbox[count] = {};
  uint32 result[count] = {};
  Word words[most];
  uint32 given[most], waited[most], arrivals[most] = {}, departures[most] = {};

  explicit RingRank(uint32 epoch) {
    for (uint32 peer = 0; peer < most; ++peer) {
      words[peer].value = given[peer] = waited[peer] = epoch;
    }
  }
};

RingArguments ring_arguments(std::vector<RingRank>& ranks, uint32 rank, const Watch& watch) {
  static_assert(sizeof(RingRank::Word) == signal_stride, "one word a stride");
  RingRank& own = ranks[rank];
  RingArguments arguments{};
  Handle& handle = arguments.inbox;
  handle.watch = watch;
  for (uint32 peer = 0; peer < ranks.size(); ++peer) {
    handle.bases[peer] = address(ranks[peer].inbox);
    handle.signals[peer] = address(ranks[peer].words);
  }
  handle.given = address(own.given);
  handle.waited = address(own.waited);
  handle.arrivals = address(own.arrivals);
  handle.departures = address(own.departures);
  handle.bytes = sizeof own.inbox;
  handle.rank = rank;
  handle.world = static_cast<uint32>(ranks.size());
  handle.channel = 9;
  arguments.outbox = address(own.outbox);
  arguments.result = address(own.result);
  arguments.count = RingRank::count;
  return arguments;
}

void user_kernel(uint32 world, uint32 blocks) {
  constexpr uint32 epoch = 0xfffffffb;  // wraps during the test
  constexpr uint32 laps = 10;
  std::vector<RingRank> ranks(world, RingRank(epoch));
  HostWords host;
  for (uint32 lap = 1; lap <= laps; ++lap) {
    on_ranks(world, [&](uint32 rank) {
      RingRank& own = ranks[rank];
      for (uint64 index = 0; index < RingRank::count; ++index) {
        own.outbox[index] = static_cast<uint32>(lap * 1000000 + rank * 1000 + index);
      }
      const RingArguments arguments = ring_arguments(ranks, rank, host.watch(rank, 60 * second));
      arch::launch(blocks, 4, 0, [&] { symmem_example_ring(arguments); });
      const uint32 previous = (rank + world - 1) % world;
      for (uint64 index = 0; index < RingRank::count; ++index) {
        const uint32 sent = static_cast<uint32>(lap * 1000000 + previous * 1000 + index);
        expect(own.result[index] == 2 * sent, "whoever has waited sees what every block of the peer put");
      }
    });
  }
  expect(host.record.state == 0, "no wait gave up");
  for (uint32 rank = 0; rank < world; ++rank) {
    const RingRank& own = ranks[rank];
    const uint32 next = (rank + 1) % world, previous = (rank + world - 1) % world;
    expect(own.given[next] == epoch + laps && own.waited[previous] == epoch + laps &&
               own.words[previous].value == epoch + laps,
           "a grid counts one signal and one wait, however many blocks it has");
    expect(own.arrivals[next] == 0 && own.departures[previous] == 0, "the counters of blocks are zero again");
  }
  if (world == 1) return;
  // Without the other ranks, every block of rank 0 must leave.
  ranks[0].result[0] = 5;
  const RingArguments arguments = ring_arguments(ranks, 0, host.watch(0, second / 100));
  arch::launch(blocks, 4, 0, [&] { symmem_example_ring(arguments); });
  expect(ranks[0].result[0] == 5, "a kernel whose wait gave up touches nothing behind it");
  expect(host.record.state == 2 && host.record.kind == 1 && host.record.rank == 0 && host.record.peer == world - 1 &&
             host.record.slot == 9 && host.record.expected == epoch + laps + 1,
         "the record names peer and channel");
  expect(ranks[0].departures[world - 1] == 0, "the counter of blocks is zero again after a wait that gave up");
}

void user_kernels() {
  for (uint32 world : {1u, 2u, 3u}) {
    for (uint32 blocks : {1u, 3u}) user_kernel(world, blocks);
  }
}

}  // namespace
