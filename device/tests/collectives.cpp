// Tests the collectives' device code on the host twin, against reference implementations. `cargo xtask twin` builds and
// runs them: `numbers` and `calls` under AddressSanitizer and UndefinedBehaviorSanitizer, `calls` also under
// ThreadSanitizer. Ranks are host threads that launch grids. A seed determines grid, sizes, alignments, types and
// schedule.
//
// Verified to fail without any wait of a pushed reduction or of a move in pieces, if a pushed reduction stores at its peers
// before they have entered the call, without the block barrier at the end of a use of packets, and without clearing packets
// when flags wrap.
#include "../entries/collective.h"
#include "numbers.h"
#include "pieces.h"
#include "world.h"

namespace {

// ---- each family ----

// Returns a kernel that can do a move in packets, any of them: members may take different ones.
auto packet_kernel(const World& world, const PacketArguments& arguments, uint32 dice) {
  const uint32 ranks = arguments.group.world;
  uint64 longest = 0, all = 0;
  for (uint32 member = 0; member < ranks; ++member) {
    longest = std::max({longest, arguments.send_bytes[member], arguments.receive_bytes[member]});
    all |= arguments.send_bytes[member] | arguments.receive_bytes[member] | arguments.sources[member] | arguments.destinations[member];
  }
  const uint64 room = arguments.group.packet_bytes / 2 / ranks / 16;
  const auto fits = [&](uint64 each) {
    return all % 8 == 0 && longest / 8 <= each * world.threads * world.blocks && each * world.threads <= room;
  };
  std::vector<void (*)(const PacketArguments&)> able = {symmem_move_packets};
  if (fits(1)) able.push_back(symmem_move_packets_few);
  if (ranks == 2 && fits(1)) able.push_back(symmem_move_packets_pair1);
  if (ranks == 2 && fits(2)) able.push_back(symmem_move_packets_pair2);
  if (ranks == 2 && fits(4)) able.push_back(symmem_move_packets_pair4);
  return able[dice % able.size()];
}

// All-gather in packets, with parts of different sizes, in place or not.
void gathers_in_packets(World& world, Random& random) {
  const uint64 grain = up_to(random, 3) == 0 ? 1 : 8;
  std::vector<uint64> begins = {0};
  // Half of the messages of whole units are short enough for the small kernels.
  const uint32 most = up_to(random, 1) != 0 ? 24 : 150;
  for (uint32 rank = 0; rank < world.ranks; ++rank) begins.push_back(begins.back() + up_to(random, most) / grain * grain);
  const auto offset = [&] { return up_to(random, 1) * grain; };
  std::vector<Buffer> outputs = buffers(world.ranks, begins.back(), offset);
  fill(outputs, random);
  std::vector<Buffer> inputs = outputs;
  const bool in_place = up_to(random, 1) != 0;
  const uint32 dice = random();
  std::vector<std::thread> running;
  for (uint32 rank = 0; rank < world.ranks; ++rank) running.emplace_back([&, rank] {
    PacketArguments arguments{};
    arguments.group = world.group(rank);
    for (uint32 member = 0; member < world.ranks; ++member) {
      arguments.sources[member] = (in_place ? outputs : inputs)[rank].at(begins[rank]);
      arguments.send_bytes[member] = begins[rank + 1] - begins[rank];
      arguments.destinations[member] = outputs[rank].at(begins[member]);
      arguments.receive_bytes[member] = begins[member + 1] - begins[member];
    }
    world.launch(packet_kernel(world, arguments, dice / (rank + 1)), arguments);
  });
  for (auto& thread : running) thread.join();
  for (uint32 rank = 0; rank < world.ranks; ++rank) {
    for (uint32 from = 0; from < world.ranks; ++from) {
      same(outputs[rank], begins[from], bytes_of(inputs[from], begins[from], begins[from + 1] - begins[from]),
           "packets bring each member's part to all");
    }
  }
}

// All-to-all, pushed by the owner or pulled by the receiver.
void moves(World& world, Random& random) {
  const uint64 part = up_to(random, 200);
  const bool push = up_to(random, 1) != 0;
  const auto offset = [&] { return up_to(random, 17); };
  std::vector<Buffer> inputs = buffers(world.ranks, part * world.ranks, offset);
  std::vector<Buffer> outputs = buffers(world.ranks, part * world.ranks, offset);
  fill(inputs, random);
  const uint32 concurrent = 1 + up_to(random, world.ranks);
  world.call<MoveArguments>(symmem_move, [&](uint32 rank) {
    MoveArguments arguments{};
    arguments.group = world.group(rank);
    for (uint32 step = 0; step < world.ranks; ++step) {
      const uint32 peer = (rank + step) % world.ranks;
      const uint32 from = push ? rank : peer, to = push ? peer : rank;
      arguments.destinations[step] = outputs[to].at(from * part);
      arguments.sources[step] = inputs[from].at(to * part);
      arguments.bytes[step] = part;
    }
    arguments.copies = world.ranks;
    arguments.concurrent = concurrent;
    return arguments;
  });
  for (uint32 rank = 0; rank < world.ranks; ++rank) {
    for (uint32 from = 0; from < world.ranks; ++from) {
      same(outputs[rank], from * part, bytes_of(inputs[from], rank * part, part), "copies bring each part where it belongs");
    }
  }
}

// In-place all-to-all: each pair of members swaps parts, in halves of any length.
void swaps(World& world, Random& random) {
  const uint64 part = up_to(random, 200);
  const auto offset = [&] { return up_to(random, 17); };
  // In half of the cases, all ranks have the same alignment.
  const uint64 common = offset();
  const bool alike = up_to(random, 1) != 0;
  std::vector<Buffer> all = buffers(world.ranks, part * world.ranks, [&] { return alike ? common : offset(); });
  fill(all, random);
  const std::vector<Buffer> before = all;
  const uint64 half = up_to(random, static_cast<uint32>(part));
  const uint32 concurrent = 1 + up_to(random, world.ranks);
  world.call<MoveArguments>(symmem_swap, [&](uint32 rank) {
    MoveArguments arguments{};
    arguments.group = world.group(rank);
    for (uint32 step = 1; step < world.ranks; ++step) {
      const uint32 peer = (rank + step) % world.ranks;
      const uint64 start = rank < peer ? 0 : half;
      arguments.destinations[step - 1] = all[rank].at(peer * part + start);
      arguments.sources[step - 1] = all[peer].at(rank * part + start);
      arguments.bytes[step - 1] = rank < peer ? half : part - half;
    }
    arguments.copies = world.ranks - 1;
    arguments.concurrent = concurrent;
    return arguments;
  });
  for (uint32 rank = 0; rank < world.ranks; ++rank) {
    for (uint32 from = 0; from < world.ranks; ++from) {
      same(all[rank], from * part, bytes_of(before[from], rank * part, part), "swaps bring each part where it belongs");
    }
  }
}

// A reduction over all ranks; the share of rank r is the elements [begins[r], begins[r + 1]).
struct Reduction {
  const PlainType& plain;
  ReduceOperation operation;
  std::vector<uint64> begins = {0};
  std::vector<Buffer> inputs, outputs;
  std::vector<uint64> results;

