// Tuning harness: finds geometries and ring sizes for the transfer tables on a machine with two GPUs.
//
//   nvcc -std=c++17 -O3 -arch=sm_90 -I device/include -o tune benches/device/tune.cu
//   ./tune results.jsonl [section ...]
//
// Sections: check protocol ring vector small large engine latency (default: all). One process uses two GPUs,
// with one host thread per direction; both directions move at once unless a title says "one way". A rate is
// measured with 10 warm-up launches, then 50 launches back to back between two events (2 and 10 above 16 MiB);
// it is the slower direction's, the median over rounds. Every configuration is checked first, with random
// contents, a poisoned output and guard bytes after it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

#include "../../device/entries/base.h"
#include "../../kernels-ptx/src/bulk.cu"
#include "../../device/entries/latency.h"
#include "../../device/entries/signals.h"

#define CHECK(call)                                                                              \
  do {                                                                                           \
    const cudaError_t status = (call);                                                           \
    if (status != cudaSuccess) {                                                                 \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status)); \
      std::exit(1);                                                                              \
    }                                                                                            \
  } while (0)

// ---- variants that are not in the library ----

template <int unroll>
__global__ __launch_bounds__(unroll > 8 ? 256 : 1024, 1) void tune_vector(const __grid_constant__ TransferArguments transfer) {
  copy_vector<unroll>(transfer.destination, transfer.source, transfer.bytes);
  give_signal(transfer.signal);
}

// Like NVSHMEM's block put to a peer: 16 bytes per thread, without manual unrolling.
__global__ void tune_plain(const __grid_constant__ TransferArguments transfer) {
  int4* destination = pointer<int4>(transfer.destination);
  const int4* source = pointer<const int4>(transfer.source);
  for (uint64 index = threadIdx.x; index < transfer.bytes / 16; index += blockDim.x) destination[index] = source[index];
}

// 16-byte loads that do not allocate a line in the L1 cache.
template <int unroll>
__global__ __launch_bounds__(1024, 1) void tune_no_allocate(const __grid_constant__ TransferArguments transfer) {
  copy_tiles<unroll>(pointer<arch::Vector16>(transfer.destination), transfer.bytes / 16, [&](uint64 index) {
    arch::Vector16 value;
    asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.words[0]), "=r"(value.words[1]), "=r"(value.words[2]), "=r"(value.words[3])
                 : "l"(transfer.source + index * 16)
                 : "memory");
    return value;
  });
}

template <int pending>
__global__ __launch_bounds__(1024, 1) void tune_bulk(const __grid_constant__ TransferArguments transfer) {
  copy_bulk<pending>(transfer.destination, transfer.source, transfer.bytes, transfer.stages, transfer.stage_bytes);
}

// Ordinary accesses with programmatic dependent launch.
template <int unroll>
__global__ __launch_bounds__(1024, 1) void tune_vector_dependent(const __grid_constant__ TransferArguments transfer) {
  arch::start_dependents();
  arch::wait_for_prerequisites();
  copy_vector<unroll>(transfer.destination, transfer.source, transfer.bytes);
}

// Variants of release and acquire in symmem_latency_signal.
enum class Release { every_warp, one_fence, one_store };
enum class Acquire { fence, load_after, load_polling };

template <Release release, Acquire acquire, bool payload = true>
__global__ __launch_bounds__(1024, 1) void tune_latency(const __grid_constant__ LatencyArguments arguments) {
  const uint64 start = arch::nanoseconds();
  uint32* remote = pointer<uint32>(arguments.remote);
  const uint32* local = pointer<const uint32>(arguments.local);
  bool complete = true;
  for (uint32 turn = 0; complete && turn < 2 * arguments.rounds; ++turn) {
    const uint32 value = arguments.base + turn / 2 + 1;
    if ((turn % 2 == 0) == (arguments.first != 0)) {
      if (payload)
        copy_words<1, arch::Vector16>(arguments.remote + signal_stride, arguments.local + signal_stride, arguments.bytes,
                                      share_of_grid());
      if (release == Release::every_warp) arch::fence_system();
      arch::block_barrier();
      if (threadIdx.x == 0) {
        if (release == Release::one_store) {
          asm volatile("st.release.sys.global.b32 [%0], %1;" ::"l"(remote), "r"(value) : "memory");
        } else {
          arch::fence_system();
          arch::store_relaxed(remote, value);
        }
      }
    } else {
      bool arrived = true;
      if (threadIdx.x == 0) {
        for (uint32 polls = 0;; ++polls) {
          const uint32 seen = acquire == Acquire::load_polling ? arch::load_flag(local) : arch::load_relaxed(local);
          if (reached(seen, value)) break;
          if (polls > 10000000) {
            arrived = false;
            break;
          }
        }
        if (acquire == Acquire::fence) arch::fence_system();
        if (acquire == Acquire::load_after) (void)arch::load_flag(local);
      }
      complete = arch::block_all(arrived);
    }
  }
  if (threadIdx.x == 0)
    arch::store_relaxed(pointer<uint64>(arguments.result), complete ? arch::nanoseconds() - start : ~0ull);
}

