// Tests the device code on the host twin. `cargo xtask twin` builds and runs them: all under AddressSanitizer and
// UndefinedBehaviorSanitizer, `protocol` also under ThreadSanitizer.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "../entries/base.h"
#include "../../kernels-ptx/src/bulk.cu"
#include "../entries/latency.h"
#include "../entries/signals.h"

namespace {

std::atomic<unsigned> failures{0};

void expect(bool condition, const std::string& what) {
  if (condition) return;
  if (++failures <= 20) std::fprintf(stderr, "failed: %s\n", what.c_str());
}

uint64 address(const volatile void* pointer) { return reinterpret_cast<uint64>(pointer); }

uint8 contents(uint64 index) { return static_cast<uint8>(index * 167 + index / 251 + 13); }

// ---- copies: any alignment and length, guard bytes unchanged, nothing read after the source ----

using Kernel = void (*)(const TransferArguments&);

void copies_exactly(const char* name, Kernel kernel, uint64 to, uint64 from, uint64 length, uint32 blocks, uint32 threads,
                    uint32 stages, uint32 stage_bytes) {
  constexpr uint64 guard = 48;
  // malloc aligns to 16, and the source ends with its allocation, so that AddressSanitizer detects reads after it.
  uint8* source = static_cast<uint8*>(std::malloc(from + length));
  std::vector<uint8> destination(guard + 16 + to + length + guard, 0xA5);
  uint8* base = destination.data() + guard;
  base += (16 - address(base) % 16) % 16;
  for (uint64 index = 0; index < length; ++index) source[from + index] = contents(index);
  TransferArguments transfer{};
  transfer.destination = address(base + to);
  transfer.source = address(source + from);
  transfer.bytes = length;
  transfer.stages = stages;
  transfer.stage_bytes = stage_bytes;
  arch::launch_in_turn(blocks, threads, bulk_shared_memory(stages, stage_bytes), [&] { kernel(transfer); });
  bool right = true;
  for (uint8* byte = destination.data(); byte != destination.data() + destination.size(); ++byte) {
    const bool inside = byte >= base + to && byte < base + to + length;
    const uint8 expected = inside ? contents(static_cast<uint64>(byte - (base + to))) : 0xA5;
    right = right && *byte == expected;
  }
  std::free(source);
  expect(right, std::string(name) + " of " + std::to_string(length) + " bytes to +" + std::to_string(to) + " from +" +
                    std::to_string(from) + " with " + std::to_string(blocks) + " blocks of " + std::to_string(threads));
}

void copies() {
  const struct {
    const char* name;
    Kernel kernel;
    uint32 stages, stage_bytes;
  } kernels[] = {{"symmem_copy_vector", symmem_copy_vector, 0, 0},
                 {"symmem_copy_unrolled", symmem_copy_unrolled, 0, 0},
                 {"symmem_copy_bulk", symmem_copy_bulk, 3, 32}};
  for (const auto& kernel : kernels) {
    for (uint64 to = 0; to <= 17; ++to) {
      for (uint64 from = 0; from <= 17; ++from) {
        for (uint64 length = 0; length <= 300; ++length) {
          copies_exactly(kernel.name, kernel.kernel, to, from, length, 1 + (to + length) % 3, 4, kernel.stages,
                         kernel.stage_bytes);
        }
      }
    }
    for (uint64 length : {4096u, 5000u, 65536u, 70001u}) {
      for (uint64 to : {0u, 1u, 8u, 12u}) {
        for (uint32 blocks : {1u, 2u, 5u}) {
          copies_exactly(kernel.name, kernel.kernel, to, 0, length, blocks, 128, kernel.stages, kernel.stage_bytes);
        }
      }
    }
  }
  for (uint32 stages : {1u, 2u, 3u, 8u}) {
    for (uint32 stage_bytes : {16u, 48u, 2048u, 4096u, 16384u}) {
      for (uint64 length : {16u, 2048u, 2064u, 10000u, 100000u}) {
        copies_exactly("symmem_copy_bulk", symmem_copy_bulk, 0, 0, length, 1, 64, stages, stage_bytes);
        copies_exactly("symmem_copy_bulk", symmem_copy_bulk, 3, 3, length, 3, 1, stages, stage_bytes);
      }
    }
  }
}

// ---- protocols between ranks, one host thread each ----

template <class Body>
void on_ranks(uint32 ranks, Body body) {
  std::vector<std::thread> threads;
  for (uint32 rank = 0; rank < ranks; ++rank) threads.emplace_back([=] { body(rank); });
  for (auto& thread : threads) thread.join();
}

constexpr uint64 second = 1000000000;

struct HostWords {
  uint32 abort = 0;
  uint32 aborted = 0;
  WaitRecord record = {};
  Watch watch(uint32 rank, uint64 deadline_ns) {
    return Watch{address(&abort), address(&record), address(&aborted), deadline_ns, rank, 0};
  }
};

// A grid of any number of blocks signals once, after all its stores.
void signal_covers_every_block(uint32 blocks, Kernel kernel) {
  constexpr uint64 bytes = 4096;
  constexpr uint32 repeats = 20;
  alignas(16) static uint8 source[bytes], destination[bytes];
  uint32 word = 0xfffffff0, gives = 0xfffffff0, waits = 0xfffffff0, arrivals = 0;  // the epochs wrap during the test
  uint32 back = 0;
  HostWords host;
  on_ranks(2, [&](uint32 rank) {
    for (uint32 repeat = 1; repeat <= repeats; ++repeat) {
      if (rank == 0) {
        std::memset(source, static_cast<int>(repeat), bytes);
        TransferArguments transfer{address(destination), address(source), bytes, {}, 3, 256};
        transfer.signal = {address(&word), address(&gives), address(&arrivals), 0, 0};
        arch::launch(blocks, 4, bulk_shared_memory(3, 256), [&] { kernel(transfer); });
        expect(arrivals == 0, "the counter of arrivals is zero again");
        // Continues after the other rank has checked the bytes.
        SignalWait wait{address(&back), 0, host.watch(0, 60 * second), repeat, 1, 0, 0};
        arch::launch(1, 1, 0, [&] { symmem_wait(wait); });
      } else {
        SignalWait wait{address(&word), address(&waits), host.watch(1, 60 * second), 0, 0, 0, 0};
        arch::launch(1, 1, 0, [&] { symmem_wait(wait); });
        for (uint8 byte : destination) expect(byte == repeat, "a signal covers the stores of every block");
        SignalTarget target{address(&back), 0, 0, repeat, 0};
        arch::launch(1, 1, 0, [&] { symmem_signal(target); });
      }
    }
  });
  expect(word == 0xfffffff0u + repeats && gives == word && waits == word, "epochs count uses of their slot, and wrap");
  expect(host.record.state == 0, "no wait gave up");
}

void waits_end() {
  uint32 word = 5;
  HostWords host;
  const auto wait_for = [&](uint32 value, uint64 deadline_ns) {
    SignalWait wait{address(&word), 0, host.watch(3, deadline_ns), value, 1, 9, 0};
    bool arrived = false;
    arch::launch(1, 1, 0, [&] { arrived = wait_signal(wait); });
    return arrived;
  };
  expect(wait_for(5, 0) && wait_for(4, 0) && wait_for(5 - 0x7fffffffu, 0), "an epoch that was reached does not wait");
  expect(host.record.state == 0, "a wait that ends well leaves no record");
  expect(!wait_for(6, second / 100), "a wait gives up at its deadline");
  const WaitRecord& record = host.record;
  expect(record.state == 2 && record.kind == 1 && record.rank == 3 && record.peer == 1 && record.slot == 9 &&
             record.expected == 6 && record.seen == 5 && record.reason == 1,
         "the record tells who waited for what");
  expect(!wait_for(7, 0) && record.expected == 6, "the first to give up keeps the record");
  host.record = {};
  std::thread setter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    __atomic_store_n(&host.abort, 1u, __ATOMIC_RELEASE);
  });
  expect(!wait_for(6, 60 * second), "the abort word ends a wait");
  setter.join();
  expect(record.state == 2 && record.reason == 2, "the record says that it was the abort word");
  expect(host.aborted == 1, "the wait that saw the abort word tells its device");
  host.abort = 0;
  host.record = {};
  expect(!wait_for(6, 60 * second) && host.record.state == 0, "a later wait leaves by that, without a record");
  expect(wait_for(5, 60 * second), "an epoch that was reached does not wait, after an abort either");
}

