// Tuning harness: times the kernels of collectives with bf16, over blocks, threads and concurrent copies.
//
//   nvcc -O3 -std=c++17 -arch=sm_90 -Idevice/include -o collectives benches/device/collectives.cu
//   ./collectives --op all_reduce --algorithm two_shot --min 1M --max 64M --blocks 16,32,64 --threads 512
//
// One process uses all GPUs, one rank each unless --ranks says more: those share GPUs, so that two versions of the device code
// can be compared on one GPU; grids of all ranks must fit. Each point is a graph of calls with programmatic dependent launch, replayed twice
// on every GPU: the first replay aligns the GPUs, the second is timed between two events. The result is the
// time per call in microseconds: of the slowest GPU, the median over repeats. Outputs are poisoned before and
// checked after. Prints one line of JSON per point. Sizes are nccl-tests': the larger of a rank's two buffers.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include "../../device/entries/collective.h"
#include "../../device/entries/signals.h"
#include "symmem/reduce.h"
#include "symmem/reduce_packets.h"

#define CHECK(call)                                                                                      \
  do {                                                                                                   \
    const cudaError_t status = (call);                                                                   \
    if (status != cudaSuccess) {                                                                         \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status)); \
      std::exit(1);                                                                                      \
    }                                                                                                    \
  } while (0)

SYMMEM_KERNEL(512) bench_reduce(SYMMEM_ARGUMENTS(ReduceArguments) arguments) {
  collective_reduce<ElementType::bf16>(arguments);
}

SYMMEM_KERNEL(512) bench_reduce_packets(SYMMEM_ARGUMENTS(ReducePacketArguments) arguments) {
  collective_reduce_packets<ElementType::bf16>(arguments);
}

// ---- contents ----

// An element of a rank's input: a multiple of 1/8 between -2 and 2, so that sums are exact.
__device__ float contents(uint32 rank, uint64 index) {
  uint32 hash = static_cast<uint32>(index) * 2654435761u + rank * 40503u + static_cast<uint32>(index >> 32);
  hash ^= hash >> 15;
  return static_cast<float>(static_cast<int>(hash % 32) - 16) / 8;
}

__device__ uint16 narrow(float number) { return static_cast<uint16>(Bf16Element::narrow(number)); }

__global__ void fill(uint16* input, uint64 count, uint32 rank) {
  for (uint64 index = blockIdx.x * blockDim.x + threadIdx.x; index < count; index += gridDim.x * blockDim.x)
    input[index] = narrow(contents(rank, index));
}

enum class Op : uint32 { all_reduce, all_gather, reduce_scatter, all_to_all };

// Counts the wrong elements of a rank's output. Each rank's part has `part` elements.
__global__ void check(const uint16* output, uint64 count, uint32 rank, uint32 world, Op op, uint64 part,
                      unsigned long long* wrong) {
  for (uint64 index = blockIdx.x * blockDim.x + threadIdx.x; index < count; index += gridDim.x * blockDim.x) {
    uint16 expected;
    if (op == Op::all_gather) {
      expected = narrow(contents(static_cast<uint32>(index / part), index % part));
    } else if (op == Op::all_to_all) {
      expected = narrow(contents(static_cast<uint32>(index / part), rank * part + index % part));
    } else {
      const uint64 from = op == Op::reduce_scatter ? rank * part + index : index;
      float sum = 0;
      for (uint32 member = 0; member < world; ++member) sum += contents(member, from);
      expected = narrow(sum);
    }
    if (output[index] != expected) atomicAdd(wrong, 1ull);
  }
}

// ---- machine ----

struct Gpu {
  cudaStream_t stream;
  cudaEvent_t begin, end;
  uint8* input;
  uint8* output;
  uint8* slots;
  uint8* words;  // signals from each rank at 0, barrier words at 16 KiB, counters at 32 KiB, aborted at 48 KiB
  unsigned long long* wrong;
};