// ---- data ----

__host__ __device__ inline uint32 contents(uint64 index, uint32 seed) {
  uint64 x = index * 0x9e3779b97f4a7c15ull + seed;
  x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9ull;
  return static_cast<uint32>(x >> 32);
}

__global__ void fill(uint32* words, uint64 count, uint32 seed) {
  for (uint64 index = blockIdx.x * 1ull * blockDim.x + threadIdx.x; index < count; index += 1ull * gridDim.x * blockDim.x)
    words[index] = contents(index, seed);
}

__global__ void compare(const uint32* words, uint64 count, uint32 seed, unsigned long long* wrong) {
  for (uint64 index = blockIdx.x * 1ull * blockDim.x + threadIdx.x; index < count; index += 1ull * gridDim.x * blockDim.x)
    if (words[index] != contents(index, seed)) atomicAdd(wrong, 1ull);
}

constexpr uint64 largest = 256ull << 20;
constexpr uint64 guard = 256;

struct Gpu {
  cudaStream_t stream;
  cudaEvent_t begin, end;
  uint8 *source, *destination, *mailbox;
  unsigned long long* wrong;
};
Gpu gpus[2];
std::FILE* json;
bool failed = false;
const auto program_start = std::chrono::steady_clock::now();

double elapsed() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - program_start).count();
}

void emit(const char* format, ...) {
  va_list list;
  va_start(list, format);
  std::vfprintf(json, format, list);
  va_end(list);
  std::fflush(json);
}

uint64 address(const void* p) { return reinterpret_cast<uint64>(p); }

// ---- one configuration ----

using Kernel = void (*)(TransferArguments);

struct Config {
  const char* name;
  Kernel kernel;  // null: the copy engine
  uint32 blocks, threads, stages, stage_bytes;
  bool dependent;  // programmatic dependent launch
};

TransferArguments arguments_of(const Config& config, int rank, bool pull, uint64 bytes) {
  TransferArguments transfer{};
  transfer.destination = address(gpus[pull ? rank : 1 - rank].destination);
  transfer.source = address(gpus[pull ? 1 - rank : rank].source);
  transfer.bytes = bytes;
  transfer.stages = config.stages;
  transfer.stage_bytes = config.stage_bytes;
  return transfer;
}

uint32 shared_bytes(const Config& config) {
  return config.stages ? 256 + config.stages * config.stage_bytes : 0;
}

void launch(const Config& config, TransferArguments transfer, cudaStream_t stream) {
  if (config.kernel == nullptr) {
    CHECK(cudaMemcpyAsync(reinterpret_cast<void*>(transfer.destination), reinterpret_cast<void*>(transfer.source),
                          transfer.bytes, cudaMemcpyDeviceToDevice, stream));
    return;
  }
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t geometry{};
  geometry.gridDim = dim3(config.blocks);
  geometry.blockDim = dim3(config.threads);
  geometry.dynamicSmemBytes = shared_bytes(config);
  geometry.stream = stream;
  geometry.attrs = &attribute;
  geometry.numAttrs = config.dependent ? 1 : 0;
  CHECK(cudaLaunchKernelEx(&geometry, config.kernel, transfer));
}

// Runs `body(rank)` on a host thread for each rank that moves.
template <class Body>
void on_ranks(bool both, Body body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < (both ? 2 : 1); ++rank)
    threads.emplace_back([=] {
      CHECK(cudaSetDevice(rank));
      body(rank);
    });
  for (auto& thread : threads) thread.join();
}