void barriers(uint32 world, uint32 threads) {
  constexpr uint32 repeats = 30;
  struct alignas(128) Word {
    uint32 value = 0;
    uint8 padding[124] = {};
  };
  static_assert(sizeof(Word) == signal_stride, "one word a stride");
  std::vector<std::vector<Word>> words(world, std::vector<Word>(world));
  std::vector<uint32> epochs(world, 0), data(world, 0);
  HostWords host;
  on_ranks(world, [&](uint32 rank) {
    Barrier arguments{};
    arguments.watch = host.watch(rank, 60 * second);
    arguments.epoch = address(&epochs[rank]);
    arguments.own = address(words[rank].data());
    for (uint32 peer = 0; peer < world; ++peer) {
      arguments.peers[peer] = peer == rank ? 0 : address(&words[peer][rank].value);
    }
    arguments.world = world;
    for (uint32 repeat = 1; repeat <= repeats; ++repeat) {
      data[rank] = repeat;
      arch::launch(1, threads, 0, [&] { symmem_barrier(arguments); });
      for (uint32 peer = 0; peer < world; ++peer) expect(data[peer] == repeat, "a barrier shows what peers stored before it");
      arch::launch(1, threads, 0, [&] { symmem_barrier(arguments); });
    }
  });
  expect(host.record.state == 0, "no barrier gave up");
  // Without the other ranks, rank 0 must give up.
  Barrier arguments{};
  arguments.watch = host.watch(0, second / 100);
  arguments.epoch = address(&epochs[0]);
  arguments.own = address(words[0].data());
  for (uint32 peer = 1; peer < world; ++peer) arguments.peers[peer] = address(&words[peer][0].value);
  arguments.world = world;
  bool arrived = true;
  arch::launch(1, threads, 0, [&] {
    const bool all = barrier(arguments);
    if (arch::thread_index() == 0) arrived = all;
  });
  expect(!arrived && host.record.state == 2 && host.record.kind == 2 && host.record.reason == 1,
         "a barrier whose peers never come gives up with a record");
}

