// Measures the rate of a one-way transfer of 256 MiB over the number of blocks, compared with the copy engine.
//
//   nvcc -std=c++17 -O3 -arch=sm_90 -I device/include -o sweep benches/device/sweep.cu && ./sweep
//
// One process, two GPUs; 3 warm-up launches, then 10 launches back to back between two events; median of 7
// rounds. Does not check results: `tune.cu` and the conformance suite check these kernels.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

#include "../../device/entries/base.h"
#include "../../kernels-ptx/src/bulk.cu"

#define CHECK(call)                                                        \
  do {                                                                     \
    const cudaError_t status = (call);                                     \
    if (status != cudaSuccess) {                                           \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status)); \
      std::exit(1);                                                        \
    }                                                                      \
  } while (0)

constexpr size_t bytes = 256 << 20;

struct Timer {
  cudaStream_t stream;
  cudaEvent_t begin, end;

  // Returns the median rate in GB/s.
  template <class Launch>
  double rate(Launch launch) const {
    std::vector<double> rates;
    for (int round = 0; round < 7; ++round) {
      for (int warm_up = 0; warm_up < 3; ++warm_up) launch();
      CHECK(cudaEventRecord(begin, stream));
      for (int repeat = 0; repeat < 10; ++repeat) launch();
      CHECK(cudaEventRecord(end, stream));
      CHECK(cudaStreamSynchronize(stream));
      CHECK(cudaGetLastError());
      float milliseconds = 0;
      CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
      rates.push_back(bytes * 10 / (milliseconds * 1e6));
    }
    std::sort(rates.begin(), rates.end());
    return rates[3];
  }
};

int main() {
  char* memory[2];
  // A context on every device before any peer access.
  for (int device = 0; device < 2; ++device) {
    CHECK(cudaSetDevice(device));
    CHECK(cudaFree(nullptr));
  }
  for (int device = 0; device < 2; ++device) {
    CHECK(cudaSetDevice(device));
    CHECK(cudaDeviceEnablePeerAccess(1 - device, 0));
    CHECK(cudaMalloc(&memory[device], 2 * bytes));
    CHECK(cudaMemset(memory[device], device + 1, 2 * bytes));
    CHECK(cudaDeviceSynchronize());
  }
  CHECK(cudaSetDevice(0));
  CHECK(cudaFuncSetAttribute(symmem_copy_bulk, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 << 10));
  Timer timer{};
  CHECK(cudaStreamCreateWithFlags(&timer.stream, cudaStreamNonBlocking));
  CHECK(cudaEventCreate(&timer.begin));
  CHECK(cudaEventCreate(&timer.end));
  for (const bool pull : {false, true}) {
    const char* direction = pull ? "pull" : "push";
    char* destination = pull ? memory[0] : memory[1] + bytes;
    const char* source = pull ? memory[1] : memory[0] + bytes;
    TransferArguments transfer{};
    transfer.destination = reinterpret_cast<uint64>(destination);
    transfer.source = reinterpret_cast<uint64>(source);
    transfer.bytes = bytes;
    const double engine = timer.rate(
        [&] { CHECK(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, timer.stream)); });
    std::printf("%s engine %.1f\n", direction, engine);
    for (const unsigned blocks : {8, 12, 14, 15, 16, 20, 24, 32, 48, 64, 96, 132}) {
      const double vector =
          timer.rate([&] { symmem_copy_vector<<<blocks, 1024, 0, timer.stream>>>(transfer); });
      std::printf("%s blocks %3u vector 1024: %.1f", direction, blocks, vector);
      const struct {
        uint32 stages, kib;
      } rings[] = {{8, 16}, {8, 24}, {7, 32}, {6, 32}};
      for (const auto ring : rings) {
        transfer.stages = ring.stages;
        transfer.stage_bytes = ring.kib << 10;
        // The ring's barriers take less than 256 bytes.
        const uint32 shared = 256 + ring.stages * transfer.stage_bytes;
        const double bulk =
            timer.rate([&] { symmem_copy_bulk<<<blocks, 128, shared, timer.stream>>>(transfer); });
        std::printf("  bulk %ux%uK: %.1f", ring.stages, ring.kib, bulk);
      }
      std::printf("\n");
    }
  }
}