std::vector<Gpu> gpus;  // by rank
int devices;
WaitRecord* record;
uint32* abort_word;
uint64 packet_bytes = 1 << 20;
constexpr uint64 barrier_words = 16 << 10, counters = 32 << 10, aborted_word = 48 << 10;

template <class T>
uint64 address(T* pointer) {
  return reinterpret_cast<uint64>(pointer);
}

uint32 world() { return static_cast<uint32>(gpus.size()); }

Watch watch_of(uint32 rank) {
  return Watch{address(abort_word), address(record), address(gpus[rank].words + aborted_word), 3000000000ull, rank, 0};
}

CollectiveGroup group_of(uint32 rank) {
  CollectiveGroup group{};
  group.watch = watch_of(rank);
  for (uint32 member = 0; member < world(); ++member) {
    group.slots[member] = address(gpus[member].slots);
    group.members[member] = static_cast<uint8>(member);
  }
  group.packet_bytes = packet_bytes;
  group.rank = rank;
  group.world = world();
  return group;
}

struct Geometry {
  uint32 blocks, threads, concurrent;
};

template <class Arguments>
void launch(void (*kernel)(Arguments), Arguments arguments, const Geometry& geometry, cudaStream_t stream,
            bool dependent = true) {
  cudaLaunchConfig_t config{};
  config.gridDim = geometry.blocks;
  config.blockDim = geometry.threads;
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = dependent ? 1 : 0;
  void* list[] = {&arguments};
  CHECK(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), list));
}

// ---- operations: one call on one rank ----

struct Sizes {
  uint64 bytes;  // of the larger buffer
  uint64 part;   // of each rank's part of it
};

using Call = std::function<void(uint32 rank, const Sizes&, const Geometry&)>;

void reduce_packets_call(uint32 rank, const Sizes& sizes, const Geometry& geometry, bool whole, bool two_shot, bool scatter) {
  ReducePacketArguments arguments{};
  arguments.group = group_of(rank);
  for (uint32 member = 0; member < world(); ++member) {
    const uint64 offset = whole ? 0 : member * sizes.part;
    arguments.sources[member] = address(gpus[rank].input) + offset;
    arguments.destinations[member] = address(gpus[rank].output) + (scatter ? 0 : offset);
    arguments.counts[member] = (whole ? sizes.bytes : sizes.part) / 2;
  }
  arguments.element = static_cast<uint32>(ElementType::bf16);
  arguments.reduce = static_cast<uint32>(ReduceOperation::sum);
  arguments.two_shot = two_shot;
  launch(bench_reduce_packets, arguments, geometry, gpus[rank].stream);
}

void reduce_call(uint32 rank, const Sizes& sizes, const Geometry& geometry, bool whole, bool to_all, bool scatter) {
  ReduceArguments arguments{};
  arguments.group = group_of(rank);
  const uint64 offset = whole ? 0 : rank * sizes.part;
  for (uint32 member = 0; member < world(); ++member) {
    arguments.sources[member] = address(gpus[member].input) + offset;
    if (to_all || member == rank) arguments.destinations[member] = address(gpus[member].output) + (scatter ? 0 : offset);
  }
  arguments.count = (whole ? sizes.bytes : sizes.part) / 2;
  arguments.element = static_cast<uint32>(ElementType::bf16);
  arguments.reduce = static_cast<uint32>(ReduceOperation::sum);
  launch(bench_reduce, arguments, geometry, gpus[rank].stream);
}

// Addresses of a copy from rank `from`'s input to rank `to`'s output.
struct Copy {
  uint64 destination, source;
};

Copy copy_of(uint32 from, uint32 to, const Sizes& sizes, bool gather) {
  return {address(gpus[to].output) + from * sizes.part, address(gpus[from].input) + (gather ? 0 : to * sizes.part)};
}

