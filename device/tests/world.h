// A world whose ranks are host threads that launch grids, and the memory that they use.
#pragma once

#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "plain.h"

namespace {

inline uint64 address(const volatile void* pointer) { return reinterpret_cast<uint64>(pointer); }

constexpr uint64 second = 1000000000;

// Bytes at an offset in an allocation that ends with them, so that the sanitizer detects accesses past the end.
struct Buffer {
  std::vector<uint8> memory;
  uint64 offset;
  Buffer(uint64 bytes, uint64 offset) : memory(bytes + offset, 0xA5), offset(offset) {}
  uint64 at(uint64 byte = 0) const { return address(memory.data()) + offset + byte; }
  uint64 size() const { return memory.size() - offset; }
};

constexpr uint32 operation = 7;  // arbitrary
constexpr uint32 most_chunk_bytes = 48;

struct World {
  uint32 ranks, blocks, threads;
  uint64 packet_bytes;
  uint64 deadline = 60 * second;
  std::vector<std::vector<arch::Vector16>> slots;
  // For pushed reductions; pieces are small, so that there are many.
  uint32 push_slots, piece_bytes, channels = 8;
  std::vector<std::vector<arch::Vector16>> inboxes;
  uint32 abort = 0;
  std::vector<uint32> aborted;
  WaitRecord record = {};

  // `first` is the initial value of all epochs and flags.
  World(uint32 ranks, uint32 blocks, uint32 threads, uint64 packet_bytes, uint32 first, uint32 push_slots = 2,
        uint32 piece_bytes = 48)
      : ranks(ranks), blocks(blocks), threads(threads), packet_bytes(packet_bytes), push_slots(push_slots), piece_bytes(piece_bytes), aborted(ranks) {
    for (uint32 rank = 0; rank < ranks; ++rank) {
      inboxes.emplace_back(channels * channel_bytes() / 16);
      for (uint32 channel = 0; channel < channels; ++channel) {
        uint8* words = reinterpret_cast<uint8*>(inboxes[rank].data()) + channel * channel_bytes();
        for (uint32 word = 0; word < 2 * ranks; ++word) std::memcpy(words + word * push_word_stride, &first, 4);
        const uint32 counters[2] = {first, first};
        std::memcpy(words + 2 * ranks * push_word_stride, counters, sizeof counters);
      }
      slots.emplace_back((staging() + blocks * most_chunk_bytes) / 16);
      for (uint32 block = 0; block < blocks; ++block) {
        uint8* slot = reinterpret_cast<uint8*>(slots[rank].data()) + block * slot_bytes;
        uint32 counters[4] = {first, first, first, first};
        std::memcpy(slot + slot_counters, counters, sizeof counters);
        for (uint32 member = 0; member < ranks; ++member) {
          std::memcpy(slot + slot_words + member * 4, &first, 4);
          std::memcpy(slot + slot_received + member * 4, &first, 4);
          for (uint32 word = 0; word < 4; ++word) {
            const uint64 packet = static_cast<uint64>(first) << 32;
            std::memcpy(slot + slot_announcements + member * 32 + word * 8, &packet, 8);
          }
        }
      }
    }
  }

  // Returns the offset of the chunks for sends, one for each block, from the slots.
  uint64 staging() const { return slot_blocks * slot_bytes + blocks * packet_bytes; }

  CollectiveGroup group(uint32 rank) {
    CollectiveGroup group{};
    group.watch = Watch{address(&abort), address(&record), address(&aborted[rank]), deadline, rank + 10, 0};
    for (uint32 member = 0; member < ranks; ++member) {
      group.slots[member] = address(slots[member].data());
      group.members[member] = static_cast<uint8>(member + 10);
    }
    group.packet_bytes = packet_bytes;
    group.rank = rank;
    group.world = ranks;
    group.slot = 5;
    group.operation = operation;
    return group;
  }

  uint64 channel_bytes() const {
    const uint64 words = ((2 * ranks + 1) * push_word_stride + 127) / 128 * 128;
    return words + static_cast<uint64>(ranks - 1) * push_slots * piece_bytes;
  }

  ReducePushArguments push(uint32 rank) {
    ReducePushArguments arguments{};
    arguments.reduce.group = group(rank);
    for (uint32 member = 0; member < ranks; ++member) arguments.inboxes[member] = address(inboxes[member].data());
    arguments.channel_bytes = channel_bytes();
    arguments.channels = channels;
    arguments.slots = push_slots;
    arguments.piece_bytes = piece_bytes;
    return arguments;
  }

  // Every rank launches its kernel, in any order.
  template <class Arguments>
  void call(void (*kernel)(const Arguments&), const std::function<Arguments(uint32)>& arguments_of) {
    std::vector<std::thread> running;
    for (uint32 rank = 0; rank < ranks; ++rank) {
      running.emplace_back([&, rank] { launch(kernel, arguments_of(rank)); });
    }
    for (auto& thread : running) thread.join();
  }

  template <class Arguments>
  void launch(void (*kernel)(const Arguments&), const Arguments& arguments) {
    arch::launch(blocks, threads, 0, [&] { kernel(arguments); });
  }
};

using Random = std::mt19937;

inline uint32 up_to(Random& random, uint32 most) { return static_cast<uint32>(random() % (most + 1ull)); }

inline std::vector<Buffer> buffers(uint32 count, uint64 bytes, const std::function<uint64()>& offset) {
  std::vector<Buffer> all;
  for (uint32 index = 0; index < count; ++index) all.emplace_back(bytes, offset());
  return all;
}

inline void fill(std::vector<Buffer>& all, Random& random) {
  for (Buffer& buffer : all)
    for (uint64 byte = 0; byte < buffer.size(); ++byte) buffer.memory[buffer.offset + byte] = static_cast<uint8>(random());
}

// Compares the bytes of `got` at `at` with the expected ones.
inline void same(const Buffer& got, uint64 at, const std::vector<uint8>& wanted, const std::string& what) {
  expect(wanted.empty() || std::memcmp(got.memory.data() + got.offset + at, wanted.data(), wanted.size()) == 0, what);
}

inline std::vector<uint8> bytes_of(const Buffer& buffer, uint64 at, uint64 bytes) {
  const uint8* first = buffer.memory.data() + buffer.offset + at;
  return std::vector<uint8>(first, first + bytes);
}

// Returns the part of the tests to run: the first argument, or all.
inline std::string part_of(int count, char** words) { return count > 1 ? words[1] : "all"; }

// Runs the seeded tests in worlds of each size and prints the number of failures. The second argument is the number of
// seeds, the third the first seed. Returns the program's exit code.
inline int run_seeds(int count, char** words, const char* name, uint32 most_ranks, void (*run)(uint32, uint32)) {
  const uint32 seeds = count > 2 ? static_cast<uint32>(std::atoi(words[2])) : 4;
  const uint32 first = count > 3 ? static_cast<uint32>(std::atoi(words[3])) : 1;
  for (uint32 seed = first; seed < first + seeds; ++seed)
    for (uint32 ranks = 1; ranks <= most_ranks; ++ranks) run(seed, ranks);
  std::printf("%s, %s, %u seeds: %u failures\n", name, part_of(count, words).c_str(), seeds, failures.load());
  return failures == 0 ? 0 : 1;
}

}  // namespace