bool verify(const Config& config, bool pull, uint64 bytes, bool both) {
  bool right = true;
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(cudaSetDevice(rank));
    CHECK(cudaMemset(gpus[rank].destination, 0xA5, bytes + guard));
    CHECK(cudaDeviceSynchronize());
  }
  on_ranks(both, [&](int rank) {
    launch(config, arguments_of(config, rank, pull, bytes), gpus[rank].stream);
    CHECK(cudaStreamSynchronize(gpus[rank].stream));
  });
  for (int rank = 0; rank < (both ? 2 : 1); ++rank) {
    const int target = pull ? rank : 1 - rank;
    CHECK(cudaSetDevice(target));
    CHECK(cudaMemset(gpus[target].wrong, 0, 8));
    compare<<<512, 256>>>(reinterpret_cast<uint32*>(gpus[target].destination), bytes / 4, 1 + (1 - target), gpus[target].wrong);
    unsigned long long wrong = 0;
    uint8 behind[guard];
    CHECK(cudaMemcpy(&wrong, gpus[target].wrong, 8, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(behind, gpus[target].destination + bytes, guard, cudaMemcpyDeviceToHost));
    for (uint8 byte : behind) right = right && byte == 0xA5;
    right = right && wrong == 0;
  }
  return right;
}

// Returns GB/s of the slower direction; 0 after a wrong result, and after 150 s of run time.
double measure(const Config& config, bool pull, uint64 bytes, bool both = true) {
  if (elapsed() > 150) return 0;
  if (!verify(config, pull, bytes, both)) {
    std::printf("WRONG: %s %s %llu bytes, %u x %u, %u x %u\n", config.name, pull ? "pull" : "push", bytes, config.blocks,
                config.threads, config.stages, config.stage_bytes);
    failed = true;
    return 0;
  }
  const bool big = bytes > (16ull << 20);
  const int warm_ups = big ? 2 : 10;
  const int launches = big ? 10 : 50;
  const int rounds = big ? 3 : 5;
  std::vector<double> rates;
  std::atomic<int> ready{0};
  std::vector<std::vector<float>> times(2, std::vector<float>(rounds));
  const int ranks = both ? 2 : 1;
  on_ranks(both, [&](int rank) {
    Gpu& gpu = gpus[rank];
    const TransferArguments transfer = arguments_of(config, rank, pull, bytes);
    for (int round = 0; round < rounds; ++round) {
      CHECK(cudaStreamSynchronize(gpu.stream));
      ready.fetch_add(1);
      while (ready.load() < ranks * (round + 1)) {
      }
      for (int i = 0; i < warm_ups; ++i) launch(config, transfer, gpu.stream);
      CHECK(cudaEventRecord(gpu.begin, gpu.stream));
      for (int i = 0; i < launches; ++i) launch(config, transfer, gpu.stream);
      CHECK(cudaEventRecord(gpu.end, gpu.stream));
      CHECK(cudaStreamSynchronize(gpu.stream));
      CHECK(cudaEventElapsedTime(&times[rank][round], gpu.begin, gpu.end));
    }
  });
  for (int round = 0; round < rounds; ++round)
    rates.push_back(bytes * 1e-6 * launches / std::max(times[0][round], times[1][round]));
  std::sort(rates.begin(), rates.end());
  const double rate = rates[rates.size() / 2];
  emit("{\"kernel\":\"%s\",\"direction\":\"%s\",\"both\":%s,\"bytes\":%llu,\"blocks\":%u,\"threads\":%u,\"stages\":%u,"
       "\"stage_bytes\":%u,\"dependent\":%s,\"gbps\":%.4f,\"low\":%.4f,\"high\":%.4f}\n",
       config.name, pull ? "pull" : "push", both ? "true" : "false", bytes, config.blocks, config.threads, config.stages,
       config.stage_bytes, config.dependent ? "true" : "false", rate, rates.front(), rates.back());
  return rate;
}

// ---- sections ----