  Reduction(const World& world, Random& random) : Reduction(world, random, types[up_to(random, 13)]) {}

  Reduction(const World& world, Random& random, const PlainType& plain)
      : plain(plain), operation(static_cast<ReduceOperation>(1 + up_to(random, 4))) {
    for (uint32 rank = 0; rank < world.ranks; ++rank) begins.push_back(begins.back() + up_to(random, 70));
    // In half of the cases, all addresses agree modulo 16.
    const uint32 spread = up_to(random, 1) != 0 ? 0 : 16 / plain.bytes;
    const uint64 common = up_to(random, 16 / plain.bytes) * plain.bytes;
    const auto offset = [&] { return common + up_to(random, spread) * plain.bytes; };
    inputs = buffers(world.ranks, count() * plain.bytes, offset);
    outputs = buffers(world.ranks, count() * plain.bytes, offset);
    for (uint64 index = 0; index < count(); ++index) {
      std::vector<uint64> all;
      for (Buffer& input : inputs) {
        all.push_back(element(plain, static_cast<uint32>(random() >> 3)));
        std::memcpy(input.memory.data() + input.offset + index * plain.bytes, &all.back(), plain.bytes);
      }
      results.push_back(reference(plain, all, operation));
    }
  }

  uint64 count() const { return begins.back(); }
  uint64 share(uint32 rank) const { return begins[rank + 1] - begins[rank]; }

