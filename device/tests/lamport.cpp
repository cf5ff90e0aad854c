// Tests reductions and moves in Lamport packets, on the same inboxes, on the host twin. `cargo xtask twin` builds and runs
// them under AddressSanitizer and UndefinedBehaviorSanitizer, and under ThreadSanitizer. Ranks are host threads that launch
// grids one after the other, without synchronization between calls. A seed determines types, data, lengths, alignments,
// kernels and schedule.
//
// Verified to fail if what was read is not emptied, if only one buffer is used, if only three of a packet's words are
// awaited, if a rank takes its own elements as they are, and if a rank sends after a wait has given up; of moves, if a word
// is marked at no thread or at the wrong one, and if the marks of all words may be empty.
#include "../entries/collective.h"
#include "../entries/reduce_lamport.h"
#include <optional>
#include <variant>

#include "world.h"

namespace {

using Kernel = void (*)(const ReduceLamportArguments&);

// A type's kernels: for all calls, and the small ones, null for 8-bit types.
struct Kernels {
  const PlainType& plain;
  Kernel any, few, pair1, pair2, pair4;
};

#define SMALL(type, index) \
  {types[index], symmem_reduce_lamport_##type, symmem_reduce_lamport_few_##type, symmem_reduce_lamport_pair1_##type, symmem_reduce_lamport_pair2_##type, symmem_reduce_lamport_pair4_##type}
const Kernels kernels[] = {SMALL(f16, 8), SMALL(bf16, 9), SMALL(f32, 10),
                           {types[12], symmem_reduce_lamport_f8_e4m3, nullptr, nullptr, nullptr, nullptr},
                           {types[13], symmem_reduce_lamport_f8_e5m2, nullptr, nullptr, nullptr, nullptr}};

bool is_nan(const PlainType& plain, uint64 bits) {
  if (plain.exponent == 0) return std::isnan(arch::float_of(static_cast<uint32>(bits)));
  return std::isnan(defined(plain.exponent, plain.mantissa, plain.type == ElementType::f8_e4m3, static_cast<uint32>(bits)));
}

LamportPair pair_of(const ReduceLamportArguments& arguments) {
  if (arguments.group.world != 2) return {};
  const uint32 rank = arguments.group.rank, peer = 1 - rank;
  return {arguments.sources[rank], arguments.sources[peer], arguments.inboxes[rank], arguments.inboxes[peer]};
}

MoveLamportPair pair_of(const MoveLamportArguments& arguments) {
  if (arguments.group.world != 2) return {};
  const uint32 rank = arguments.group.rank, peer = 1 - rank;
  return {arguments.sources[peer], arguments.destinations[peer], arguments.sources[rank],
          arguments.destinations[rank], arguments.inboxes[rank], arguments.inboxes[peer]};
}

// The inboxes of all ranks.
struct Inboxes {
  uint32 part_bytes;
  std::vector<std::vector<arch::Vector16>> inboxes;  // per rank
  std::vector<arch::Vector16> counters;              // per rank

  Inboxes(uint32 ranks, uint32 part_bytes) : part_bytes(part_bytes), counters(ranks) {
    for (uint32 rank = 0; rank < ranks; ++rank) inboxes.emplace_back(lamport_buffers * (ranks - 1) * part_bytes / 16);
  }

  template <class Arguments = ReduceLamportArguments>
  Arguments arguments(World& world, uint32 rank) {
    Arguments arguments{};
    arguments.group = world.group(rank);
    for (uint32 member = 0; member < world.ranks; ++member) arguments.inboxes[member] = address(inboxes[member].data());
    arguments.counters = address(&counters[rank]);
    arguments.part_bytes = part_bytes;
    return arguments;
  }
};

// One call: an all-reduce, or a reduce-scatter of equal shares.
struct Call {
  const Kernels& kernels;
  ReduceOperation operation;
  bool scatters, in_place;
  uint64 count;                         // elements of a share
  uint32 blocks, threads;               // of the grid, equal on all ranks
  std::vector<Buffer> inputs, outputs;  // per rank
  std::vector<Buffer> sent;             // the inputs as packets carry them

  Call(const World& world, uint32 part_bytes, Random& random)
      : kernels(::kernels[up_to(random, 4)]), operation(static_cast<ReduceOperation>(1 + up_to(random, 1))),
        scatters(up_to(random, 2) == 0), in_place(!scatters && up_to(random, 1) != 0) {
    const uint32 width = kernels.plain.bytes;
    const bool whole = up_to(random, 1) != 0;
    blocks = 1 + up_to(random, 2);
    threads = 1 + up_to(random, 3);
    count = whole ? (1 + up_to(random, part_bytes / 16 - 1)) * (16 / width) : 1 + up_to(random, part_bytes / width - 1);
    // In half of the cases everything is aligned for the small kernels.
    const auto offset = [&] { return whole ? up_to(random, 1) * 16 : up_to(random, 16 / width) * width; };
    const uint64 bytes = count * width;
    inputs = buffers(world.ranks, bytes * (scatters ? world.ranks : 1), offset);
    outputs = buffers(world.ranks, bytes, offset);
    for (Buffer& input : inputs) fill(input, bytes, random);
  }

  // Mostly small numbers, some words of which all bits are set, and some of random bits.
  void fill(Buffer& input, uint64 share, Random& random) {
    const uint32 width = kernels.plain.bytes;
    for (uint64 at = 0; at < input.size(); at += width) {
      const uint64 bits = up_to(random, 15) == 0 ? random() : element(kernels.plain, static_cast<uint32>(random() >> 3));
      std::memcpy(input.memory.data() + input.offset + at, &bits, width);
    }
    Buffer packets = input;
    for (uint64 at = 0; at + 4 <= input.size(); at += 4) {
      if (up_to(random, 5) == 0 && (at % share) + 4 <= share) std::memset(input.memory.data() + input.offset + at, 0xff, 4);
    }
    packets = input;
    for (uint64 begin = 0; begin < input.size(); begin += share) {
      for (uint64 at = begin; at + 4 <= begin + share; at += 4) {
        uint32 word;
        std::memcpy(&word, packets.memory.data() + packets.offset + at, 4);
        if (word == ~0u) packets.memory[packets.offset + at + 3] = 0x7f;
      }
    }
    sent.push_back(packets);
  }

  Buffer& destination(uint32 rank) { return in_place ? inputs[rank] : outputs[rank]; }

  // Returns a kernel that can do the call, any of them.
  Kernel kernel(const ReduceLamportArguments& arguments, uint64 threads, uint32 dice) const {
    const uint64 bytes = count * kernels.plain.bytes;
    uint64 all = bytes | arguments.destination;
    for (uint32 member = 0; member < arguments.group.world; ++member) all |= arguments.sources[member];
    if (kernels.few == nullptr || all % 16 != 0) return kernels.any;
    std::vector<Kernel> able = {kernels.any};
    if (!scatters && bytes / 16 <= threads) able.push_back(kernels.few);
    if (arguments.group.world == 2 && bytes / 16 <= threads) able.push_back(kernels.pair1);
    if (arguments.group.world == 2 && bytes / 16 <= 2 * threads) able.push_back(kernels.pair2);
    if (arguments.group.world == 2 && bytes / 16 <= 4 * threads) able.push_back(kernels.pair4);
    return able[dice % able.size()];
  }

  void launch(World& world, Inboxes& inboxes, uint32 rank, uint32 dice) {
    ReduceLamportArguments arguments = inboxes.arguments(world, rank);
    const uint64 share = count * kernels.plain.bytes;
    for (uint32 member = 0; member < world.ranks; ++member) {
      arguments.sources[member] = inputs[rank].at(scatters ? member * share : 0);
    }
    arguments.pair = pair_of(arguments);
    arguments.destination = destination(rank).at();
    arguments.count = count;
    arguments.element = static_cast<uint32>(kernels.plain.type);
    arguments.reduce = static_cast<uint32>(operation);
    const Kernel call = kernel(arguments, static_cast<uint64>(blocks) * threads, dice);
    arch::launch(blocks, threads, 0, [&] { call(arguments); });
  }

  void check(uint32 ranks, const std::string& what) {
    const uint32 width = kernels.plain.bytes;
    for (uint32 rank = 0; rank < ranks; ++rank) {
      const Buffer& got = destination(rank);
      // A NaN's payload may be any, but the same everywhere.
      if (!scatters) same(got, 0, bytes_of(destination(0), 0, count * width), "all ranks get the same bits" + what);
      for (uint64 index = 0; index < count; ++index) {
        const uint64 at = ((scatters ? rank * count : 0) + index) * width;
        std::vector<uint64> all;
        for (const Buffer& one : sent) all.push_back(bits(one, at));
        const uint64 wanted = reference(kernels.plain, all, operation), found = bits(got, index * width);
        expect(found == wanted || (is_nan(kernels.plain, found) && is_nan(kernels.plain, wanted)),
               "each element is reduced once from every rank" + what);
      }
    }
  }

  uint64 bits(const Buffer& buffer, uint64 at) const {
    uint64 bits = 0;
    std::memcpy(&bits, buffer.memory.data() + buffer.offset + at, kernels.plain.bytes);
    return bits;
  }
};

using MoveKernel = void (*)(const MoveLamportArguments&);

// An all-to-all, out of place or in place.
struct Move {
  bool in_place;
  uint64 bytes;                         // of a message
  uint32 blocks, threads;               // of the grid, equal on all ranks
  std::vector<Buffer> inputs, outputs;  // per rank
  std::vector<Buffer> sent;             // the inputs before the call

  Move(const World& world, uint32 part_bytes, Random& random) : in_place(up_to(random, 1) != 0) {
    const uint64 most = part_bytes / (16 * arch::line_threads) * (16 * line_vectors);
    const bool whole = up_to(random, 1) != 0;
    blocks = 1 + up_to(random, 2);
    threads = arch::line_threads * (1 + up_to(random, 1));
    bytes = whole ? 16 * (1 + up_to(random, most / 16 - 1)) : 1 + up_to(random, most - 1);
    const auto offset = [&] { return whole ? up_to(random, 1) * 16 : up_to(random, 15); };
    inputs = buffers(world.ranks, bytes * world.ranks, offset);
    outputs = buffers(world.ranks, bytes * world.ranks, offset);
    // Half of the words are those that need a mark.
    for (Buffer& input : inputs) {
      for (uint64 at = 0; at < input.size(); at += 4) {
        const uint32 word = up_to(random, 1) == 0 ? ~0u : static_cast<uint32>(random() >> 8);
        std::memcpy(input.memory.data() + input.offset + at, &word, std::min<uint64>(4, input.size() - at));
      }
    }
    sent = inputs;
  }

  Buffer& destination(uint32 rank) { return in_place ? inputs[rank] : outputs[rank]; }

  // Returns a kernel that can do the call, any of them.
  MoveKernel kernel(const MoveLamportArguments& arguments, uint64 threads, uint32 dice) const {
    uint64 all = bytes;
    for (uint32 member = 0; member < arguments.group.world; ++member) all |= arguments.sources[member] | arguments.destinations[member];
    std::vector<MoveKernel> able = {symmem_move_lamport};
    const uint64 packets = (bytes / 16 + line_vectors - 1) / line_vectors * arch::line_threads;
    if (all % 16 == 0 && packets <= threads) able.push_back(symmem_move_lamport_few);
    if (all % 16 == 0 && arguments.group.world == 2) {
      if (packets <= threads) able.push_back(symmem_move_lamport_pair1);
      if (packets <= 2 * threads) able.push_back(symmem_move_lamport_pair2);
      if (packets <= 4 * threads) able.push_back(symmem_move_lamport_pair4);
    }
    return able[dice % able.size()];
  }

  void launch(World& world, Inboxes& inboxes, uint32 rank, uint32 dice) {
    auto arguments = inboxes.arguments<MoveLamportArguments>(world, rank);
    for (uint32 member = 0; member < world.ranks; ++member) {
      arguments.sources[member] = inputs[rank].at(member * bytes);
      arguments.destinations[member] = destination(rank).at(member * bytes);
    }
    arguments.bytes = bytes;
    arguments.pair = pair_of(arguments);
    const MoveKernel call = kernel(arguments, static_cast<uint64>(blocks) * threads, dice);
    arch::launch(blocks, threads, 0, [&] { call(arguments); });
  }

  void check(uint32 ranks, const std::string& what) {
    for (uint32 rank = 0; rank < ranks; ++rank) {
      for (uint32 from = 0; from < ranks; ++from) {
        same(destination(rank), from * bytes, bytes_of(sent[from], rank * bytes, bytes), "every bit arrives" + what);
      }
    }
  }
};

// A call of either kind.
struct Either {
  std::optional<Call> sum;
  std::optional<Move> move;

  Either(const World& world, uint32 part_bytes, Random& random) {
    if (up_to(random, 1) == 0) {
      sum.emplace(world, part_bytes, random);
    } else {
      move.emplace(world, part_bytes, random);
    }
  }

  void launch(World& world, Inboxes& inboxes, uint32 rank, uint32 dice) {
    if (sum) sum->launch(world, inboxes, rank, dice);
    if (move) move->launch(world, inboxes, rank, dice);
  }

  void check(uint32 ranks, const std::string& what) {
    if (sum) sum->check(ranks, what);
    if (move) move->check(ranks, what);
  }
};

void calls(uint32 seed, uint32 ranks) {
  if (ranks == 1) return;  // there is nobody to send to
  Random random(seed * 100 + ranks);
  arch::schedule() = seed;
  World world(ranks, 1, 1, ranks * 2 * 16, 0);
  // At least a line of a move.
  Inboxes inboxes(ranks, 16 * (arch::line_threads + up_to(random, 19)));
  std::vector<Either> calls;
  std::vector<uint32> dice;
  for (int call = 0; call < 9; ++call) {
    calls.emplace_back(world, inboxes.part_bytes, random);
    for (uint32 rank = 0; rank < ranks; ++rank) dice.push_back(static_cast<uint32>(random() >> 8));
  }
  std::vector<std::thread> running;
  for (uint32 rank = 0; rank < ranks; ++rank) {
    running.emplace_back([&, rank] {
      for (size_t call = 0; call < calls.size(); ++call) calls[call].launch(world, inboxes, rank, dice[call * ranks + rank]);
    });
  }
  for (auto& thread : running) thread.join();
  for (size_t call = 0; call < calls.size(); ++call) {
    calls[call].check(ranks, " (seed " + std::to_string(seed) + ", world " + std::to_string(ranks) + ", call " + std::to_string(call) + ")");
  }
  expect(world.record.state == 0, "no wait gave up");
  arch::schedule() = 0;
}

// A kernel, and the memory of a rank that calls it with messages of two lines, or of two vectors for sums.
struct Waiting {
  uint32 ranks;
  std::variant<Kernel, MoveKernel> kernel;
  uint64 bytes;  // of a message

  explicit Waiting(Kernel kernel, uint32 ranks = 3) : ranks(ranks), kernel(kernel), bytes(2 * 16) {}
  explicit Waiting(MoveKernel kernel, uint32 ranks = 3) : ranks(ranks), kernel(kernel), bytes(2 * 16 * line_vectors) {}

  uint32 part_bytes() const { return 2 * 16 * arch::line_threads; }

  // Launches the call at one rank, every element of whose messages is `number`, and returns what arrives from each member,
  // or the sums. Bytes that the kernel does not store are 0xA5.
  Buffer launch(World& world, Inboxes& inboxes, uint32 rank, float number) const {
    Buffer input(bytes * ranks, 0), output(bytes * ranks, 0);
    for (uint64 at = 0; at < input.size(); at += 4) std::memcpy(input.memory.data() + at, &number, 4);
    if (const Kernel* sum = std::get_if<Kernel>(&kernel)) {
      auto arguments = inboxes.arguments<ReduceLamportArguments>(world, rank);
      for (uint32 member = 0; member < ranks; ++member) arguments.sources[member] = input.at();
      arguments.destination = output.at();
      arguments.count = bytes / 4;
      arguments.reduce = 1;
      arguments.pair = pair_of(arguments);
      world.launch(*sum, arguments);
    } else {
      auto arguments = inboxes.arguments<MoveLamportArguments>(world, rank);
      for (uint32 member = 0; member < ranks; ++member) {
        arguments.sources[member] = input.at(member * bytes);
        arguments.destinations[member] = output.at(member * bytes);
      }
      arguments.bytes = bytes;
      arguments.pair = pair_of(arguments);
      world.launch(std::get<MoveKernel>(kernel), arguments);
    }
    return output;
  }

  // Returns the value of a float of what launch() returned.
  static float at(const Buffer& output, uint64 byte) {
    float number;
    std::memcpy(&number, output.memory.data() + byte, 4);
    return number;
  }

  bool moves() const { return std::holds_alternative<MoveKernel>(kernel); }
};

const Waiting all_kernels[] = {Waiting(symmem_reduce_lamport_f32), Waiting(symmem_reduce_lamport_few_f32),
                               Waiting(symmem_reduce_lamport_pair1_f32, 2), Waiting(symmem_move_lamport),
                               Waiting(symmem_move_lamport_few), Waiting(symmem_move_lamport_pair1, 2),
                               Waiting(symmem_move_lamport_pair4, 2)};

bool has_record(const WaitRecord& record, uint32 peer, uint32 reason) {
  return record.state == 2 && record.kind == 16 + operation && record.rank == 10 && record.slot == 5 && record.peer == peer &&
         record.expected == 1 && record.seen == 0 && record.reason == reason;
}

// Grids of one block: a block whose threads begin only when another has given up sends nothing, and threads of the host may
// be far apart.

// Only rank 0 calls: it must leave at the deadline, or when the host has aborted.
void waits_end() {
  for (const Waiting& waiting : all_kernels) {
    for (const bool aborts : {false, true}) {
      World world(waiting.ranks, 1, 2 * arch::line_threads, waiting.ranks * 2 * 16, 4);
      if (!aborts) world.deadline = second / 50;
      Inboxes inboxes(world.ranks, waiting.part_bytes());
      std::thread host([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        if (aborts) __atomic_store_n(&world.abort, 1u, __ATOMIC_RELEASE);
      });
      const Buffer output = waiting.launch(world, inboxes, 0, 1);
      host.join();
      expect(has_record(world.record, 11, aborts ? 2 : 1), "a wait for packets ends, and its record tells who waited for whom");
      // A move copies this rank's own message.
      const uint64 own = waiting.moves() ? waiting.bytes : 0;
      same(output, own, std::vector<uint8>(output.size() - own, 0xA5), "what has not come is not stored");
    }
  }
}

// The packets of rank 1 have come to rank 0, those of rank 2 never do.
void the_peer_that_is_missing_is_named() {
  for (const Waiting& waiting : all_kernels) {
    if (waiting.ranks != 3) continue;
    World world(3, 1, 2 * arch::line_threads, 3 * 2 * 16, 4);
    world.deadline = second / 50;
    Inboxes inboxes(3, waiting.part_bytes());
    waiting.launch(world, inboxes, 1, 1);
    world.record = {};
    const Buffer output = waiting.launch(world, inboxes, 0, 1);
    expect(has_record(world.record, 12, 1), "the record names the peer whose packets are missing");
    const uint64 missing = waiting.moves() ? 2 * waiting.bytes : 0;
    same(output, missing, std::vector<uint8>(waiting.bytes, 0xA5), "what has not come is not stored");
  }
}

// A rank that has given up sends no more: else its later packets would overwrite those that a late peer has not read.
void a_late_peer_gets_what_was_sent_to_it() {
  for (const Waiting& waiting : all_kernels) {
    World world(2, 1, 2 * arch::line_threads, 2 * 2 * 16, 0);
    Inboxes inboxes(2, waiting.part_bytes());
    Waiting pair = waiting;
    pair.ranks = 2;
    const auto call = [&](uint32 rank, float number, uint64 deadline) {
      world.deadline = deadline;
      return pair.launch(world, inboxes, rank, number);
    };
    for (int later = 0; later < 4; ++later) call(0, 1.0f + static_cast<float>(later), second / 100);
    expect(world.record.state == 2, "a rank whose peer does not come gives up");
    world.record = {};
    const Buffer late = call(1, 10, 60 * second);
    bool right = world.record.state == 0;
    for (uint64 at = 0; at < pair.bytes; at += 4) right = right && Waiting::at(late, at) == (pair.moves() ? 1 : 11);
    expect(right, "a late peer gets what was sent to it");
    call(1, 10, second / 100);
    expect(world.record.state == 2, "a late peer waits in vain for what was not sent");
  }
}

}  // namespace

int main(int count, char** words) {
  waits_end();
  the_peer_that_is_missing_is_named();
  a_late_peer_gets_what_was_sent_to_it();
  return run_seeds(count, words, "Lamport packets on the host twin", 8, calls);
}
