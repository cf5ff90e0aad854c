// Tests the multicast collectives' device code on the host twin, against reference implementations: emulated, and with
// a simulated switch (switch.h) if SYMMEM_MULTICAST_HARDWARE is defined. `cargo xtask twin` builds and runs both. Ranks
// are host threads. A seed determines grid, sizes, alignments, types and schedule.
//
// Verified to fail with a barrier that releases nothing or does not end the call; a tail that is one element too short,
// and one unit too few; averages that are not divided; comparing one address, or none, with the others; a word two
// bytes off; bytes copied onto themselves while another block reads them.
#include <algorithm>

#include "switch.h"

#include "../entries/collective.h"
#include "../entries/multicast.h"
#include "../entries/multicast_f8.h"
#include "world.h"

namespace {

// ---- expected results ----

struct Case {
  ElementType type;
  bool sums, selects;
  void (*kernel)(const MulticastArguments&);
};

#define CASE(type, sums, selects) {ElementType::type, sums, selects, symmem_multicast_reduce_##type}
const Case cases[] = {
    CASE(f16, true, false), CASE(bf16, true, false), CASE(f32, true, false),
    CASE(f64, true, false), CASE(i32, true, true), CASE(u32, true, true),
    CASE(u64, true, true), CASE(i64, false, true), CASE(f8_e4m3, true, false),
    CASE(f8_e5m2, true, false)};

const PlainType& plain_of(ElementType type) {
  for (const PlainType& plain : types)
    if (plain.type == type) return plain;
  arch::fault("no such type");
}

// Returns a sum as the switch computes it, rounded to the type. An average divides this sum.
uint64 sum_of(const PlainType& plain, const std::vector<uint64>& all) {
  if (plain.bytes != 1) return reference(plain, all, ReduceOperation::sum);
  const bool e4m3 = plain.type == ElementType::f8_e4m3;
  const auto wide = [&](uint64 bits) {
    return static_cast<float>(defined(plain.exponent, plain.mantissa, e4m3, static_cast<uint32>(bits)));
  };
  float sum = wide(all[0]);
  for (size_t member = 1; member < all.size(); ++member) {
    sum = static_cast<float>(defined(5, 10, false, nearest(5, 10, false, false, sum + wide(all[member]))));
  }
  return nearest(plain.exponent, plain.mantissa, e4m3, true, sum);
}

uint64 quotient(const PlainType& plain, uint64 sum, uint32 members) {
  if (plain.type == ElementType::f32) {
    return arch::bits_of(arch::float_of(static_cast<uint32>(sum)) / static_cast<float>(members));
  }
  if (plain.type == ElementType::f64) return arch::bits_of(arch::float_of(sum) / members);
  const bool e4m3 = plain.type == ElementType::f8_e4m3;
  const double number = defined(plain.exponent, plain.mantissa, e4m3, static_cast<uint32>(sum));
  return nearest(plain.exponent, plain.mantissa, e4m3, plain.bytes == 1,
                 static_cast<float>(number) / static_cast<float>(members));
}

uint64 wanted(const PlainType& plain, const std::vector<uint64>& all, ReduceOperation operation) {
  const bool integer = plain.exponent == 0 && plain.type != ElementType::f32 && plain.type != ElementType::f64;
  if (integer) return reference(plain, all, operation);
  const uint64 sum = sum_of(plain, all);
  return operation == ReduceOperation::average ? quotient(plain, sum, static_cast<uint32>(all.size())) : sum;
}

// ---- calls ----

// Memory of every rank, and its multicast address if there is a switch. In that case all addresses agree modulo 16,
// like memory bound to a multicast object.
struct Everywhere {
  std::vector<Buffer> buffers;
  uint64 address;

  Everywhere(const World& world, Random& random, uint64 bytes, uint32 grain, uint64 offset) {
    const bool alike = has_switch || up_to(random, 3) != 0;
    buffers = ::buffers(world.ranks, bytes, [&] { return alike ? offset : up_to(random, 16 / grain) * grain; });
    fill(buffers, random);
    std::vector<uint64> members;
    for (const Buffer& buffer : buffers) members.push_back(buffer.at());
    address = bind_members(members, bytes);
  }