// Checks every kernel over alignments and lengths against memcpy on the host.
void section_check() {
  const struct {
    const char* name;
    Kernel kernel;
    uint32 stages, stage_bytes;
  } kernels[] = {{"symmem_copy_vector", symmem_copy_vector, 0, 0},
                 {"symmem_copy_unrolled", symmem_copy_unrolled, 0, 0},
                 {"symmem_copy_bulk", symmem_copy_bulk, 4, 1024},
                 {"symmem_copy_bulk 16K", symmem_copy_bulk, 8, 16384}};
  const uint64 lengths[] = {0, 1, 3, 15, 16, 17, 31, 47, 64, 255, 1027, 4099, 20000, 140001};
  const uint64 window = 140001 + 128;
  std::vector<uint8> source(window), got(window), expected(window);
  CHECK(cudaSetDevice(1));
  CHECK(cudaMemcpy(source.data(), gpus[1].source, window, cudaMemcpyDeviceToHost));
  CHECK(cudaSetDevice(0));
  unsigned cases = 0, wrong = 0;
  for (const auto& kernel : kernels)
    for (uint64 length : lengths)
      for (uint64 to = 0; to < 18; to += length > 5000 ? 5 : 1)
        for (uint64 from = 0; from < 18; from += length > 5000 ? 3 : 1) {
          const uint32 blocks = (to + from) % 2 ? 1 : 3;
          const Config config{kernel.name, kernel.kernel, blocks, 128, kernel.stages, kernel.stage_bytes, false};
          TransferArguments transfer = arguments_of(config, 0, true, length);
          const uint64 used = length + 96;
          transfer.destination += 32 + to;
          transfer.source += from;
          CHECK(cudaMemsetAsync(gpus[0].destination, 0xA5, used, gpus[0].stream));
          launch(config, transfer, gpus[0].stream);
          CHECK(cudaMemcpyAsync(got.data(), gpus[0].destination, used, cudaMemcpyDeviceToHost, gpus[0].stream));
          CHECK(cudaStreamSynchronize(gpus[0].stream));
          std::memset(expected.data(), 0xA5, used);
          std::memcpy(expected.data() + 32 + to, source.data() + from, length);
          ++cases;
          if (std::memcmp(got.data(), expected.data(), used) != 0 && ++wrong < 5)
            std::printf("WRONG: %s, %llu bytes, destination +%llu, source +%llu, %u blocks\n", kernel.name, length, to, from, blocks);
        }
  std::printf("check: %u combinations of alignment and length, %u wrong (%.1f s)\n", cases, wrong, elapsed());
  emit("{\"section\":\"check\",\"cases\":%u,\"wrong\":%u}\n", cases, wrong);
  failed = failed || wrong != 0;
}

WaitRecord* record;
uint32* abort_word;

constexpr uint64 aborted_word = 768;  // in each mailbox

Watch watch_of(uint32 rank, uint64 deadline_ns) {
  return Watch{address(abort_word), address(record), address(gpus[rank].mailbox + aborted_word), deadline_ns, rank, 0};
}

void expect(bool condition, const char* what) {
  std::printf("protocol: %-66s %s\n", what, condition ? "ok" : "WRONG");
  failed = failed || !condition;
}