void packets_call(uint32 rank, const Sizes& sizes, const Geometry& geometry, bool gather) {
  PacketArguments arguments{};
  arguments.group = group_of(rank);
  for (uint32 member = 0; member < world(); ++member) {
    arguments.sources[member] = copy_of(rank, member, sizes, gather).source;
    arguments.destinations[member] = copy_of(member, rank, sizes, gather).destination;
    arguments.send_bytes[member] = sizes.part;
    arguments.receive_bytes[member] = sizes.part;
  }
  launch(symmem_move_packets, arguments, geometry, gpus[rank].stream);
}

void move_call(uint32 rank, const Sizes& sizes, const Geometry& geometry, bool gather, bool push) {
  MoveArguments arguments{};
  arguments.group = group_of(rank);
  for (uint32 step = 0; step < world(); ++step) {
    const uint32 peer = (rank + step) % world();
    const Copy copy = push ? copy_of(rank, peer, sizes, gather) : copy_of(peer, rank, sizes, gather);
    arguments.destinations[step] = copy.destination;
    arguments.sources[step] = copy.source;
    arguments.bytes[step] = sizes.part;
  }
  arguments.copies = world();
  arguments.concurrent = geometry.concurrent == 0 ? world() : geometry.concurrent;
  launch(symmem_move, arguments, geometry, gpus[rank].stream);
}

void barrier_call(uint32 rank, bool dependent) {
  Barrier arguments{};
  arguments.watch = watch_of(rank);
  arguments.epoch = address(gpus[rank].words + counters);
  arguments.own = address(gpus[rank].words + barrier_words);
  for (uint32 peer = 0; peer < world(); ++peer) {
    if (peer != rank) arguments.peers[peer] = address(gpus[peer].words + barrier_words) + rank * signal_stride;
  }
  arguments.world = world();
  launch(symmem_barrier, arguments, Geometry{1, 128, 0}, gpus[rank].stream, dependent);
}

// Copy engines in step: a rank starts the copy to its next peer when its neighbor, which was storing to that
// peer, has finished.
void engine_call(uint32 rank, const Sizes& sizes, bool gather) {
  const cudaStream_t stream = gpus[rank].stream;
  const uint32 before = (rank + world() - 1) % world(), after = (rank + 1) % world();
  barrier_call(rank, false);
  for (uint32 step = 0; step < world(); ++step) {
    const Copy copy = copy_of(rank, (rank + step) % world(), sizes, gather);
    CHECK(cudaMemcpyAsync(reinterpret_cast<void*>(copy.destination), reinterpret_cast<void*>(copy.source), sizes.part,
                          cudaMemcpyDefault, stream));
    if (step == 0 || step + 1 == world()) continue;
    StepArguments arguments{};
    arguments.target.word = address(gpus[before].words) + rank * signal_stride;
    arguments.target.epoch = address(gpus[rank].words + counters) + 128;
    arguments.wait.word = address(gpus[rank].words) + after * signal_stride;
    arguments.wait.epoch = address(gpus[rank].words + counters) + 256;
    arguments.wait.watch = watch_of(rank);
    arguments.wait.peer = after;
    launch(symmem_step, arguments, Geometry{1, 32, 0}, stream, false);
  }
  barrier_call(rank, false);
}

struct Algorithm {
  Op op;
  const char* op_name;
  const char* name;
  Call call;
  uint64 largest;  // larger sizes are not measured
  bool packets, engine;
};