  void check(const Buffer& got, uint64 at, uint64 from, uint64 elements, const char* what) const {
    for (uint64 index = 0; index < elements; ++index) {
      same(got, (at + index) * plain.bytes, bytes(results[from + index]),
           std::string(what) + ": type " + std::to_string(static_cast<uint32>(plain.type)) + ", operation " +
               std::to_string(static_cast<uint32>(operation)));
    }
  }

  std::vector<uint8> bytes(uint64 bits) const {
    std::vector<uint8> all(8);
    std::memcpy(all.data(), &bits, 8);
    all.resize(plain.bytes);
    return all;
  }
};

// Reductions in packets: one-shot all-reduce, reduce-scatter, or two-shot all-reduce, in place or not.
void reduces_in_packets(World& world, Random& random) {
  Reduction reduction(world, random);
  const uint32 kind = up_to(random, 2);
  const bool in_place = up_to(random, 1) != 0;
  std::vector<Buffer>& outputs = in_place ? reduction.inputs : reduction.outputs;
  world.call<ReducePacketArguments>(reduction.plain.packets, [&](uint32 rank) {
    ReducePacketArguments arguments{};
    arguments.group = world.group(rank);
    for (uint32 member = 0; member < world.ranks; ++member) {
      const uint64 begin = kind == 0 ? 0 : reduction.begins[member] * reduction.plain.bytes;
      arguments.sources[member] = reduction.inputs[rank].at(begin);
      arguments.destinations[member] = outputs[rank].at(begin);
      arguments.counts[member] = kind == 0 ? reduction.count() : reduction.share(member);
    }
    arguments.element = static_cast<uint32>(reduction.plain.type);
    arguments.reduce = static_cast<uint32>(reduction.operation);
    arguments.two_shot = kind == 2;
    return arguments;
  });
  for (uint32 rank = 0; rank < world.ranks; ++rank) {
    const uint64 begin = reduction.begins[rank];
    if (kind == 1) {
      reduction.check(outputs[rank], begin, begin, reduction.share(rank), "packets, a share to each");
    } else {
      reduction.check(outputs[rank], 0, 0, reduction.count(), kind == 0 ? "packets, one-shot" : "packets, two-shot");
    }
  }
}

// Reductions between barriers: reduce-scatter, or two-shot all-reduce, in place or not; or one-shot all-reduce.
void reduces_between_barriers(World& world, Random& random) {
  Reduction reduction(world, random);
  const uint32 kind = up_to(random, 2);
  const bool in_place = kind == 2 && up_to(random, 1) != 0;
  std::vector<Buffer>& outputs = in_place ? reduction.inputs : reduction.outputs;
  world.call<ReduceArguments>(reduction.plain.barriered, [&](uint32 rank) {
    ReduceArguments arguments{};
    arguments.group = world.group(rank);
    const uint64 begin = kind == 0 ? 0 : reduction.begins[rank] * reduction.plain.bytes;
    for (uint32 member = 0; member < world.ranks; ++member) {
      arguments.sources[member] = reduction.inputs[member].at(begin);
      if (kind == 2 || member == rank) arguments.destinations[member] = outputs[member].at(begin);
    }
    arguments.count = kind == 0 ? reduction.count() : reduction.share(rank);
    arguments.element = static_cast<uint32>(reduction.plain.type);
    arguments.reduce = static_cast<uint32>(reduction.operation);
    return arguments;
  });
  for (uint32 rank = 0; rank < world.ranks; ++rank) {
    const uint64 begin = reduction.begins[rank];
    if (kind == 1) {
      reduction.check(outputs[rank], begin, begin, reduction.share(rank), "between barriers, a share to each");
    } else {
      reduction.check(outputs[rank], 0, 0, reduction.count(), kind == 0 ? "between barriers, one-shot" : "between barriers, two-shot");
    }
  }
}

// Pushed reductions: each rank reduces a share, for all ranks (in place or not), for itself, or for a root. Several
// calls with different grids, through which each rank goes at its own speed. Before each call, and a random time after
// the peers may have begun theirs, a rank overwrites its destination: a result that came before the rank had entered the
// call would be lost, and a race for ThreadSanitizer.
void reduces_by_pushing(World& world, Random& random) {
  const PlainType* const pushed[] = {&types[8], &types[9], &types[10]};
  Reduction reduction(world, random, *pushed[up_to(random, 2)]);
  const uint32 kind = up_to(random, 2);
  const uint32 root = up_to(random, world.ranks - 1);
  const bool in_place = up_to(random, 1) != 0;
  std::vector<Buffer>& outputs = in_place ? reduction.inputs : reduction.outputs;
  struct Grid {
    uint32 blocks, threads;
  };
  std::vector<Grid> grids;
  // An in-place call overwrites its input, so it cannot be repeated.
  for (uint32 left = in_place ? 0 : up_to(random, 2), done = 0; done <= left; ++done) {
    grids.push_back({1 + up_to(random, 1), 2 * arch::warp_size * (1 + up_to(random, 1)) + up_to(random, 2)});
  }
  std::vector<uint32> delays;  // in microseconds, per call and rank
  for (size_t call = 0; call < grids.size() * world.ranks; ++call) delays.push_back(up_to(random, 3) == 0 ? up_to(random, 2000) : 0);
  // In place, the input itself arrives late.
  const std::vector<Buffer> late = outputs;
  std::vector<std::thread> running;
  for (uint32 rank = 0; rank < world.ranks; ++rank) {
    if (in_place) std::fill(outputs[rank].memory.begin(), outputs[rank].memory.end(), 0x5A);
    running.emplace_back([&, rank] {
      ReducePushArguments arguments = world.push(rank);
      const uint64 begin = reduction.begins[rank] * reduction.plain.bytes;
      arguments.reduce.sources[rank] = reduction.inputs[rank].at(begin);
      arguments.reduce.count = reduction.share(rank);
      arguments.reduce.element = static_cast<uint32>(reduction.plain.type);
      arguments.reduce.reduce = static_cast<uint32>(reduction.operation);
      arguments.barrier = kind != 1;
      for (uint32 member = 0; member < world.ranks; ++member) {
        arguments.sources[member] = reduction.inputs[rank].at(reduction.begins[member] * reduction.plain.bytes);
        arguments.counts[member] = reduction.share(member);
        const bool stores = kind == 0 || member == (kind == 1 ? rank : root);
        if (stores) arguments.reduce.destinations[member] = outputs[member].at(begin);
      }
      for (size_t call = 0; call < grids.size(); ++call) {
        std::this_thread::sleep_for(std::chrono::microseconds(delays[call * world.ranks + rank]));
        std::copy(late[rank].memory.begin(), late[rank].memory.end(), outputs[rank].memory.begin());
        arch::launch(grids[call].blocks, grids[call].threads, 0, [&] { reduction.plain.pushed(arguments); });
      }
    });
  }
  for (auto& thread : running) thread.join();
  for (uint32 rank = 0; rank < world.ranks; ++rank) {
    const uint64 begin = reduction.begins[rank];
    if (kind == 1) {
      reduction.check(outputs[rank], begin, begin, reduction.share(rank), "by pushing, a share to each");
    } else if (kind == 0 || rank == root) {
      reduction.check(outputs[rank], 0, 0, reduction.count(), kind == 0 ? "by pushing, all to all" : "by pushing, all to a root");
    }
  }
}

// Sends and receives between random pairs, also from a rank to itself, in one or two parts per pair, of symmetric memory
// and of memory that only the sender knows.
void exchanges(World& world, Random& random) {
  const uint32 ranks = world.ranks;
  const uint32 parts = 1 + up_to(random, 1);
  if (ranks * parts + 1 > world.blocks) world.blocks = ranks * parts + 1;
  std::vector<uint64> bytes(ranks * ranks);
  std::vector<bool> sends(ranks * ranks), own(ranks * ranks);
  for (uint32 pair = 0; pair < ranks * ranks; ++pair) {
    bytes[pair] = up_to(random, 120);
    sends[pair] = up_to(random, 2) != 0;
    own[pair] = pair / ranks != pair % ranks && up_to(random, 1) != 0;
  }
  const uint32 chunk_bytes = 16 * (1 + up_to(random, 2));
  const auto offset = [&] { return up_to(random, 17); };
  std::vector<Buffer> inputs = buffers(ranks, 128 * ranks, offset);
  std::vector<Buffer> outputs = buffers(ranks, 128 * ranks, offset);
  fill(inputs, random);
  // Two rows of addresses by rank in the communicator; the second is used.
  const uint32 table_ranks = ranks + 10;
  std::vector<uint64> table(2 * table_ranks);
  for (uint32 rank = 0; rank < ranks; ++rank) table[table_ranks + rank + 10] = inputs[rank].at();
  const uint32 before = world.blocks;
  world.blocks = ranks * parts + 1;
  world.call<ExchangeArguments>(symmem_exchange, [&](uint32 rank) {
    ExchangeArguments arguments{};
    arguments.group = world.group(rank);
    for (uint32 member = 0; member < ranks; ++member) {
      const uint32 out = rank * ranks + member, in = member * ranks + rank;
      const uint64 token = own[out] ? own_row << 48 | inputs[rank].at(member * 128) : (1ull << 48) + member * 128;
      arguments.send_tokens[member] = sends[out] ? token : no_token;
      arguments.send_bytes[member] = bytes[out];
      arguments.destinations[member] = sends[in] ? outputs[rank].at(member * 128) : no_token;
      arguments.receive_bytes[member] = bytes[in];
    }
    arguments.table = address(table.data());
    arguments.table_ranks = table_ranks;
    arguments.blocks_per_peer = parts;
    arguments.staging = world.staging();
    arguments.chunk_bytes = chunk_bytes;
    return arguments;
  });
  world.blocks = before;
  for (uint32 rank = 0; rank < ranks; ++rank) {
    for (uint32 from = 0; from < ranks; ++from) {
      if (!sends[from * ranks + rank]) continue;
      same(outputs[rank], from * 128, bytes_of(inputs[from], rank * 128, bytes[from * ranks + rank]), "an exchange brings what was sent");
    }
  }
}

// Calls of all families in turn on the same slots, with epochs and flags that wrap meanwhile.
void calls(uint32 seed, uint32 ranks) {
  Random random(seed * 100 + ranks);
  arch::schedule() = seed;
  const uint32 threads = 1 + up_to(random, 3);
  const uint32 blocks = 1 + up_to(random, 1);
  // Inboxes of 1 to 16 packets, so that messages take one round or many.
  const uint64 packet_bytes = ranks * 2 * 16 * (1 + up_to(random, 15));
  // The memory has slots and regions only for the blocks of an exchange in two parts.
  World world(ranks, ranks * 2 + 1, threads, packet_bytes, 0u - 1 - up_to(random, 6), 1u << up_to(random, 2),
              16 * (1 + up_to(random, 3)));
  world.blocks = blocks;
  const auto what = [&] { return " (seed " + std::to_string(seed) + ", world " + std::to_string(ranks) + ")"; };
  for (int turn = 0; turn < 8; ++turn) {
    const unsigned before = failures;
    switch (up_to(random, 10)) {
      case 0: gathers_in_packets(world, random); break;
      case 1: moves(world, random); break;
      case 2: reduces_between_barriers(world, random); break;
      case 3: exchanges(world, random); break;
      case 4: swaps(world, random); break;
      case 5:
      case 6: reduces_by_pushing(world, random); break;
      case 7:
      case 8: moves_in_pieces(world, random); break;
      default: reduces_in_packets(world, random);
    }
    world.blocks = blocks;
    expect(failures == before, "turn " + std::to_string(turn) + what());
    expect(world.record.state == 0, "no wait gave up" + what());
  }
  arch::schedule() = 0;
}

// ---- waits that end ----

template <class Arguments>
void enrol(World& world, Arguments& arguments) {
  arguments.group = world.group(0);
}
void enrol(World& world, ReducePushArguments& arguments) { arguments = world.push(0); }
void enrol(World& world, PieceArguments& arguments) { arguments = pieces(world, 0); }

// Only rank 0 calls: it must leave at the deadline, or when the host has aborted.
template <class Arguments>
void gives_up(void (*kernel)(const Arguments&), uint32 blocks, const char* name, const std::function<void(Arguments&, const Buffer&)>& complete) {
  for (const bool aborts : {false, true}) {
    World world(3, 8, 2 * arch::warp_size, 3 * 2 * 16, 4);
    world.blocks = blocks;
    if (!aborts) world.deadline = second / 50;
    const Buffer memory(64, 0);
    Arguments arguments{};
    enrol(world, arguments);
    complete(arguments, memory);
    std::thread host([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      if (aborts) __atomic_store_n(&world.abort, 1u, __ATOMIC_RELEASE);
    });
    world.launch(kernel, arguments);
    host.join();
    const WaitRecord& record = world.record;
    expect(record.state == 2 && record.kind == 16 + operation && record.rank == 10 && record.slot == 5 &&
               (record.peer == 11 || record.peer == 12) && record.expected == 5 && record.seen == 4 &&
               record.reason == (aborts ? 2u : 1u),
           std::string(name) + (aborts ? " leaves when the host aborts" : " gives up at its deadline") +
               ", and the record tells who waited for what");
    expect(world.aborted[0] == aborts && world.aborted[1] == 0, "the device of the rank that saw the abort knows of it");
    if (!aborts) continue;
    // The next call does not read the abort word again, or it would wait for a minute.
    world.abort = 0;
    world.record = {};
    world.launch(kernel, arguments);
    expect(world.record.state == 0, std::string(name) + " after an abort leaves at once, without a record");
  }
}

void waits_end() {
  gives_up<MoveArguments>(symmem_move, 2, "a move", [](MoveArguments& arguments, const Buffer&) { arguments.concurrent = 1; });
  gives_up<MoveArguments>(symmem_swap, 2, "a swap", [](MoveArguments& arguments, const Buffer&) { arguments.concurrent = 1; });
  gives_up<PacketArguments>(symmem_move_packets, 2, "a move in packets", [](PacketArguments&, const Buffer&) {});
  gives_up<PacketArguments>(symmem_move_packets_few, 2, "a small move in packets", [](PacketArguments&, const Buffer&) {});
  gives_up<ReduceArguments>(symmem_reduce_bf16, 2, "a reduction", [](ReduceArguments& arguments, const Buffer&) { arguments.reduce = 1; });
  gives_up<ReducePacketArguments>(symmem_reduce_packets_f32, 2, "a reduction in packets",
                                  [](ReducePacketArguments& arguments, const Buffer& memory) {
                                    arguments.reduce = 1;
                                    for (int member = 0; member < 3; ++member) {
                                      arguments.counts[member] = 3;
                                      arguments.sources[member] = memory.at();
                                      arguments.destinations[member] = memory.at(32);
                                    }
                                  });
  for (const bool barrier : {true, false}) {
    gives_up<ReducePushArguments>(symmem_reduce_push_bf16, 2, "a reduction by pushing",
                                  [barrier](ReducePushArguments& arguments, const Buffer& memory) {
                                    arguments.reduce.reduce = 1;
                                    arguments.reduce.count = 3;
                                    arguments.reduce.destinations[0] = memory.at(32);
                                    arguments.reduce.sources[0] = memory.at();
                                    for (int member = 0; member < 3; ++member) {
                                      arguments.counts[member] = 3;
                                      arguments.sources[member] = memory.at();
                                    }
                                    arguments.barrier = barrier;
                                  });
  }
  gives_up<PieceArguments>(symmem_move_pieces, 2, "a move in pieces",
                           [](PieceArguments& arguments, const Buffer&) { arguments.longest = 1; });
  gives_up<ExchangeArguments>(symmem_exchange, 4, "an exchange", [](ExchangeArguments& arguments, const Buffer& memory) {
    for (int member = 0; member < 3; ++member) {
      arguments.send_tokens[member] = member == 1 ? 0 : no_token;
      arguments.destinations[member] = member == 2 ? memory.at() : no_token;
    }
    arguments.blocks_per_peer = 1;
  });
}

// A block waits for the peers' blocks with its index. If the grid is not co-resident, those may never start, and the
// wait gives up. Therefore core rejects such grids.
void grids_larger_than_a_device_give_up() {
  for (const uint32 resident : {4u, 2u}) {
    World world(2, 4, 2, 2 * 2 * 16, 0);
    const bool whole = resident == world.blocks;
    if (!whole) world.deadline = second / 50;
    std::vector<std::thread> running;
    for (uint32 rank = 0; rank < world.ranks; ++rank) {
      running.emplace_back([&, rank] {
        arch::residency() = {resident, rank == 1};
        MoveArguments arguments{};
        arguments.group = world.group(rank);
        arguments.concurrent = 1;
        world.launch(symmem_move, arguments);
      });
    }
    for (auto& thread : running) thread.join();
    expect(whole ? world.record.state == 0 : world.record.state == 2 && world.record.reason == 1,
           whole ? "blocks that are all resident meet, in whatever order they begin"
                 : "a grid larger than the device waits for blocks that do not begin, and gives up");
  }
}

// The received size must equal the sent size.
void sizes_must_agree() {
  World world(1, 2, 2, 2 * 16, 0);
  world.deadline = second / 50;
  const Buffer memory(64, 0);
  std::vector<uint64> table(11);
  table[10] = memory.at();
  ExchangeArguments arguments{};
  arguments.group = world.group(0);
  arguments.destinations[0] = memory.at(32);
  arguments.send_bytes[0] = 24;
  arguments.receive_bytes[0] = 16;
  arguments.table = address(table.data());
  arguments.table_ranks = 11;
  arguments.blocks_per_peer = 1;
  world.launch(symmem_exchange, arguments);
  expect(world.record.state == 2 && world.record.kind == 4 && world.record.peer == 10 && world.record.expected == 16 &&
             world.record.seen == 24,
         "a receipt of another size than was sent leaves a record of both");
}

}  // namespace

int main(int count, char** words) {
  if (part_of(count, words) == "all") numbers();
  waits_end();
  sizes_must_agree();
  grids_larger_than_a_device_give_up();
  return run_seeds(count, words, "collectives' host twin", 8, calls);
}