  Buffer& operator[](uint32 rank) { return buffers[rank]; }
  // Returns the multicast address, or 0.
  uint64 at(uint64 byte) const { return address == 0 ? 0 : address + byte; }
};

// Returns the multicast address of a world's slots, or 0.
uint64 bind(const World& world) {
  std::vector<uint64> members;
  for (const auto& slots : world.slots) members.push_back(address(slots.data()));
  return bind_members(members, slot_blocks * slot_bytes);
}

struct Tried {
  World& world;
  Random& random;
  uint64 slots;

  MulticastArguments enrolled(uint32 rank) const {
    MulticastArguments arguments{};
    arguments.group = world.group(rank);
    arguments.slots = slots;
    return arguments;
  }

  // Every rank calls, in any order, and rewrites its memory before and after its call. ThreadSanitizer thus detects a
  // peer that accesses this memory before the rank has entered or after it has left.
  void call(void (*kernel)(const MulticastArguments&), const std::function<MulticastArguments(uint32)>& arguments_of,
            std::vector<Buffer>& inputs, std::vector<Buffer>& outputs, bool stores_at_peers) const {
    says({false, stores_at_peers}, "a call", [&] { run(kernel, arguments_of, inputs, outputs); });
  }

  void run(void (*kernel)(const MulticastArguments&), const std::function<MulticastArguments(uint32)>& arguments_of,
           std::vector<Buffer>& inputs, std::vector<Buffer>& outputs) const {
    std::vector<std::thread> running;
    for (uint32 rank = 0; rank < world.ranks; ++rank) {
      running.emplace_back([&, rank, late = up_to(random, 100)] {
        const auto rewrite = [&] {
          for (Buffer* own : {&inputs[rank], &outputs[rank]}) {
            for (volatile uint8& byte : own->memory) byte = static_cast<uint8>(byte);
          }
        };
        std::this_thread::sleep_for(std::chrono::microseconds(late));
        rewrite();
        world.launch(kernel, arguments_of(rank));
        rewrite();
      });
    }
    for (auto& thread : running) thread.join();
  }