void ping_pong(void (*kernel)(const LatencyArguments&), uint32 threads, uint64 bytes) {
  struct alignas(128) Mailbox {
    uint64 flag = 0;
    uint8 padding[120] = {};
    uint8 payload[2 * 200] = {};
  };
  Mailbox mailboxes[2];
  uint64 results[2] = {0, 0};
  HostWords host;
  on_ranks(2, [&](uint32 rank) {
    LatencyArguments arguments{address(&mailboxes[rank]), address(&mailboxes[1 - rank]), bytes, address(&results[rank]),
                               host.watch(rank, 60 * second), 20, 0, rank == 0, 1 - rank};
    arch::launch(1, threads, 0, [&] { kernel(arguments); });
  });
  expect(results[0] != 0 && results[0] != ~0ull && results[1] != 0 && results[1] != ~0ull, "both ranks report a time");
  expect(std::memcmp(mailboxes[0].payload, mailboxes[1].payload, sizeof mailboxes[0].payload) == 0,
         "each rank got the payloads that the other got");
}

// Updates return the previous value, and waits compare words that wrap.
void words_are_updated_and_waited_for() {
  uint64 wide = ~0ull;
  uint32 narrow = 5;
  uint64 before = 0;
  const auto update = [&](void* word, uint32 bits, WordUpdate what, uint64 operand, uint64 compare) {
    before = 0;
    const WordOperation operation{address(word), address(&before), operand, compare, static_cast<uint32>(what), bits};
    arch::launch(1, 2, 0, [&] { symmem_word_update(operation); });
    return before;
  };
  expect(update(&wide, 64, WordUpdate::add, 3, 0) == ~0ull && wide == 2, "a sum wraps");
  expect(update(&narrow, 32, WordUpdate::swap, 7, 0) == 5 && narrow == 7, "a swap returns what was there");
  expect(update(&narrow, 32, WordUpdate::compare_swap, 9, 8) == 7 && narrow == 7, "a comparison that fails changes nothing");
  expect(update(&narrow, 32, WordUpdate::compare_swap, 9, 7) == 7 && narrow == 9, "one that holds swaps");
  expect(update(&wide, 64, WordUpdate::fetch, 1, 1) == 2 && wide == 2, "a fetch changes nothing");
  expect(update(&wide, 64, WordUpdate::set, 4, 0) == 2 && wide == 4, "a set stores");

  HostWords host;
  uint32 words[6] = {0xfffffffe, 1, 0, 3, 0, 5};
  uint32 index = 99;
  const auto wait = [&](uint32 count, Condition condition, uint32 value, bool any, uint64 deadline_ns) {
    const WordWait wait{address(words), 8, value, address(&index), host.watch(2, deadline_ns), count,
                        static_cast<uint32>(condition), any, 32};
    bool good = false;
    arch::launch(1, 3, 0, [&] {
      const bool all = word_wait(wait);
      if (arch::thread_index() == 0) good = all;
    });
    return good;
  };
  // Words 0xfffffffe, 0, 0: the first is less than the others.
  expect(wait(3, Condition::less_or_equal, 0, false, second) && wait(1, Condition::less, 1, false, second), "words wrap");
  expect(wait(3, Condition::equal, 0, true, second) && index == 1, "any tells which");
  expect(host.record.state == 0, "no wait gave up");
  expect(!wait(3, Condition::greater, 0, true, second / 100) && host.record.kind == 3 && host.record.reason == 1,
         "a wait for words gives up at its deadline");
  host.record = {};
  expect(!wait(3, Condition::not_equal, 0, false, second / 100) && host.record.state == 2 && host.record.peer != 0,
         "the record tells which word it was");
  std::thread setter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    for (uint32 word = 0; word < 3; ++word) __atomic_store_n(&words[2 * word], 8u, __ATOMIC_RELEASE);
  });
  expect(wait(3, Condition::greater_or_equal, 8, false, 60 * second), "a wait for all is over when all are there");
  setter.join();
}

