// The host twin runs device code on the CPU, to test values, protocols and data races. The threads of a block are host
// threads, or calls one after the other for code without block barriers. Bulk copies happen as late as their waits
// allow, so that a missing wait shows.
#pragma once

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "symmem/abi.h"

#define SYMMEM_DEVICE inline
#define SYMMEM_HOST_DEVICE inline
#define SYMMEM_KERNEL(threads) extern "C" inline void
#define SYMMEM_KERNEL_OF_TWO(threads) SYMMEM_KERNEL(threads)
#define SYMMEM_ARGUMENTS(T) const T&
#define SYMMEM_UNROLL
#define SYMMEM_ROLLED
#define SYMMEM_HAS_BULK 1
#define SYMMEM_HAS_HALF_CONVERSIONS 0
#define SYMMEM_HAS_F8_CONVERSIONS 0
#define SYMMEM_HAS_MATRIX 1
#define SYMMEM_HAS_MATRIX_F8 1

namespace symmem {
namespace arch {

// Small, so that a few threads form several warps.
constexpr uint32 warp_size = 2;
constexpr uint32 dies = 2;

struct BulkBarrier {
  uint64 state;
};

// A barrier of host threads.
class HostBarrier {
 public:
  // Waits until `threads` threads have called it. Returns whether the condition held for all.
  bool arrive(uint32 threads, bool condition) { return gather(threads, condition ? 0 : 1) == 0; }

  // Waits until `threads` threads have called it. Returns the bits that any of them has set.
  uint32 gather(uint32 threads, uint32 bits) {
    std::unique_lock<std::mutex> lock(mutex_);
    bits_ |= bits;
    if (++arrived_ == threads) {
      arrived_ = 0;
      result_ = bits_;
      bits_ = 0;
      ++generation_;
      turned_.notify_all();
      return result_;
    }
    const uint64 generation = generation_;
    turned_.wait(lock, [&] { return generation != generation_; });
    return result_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable turned_;
  uint32 arrived_ = 0;
  uint64 generation_ = 0;
  uint32 bits_ = 0;
  uint32 result_ = 0;
};

// The state that a block's threads share.
class HostBlock {
 public:
  HostBlock(uint32 block, uint32 blocks, uint32 threads, uint64 shared_bytes)
      : block(block), blocks(blocks), threads(threads), warps((threads + warp_size - 1) / warp_size), storage_(shared_bytes + 128) {
    const uint64 address = reinterpret_cast<uint64>(storage_.data());
    shared = storage_.data() + ((address + 127) / 128 * 128 - address);
  }

  const uint32 block, blocks, threads;
  uint32 running = threads;  // threads that have not ended, in `launch`
  uint8* shared;
  HostBarrier everybody;
  std::deque<HostBarrier> warps;

  // Bulk copies, issued by one thread at a time.
  struct BulkCopy {
    uint8* destination;
    const uint8* source;
    uint32 bytes;
  };
  struct BulkPhase {
    uint32 count = 0;
    bool armed = false;
    uint64 expected = 0;
    std::vector<BulkCopy> loads;
  };
  struct BulkWrite {
    uint8* destination;
    std::vector<uint8> data;
  };
  std::map<BulkBarrier*, BulkPhase> phases;
  std::vector<BulkCopy> open_group;
  std::deque<std::vector<BulkCopy>> groups;
  std::vector<BulkWrite> writes;
  bool fenced = false;