std::vector<Algorithm> algorithms() {
  using R = uint32;
  using S = const Sizes&;
  using G = const Geometry&;
  constexpr uint64 mib = 1 << 20;
  return {
      {Op::all_reduce, "all_reduce", "packets", [](R r, S s, G g) { reduce_packets_call(r, s, g, true, false, false); }, mib, true, false},
      {Op::all_reduce, "all_reduce", "packets_two_shot", [](R r, S s, G g) { reduce_packets_call(r, s, g, false, true, false); }, 16 * mib, true, false},
      {Op::all_reduce, "all_reduce", "one_shot", [](R r, S s, G g) { reduce_call(r, s, g, true, false, false); }, 64 * mib, false, false},
      {Op::all_reduce, "all_reduce", "two_shot", [](R r, S s, G g) { reduce_call(r, s, g, false, true, false); }, ~0ull, false, false},
      {Op::all_gather, "all_gather", "packets", [](R r, S s, G g) { packets_call(r, s, g, true); }, 16 * mib, true, false},
      {Op::all_gather, "all_gather", "push", [](R r, S s, G g) { move_call(r, s, g, true, true); }, ~0ull, false, false},
      {Op::all_gather, "all_gather", "pull", [](R r, S s, G g) { move_call(r, s, g, true, false); }, ~0ull, false, false},
      {Op::all_gather, "all_gather", "copy_engine", [](R r, S s, G) { engine_call(r, s, true); }, ~0ull, false, true},
      {Op::reduce_scatter, "reduce_scatter", "packets", [](R r, S s, G g) { reduce_packets_call(r, s, g, false, false, true); }, 16 * mib, true, false},
      {Op::reduce_scatter, "reduce_scatter", "one_shot", [](R r, S s, G g) { reduce_call(r, s, g, false, false, true); }, ~0ull, false, false},
      {Op::all_to_all, "all_to_all", "packets", [](R r, S s, G g) { packets_call(r, s, g, false); }, 16 * mib, true, false},
      {Op::all_to_all, "all_to_all", "push", [](R r, S s, G g) { move_call(r, s, g, false, true); }, ~0ull, false, false},
      {Op::all_to_all, "all_to_all", "pull", [](R r, S s, G g) { move_call(r, s, g, false, false); }, ~0ull, false, false},
      {Op::all_to_all, "all_to_all", "copy_engine", [](R r, S s, G) { engine_call(r, s, false); }, ~0ull, false, true},
  };
}

// ---- measuring ----

void give_up_if_recorded(const char* what) {
  if (record->state == 0) return;
  std::fprintf(stderr, "%s: rank %u waited for rank %u, kind %u, channel %u: expected %u, seen %u, reason %u, after %llu ns\n",
               what, record->rank, record->peer, record->kind, record->slot, record->expected, record->seen, record->reason,
               record->elapsed_ns);
  std::exit(1);
}

void each_gpu(const std::function<void(uint32)>& act) {
  for (uint32 rank = 0; rank < world(); ++rank) {
    CHECK(cudaSetDevice(static_cast<int>(rank) % devices));
    act(rank);
  }
}