  // Runs `done` and compares the arguments `stored_at_peers` of each block's raises with `wanted`; the switch records
  // them.
  void says(const std::vector<bool>& wanted, const char* what, const std::function<void()>& done) const {
    raises().clear();
    for (uint32 rank = 0; rank < world.ranks; ++rank) {
      for (uint32 block = 0; block < world.blocks; ++block) {
        raises()[slots + block * slot_bytes + slot_words + rank * 4];
      }
    }
    done();
    for (const auto& [word, said] : raises()) {
      expect(!has_switch || said == wanted, std::string("stores at peers are known to the barrier behind ") + what);
    }
    raises().clear();
  }
};

std::vector<uint8> bytes_of(uint64 bits, uint32 bytes) {
  std::vector<uint8> all(8);
  std::memcpy(all.data(), &bits, 8);
  all.resize(bytes);
  return all;
}

// Checks that the bytes before the buffers are unchanged.
void nothing_in_front(const std::vector<Buffer>& all, const std::string& what) {
  for (const Buffer& buffer : all) {
    const auto first = buffer.memory.begin();
    const auto untouched = std::count(first, first + static_cast<long>(buffer.offset), uint8{0xA5});
    expect(static_cast<uint64>(untouched) == buffer.offset, what + ": nothing is stored in front of a range");
  }
}

// One-shot all-reduce, reduce-scatter, or two-shot all-reduce, in place or not.
void reduces(const Tried& tried) {
  World& world = tried.world;
  Random& random = tried.random;
  const Case& given = cases[up_to(random, 9)];
  const PlainType& plain = plain_of(given.type);
  const ReduceOperation sums[] = {ReduceOperation::sum, ReduceOperation::average};
  const ReduceOperation selections[] = {ReduceOperation::minimum, ReduceOperation::maximum};
  const bool selects = !given.sums || (given.selects && up_to(random, 1) != 0);
  const ReduceOperation operation = (selects ? selections : sums)[up_to(random, 1)];
  std::vector<uint64> begins = {0};
  for (uint32 rank = 0; rank < world.ranks; ++rank) begins.push_back(begins.back() + up_to(random, 120));
  const uint64 count = begins.back();
  const auto offset = [&] { return up_to(random, 16 / plain.bytes) * plain.bytes; };
  const uint64 common = offset();
  Everywhere inputs(world, random, count * plain.bytes, plain.bytes, common);
  Everywhere outputs(world, random, count * plain.bytes, plain.bytes, up_to(random, 1) != 0 ? common : offset());
  std::vector<uint64> results;
  for (uint64 index = 0; index < count; ++index) {
    std::vector<uint64> all;
    for (Buffer& input : inputs.buffers) {
      all.push_back(element(plain, static_cast<uint32>(random() >> 3)));
      std::memcpy(input.memory.data() + input.offset + index * plain.bytes, &all.back(), plain.bytes);
    }
    results.push_back(wanted(plain, all, operation));
  }
  const uint32 kind = up_to(random, 2);  // one-shot, a share to each, two-shot
  const bool in_place = kind == 2 && up_to(random, 1) != 0;
  Everywhere& to = in_place ? inputs : outputs;
  const std::vector<Buffer> before = to.buffers;
  tried.call(given.kernel, [&](uint32 rank) {
    MulticastArguments arguments = tried.enrolled(rank);
    const uint64 begin = kind == 0 ? 0 : begins[rank] * plain.bytes;
    arguments.source = inputs.at(begin);
    for (uint32 member = 0; member < world.ranks; ++member) {
      arguments.sources[member] = inputs[member].at(begin);
      if (kind == 2 || member == rank) arguments.destinations[member] = to[member].at(begin);
    }
    if (kind == 2) arguments.destination = to.at(begin);
    arguments.count = kind == 0 ? count : begins[rank + 1] - begins[rank];
    arguments.element = static_cast<uint32>(given.type);
    arguments.reduce = static_cast<uint32>(operation);
    arguments.load = static_cast<uint32>(MulticastLoad::reduced);
    arguments.store = static_cast<uint32>(kind == 2 ? MulticastStore::all : MulticastStore::own);
    return arguments;
  }, inputs.buffers, to.buffers, kind == 2);
  const std::string what = "multicast, kind " + std::to_string(kind) + ", type " +
                           std::to_string(static_cast<uint32>(given.type)) + ", operation " +
                           std::to_string(static_cast<uint32>(operation));
  nothing_in_front(inputs.buffers, what);
  nothing_in_front(outputs.buffers, what);
  for (uint32 rank = 0; rank < world.ranks; ++rank) {
    for (uint64 index = 0; index < count; ++index) {
      const bool stored = kind != 1 || (index >= begins[rank] && index < begins[rank + 1]);
      const uint64 byte = index * plain.bytes;
      same(to[rank], byte, stored ? bytes_of(results[index], plain.bytes) : ::bytes_of(before[rank], byte, plain.bytes),
           what);
    }
  }
}

// All-gather or broadcast.
void moves(const Tried& tried) {
  World& world = tried.world;
  Random& random = tried.random;
  std::vector<uint64> begins = {0};
  const bool gathers = up_to(random, 1) != 0;
  const uint32 root = up_to(random, world.ranks - 1);
  for (uint32 rank = 0; rank < world.ranks; ++rank) {
    begins.push_back(begins.back() + (gathers || rank == root ? up_to(random, 1200) : 0));
  }
  Everywhere outputs(world, random, begins.back(), 1, up_to(random, 16));
  const uint32 spread = up_to(random, 1) * 17;
  std::vector<Buffer> inputs = buffers(world.ranks, begins.back(), [&] {
    return outputs[0].offset + up_to(random, spread);
  });
  fill(inputs, random);
  const bool in_place = up_to(random, 1) != 0;
  if (in_place) inputs = outputs.buffers;
  tried.call(symmem_multicast_move, [&](uint32 rank) {
    MulticastArguments arguments = tried.enrolled(rank);
    arguments.sources[rank] = (in_place ? outputs[rank] : inputs[rank]).at(begins[rank]);
    arguments.destination = outputs.at(begins[rank]);
    for (uint32 member = 0; member < world.ranks; ++member) {
      arguments.destinations[member] = outputs[member].at(begins[rank]);
    }
    arguments.count = begins[rank + 1] - begins[rank];
    arguments.element = static_cast<uint32>(ElementType::u8);
    arguments.load = static_cast<uint32>(MulticastLoad::own);
    arguments.store = static_cast<uint32>(MulticastStore::all);
    return arguments;
  }, inputs, outputs.buffers, true);
  nothing_in_front(inputs, "a multicast move");
  nothing_in_front(outputs.buffers, "a multicast move");
  for (uint32 rank = 0; rank < world.ranks; ++rank) {
    for (uint32 from = 0; from < world.ranks; ++from) {
      same(outputs[rank], begins[from], ::bytes_of(inputs[from], begins[from], begins[from + 1] - begins[from]),
           gathers ? "each member's part comes to all" : "a root's bytes come to all");
    }
  }
}

// A barrier: the ranks write before and after it what the others read.
void meets(const Tried& tried) {
  World& world = tried.world;
  Random& random = tried.random;
  std::vector<uint32> words(world.ranks);
  const uint32 value = up_to(random, 1000);
  const auto meet = [&] {
    std::vector<std::thread> running;
    for (uint32 rank = 0; rank < world.ranks; ++rank) {
      running.emplace_back([&, rank] {
        words[rank] = value + rank;
        MulticastArguments arguments = tried.enrolled(rank);
        arguments.element = static_cast<uint32>(ElementType::u8);
        arguments.load = static_cast<uint32>(MulticastLoad::own);
        arguments.store = static_cast<uint32>(MulticastStore::own);
        world.launch(symmem_multicast_move, arguments);
        for (uint32 peer = 0; peer < world.ranks; ++peer) {
          expect(words[peer] == value + peer, "what was stored before a barrier is there behind it");
        }
      });
    }
    for (auto& thread : running) thread.join();
  };
  tried.says({true}, "a meeting", meet);
}

// A call without multicast on the same slots: a pulled all-to-all.
void takes_turns(const Tried& tried) {
  World& world = tried.world;
  Random& random = tried.random;
  const uint64 part = up_to(random, 200);
  std::vector<Buffer> inputs = buffers(world.ranks, part * world.ranks, [] { return 0; });
  std::vector<Buffer> outputs = inputs;
  fill(inputs, random);
  world.call<MoveArguments>(symmem_move, [&](uint32 rank) {
    MoveArguments arguments{};
    arguments.group = world.group(rank);
    for (uint32 peer = 0; peer < world.ranks; ++peer) {
      arguments.destinations[peer] = outputs[rank].at(peer * part);
      arguments.sources[peer] = inputs[peer].at(rank * part);
      arguments.bytes[peer] = part;
    }
    arguments.copies = world.ranks;
    arguments.concurrent = 1;
    return arguments;
  });
  for (uint32 rank = 0; rank < world.ranks; ++rank) {
    for (uint32 from = 0; from < world.ranks; ++from) {
      same(outputs[rank], from * part, ::bytes_of(inputs[from], rank * part, part), "between multicast calls, others");
    }
  }
}

// Calls of all kinds in turn on the same slots, with epochs that wrap meanwhile.
void calls(uint32 seed, uint32 ranks) {
  Random random(seed * 100 + ranks);
  arch::schedule() = seed;
  World world(ranks, 1 + up_to(random, 2), 1 + up_to(random, 3), ranks * 2 * 16, 0u - 1 - up_to(random, 6));
  const Tried tried{world, random, bind(world)};
  const auto what = [&] { return " (seed " + std::to_string(seed) + ", world " + std::to_string(ranks) + ")"; };
  for (int turn = 0; turn < 10; ++turn) {
    const unsigned before = failures;
    switch (up_to(random, 6)) {
      case 0: meets(tried); break;
      case 1: takes_turns(tried); break;
      case 2:
      case 3: moves(tried); break;
      default: reduces(tried);
    }
    expect(failures == before, "turn " + std::to_string(turn) + what());
    expect(world.record.state == 0, "no wait gave up" + what());
  }
  arch::schedule() = 0;
  windows().clear();
}

// Whether every rank but one has told the others that it is at the barrier of this number.
bool have_arrived(World& world, uint32 absent, uint32 number) {
  for (uint32 rank = 0; rank < world.ranks; ++rank) {
    for (uint32 member = 0; member < world.ranks; ++member) {
      for (uint32 block = 0; block < world.blocks; ++block) {
        if (rank == absent || member == absent || member == rank) continue;
        uint8* slot = reinterpret_cast<uint8*>(world.slots[rank].data()) + block * slot_bytes;
        const auto* word = reinterpret_cast<uint32*>(slot + slot_words + member * 4);
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != number) return false;
      }
    }
  }
  return true;
}