// Checks signals, waits and the barrier.
void section_protocol() {
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(cudaSetDevice(rank));
    CHECK(cudaMemset(gpus[rank].mailbox, 0, 1 << 20));
    CHECK(cudaDeviceSynchronize());
  }
  std::memset(record, 0, sizeof *record);
  *abort_word = 0;
  // Mailbox offsets: signal word 0, epoch of signals 128, epoch of waits 256, arrivals 384, barrier epoch 512,
  // barrier words from 1024 on.
  for (uint32 blocks : {1u, 4u, 16u})
    for (int method = 0; method < 2; ++method) {
      const uint64 bytes = 3 << 20;
      const Config config = method ? Config{"bulk", symmem_copy_bulk, blocks, 128, 4, 16384, false}
                                   : Config{"vector", symmem_copy_vector, blocks, 512, 0, 0, false};
      CHECK(cudaSetDevice(1));
      CHECK(cudaMemset(gpus[1].destination, 0xA5, bytes));
      CHECK(cudaMemset(gpus[1].wrong, 0, 8));
      CHECK(cudaDeviceSynchronize());
      // Launch the consumer first: it waits, then a kernel compares.
      SignalWait wait{};
      wait.word = address(gpus[1].mailbox);
      wait.epoch = address(gpus[1].mailbox + 256);
      wait.watch = watch_of(1, 2000000000);
      symmem_wait<<<1, 1, 0, gpus[1].stream>>>(wait);
      compare<<<256, 256, 0, gpus[1].stream>>>(reinterpret_cast<uint32*>(gpus[1].destination), bytes / 4, 1, gpus[1].wrong);
      CHECK(cudaSetDevice(0));
      TransferArguments transfer = arguments_of(config, 0, false, bytes);
      transfer.signal.word = address(gpus[1].mailbox);
      transfer.signal.epoch = address(gpus[0].mailbox + 128);
      transfer.signal.arrivals = address(gpus[0].mailbox + 384);
      launch(config, transfer, gpus[0].stream);
      CHECK(cudaStreamSynchronize(gpus[0].stream));
      CHECK(cudaSetDevice(1));
      CHECK(cudaStreamSynchronize(gpus[1].stream));
      unsigned long long wrong = 1;
      CHECK(cudaMemcpy(&wrong, gpus[1].wrong, 8, cudaMemcpyDeviceToHost));
      char what[80];
      std::snprintf(what, sizeof what, "put with signal, %s, %u blocks", config.name, blocks);
      expect(wrong == 0 && record->state == 0, what);
    }
  for (int repeat = 0; repeat < 20; ++repeat)
    for (int rank = 0; rank < 2; ++rank) {
      CHECK(cudaSetDevice(rank));
      Barrier arguments{};
      arguments.watch = watch_of(rank, 2000000000);
      arguments.epoch = address(gpus[rank].mailbox + 512);
      arguments.own = address(gpus[rank].mailbox + 1024);
      arguments.peers[1 - rank] = address(gpus[1 - rank].mailbox + 1024 + rank * signal_stride);
      arguments.world = 2;
      symmem_barrier<<<1, 32, 0, gpus[rank].stream>>>(arguments);
    }
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(cudaSetDevice(rank));
    CHECK(cudaStreamSynchronize(gpus[rank].stream));
  }
  expect(record->state == 0, "20 barriers of 2 ranks");
  CHECK(cudaSetDevice(0));
  SignalWait wait{};
  wait.word = address(gpus[0].mailbox + 8192);
  wait.value = 7;
  wait.peer = 1;
  wait.slot = 3;
  wait.watch = watch_of(0, 1000000);
  symmem_wait<<<1, 1, 0, gpus[0].stream>>>(wait);
  CHECK(cudaStreamSynchronize(gpus[0].stream));
  expect(record->state == 2 && record->reason == 1 && record->expected == 7 && record->peer == 1 && record->slot == 3,
         "a wait of 1 ms times out and leaves a record");
  std::memset(record, 0, sizeof *record);
  wait.watch = watch_of(0, 5000000000);
  symmem_wait<<<1, 1, 0, gpus[0].stream>>>(wait);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const bool waiting = cudaStreamQuery(gpus[0].stream) == cudaErrorNotReady;
  const auto set = std::chrono::steady_clock::now();
  __atomic_store_n(abort_word, 1u, __ATOMIC_RELEASE);
  CHECK(cudaStreamSynchronize(gpus[0].stream));
  const double microseconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - set).count() * 1e6;
  *abort_word = 0;
  CHECK(cudaMemset(gpus[0].mailbox + aborted_word, 0, 4));
  char what[80];
  std::snprintf(what, sizeof what, "the abort word ends a wait (%.0f us until the stream is idle)", microseconds);
  expect(waiting && record->state == 2 && record->reason == 2, what);
}