// Each rank signals the other and waits for its signal.
void steps_meet() {
  struct alignas(128) Word {
    uint32 value = 0xfffffffe, given = 0xfffffffe, waited = 0xfffffffe;
  };
  Word words[2];
  uint32 data[2] = {0, 0};
  HostWords host;
  on_ranks(2, [&](uint32 rank) {
    for (uint32 repeat = 1; repeat <= 20; ++repeat) {
      data[rank] = repeat;
      StepArguments step{};
      step.target = {address(&words[1 - rank].value), address(&words[rank].given), 0, 0, 0};
      step.wait = {address(&words[rank].value), address(&words[rank].waited), host.watch(rank, 60 * second), 0, 1 - rank, 0, 0};
      arch::launch(1, 2, 0, [&] { symmem_step(step); });
      expect(data[1 - rank] == repeat, "a step shows what the other did before its own");
      arch::launch(1, 2, 0, [&] { symmem_step(step); });
    }
  });
  expect(host.record.state == 0, "no step gave up");
}
}  // namespace

#include "user_kernel.h"

namespace {

void protocol() {
  words_are_updated_and_waited_for();
  steps_meet();
  for (uint32 blocks : {1u, 2u, 7u}) {
    signal_covers_every_block(blocks, symmem_copy_vector);
    signal_covers_every_block(blocks, symmem_copy_bulk);
    signal_covers_every_block(blocks, symmem_copy_unrolled);
  }
  waits_end();
  barriers(4, 4);
  barriers(5, 2);
  ping_pong(symmem_latency_packet, 1, 0);
  ping_pong(symmem_latency_signal, 4, 200);
  user_kernels();
}

}  // namespace

int main(int count, char** words) {
  const std::string part = count > 1 ? words[1] : "all";
  if (part == "all") copies();
  protocol();
  std::printf("host twin, %s: %u failures\n", part.c_str(), failures.load());
  return failures == 0 ? 0 : 1;
}