// One rank never enters, or leaves after the first barrier: the others must leave at the deadline, or when the host has
// aborted, and the record must name that rank and the barrier.
void waits_end(bool comes_first, bool aborts) {
  constexpr uint32 first = 4, absent = 1;
  const uint32 seen = first + comes_first;
  World world(3, 2, 2, 3 * 2 * 16, first);
  // Long enough for the two that come to meet first, on a busy machine too.
  if (!aborts) world.deadline = second;
  Random random(1);
  const Tried tried{world, random, bind(world)};
  for (auto& slots : world.slots) {
    for (uint32 block = 0; block < world.blocks; ++block) {
      uint8* slot = reinterpret_cast<uint8*>(slots.data()) + block * slot_bytes;
      std::memcpy(slot + slot_words + absent * 4, &seen, 4);
    }
  }
  std::vector<std::thread> running;
  for (uint32 rank = 0; rank < world.ranks; ++rank) {
    if (rank == absent) continue;
    running.emplace_back([&, rank] {
      MulticastArguments arguments = tried.enrolled(rank);
      arguments.load = static_cast<uint32>(MulticastLoad::reduced);
      arguments.store = static_cast<uint32>(MulticastStore::own);
      arguments.reduce = static_cast<uint32>(ReduceOperation::sum);
      world.launch(symmem_multicast_reduce_bf16, arguments);
    });
  }
  if (aborts) {
    // Not before the two wait for the third only; a faulty kernel may never do that.
    for (uint32 waited = 0; waited < 10000 && !have_arrived(world, absent, seen + 1); ++waited)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    __atomic_store_n(&world.abort, 1u, __ATOMIC_RELEASE);
  }
  for (auto& thread : running) thread.join();
  const WaitRecord& record = world.record;
  expect(record.state == 2 && record.kind == 16 + operation && record.slot == 5 && record.peer == 10 + absent &&
             record.rank != 10 + absent && record.expected == seen + 1 && record.seen == seen &&
             record.reason == (aborts ? 2u : 1u),
         std::string("a multicast call ") + (aborts ? "leaves when the host aborts" : "gives up at its deadline") +
             " at its " + (comes_first ? "second" : "first") + " barrier, and the record tells for whom it waited");
  windows().clear();
}

}  // namespace

int main(int count, char** words) {
  for (const bool comes_first : {false, true})
    for (const bool aborts : {false, true}) waits_end(comes_first, aborts);
  return run_seeds(count, words, has_switch ? "multicast by a switch" : "multicast emulated", 8, calls);
}