// One block of 128 threads with bulk copies: number and size of stages.
void section_ring() {
  const struct {
    const char* name;
    Kernel kernel;
    bool dependent;
  } kernels[] = {{"pending 1", tune_bulk<1>, false},
                 {"pending 2", tune_bulk<2>, false},
                 {"library", symmem_copy_bulk, false},
                 {"dependent launch", symmem_copy_bulk, true}};
  const std::pair<uint32, uint32> rings[] = {{4, 16}, {4, 32}, {4, 48}, {5, 40}, {6, 32}, {7, 32}, {8, 8},
                                             {8, 16}, {8, 24}, {8, 28}, {12, 8}, {12, 16}, {16, 8}, {24, 8}};
  std::printf("\none block of 128 threads, 4 MiB, both ways, push / pull GB/s\n%-18s", "stages x KiB");
  for (const auto& kernel : kernels) std::printf("  %17s", kernel.name);
  std::printf("\n");
  for (const auto& ring : rings) {
    std::printf("%8u x %-7u", ring.first, ring.second);
    for (const auto& kernel : kernels) {
      const Config config{kernel.name, kernel.kernel, 1, 128, ring.first, ring.second * 1024, kernel.dependent};
      const double push = measure(config, false, 4 << 20);
      const double pull = measure(config, true, 4 << 20);
      std::printf("     %6.2f / %5.2f", push, pull);
      std::fflush(stdout);
    }
    std::printf("\n");
  }
  std::printf("(%.1f s)\n", elapsed());
}

void table(const char* title, const std::vector<Config>& configs, const std::vector<uint64>& sizes, bool both = true) {
  for (bool pull : {false, true}) {
    std::printf("\n%s, %s, %s, GB/s\n%-26s", title, both ? "both ways" : "one way", pull ? "pull" : "push", "");
    for (uint64 bytes : sizes) bytes < (1 << 20) ? std::printf(" %6lluK", bytes >> 10) : std::printf(" %6lluM", bytes >> 20);
    std::printf("\n");
    for (const Config& config : configs) {
      char name[64];
      if (config.stages)
        std::snprintf(name, sizeof name, "%s%s %ux%u %ux%uK", config.name, config.dependent ? "+" : "", config.blocks, config.threads, config.stages, config.stage_bytes / 1024);
      else
        std::snprintf(name, sizeof name, "%s %ux%u", config.name, config.blocks, config.threads);
      std::printf("%-26s", name);
      for (uint64 bytes : sizes) {
        std::printf(" %7.2f", measure(config, pull, bytes, both));
        std::fflush(stdout);
      }
      std::printf("\n");
    }
  }
  std::printf("(%.1f s)\n", elapsed());
}

std::vector<uint64> doubling(uint64 from, uint64 to, int factor = 2) {
  std::vector<uint64> sizes;
  for (uint64 bytes = from; bytes <= to; bytes *= factor) sizes.push_back(bytes);
  return sizes;
}

// One block of 128 threads, as in the published table.
void section_small() {
  table("one block of 128 threads",
        {{"plain", tune_plain, 1, 128, 0, 0, false},
         {"vector1", tune_vector<1>, 1, 128, 0, 0, false},
         {"vector2", tune_vector<2>, 1, 128, 0, 0, false},
         {"vector4", tune_vector<4>, 1, 128, 0, 0, false},
         {"vector8", tune_vector<8>, 1, 128, 0, 0, false},
         {"vector16", tune_vector<16>, 1, 128, 0, 0, false},
         {"unrolled", symmem_copy_unrolled, 1, 128, 0, 0, false},
         {"bulk", symmem_copy_bulk, 1, 128, 8, 16384, false},
         {"bulk", symmem_copy_bulk, 1, 128, 8, 24576, false},
         {"bulk", symmem_copy_bulk, 1, 128, 16, 8192, false},
         {"dependent bulk", symmem_copy_bulk, 1, 128, 8, 16384, true},
         {"dependent bulk", symmem_copy_bulk, 1, 128, 8, 24576, true},
         {"dependent bulk", symmem_copy_bulk, 1, 128, 16, 8192, true},
         {"dependent vector8", tune_vector_dependent<8>, 1, 128, 0, 0, true}},
        doubling(2048, 4 << 20));
}

// One block: threads and unrolling.
void section_vector() {
  std::vector<Config> configs;
  for (uint32 threads : {256u, 512u, 1024u}) {
    configs.push_back({"vector2", tune_vector<2>, 1, threads, 0, 0, false});
    configs.push_back({"vector4", tune_vector<4>, 1, threads, 0, 0, false});
    configs.push_back({"vector8", tune_vector<8>, 1, threads, 0, 0, false});
    configs.push_back({"no_alloc4", tune_no_allocate<4>, 1, threads, 0, 0, false});
  }
  table("one block, threads and unrolling", configs, {4096, 16384, 65536, 262144, 1 << 20, 4 << 20});
}