// Returns microseconds per call; negative if a result was wrong.
double measure(const Algorithm& algorithm, const Sizes& sizes, const Geometry& geometry, int calls, int repeats) {
  const bool small_output = algorithm.op == Op::reduce_scatter;
  const uint64 output_bytes = small_output ? sizes.part : sizes.bytes;
  std::vector<cudaGraphExec_t> graphs(world());
  each_gpu([&](uint32 rank) {
    const Gpu& gpu = gpus[rank];
    CHECK(cudaMemsetAsync(gpu.output, 0xA5, output_bytes, gpu.stream));
    CHECK(cudaStreamSynchronize(gpu.stream));
    CHECK(cudaStreamBeginCapture(gpu.stream, cudaStreamCaptureModeThreadLocal));
    for (int call = 0; call < calls; ++call) algorithm.call(rank, sizes, geometry);
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(gpu.stream, &graph));
    CHECK(cudaGraphInstantiate(&graphs[rank], graph, 0));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphUpload(graphs[rank], gpu.stream));
    CHECK(cudaStreamSynchronize(gpu.stream));
  });
  std::vector<double> times;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    each_gpu([&](uint32 rank) {
      const Gpu& gpu = gpus[rank];
      CHECK(cudaGraphLaunch(graphs[rank], gpu.stream));
      CHECK(cudaEventRecord(gpu.begin, gpu.stream));
      CHECK(cudaGraphLaunch(graphs[rank], gpu.stream));
      CHECK(cudaEventRecord(gpu.end, gpu.stream));
    });
    double slowest = 0;
    each_gpu([&](uint32 rank) {
      float milliseconds = 0;
      CHECK(cudaStreamSynchronize(gpus[rank].stream));
      CHECK(cudaEventElapsedTime(&milliseconds, gpus[rank].begin, gpus[rank].end));
      slowest = std::max(slowest, milliseconds * 1e3 / calls);
    });
    give_up_if_recorded(algorithm.name);
    times.push_back(slowest);
  }
  bool right = true;
  each_gpu([&](uint32 rank) {
    const Gpu& gpu = gpus[rank];
    unsigned long long wrong = 0;
    CHECK(cudaMemsetAsync(gpu.wrong, 0, 8, gpu.stream));
    check<<<264, 256, 0, gpu.stream>>>(reinterpret_cast<uint16*>(gpu.output), output_bytes / 2, rank, world(), algorithm.op,
                                       sizes.part / 2, gpu.wrong);
    CHECK(cudaMemcpyAsync(&wrong, gpu.wrong, 8, cudaMemcpyDeviceToHost, gpu.stream));
    CHECK(cudaStreamSynchronize(gpu.stream));
    CHECK(cudaGraphExecDestroy(graphs[rank]));
    if (wrong != 0) std::fprintf(stderr, "rank %u: %llu wrong elements\n", rank, wrong);
    right = right && wrong == 0;
  });
  std::sort(times.begin(), times.end());
  return right ? times[times.size() / 2] : -1;
}

// ---- command line ----

uint64 size_of(const std::string& text) {
  char* end = nullptr;
  uint64 value = std::strtoull(text.c_str(), &end, 10);
  if (*end == 'K') value <<= 10;
  if (*end == 'M') value <<= 20;
  if (*end == 'G') value <<= 30;
  return value;
}

std::vector<uint32> numbers(const std::string& text) {
  std::vector<uint32> list;
  std::stringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) list.push_back(static_cast<uint32>(size_of(item)));
  return list;
}

bool among(const std::string& list, const char* name) {
  return list == "all" || ("," + list + ",").find("," + std::string(name) + ",") != std::string::npos;
}