 private:
  std::vector<uint8> storage_;
};

struct HostThread {
  HostBlock* block = nullptr;
  uint32 index = 0;
};

inline HostThread& current() {
  static thread_local HostThread thread;
  return thread;
}

[[noreturn]] inline void fault(const char* what) {
  std::fprintf(stderr, "host twin: %s\n", what);
  std::abort();
}

// The number of co-resident blocks of a grid that this host thread launches; 0 for all. Further blocks start when
// others end. With `backwards`, the last block starts first, since devices promise no order.
struct Residency {
  uint32 blocks = 0;
  bool backwards = false;
};

inline Residency& residency() {
  static thread_local Residency limit;
  return limit;
}

// Runs a grid with one host thread per device thread. Blocks until all have ended.
template <class Body>
void launch(uint32 blocks, uint32 threads, uint64 shared_bytes, Body body) {
  const Residency limit = residency();
  std::deque<HostBlock> grid;
  std::vector<std::thread> running;
  std::mutex mutex;
  std::condition_variable ended;
  uint32 resident = 0;
  for (uint32 next = 0; next < blocks; ++next) {
    {
      std::unique_lock<std::mutex> lock(mutex);
      ended.wait(lock, [&] { return limit.blocks == 0 || resident < limit.blocks; });
      ++resident;
    }
    grid.emplace_back(limit.backwards ? blocks - 1 - next : next, blocks, threads, shared_bytes);
    for (uint32 index = 0; index < threads; ++index) {
      running.emplace_back([&, state = &grid.back(), index] {
        current() = HostThread{state, index};
        body();
        std::lock_guard<std::mutex> lock(mutex);
        if (--state->running != 0) return;
        --resident;
        ended.notify_one();
      });
    }
  }
  for (auto& thread : running) thread.join();
}

// Runs a grid of code without block barriers: one device thread after the other, on this host thread.
template <class Body>
void launch_in_turn(uint32 blocks, uint32 threads, uint64 shared_bytes, Body body) {
  for (uint32 block = 0; block < blocks; ++block) {
    HostBlock state(block, blocks, threads, shared_bytes);
    for (uint32 index = 0; index < threads; ++index) {
      current() = HostThread{&state, index};
      body();
    }
  }
  current() = HostThread{};
}

SYMMEM_DEVICE uint32 thread_index() { return current().index; }
SYMMEM_DEVICE uint32 thread_count() { return current().block->threads; }
SYMMEM_DEVICE uint32 block_index() { return current().block->block; }
SYMMEM_DEVICE uint32 block_count() { return current().block->blocks; }
SYMMEM_DEVICE uint8* dynamic_shared() { return current().block->shared; }
SYMMEM_DEVICE bool block_all(bool condition) {
  HostBlock& block = *current().block;
  return block.everybody.arrive(block.threads, condition);
}
SYMMEM_DEVICE bool block_all(bool condition, uint32*) { return block_all(condition); }
SYMMEM_DEVICE void block_barrier() { block_all(true); }
SYMMEM_DEVICE bool warp_all(bool condition) {
  return current().block->warps[current().index / warp_size].arrive(warp_size, condition);
}
SYMMEM_DEVICE void warp_barrier() { warp_all(true); }

constexpr uint32 line_threads = warp_size;

SYMMEM_DEVICE uint32 line_gather(uint32 bits) {
  return current().block->warps[current().index / warp_size].gather(warp_size, bits);
}
SYMMEM_DEVICE uint32 line_votes(bool condition) {
  return line_gather(static_cast<uint32>(condition) << current().index % warp_size);
}
SYMMEM_DEVICE uint32 from_last_of_line(uint32 value) {
  return line_gather(current().index % warp_size == line_threads - 1 ? value : 0);
}
SYMMEM_DEVICE uint32 line_exchange(uint32 value, uint32 distance) {
  const uint32 wanted = current().index % warp_size ^ distance;
  uint32 other = 0;
  for (uint32 thread = 0; thread < line_threads; ++thread) {
    const uint32 seen = line_gather(current().index % warp_size == thread ? value : 0);
    if (thread == wanted) other = seen;
  }
  return other;
}

// ---- schedules ----

// The seed of random pauses around accesses that others see; 0 for none. Works only if SYMMEM_HOST_SCHEDULES is
// defined. A thread's pauses follow from the seed and the thread's index.
inline uint64& schedule() {
  static uint64 seed = 0;
  return seed;
}

inline void disturb() {
#if defined(SYMMEM_HOST_SCHEDULES)
  if (schedule() == 0 || current().block == nullptr) return;
  static thread_local uint64 state = 0;
  static thread_local uint64 seeded = 0;
  if (seeded != schedule()) {
    seeded = schedule();
    state = seeded * 0x9e3779b97f4a7c15ull + current().block->block * 7919u + current().index + 1;
  }
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  const uint64 dice = state >> 33;
  if (dice % 64 == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(dice / 64 % 50));
  } else if (dice % 4 == 0) {
    std::this_thread::yield();
  }
#endif
}

SYMMEM_DEVICE uint64 nanoseconds() {
  return static_cast<uint64>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

SYMMEM_DEVICE void pause() { std::this_thread::yield(); }
SYMMEM_DEVICE void pause_in_crowd() { pause(); }

SYMMEM_DEVICE uint32 opaque(uint32 value) { return value; }
SYMMEM_DEVICE uint64 opaque(uint64 value) { return value; }
SYMMEM_DEVICE uint32 anew(uint32 value) { return value; }
SYMMEM_DEVICE bool anew(bool value) { return value; }
SYMMEM_DEVICE uint32 per_thread(uint32 value) { return value; }
SYMMEM_DEVICE uint64 per_thread(uint64 value) { return value; }
SYMMEM_DEVICE void set_any(uint32&) {}
SYMMEM_DEVICE void set_any(uint64&) {}
SYMMEM_DEVICE void settle_loads() {}

// ---- dependent launch: a launch starts when its prerequisites have ended ----

SYMMEM_DEVICE void start_dependents() {}
SYMMEM_DEVICE void start_dependents_of_answered() {}
SYMMEM_DEVICE void wait_for_prerequisites() {}
SYMMEM_DEVICE void end_waits() {}

// ---- data ----

struct alignas(16) Vector16 {
  uint32 words[4];
};

// Sanitizers do not report copies of structs from or to misaligned addresses.
inline void check_aligned(const void* pointer, uint64 bytes) {
  if (reinterpret_cast<uint64>(pointer) % bytes != 0) fault("an access is not aligned to its size");
}

template <class Word>
SYMMEM_DEVICE Word load(const Word* pointer) {
  check_aligned(pointer, sizeof(Word));
  return *pointer;
}

template <class Word>
SYMMEM_DEVICE void store(Word* pointer, const Word& value) {
  check_aligned(pointer, sizeof(Word));
  *pointer = value;
}

SYMMEM_DEVICE uint32 funnel(uint32 low, uint32 high, uint32 bits) {
  return static_cast<uint32>((static_cast<uint64>(high) << 32 | low) >> bits);
}

// ---- numbers ----

template <class To, class From>
inline To reinterpreted(From from) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

SYMMEM_DEVICE float reciprocal_root(float number) { return 1 / std::sqrt(number); }
SYMMEM_DEVICE float float_of(uint32 bits) { return reinterpreted<float>(bits); }
SYMMEM_DEVICE double float_of(uint64 bits) { return reinterpreted<double>(bits); }
SYMMEM_DEVICE uint32 bits_of(float number) { return reinterpreted<uint32>(number); }
SYMMEM_DEVICE uint64 bits_of(double number) { return reinterpreted<uint64>(number); }

// ---- matrices: plain loops; each of a warp's two threads has half of a square ----

SYMMEM_DEVICE Vector16 load_reused(const Vector16* pointer) { return *pointer; }

SYMMEM_DEVICE uint64 load_reused(const uint64* pointer) { return *pointer; }

SYMMEM_DEVICE uint32 uniform(uint32 value) { return value; }
SYMMEM_DEVICE uint64 uniform(uint64 value) { return value; }

SYMMEM_DEVICE void store_shared(uint16* pointer, uint16 value) { *pointer = value; }
SYMMEM_DEVICE void store_shared(uint16* pointer, uint32 value) { std::memcpy(pointer, &value, sizeof value); }
SYMMEM_DEVICE void store_shared(uint16* pointer, uint64 value) { std::memcpy(pointer, &value, sizeof value); }
SYMMEM_DEVICE void store_shared(uint16* pointer, const Vector16& value) { std::memcpy(pointer, &value, sizeof value); }

SYMMEM_DEVICE uint32 paired(uint32 first, uint32 second, uint32 high) {
  return high != 0 ? first >> 16 | (second & 0xffff0000) : (first & 0xffff) | second << 16;
}

SYMMEM_DEVICE void drain() {}
SYMMEM_DEVICE void shared_barrier() { block_barrier(); }
SYMMEM_DEVICE void keep_order() {}

#if defined(SYMMEM_HOST_LOADS_TO_SHARED)
constexpr bool loads_to_shared = true;
#else
constexpr bool loads_to_shared = false;
#endif

// Atomic, since threads may load the same bytes to the same place.
inline void load_to_shared(uint16* to, uint64 base, uint32 offset) {
  uint64 halves[2];
  std::memcpy(halves, reinterpret_cast<const void*>(base + offset), sizeof halves);
  uint64* const place = reinterpret_cast<uint64*>(to) + thread_index() % warp_size * 2;
  __atomic_store_n(place, halves[0], __ATOMIC_RELAXED);
  __atomic_store_n(place + 1, halves[1], __ATOMIC_RELAXED);
}

template <uint32 left>
SYMMEM_DEVICE void wait_for_loads() {}

template <uint32 level>
SYMMEM_DEVICE void set_priority() {}

template <class T>
SYMMEM_DEVICE T load_shared(const uint16* pointer) {
  T value;
  std::memcpy(&value, pointer, sizeof value);
  return value;
}

constexpr uint32 matrix_values = 256 / warp_size;

struct MatrixPart {
  float values[matrix_values];
};

SYMMEM_DEVICE uint32 matrix_row(uint32 value) { return thread_index() % warp_size * 8 + value / 16; }
SYMMEM_DEVICE uint32 matrix_column(uint32 value) { return value % 16; }

template <ElementType type>
inline float widened(uint16 bits) {
  if (type == ElementType::bf16) return float_of(static_cast<uint32>(bits) << 16);
  const uint32 sign = bits >> 15 << 31, magnitude = (bits & 0x7fffu) << 13;
  if ((bits & 0x7c00) == 0x7c00) return float_of(sign | 0xffu << 23 | magnitude);
  // The shifted exponent is too small by the difference of the biases.
  return float_of(sign | bits_of(float_of(magnitude) * 0x1p112f));
}

inline float widened_f8(uint32 bits) {
  const uint32 sign = (bits & 0x80) << 24, magnitude = bits & 0x7f;
  if (magnitude == 0x7f) return float_of(0x7fc00000u);
  // As above.
  return float_of(sign | bits_of(float_of(magnitude << 20) * 0x1p120f));
}

// Each thread has the whole fragment. A pair of 8-bit floats is not widened yet: a value has its bits.
struct MatrixFragment {
  float values[32][16];  // by depth
};

template <ElementType type>
inline float value_of(uint16 bits) {
  return type == ElementType::f8_e4m3 ? float_of(static_cast<uint32>(bits)) : widened<type>(bits);
}

template <ElementType type, class Place>
SYMMEM_DEVICE MatrixFragment load_fragment(const uint16* lines) {
  MatrixFragment fragment;
  for (uint32 line = 0; line < 16; ++line)
    for (uint32 depth = 0; depth < 32; ++depth)
      fragment.values[depth][line] = value_of<type>(lines[Place::at(line, depth / 8) + depth % 8]);
  return fragment;
}

constexpr bool loads_transposed = loads_to_shared;

template <ElementType type, uint32 length, class Place>
SYMMEM_DEVICE MatrixFragment load_transposed(const uint16* lines, const Place& place) {
  MatrixFragment fragment;
  for (uint32 depth = 0; depth < 32; ++depth) {
    const uint32 behind = depth % 8 / 4 * 4;
    for (uint32 line = 0; line < 16; ++line)
      fragment.values[depth][line] = value_of<type>(lines[place(depth - behind, line / 4) + behind * length + line % 4]);
  }
  return fragment;
}

template <ElementType>
constexpr uint32 matrix_steps = 2;

template <ElementType type>
inline float product_of(float a, float b) {
  if (type != ElementType::f8_e4m3) return a * b;
  const uint32 left = bits_of(a), right = bits_of(b);
  return widened_f8(left & 0xff) * widened_f8(right & 0xff) + widened_f8(left >> 8) * widened_f8(right >> 8);
}

template <ElementType type>
SYMMEM_DEVICE void matrix_multiply_add(MatrixPart& part, const MatrixFragment& a, const MatrixFragment& b, uint32 step) {
  for (uint32 value = 0; value < matrix_values; value += 16) {
    for (uint32 depth = 0; depth < 32; ++depth) {
      if (depth / 4 % 2 != step) continue;
      const float left = a.values[depth][matrix_row(value)];
      for (uint32 column = 0; column < 16; ++column)
        part.values[value + column] += product_of<type>(left, b.values[depth][column]);
    }
  }
}

constexpr float matrix_f8_unit = 1;

template <ElementType>
constexpr bool converts = false;
struct Conversion {  // only declared, as what follows
  uint32 begin(uint32);
  uint32 end(uint32, uint32&);
};
bool has_nans(uint32);
uint32 with_nans(uint32);

// ---- words that other devices or the host see ----

template <class Word>
SYMMEM_DEVICE Word load_relaxed(const Word* word) {
  disturb();
  return __atomic_load_n(word, __ATOMIC_RELAXED);
}

template <class Word>
SYMMEM_DEVICE void store_relaxed(Word* word, Word value) {
  disturb();
  __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

SYMMEM_DEVICE uint32 compare_exchange(uint32* word, uint32 expected, uint32 desired) {
  __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}

template <class Word>
SYMMEM_DEVICE Word load_acquire(const Word* word) {
  disturb();
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

template <class Word>
SYMMEM_DEVICE Word fetch_add(Word* word, Word operand) {
  disturb();
  return __atomic_fetch_add(word, operand, __ATOMIC_ACQ_REL);
}

template <class Word>
SYMMEM_DEVICE Word fetch_set(Word* word, Word operand) {
  disturb();
  return __atomic_exchange_n(word, operand, __ATOMIC_ACQ_REL);
}

template <class Word>
SYMMEM_DEVICE Word fetch_compare_set(Word* word, Word expected, Word operand) {
  disturb();
  __atomic_compare_exchange_n(word, &expected, operand, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return expected;
}

// ---- packets ----

struct alignas(16) Packet {
  uint64 halves[2];
};

SYMMEM_DEVICE Packet load_packet(const Packet* packet) {
  return {{load_relaxed(&packet->halves[0]), load_relaxed(&packet->halves[1])}};
}

// Stores the second half first, since no order is promised.
SYMMEM_DEVICE void store_packet(Packet* packet, const Packet& value) {
  store_relaxed(&packet->halves[1], value.halves[1]);
  store_relaxed(&packet->halves[0], value.halves[0]);
}

// Word by word and the last first, since no order is promised.
SYMMEM_DEVICE Vector16 load_packet(const Vector16* packet) {
  Vector16 value;
  for (int word = 3; word >= 0; --word) value.words[word] = load_relaxed(&packet->words[word]);
  return value;
}

SYMMEM_DEVICE void store_packet(Vector16* packet, const Vector16& value) {
  for (int word = 3; word >= 0; --word) store_relaxed(&packet->words[word], value.words[word]);
}

// ---- order: on the flag itself, since ThreadSanitizer does not see stand-alone fences ----

SYMMEM_DEVICE void release_wave() {}

SYMMEM_DEVICE void publish_flag(uint32* word, uint32 value) {
  disturb();
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

SYMMEM_DEVICE void publish_flag(uint64* word, uint64 value) {
  disturb();
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

SYMMEM_DEVICE void publish_taken(uint32* word, uint32 value) { publish_flag(word, value); }
SYMMEM_DEVICE void publish_entered(uint32* word, uint32 value) { publish_flag(word, value); }

SYMMEM_DEVICE uint32 load_flag(const uint32* word) { return load_relaxed(word); }

template <class Word>
SYMMEM_DEVICE void acquire_flag(const Word* word) {
  (void)__atomic_load_n(word, __ATOMIC_ACQUIRE);
}

template <class Word>
SYMMEM_DEVICE Word load_word(const Word* word) {
  return load_acquire(word);
}

SYMMEM_DEVICE void acquire_words() {}

// An atomic operation on one word shared by all threads, since ThreadSanitizer does not see fences.
SYMMEM_DEVICE void fence_system() {
  static uint32 everybody = 0;
  __atomic_fetch_add(&everybody, 1u, __ATOMIC_SEQ_CST);
}

SYMMEM_DEVICE uint32 arrive(uint32* counter) { return __atomic_fetch_add(counter, 1u, __ATOMIC_ACQ_REL); }
SYMMEM_DEVICE uint32 arrive_taken(uint32* counter) { return arrive(counter); }
SYMMEM_DEVICE void reset(uint32* counter) { store_relaxed(counter, 0u); }

// ---- bulk copies ----

inline void check_bulk(const void* shared, const void* global, uint32 bytes) {
  if (bytes == 0 || (reinterpret_cast<uint64>(shared) | reinterpret_cast<uint64>(global) | bytes) % 16 != 0) {
    fault("a bulk copy is empty or not a multiple of 16 bytes from and to multiples of 16");
  }
}

SYMMEM_DEVICE void bulk_barrier_initialise(BulkBarrier* barrier) {
  HostBlock& block = *current().block;
  block.phases[barrier] = HostBlock::BulkPhase{};
  block.fenced = false;
}

SYMMEM_DEVICE void bulk_expect(BulkBarrier* barrier, uint32 bytes) {
  HostBlock::BulkPhase& phase = current().block->phases.at(barrier);
  if (phase.armed) fault("a stage was loaded again before its last load was waited for");
  phase.armed = true;
  phase.expected = bytes;
}

SYMMEM_DEVICE void bulk_load(uint8* shared, const uint8* global, uint32 bytes, BulkBarrier* barrier) {
  HostBlock& block = *current().block;
  check_bulk(shared, global, bytes);
  if (!block.fenced) fault("a bulk load without a proxy fence after its barrier was initialised");
  std::memset(shared, 0xEE, bytes);  // so that a store that still reads this stage sends wrong bytes
  block.phases.at(barrier).loads.push_back({shared, global, bytes});
}

SYMMEM_DEVICE void bulk_wait(BulkBarrier* barrier, uint32 parity) {
  HostBlock::BulkPhase& phase = current().block->phases.at(barrier);
  if (phase.count % 2 != parity) return;
  if (!phase.armed) fault("a wait for a stage that nobody loads");
  uint64 arrived = 0;
  for (const auto& load : phase.loads) {
    std::memcpy(load.destination, load.source, load.bytes);
    arrived += load.bytes;
  }
  if (arrived != phase.expected) fault("a stage expects other bytes than were loaded");
  phase.loads.clear();
  phase.armed = false;
  ++phase.count;
}

SYMMEM_DEVICE void bulk_store(uint8* global, const uint8* shared, uint32 bytes) {
  check_bulk(shared, global, bytes);
  current().block->open_group.push_back({global, shared, bytes});
}

SYMMEM_DEVICE void bulk_commit() {
  HostBlock& block = *current().block;
  block.groups.push_back(block.open_group);
  block.open_group.clear();
}

template <int pending>
SYMMEM_DEVICE void bulk_wait_read() {
  HostBlock& block = *current().block;
  for (; block.groups.size() > static_cast<std::size_t>(pending); block.groups.pop_front()) {
    for (const auto& copy : block.groups.front()) {
      block.writes.push_back({copy.destination, std::vector<uint8>(copy.source, copy.source + copy.bytes)});
    }
  }
}

SYMMEM_DEVICE void bulk_wait_complete() {
  bulk_wait_read<0>();
  HostBlock& block = *current().block;
  for (const auto& write : block.writes) std::memcpy(write.destination, write.data.data(), write.data.size());
  block.writes.clear();
}

SYMMEM_DEVICE void fence_async_proxy() { current().block->fenced = true; }

}  // namespace arch
}  // namespace symmem