// 2 to 16 blocks.
void section_large() {
  std::vector<Config> configs = {{"engine", nullptr, 0, 0, 0, 0, false}};
  for (uint32 blocks : {2u, 4u, 6u, 8u, 10u, 16u}) {
    configs.push_back({"vector8", tune_vector<8>, blocks, 512, 0, 0, false});
    configs.push_back({"vector8", tune_vector<8>, blocks, 1024, 0, 0, false});
    configs.push_back({"bulk", symmem_copy_bulk, blocks, 128, 8, 16384, false});
    configs.push_back({"bulk", symmem_copy_bulk, blocks, 128, 8, 24576, false});
    configs.push_back({"bulk", symmem_copy_bulk, blocks, 128, 8, 16384, true});
  }
  table("several blocks", configs, {65536, 262144, 1 << 20, 4 << 20, 16 << 20, largest});
  table("several blocks", configs, {4 << 20, largest}, false);
}

void section_engine() {
  const std::vector<Config> engine = {{"engine", nullptr, 0, 0, 0, 0, false}};
  table("copy engine", engine, doubling(2048, largest, 4));
  table("copy engine", engine, {4 << 20, largest}, false);
}

void section_latency() {
  const struct {
    const char* name;
    void (*kernel)(LatencyArguments);
    uint32 threads;
    uint64 bytes;
  } cases[] = {{"LL packet", symmem_latency_packet, 1, 0},
               {"signal", symmem_latency_signal, 32, 8},
               {"signal", symmem_latency_signal, 32, 512},
               {"signal", symmem_latency_signal, 128, 8},
               {"signal", symmem_latency_signal, 128, 2048},
               {"signal", symmem_latency_signal, 1024, 16384},
               {"every warp, fence", tune_latency<Release::every_warp, Acquire::fence>, 128, 2048},
               {"one fence, fence", tune_latency<Release::one_fence, Acquire::fence>, 128, 2048},
               {"one fence, load after", tune_latency<Release::one_fence, Acquire::load_after>, 128, 2048},
               {"one fence, load polling", tune_latency<Release::one_fence, Acquire::load_polling>, 128, 2048},
               {"one store, load after", tune_latency<Release::one_store, Acquire::load_after>, 128, 2048},
               {"one store, load polling", tune_latency<Release::one_store, Acquire::load_polling>, 128, 2048},
               {"every warp, load polling", tune_latency<Release::every_warp, Acquire::load_polling>, 128, 2048},
               {"one store, load polling", tune_latency<Release::one_store, Acquire::load_polling>, 32, 8},
               {"no payload, one store", tune_latency<Release::one_store, Acquire::load_polling, false>, 32, 0}};
  constexpr uint32 rounds = 2000;
  uint32 base = 0;
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(cudaSetDevice(rank));
    CHECK(cudaMemset(gpus[rank].mailbox, 0, 1 << 20));
    CHECK(cudaDeviceSynchronize());
  }
  std::memset(record, 0, sizeof *record);
  uint64* result = nullptr;
  CHECK(cudaHostAlloc(&result, 16, cudaHostAllocPortable | cudaHostAllocMapped));
  std::printf("\none way, microseconds, %u round trips in one kernel\n", rounds);
  for (const auto& each : cases) {
    double best = 1e9, worst = 0;
    bool same = true;
    for (int repeat = 0; repeat < 3; ++repeat) {
      // The flag's position depends on the kernel (packets have it in their upper half), so start from zero.
      base = 0;
      for (int rank = 0; rank < 2; ++rank) {
        CHECK(cudaSetDevice(rank));
        CHECK(cudaMemset(gpus[rank].mailbox, 0, signal_stride));
        fill<<<32, 256>>>(reinterpret_cast<uint32*>(gpus[rank].mailbox + signal_stride), 16384, 40 + rank + repeat);
        CHECK(cudaDeviceSynchronize());
      }
      for (int rank = 0; rank < 2; ++rank) {
        CHECK(cudaSetDevice(rank));
        LatencyArguments arguments{};
        arguments.local = address(gpus[rank].mailbox);
        arguments.remote = address(gpus[1 - rank].mailbox);
        arguments.bytes = each.bytes;
        arguments.result = address(result + rank);
        arguments.watch = watch_of(rank, 3000000000);
        arguments.rounds = rounds;
        arguments.base = base;
        arguments.first = rank == 0;
        arguments.peer = 1 - rank;
        each.kernel<<<1, each.threads, 0, gpus[rank].stream>>>(arguments);
      }
      for (int rank = 0; rank < 2; ++rank) {
        CHECK(cudaSetDevice(rank));
        CHECK(cudaStreamSynchronize(gpus[rank].stream));
        std::vector<uint32> got(each.bytes / 4);
        CHECK(cudaMemcpy(got.data(), gpus[rank].mailbox + signal_stride, each.bytes, cudaMemcpyDeviceToHost));
        // The library's kernel generates and checks its payload itself.
        if (each.kernel == symmem_latency_signal) got.clear();
        for (uint64 index = 0; index < got.size(); ++index) same = same && got[index] == contents(index, 40 + repeat);
      }
      same = same && result[0] != ~0ull && result[1] != ~0ull;
      const double microseconds = result[0] * 1e-3 / (2.0 * rounds);
      best = std::min(best, microseconds);
      worst = std::max(worst, microseconds);
    }
    std::printf("%-26s %5u threads %6llu bytes  %.3f .. %.3f %s\n", each.name, each.threads, each.bytes, best, worst, same ? "" : "WRONG");
    emit("{\"latency\":\"%s\",\"threads\":%u,\"bytes\":%llu,\"microseconds\":%.4f,\"worst\":%.4f,\"right\":%s}\n", each.name,
         each.threads, each.bytes, best, worst, same ? "true" : "false");
    failed = failed || !same;
  }
}