int main(int count, char** words) {
  std::string op = "all", algorithm_name = "all", blocks, threads = "512", concurrent = "0";
  uint64 smallest = 1 << 10, largest = 1 << 30;
  int repeats = 5, fixed_calls = 0, ranks = 0;
  double budget = 1e9;
  for (int index = 1; index < count; index += 2) {
    const std::string option = words[index], value = index + 1 < count ? words[index + 1] : "";
    if (option == "--op") op = value;
    else if (option == "--algorithm") algorithm_name = value;
    else if (option == "--min") smallest = size_of(value);
    else if (option == "--max") largest = size_of(value);
    else if (option == "--blocks") blocks = value;
    else if (option == "--threads") threads = value;
    else if (option == "--concurrent") concurrent = value;
    else if (option == "--repeat") repeats = std::max(1, std::atoi(value.c_str()));
    else if (option == "--calls") fixed_calls = std::max(1, std::atoi(value.c_str()));
    else if (option == "--budget") budget = std::atof(value.c_str());
    else if (option == "--packet-bytes") packet_bytes = size_of(value);
    else if (option == "--ranks") ranks = std::atoi(value.c_str());
    else {
      std::fprintf(stderr,
                   "usage: %s [--op LIST] [--algorithm LIST] [--min SIZE] [--max SIZE] [--blocks LIST] [--threads LIST]\n"
                   "  [--concurrent LIST] [--repeat N] [--calls N] [--budget SECONDS] [--packet-bytes SIZE]\n"
                   "  [--ranks N]\n"
                   "  --concurrent 0: all copies at once; --packet-bytes: size of a block's packet region\n",
                   words[0]);
      return 2;
    }
  }
  const auto began = std::chrono::steady_clock::now();
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);  // loading a kernel could wait for a waiting kernel
  CHECK(cudaGetDeviceCount(&devices));
  gpus.resize(static_cast<size_t>(ranks != 0 ? ranks : devices));
  CHECK(cudaHostAlloc(&record, sizeof *record, cudaHostAllocPortable | cudaHostAllocMapped));
  CHECK(cudaHostAlloc(&abort_word, 64, cudaHostAllocPortable | cudaHostAllocMapped));
  std::memset(record, 0, sizeof *record);
  *abort_word = 0;
  // Contexts on all devices first, then peer access.
  each_gpu([](uint32) { CHECK(cudaFree(nullptr)); });
  each_gpu([&](uint32 rank) {
    for (int peer = 0; peer < devices; ++peer)
      if (static_cast<int>(rank) < devices && peer != static_cast<int>(rank)) CHECK(cudaDeviceEnablePeerAccess(peer, 0));
    Gpu& gpu = gpus[rank];
    CHECK(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&gpu.begin));
    CHECK(cudaEventCreate(&gpu.end));
    const uint64 slot_memory = slot_blocks * slot_bytes + packet_blocks * packet_bytes;
    CHECK(cudaMalloc(&gpu.input, largest));
    CHECK(cudaMalloc(&gpu.output, largest));
    CHECK(cudaMalloc(&gpu.slots, slot_memory));
    CHECK(cudaMalloc(&gpu.words, 64 << 10));
    CHECK(cudaMalloc(&gpu.wrong, 8));
    CHECK(cudaMemset(gpu.slots, 0, slot_memory));
    CHECK(cudaMemset(gpu.words, 0, 64 << 10));
    fill<<<264, 256>>>(reinterpret_cast<uint16*>(gpu.input), largest / 2, rank);
    CHECK(cudaDeviceSynchronize());
  });
  bool all_right = true;
  for (const Algorithm& algorithm : algorithms()) {
    if (!among(op, algorithm.op_name) || !among(algorithm_name, algorithm.name)) continue;
    std::vector<uint32> grid = numbers(!blocks.empty() ? blocks : algorithm.packets ? "1,2,4,8,16,32,64" : "4,8,16,32,64,128");
    std::vector<uint32> block = numbers(threads);
    std::vector<uint32> together = numbers(concurrent);
    if (algorithm.engine) grid = block = {0};
    const bool moves = std::strcmp(algorithm.name, "push") == 0 || std::strcmp(algorithm.name, "pull") == 0;
    if (!moves) together = {0};
    for (uint64 bytes = smallest; bytes <= std::min(largest, algorithm.largest); bytes *= 2) {
      Sizes sizes{bytes, bytes / world() / 16 * 16};
      if (sizes.part == 0) continue;
      sizes.bytes = sizes.part * world();
      for (uint32 grid_blocks : grid) {
        if (algorithm.packets ? grid_blocks > packet_blocks : grid_blocks > slot_blocks) continue;
        for (uint32 block_threads : block) {
          for (uint32 copies : together) {
            const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
            if (spent > budget) {
              std::fprintf(stderr, "the budget of %.0f s is spent\n", budget);
              return all_right ? 0 : 1;
            }
            const int calls = fixed_calls != 0 ? fixed_calls : bytes <= 1 << 20 ? 40 : bytes <= 64 << 20 ? 20 : 4;
            const double us = measure(algorithm, sizes, Geometry{grid_blocks, block_threads, copies}, calls, repeats);
            all_right = all_right && us >= 0;
            std::printf("{\"op\":\"%s\",\"algorithm\":\"%s\",\"world\":%u,\"bytes\":%llu,\"blocks\":%u,\"threads\":%u,"
                        "\"concurrent\":%u,\"us\":%.3f}\n",
                        algorithm.op_name, algorithm.name, world(), sizes.bytes, grid_blocks, block_threads, copies, us);
            std::fflush(stdout);
          }
        }
      }
    }
  }
  return all_right ? 0 : 1;
}
