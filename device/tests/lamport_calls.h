// Random calls in Lamport packets, with their references: sums in one step or in shares, for every rank or for one, and
// moves from and to every rank or one. All use the same inboxes in turn.
#pragma once

#include "../entries/collective.h"
#include "../entries/reduce_lamport.h"
#include <optional>

#include "lamport_inboxes.h"

namespace {

using Kernel = void (*)(const ReduceLamportArguments&);
using MoveKernel = void (*)(const MoveLamportArguments&);

// The small kernels for a fixed number of members: of one-shot sums, in which all members reduce the same elements, and in
// which they may reduce different ones; and of two-shot sums.
struct FixedKernels {
  Kernel alike, scatter, two_shot;
};

// A type's kernels: those for all calls, one-shot, with one receiver, and two-shot; and the small ones, null for 8-bit
// types.
struct Kernels {
  const PlainType& plain;
  Kernel any, rooted, two_shot, few, pair1, pair2, pair4, two_shot_few;
  FixedKernels four, eight;

  // Returns the kernels for a world of that size, or null.
  const FixedKernels* fixed(uint32 world) const { return world == 4 ? &four : world == 8 ? &eight : nullptr; }
};

#define ALL_SUMS(type) \
  symmem_reduce_lamport_##type, symmem_reduce_lamport_rooted_##type, symmem_reduce_lamport_two_shot_##type
#define FIXED(members, type)                                                                   \
  {symmem_reduce_lamport_##members##_##type, symmem_reduce_lamport_scatter_##members##_##type, \
   symmem_reduce_lamport_two_shot_##members##_##type}
#define SMALL(type, index)                                                                                             \
  {types[index], ALL_SUMS(type), symmem_reduce_lamport_few_##type, symmem_reduce_lamport_pair1_##type,                 \
   symmem_reduce_lamport_pair2_##type, symmem_reduce_lamport_pair4_##type, symmem_reduce_lamport_two_shot_few_##type,  \
   FIXED(four, type), FIXED(eight, type)}
const Kernels kernels[] = {SMALL(f16, 8), SMALL(bf16, 9), SMALL(f32, 10),
                           {types[12], ALL_SUMS(f8_e4m3), nullptr, nullptr, nullptr, nullptr, nullptr, {}, {}},
                           {types[13], ALL_SUMS(f8_e5m2), nullptr, nullptr, nullptr, nullptr, nullptr, {}, {}}};

inline bool is_nan(const PlainType& plain, uint64 bits) {
  if (plain.exponent == 0) return std::isnan(arch::float_of(static_cast<uint32>(bits)));
  return std::isnan(defined(plain.exponent, plain.mantissa, plain.type == ElementType::f8_e4m3, static_cast<uint32>(bits)));
}

inline MoveLamportPair pair_of(const MoveLamportArguments& arguments) {
  if (arguments.group.world != 2) return {};
  const uint32 rank = arguments.group.rank, peer = 1 - rank;
  return {arguments.sources[peer], arguments.destinations[peer], arguments.sources[rank],
          arguments.destinations[rank], arguments.inboxes[rank], arguments.inboxes[peer]};
}

enum class SumKind { all_reduce, two_shot, reduce_scatter, reduce };
// A two-shot call is as frequent as two others: it has many cases.
const SumKind sum_kinds[] = {SumKind::all_reduce, SumKind::two_shot, SumKind::two_shot, SumKind::reduce_scatter,
                             SumKind::reduce};

// A sum or an average. A reduce-scatter has equal shares; of the shares of a two-shot all-reduce, the last may be shorter
// than others, or empty.
struct Call {
  const Kernels& kernels;
  ReduceOperation operation;
  SumKind kind;
  bool in_place;
  uint32 receiver;                      // a rank in a reduce, otherwise every_member
  uint64 share_bytes = 0;               // of a two-shot call
  uint64 count;                         // elements of a result
  uint32 blocks, threads;               // of the grid, equal on all ranks
  std::vector<Buffer> inputs, outputs;  // per rank
  std::vector<Buffer> sent;             // the inputs as packets carry them
  std::vector<Buffer> before;           // the destinations before the call

  Call(const World& world, uint32 part_bytes, Random& random)
      : kernels(::kernels[up_to(random, 4)]), operation(static_cast<ReduceOperation>(1 + up_to(random, 1))),
        kind(sum_kinds[up_to(random, 4)]), in_place(kind != SumKind::reduce_scatter && up_to(random, 1) != 0),
        receiver(kind == SumKind::reduce ? up_to(random, world.ranks - 1) : every_member) {
    const uint32 width = kernels.plain.bytes;
    // Mostly aligned and short enough for the small kernels.
    const bool whole = up_to(random, 2) != 0;
    const bool is_short = up_to(random, 2) != 0 ? whole : !whole;
    blocks = 1 + up_to(random, 2);
    threads = 1 + up_to(random, 3);
    const uint32 vectors = part_bytes / (kind == SumKind::two_shot ? 32 : 16);
    uint64 most = 16 * (is_short ? std::min(vectors, blocks * threads) : vectors);
    if (kind == SumKind::two_shot) {
      share_bytes = 16 * (1 + up_to(random, static_cast<uint32>(most / 16) - 1));
      most = share_bytes * world.ranks;
    }
    const uint32 unit = whole ? 16 : width;
    count = (1 + up_to(random, static_cast<uint32>(most / unit) - 1)) * (unit / width);
    const auto offset = [&] { return whole ? up_to(random, 1) * 16 : up_to(random, 16 / width) * width; };
    inputs = buffers(world.ranks, bytes() * (kind == SumKind::reduce_scatter ? world.ranks : 1), offset);
    outputs = buffers(world.ranks, bytes(), offset);
    for (Buffer& input : inputs) fill(input, random);
    before = in_place ? inputs : outputs;
  }

  uint64 bytes() const { return count * kernels.plain.bytes; }
  // The bytes between the starts of two messages of a rank, if they differ.
  uint64 message_bytes() const { return kind == SumKind::two_shot ? share_bytes : bytes(); }

  // Mostly small numbers, some words of which all bits are set, and some of random bits. Some results of two-shot calls
  // have all bits set, too: those of a NaN which has them once it is quiet.
  void fill(Buffer& input, Random& random) {
    const uint32 width = kernels.plain.bytes;
    const uint64 message = message_bytes();
    const auto word_at = [&](uint64 at) { return input.memory.data() + input.offset + at; };
    for (uint64 at = 0; at < input.size(); at += width) {
      const uint64 bits = up_to(random, 15) == 0 ? random() : element(kernels.plain, static_cast<uint32>(random() >> 3));
      std::memcpy(word_at(at), &bits, width);
    }
    for (uint64 at = 0; at + 4 <= input.size(); at += 4) {
      if (up_to(random, 5) == 0 && (at % message) + 4 <= message) std::memset(word_at(at), 0xff, 4);
      const uint32 loud = 0xffbfffff;
      if (kind == SumKind::two_shot && width == 4 && up_to(random, 5) == 0) std::memcpy(word_at(at), &loud, 4);
    }
    Buffer packets = input;
    for (uint64 begin = 0; begin < input.size(); begin += message) {
      for (uint64 at = begin; at + 4 <= std::min(begin + message, input.size()); at += 4) {
        uint32 word;
        std::memcpy(&word, word_at(at), 4);
        if (word == ~0u) packets.memory[packets.offset + at + 3] = 0x7f;
      }
    }
    sent.push_back(packets);
  }

  bool receives(uint32 rank) const { return receiver == every_member || receiver == rank; }
  Buffer& destination(uint32 rank) { return in_place ? inputs[rank] : outputs[rank]; }

  // Returns a kernel that can do the call, any of them.
  Kernel kernel(const ReduceLamportArguments& arguments, uint64 threads, uint32 dice) const {
    uint64 all = bytes() | arguments.destination;
    for (uint32 member = 0; member < arguments.group.world; ++member) all |= arguments.sources[member];
    const bool small = kernels.few != nullptr && all % 16 == 0;
    if (receiver != every_member) return kernels.rooted;
    const FixedKernels* fixed = kernels.fixed(arguments.group.world);
    if (kind == SumKind::two_shot) {
      std::vector<Kernel> able = {kernels.two_shot};
      if (small && share_bytes / 16 <= threads) {
        able.push_back(kernels.two_shot_few);
        if (fixed != nullptr) able.push_back(fixed->two_shot);
      }
      return able[dice % able.size()];
    }
    std::vector<Kernel> able = {kernels.any};
    const uint64 vectors = bytes() / 16;
    if (small && vectors <= threads) {
      if (kind == SumKind::all_reduce) able.push_back(kernels.few);
      if (kind == SumKind::all_reduce && fixed != nullptr) able.push_back(fixed->alike);
      if (fixed != nullptr) able.push_back(fixed->scatter);
    }
    if (small && arguments.group.world == 2) {
      if (vectors <= threads) able.push_back(kernels.pair1);
      if (vectors <= 2 * threads) able.push_back(kernels.pair2);
      if (vectors <= 4 * threads) able.push_back(kernels.pair4);
    }
    return able[dice % able.size()];
  }

  void launch(World& world, Inboxes& inboxes, uint32 rank, uint32 dice) {
    ReduceLamportArguments arguments = inboxes.arguments(world, rank);
    const bool one_source = kind == SumKind::all_reduce || kind == SumKind::reduce;
    for (uint32 member = 0; member < world.ranks; ++member) {
      if (receives(member)) arguments.sources[member] = inputs[rank].at(one_source ? 0 : member * message_bytes());
    }
    arguments.pair = pair_of(arguments);
    arguments.destination = destination(rank).at();
    arguments.count = count;
    arguments.element = static_cast<uint32>(kernels.plain.type);
    arguments.reduce = static_cast<uint32>(operation);
    arguments.share_bytes = share_bytes;
    arguments.receiver = receiver;
    const Kernel call = kernel(arguments, static_cast<uint64>(blocks) * threads, dice);
    arch::launch(blocks, threads, 0, [&] { call(arguments); });
  }

  void check(uint32 ranks, const std::string& what) {
    const uint32 width = kernels.plain.bytes;
    for (uint32 rank = 0; rank < ranks; ++rank) {
      const Buffer& got = destination(rank);
      if (!receives(rank)) {
        expect(got.memory == before[rank].memory, "only the receiver stores a result" + what);
        continue;
      }
      // A NaN's payload may be any, but the same everywhere.
      const bool equal = kind == SumKind::all_reduce || kind == SumKind::two_shot;
      if (equal) same(got, 0, bytes_of(destination(0), 0, bytes()), "all ranks get the same bits" + what);
      for (uint64 index = 0; index < count; ++index) {
        const uint64 at = ((kind == SumKind::reduce_scatter ? rank * count : 0) + index) * width;
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

// A move, out of place or in place. By the ranks that send and receive, it is an all-to-all or an all-gather, a scatter or
// a broadcast, a gather, or one message.
struct Move {
  bool in_place;
  bool one_source;                      // a sender's messages are the same
  uint32 sender, receiver;              // ranks, or every_member
  uint64 bytes;                         // of a message
  uint32 blocks, threads;               // of the grid, equal on all ranks
  std::vector<Buffer> inputs, outputs;  // per rank
  std::vector<Buffer> sent;             // the inputs before the call
  std::vector<Buffer> before;           // the destinations before the call

  Move(const World& world, uint32 part_bytes, Random& random)
      : in_place(up_to(random, 1) != 0), one_source(up_to(random, 1) != 0) {
    const auto member = [&] { return up_to(random, 2) != 0 ? every_member : up_to(random, world.ranks - 1); };
    sender = member();
    receiver = member();
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
    before = in_place ? inputs : outputs;
  }

  bool moves(uint32 from, uint32 to) const {
    return (sender == every_member || sender == from) && (receiver == every_member || receiver == to);
  }
  // The offset of a message at its sender. In place, a rank's message to itself has it as its destination.
  uint64 source(uint32 from, uint32 to) const { return (one_source ? from : to) * bytes; }
  Buffer& destination(uint32 rank) { return in_place ? inputs[rank] : outputs[rank]; }

  // Returns a kernel that can do the call, any of them.
  MoveKernel kernel(const MoveLamportArguments& arguments, uint64 threads, uint32 dice) const {
    uint64 all = bytes;
    for (uint32 member = 0; member < arguments.group.world; ++member) {
      all |= arguments.sources[member] | arguments.destinations[member];
    }
    if (sender != every_member || receiver != every_member) return symmem_move_lamport_rooted;
    std::vector<MoveKernel> able = {symmem_move_lamport};
    const uint64 packets = (bytes / 16 + line_vectors - 1) / line_vectors * arch::line_threads;
    if (all % 16 == 0) {
      if (packets <= threads) able.push_back(symmem_move_lamport_few);
      if (packets <= threads && arguments.group.world == 4) able.push_back(symmem_move_lamport_four);
      if (packets <= threads && arguments.group.world == 8) able.push_back(symmem_move_lamport_eight);
      if (arguments.group.world == 2) {
        if (packets <= threads) able.push_back(symmem_move_lamport_pair1);
        if (packets <= 2 * threads) able.push_back(symmem_move_lamport_pair2);
        if (packets <= 4 * threads) able.push_back(symmem_move_lamport_pair4);
      }
    }
    return able[dice % able.size()];
  }

  void launch(World& world, Inboxes& inboxes, uint32 rank, uint32 dice) {
    auto arguments = inboxes.arguments<MoveLamportArguments>(world, rank);
    for (uint32 member = 0; member < world.ranks; ++member) {
      if (moves(rank, member)) arguments.sources[member] = inputs[rank].at(source(rank, member));
      if (moves(member, rank)) arguments.destinations[member] = destination(rank).at(member * bytes);
    }
    arguments.bytes = bytes;
    arguments.sender = sender;
    arguments.receiver = receiver;
    arguments.pair = pair_of(arguments);
    const MoveKernel call = kernel(arguments, static_cast<uint64>(blocks) * threads, dice);
    arch::launch(blocks, threads, 0, [&] { call(arguments); });
  }

  void check(uint32 ranks, const std::string& what) {
    for (uint32 rank = 0; rank < ranks; ++rank) {
      for (uint32 from = 0; from < ranks; ++from) {
        const Buffer& got = destination(rank);
        const uint64 at = from * bytes;
        if (moves(from, rank)) {
          same(got, at, bytes_of(sent[from], source(from, rank), bytes), "every bit arrives" + what);
        } else {
          same(got, at, bytes_of(before[rank], at, bytes), "no other message is stored" + what);
        }
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

}  // namespace