int main(int count, char** words) {
  if (count < 2) {
    std::fprintf(stderr, "usage: %s results.jsonl [check protocol ring small vector large engine latency]\n", words[0]);
    return 2;
  }
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);  // loading a kernel could wait for a waiting kernel
  json = std::fopen(words[1], "w");
  if (json == nullptr) {
    std::perror(words[1]);
    return 2;
  }
  // Contexts on all devices first, then peer access.
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(cudaSetDevice(rank));
    CHECK(cudaFree(nullptr));
  }
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(cudaSetDevice(rank));
    CHECK(cudaDeviceEnablePeerAccess(1 - rank, 0));
    Gpu& gpu = gpus[rank];
    CHECK(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&gpu.begin));
    CHECK(cudaEventCreate(&gpu.end));
    CHECK(cudaMalloc(&gpu.source, largest + guard));
    CHECK(cudaMalloc(&gpu.destination, largest + guard));
    CHECK(cudaMalloc(&gpu.mailbox, 1 << 20));
    CHECK(cudaMalloc(&gpu.wrong, 8));
    fill<<<1024, 256>>>(reinterpret_cast<uint32*>(gpu.source), (largest + guard) / 4, 1 + rank);
    CHECK(cudaDeviceSynchronize());
    for (Kernel kernel : {static_cast<Kernel>(symmem_copy_bulk), static_cast<Kernel>(tune_bulk<1>),
                          static_cast<Kernel>(tune_bulk<2>)})
      CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024));
  }
  CHECK(cudaHostAlloc(&record, sizeof *record, cudaHostAllocPortable | cudaHostAllocMapped));
  CHECK(cudaHostAlloc(&abort_word, 64, cudaHostAllocPortable | cudaHostAllocMapped));
  std::memset(record, 0, sizeof *record);
  *abort_word = 0;
  const struct {
    const char* name;
    void (*run)();
  } sections[] = {{"check", section_check},   {"protocol", section_protocol}, {"latency", section_latency},
                  {"ring", section_ring},     {"small", section_small},       {"vector", section_vector},
                  {"large", section_large},   {"engine", section_engine}};
  for (const auto& section : sections) {
    bool wanted = count == 2;
    for (int index = 2; index < count; ++index) wanted = wanted || std::strcmp(words[index], section.name) == 0;
    if (wanted) section.run();
  }
  std::printf("%s, %.1f s\n", failed ? "SOME RESULTS WERE WRONG" : "all checked results correct", elapsed());
  return failed ? 1 : 0;
}
