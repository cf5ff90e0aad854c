// The all-reduces of the package flashinfer-python as baselines: TensorRT-LLM's one-shot (Lamport packets) and
// two-shot, and vLLM's custom all-reduce. None of them uses multicast. `build_flashinfer.sh` builds this program.
//
//   flashinfer_collectives RANK WORLD ORDINAL LARGEST TYPE [OPTIONS]
//
// One process per rank, whose GPU is ORDINAL, for calls of at most LARGEST bytes of one type (nccl-tests' name).
// Options:
//
//   --plain                      launches every kernel without programmatic dependent launch
//   --copy BYTES BLOCKS THREADS  puts a copy in device memory in front of each call of a loop or graph
//   --gemm M N K FILE            puts a GEMM of bf16 matrices there, by the cuBLASLt in FILE
//
// benches/src/collectives/between.rs puts the same kernels in front of symmem's calls. The copy has the code of
// symmem's kernel; the GEMM uses the first candidate of the same cuBLASLt's heuristic for the same request.
//
// The processes share device memory by CUDA IPC; the benchmark passes the handles on:
//
//   > shared HEX             the handle of this rank's memory, which is ready for its peers; or absent REASON
//   < shared HEX HEX ...     the handles of all ranks, in their order
//   > ready VERSION
//   < ...                    commands as at the head of benches/src/collectives/external.rs, the same on all ranks
//   > error TEXT             then the process exits with a nonzero status
//
// Libraries: `one-shot`, whose dependents may start after its first instructions, `one-shot-late`, whose dependents may
// start at its end, `one-shot-plain` without dependent launches, `two-shot`, and `vllm`. With --plain, all are launched
// like `one-shot-plain`.
//
// The kernels wait for their peers without limit, so a watchdog ends the process after a minute without progress.
// Sums are of small whole numbers, exact in every type; every check compares all elements, and timed calls out of place
// are compared afterwards, too. Times are of this rank.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "flashinfer/comm/trtllm_allreduce_fusion.cuh"
#include "flashinfer/comm/vllm_custom_all_reduce.cuh"
#include "symmem/copy.h"

namespace {

using namespace flashinfer::trtllm_allreduce_fusion;

// ---- answers, failures, the watchdog ----

int answers = -1; // the descriptor that was stdout; the package's headers may log to stdout

// Writes a line, never mixed with the watchdog's; after the last one, the process ends.
void answer(const std::string &text, bool last = false) {
    static std::mutex one;
    std::lock_guard<std::mutex> lock(one);
    std::string line = text;
    std::replace(line.begin(), line.end(), '\n', ' ');
    line += '\n';
    for (size_t done = 0; done < line.size();) {
        ssize_t written = write(answers, line.data() + done, line.size() - done);
        if (written <= 0) {
            _exit(1); // the benchmark is gone
        }
        done += static_cast<size_t>(written);
    }
    if (last) {
        _exit(1);
    }
}

// Ends the process at once, since a destructor or a CUDA call could wait for a kernel that waits for a peer.
void fail(const std::string &text) { answer("error " + text, true); }

// A request that is not supported, by the same reason on all ranks.
struct Absent : std::runtime_error {
    using std::runtime_error::runtime_error;
};

void check(cudaError_t status, const char *call) {
    if (status != cudaSuccess) {
        throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status) + " (" +
                                 std::to_string(static_cast<int>(status)) + ")");
    }
}
#define CHECK(call) check((call), #call)

constexpr int64_t deadline_ms = 60'000; // less than the benchmark's own limit of 70 s

int64_t now_ns() {
    using namespace std::chrono;
    return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

std::atomic<int64_t> busy_since{0}; // 0 while waiting for a line
void busy() { busy_since = now_ns(); }
void idle() { busy_since = 0; }

void watch() {
    for (;;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        int64_t since = busy_since;
        if (since != 0 && now_ns() - since > deadline_ms * 1'000'000) {
            fail("no progress within " + std::to_string(deadline_ms / 1000) + " s; are the other ranks alive?");
        }
    }
}

// ---- data ----

constexpr size_t guard = 4096; // bytes after the output that must not change

// A whole number from 0 to `most`, a function of rank and place.
__host__ __device__ inline unsigned number(unsigned rank, uint64_t place, unsigned most) {
    return static_cast<unsigned>((((place + rank * 131071ull) * 1103515245ull + 12345ull) >> 9) % (most + 1));
}

__device__ size_t first_place() { return blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; }
__device__ size_t stride() { return gridDim.x * static_cast<size_t>(blockDim.x); }

template <class T>
__global__ void fill(T *to, size_t count, unsigned rank, unsigned most) {
    for (size_t place = first_place(); place < count; place += stride()) {
        to[place] = static_cast<T>(static_cast<float>(number(rank, place, most)));
    }
}

// Counts elements that are not the sum over all ranks, and bytes behind them that are not 0xff.
template <class T>
__global__ void compare(const T *made, size_t count, unsigned world, unsigned most, size_t guarded,
                        unsigned long long *wrong) {
    for (size_t place = first_place(); place < count; place += stride()) {
        unsigned sum = 0;
        for (unsigned rank = 0; rank < world; ++rank) {
            sum += number(rank, place, most);
        }
        if (static_cast<float>(made[place]) != static_cast<float>(sum)) {
            atomicAdd(wrong, 1ull);
        }
    }
    const unsigned char *behind = reinterpret_cast<const unsigned char *>(made + count);
    for (size_t place = first_place(); place < guarded; place += stride()) {
        if (behind[place] != 0xff) {
            atomicAdd(wrong, 1ull);
        }
    }
}

__global__ void fill_words(unsigned *to, size_t count, unsigned word) {
    for (size_t place = first_place(); place < count; place += stride()) {
        to[place] = word;
    }
}

// What differs between the element types: the number up to which all whole numbers are exact, and the word of negative
// zeros that marks an empty place in a Lamport buffer.
template <class T>
struct Type;
template <>
struct Type<float> {
    static constexpr unsigned exact = 1u << 24, empty = 0x80000000u;
};
template <>
struct Type<half> {
    static constexpr unsigned exact = 1u << 11, empty = 0x80008000u;
};
template <>
struct Type<__nv_bfloat16> {
    static constexpr unsigned exact = 1u << 8, empty = 0x80008000u;
};

// ---- the kernel between calls ----

using Kernel = std::function<void(cudaStream_t)>;

// Has the bounds of the library's entry point.
__global__ void __launch_bounds__(1024, 1) copy_between(uint64_t to, uint64_t from, uint64_t bytes) {
    symmem::copy_vector<8>(to, from, bytes);
}

// Allocates zeros, which live as long as the process.
void *zeros(size_t bytes) {
    void *memory = nullptr;
    CHECK(cudaMalloc(&memory, bytes));
    CHECK(cudaMemset(memory, 0, bytes));
    return memory;
}

// Returns a copy within device memory.
Kernel copy_kernel(size_t bytes, unsigned copy_blocks, unsigned copy_threads) {
    const auto from = reinterpret_cast<uint64_t>(zeros(bytes)), to = reinterpret_cast<uint64_t>(zeros(bytes));
    return [=](cudaStream_t on) {
        copy_between<<<copy_blocks, copy_threads, 0, on>>>(to, from, bytes);
        CHECK(cudaGetLastError());
    };
}

// cuBLASLt, opened at run time. Signatures and numbers are those of cublasLt.h, the same in versions 11 to 13.
class BlasLt {
  public:
    explicit BlasLt(const std::string &file) : library_(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        if (library_ == nullptr) {
            throw std::runtime_error(dlerror());
        }
    }

    static void check(const char *name, int status) {
        if (status != 0) {
            throw std::runtime_error(std::string(name) + ": cublasStatus_t " + std::to_string(status));
        }
    }

    // Returns a function of the library.
    template <class Function>
    Function *found(const char *name) const {
        void *function = dlsym(library_, name);
        if (function == nullptr) {
            throw std::runtime_error(dlerror());
        }
        return reinterpret_cast<Function *>(function);
    }

    // Calls a function whose parameters have the types of the arguments.
    template <class... Arguments>
    void call(const char *name, Arguments... arguments) const {
        check(name, found<int(Arguments...)>(name)(arguments...));
    }

  private:
    void *library_;
};

// cublasLtMatmulHeuristicResult_t
struct Candidate {
    uint64_t algorithm[8];
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
};
static_assert(sizeof(Candidate) == 96);

// Returns the GEMM of a row-major m x k and a k x n matrix of bf16. Asks cuBLASLt for what symmem asks for
// (backend-gpu/src/blaslt/prepared_gemm.rs). cuBLASLt is column-major, so it gets the transposed GEMM.
Kernel gemm_kernel(uint64_t m, uint64_t n, uint64_t k, const std::string &file) {
    constexpr int compute_32f = 68, r_32f = 0, r_16bf = 14;
    constexpr int max_workspace_bytes = 1, reduction_scheme_mask = 3, min_alignment_a = 5, min_alignment_d = 8;
    const BlasLt library(file);
    void *instance = nullptr, *operation = nullptr, *preference = nullptr, *layouts[3] = {};
    library.call("cublasLtCreate", &instance);
    library.call("cublasLtMatmulDescCreate", &operation, compute_32f, r_32f);
    const uint64_t shapes[3][2] = {{n, k}, {k, m}, {n, m}};
    for (int each = 0; each < 3; ++each) {
        const auto [rows, columns] = shapes[each];
        library.call("cublasLtMatrixLayoutCreate", &layouts[each], r_16bf, rows, columns, static_cast<int64_t>(rows));
    }
    library.call("cublasLtMatmulPreferenceCreate", &preference);
    const auto prefer = [&](int attribute, const void *value, size_t bytes) {
        library.call("cublasLtMatmulPreferenceSetAttribute", preference, attribute, value, bytes);
    };
    const uint64_t most_workspace = 64 << 20;
    const uint32_t alignment = 16, sums_in_compute_type = 2;
    prefer(max_workspace_bytes, &most_workspace, sizeof most_workspace);
    for (int attribute = min_alignment_a; attribute <= min_alignment_d; ++attribute) {
        prefer(attribute, &alignment, sizeof alignment);
    }
    prefer(reduction_scheme_mask, &sums_in_compute_type, sizeof sums_in_compute_type);

    constexpr int wanted = 7;
    Candidate candidates[wanted];
    int count = 0;
    library.call("cublasLtMatmulAlgoGetHeuristic", instance, operation, layouts[0], layouts[1], layouts[2], layouts[2],
                 preference, wanted, static_cast<void *>(candidates), &count);
    const auto is_usable = [](const Candidate &one) { return one.status == 0; };
    const Candidate *const usable = std::find_if(candidates, candidates + count, is_usable);
    if (usable == candidates + count) {
        throw std::runtime_error("cuBLASLt has no algorithm for the GEMM between calls");
    }
    const Candidate chosen = *usable;
    using Matmul = int(void *instance, void *operation, const float *alpha, const void *a, void *a_layout,
                       const void *b, void *b_layout, const float *beta, const void *c, void *c_layout, void *d,
                       void *d_layout, const void *algorithm, void *workspace, size_t workspace_bytes,
                       cudaStream_t on);
    Matmul *const multiply = library.found<Matmul>("cublasLtMatmul");
    void *const workspace = chosen.workspace == 0 ? nullptr : zeros(chosen.workspace);
    void *const a = zeros(2 * m * k), *const b = zeros(2 * k * n), *const c = zeros(2 * m * n);
    void *const b_layout = layouts[0], *const a_layout = layouts[1], *const c_layout = layouts[2];
    return [=](cudaStream_t on) {
        const float alpha = 1, beta = 0;
        BlasLt::check("cublasLtMatmul", multiply(instance, operation, &alpha, b, b_layout, a, a_layout, &beta, c,
                                                 c_layout, c, c_layout, chosen.algorithm, workspace,
                                                 chosen.workspace, on));
    };
}

// ---- one rank ----

struct Arguments {
    int rank, world, ordinal;
    size_t largest;
    std::string type;
    bool plain = false;
    std::function<Kernel()> between; // prepares the kernel between calls on the current device; empty if there is none
};

struct Task {
    std::string verb, library;
    size_t bytes = 0;
    bool in_place = false;
    std::vector<std::string> rest;

    std::string name() const { return library + (in_place ? " in " : " out ") + std::to_string(bytes); }
};

// Elements of a row. A larger message has several rows, as in a model with this hidden size.
constexpr size_t row = 8192;
// The header computes positions in all ranks' messages as `int`.
constexpr size_t most_lamport = 512u << 20;
constexpr size_t most_elements = 1u << 30;
constexpr size_t token_bytes = 1024;
constexpr int blocks = 264, threads = 256;

// The parts of each rank's shared memory, as offsets, the same on all ranks.
struct Layout {
    Layout(size_t largest, size_t world)
        : lamport_bytes(std::min(largest * world, most_lamport) / world * world) {
        two_shot = next(2 * largest);
        flags = next(flag_bytes = world * details::kBarrierFlagCount * sizeof(int));
        lamport = next(3 * lamport_bytes);
        // vLLM puts what one rank stores for the others behind its signals.
        signals = next(signal_bytes = sizeof(vllm::Signal) + largest);
        source = next(largest);
    }

    size_t lamport_bytes; // of one of three buffers, which has a message of every rank
    size_t two_shot, flags, flag_bytes, lamport, signals, signal_bytes, source, end = 0;

  private:
    size_t next(size_t bytes) {
        size_t begin = end;
        end = (begin + bytes + 4095) / 4096 * 4096;
        return begin;
    }
};

template <class T>
class Rank {
  public:
    explicit Rank(const Arguments &given)
        : rank_(given.rank), world_(given.world), layout_(larger(given.largest), given.world),
          largest_(larger(given.largest)), most_(std::max(Type<T>::exact / given.world, 1u)), plain_(given.plain) {
        CHECK(cudaSetDevice(given.ordinal));
        CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
        CHECK(cudaEventCreate(&begin_));
        CHECK(cudaEventCreate(&end_));
        CHECK(cudaMalloc(&shared_, layout_.end));
        CHECK(cudaMalloc(&destination_, largest_ + guard));
        CHECK(cudaMalloc(&token_, token_bytes));
        CHECK(cudaMalloc(&wrong_, sizeof *wrong_));
        CHECK(cudaMemset(token_, 0, token_bytes));
        CHECK(cudaMemset(shared_ + layout_.flags, 0, layout_.flag_bytes));
        CHECK(cudaMemset(shared_ + layout_.signals, 0, layout_.signal_bytes));
        fill_words<<<blocks, threads>>>(reinterpret_cast<unsigned *>(shared_ + layout_.lamport),
                                        3 * layout_.lamport_bytes / sizeof(unsigned), Type<T>::empty);
        CHECK(cudaGetLastError());
        CHECK(cudaIpcGetMemHandle(&handle_, shared_));
        if (given.between) {
            between_ = given.between();
            CHECK(cudaDeviceSynchronize());
            // A first launch may wait for the device, so it comes before any kernel that waits for a peer.
            between_(stream_);
        }
        CHECK(cudaDeviceSynchronize());
    }

    std::string handle() const {
        static const char digits[] = "0123456789abcdef";
        std::string text;
        for (size_t index = 0; index < sizeof handle_; ++index) {
            unsigned char byte = reinterpret_cast<const unsigned char *>(&handle_)[index];
            text += {digits[byte / 16], digits[byte % 16]};
        }
        return text;
    }

    // Maps the peers' memory.
    void connect(const std::vector<std::string> &handles) {
        if (handles.size() != static_cast<size_t>(world_)) {
            throw std::runtime_error("handles of all ranks expected");
        }
        std::vector<unsigned char *> bases;
        for (int peer = 0; peer < world_; ++peer) {
            cudaIpcMemHandle_t handle = parsed(handles[peer]);
            peers_.emplace_back(reinterpret_cast<const char *>(&handle), sizeof handle);
            void *base = shared_;
            if (peer != rank_) {
                CHECK(cudaIpcOpenMemHandle(&base, handle, cudaIpcMemLazyEnablePeerAccess));
            }
            bases.push_back(static_cast<unsigned char *>(base));
        }
        // Three addresses of each rank, and that of {arrived blocks, flag, Lamport flag, bytes of a buffer, to clear}.
        std::vector<void *> table;
        for (size_t part : {layout_.two_shot, layout_.flags, layout_.lamport}) {
            for (unsigned char *base : bases) {
                table.push_back(base + part);
            }
        }
        const int control[5] = {0, 0, 0, static_cast<int>(layout_.lamport_bytes), 0};
        void *on_device = nullptr;
        CHECK(cudaMalloc(&on_device, sizeof control));
        CHECK(cudaMemcpy(on_device, control, sizeof control, cudaMemcpyHostToDevice));
        table.push_back(on_device);
        CHECK(cudaMalloc(&workspace_, table.size() * sizeof(void *)));
        CHECK(cudaMemcpy(workspace_, table.data(), table.size() * sizeof(void *), cudaMemcpyHostToDevice));

        std::vector<vllm::Signal *> signals;
        std::vector<void *> sources;
        for (unsigned char *base : bases) {
            signals.push_back(reinterpret_cast<vllm::Signal *>(base + layout_.signals));
            sources.push_back(base + layout_.source);
        }
        constexpr size_t entries = 1 << 20; // bytes
        void *rank_data = nullptr;
        CHECK(cudaMalloc(&rank_data, entries));
        vllm_ = std::make_unique<vllm::CustomAllreduce>(signals.data(), rank_data, entries, rank_, world_);
        vllm_->register_buffer(sources.data());
        // It need not map the peers' memory again when it registers captured calls.
        for (int peer = 0; peer < world_; ++peer) {
            vllm::IPC_KEY key;
            std::memcpy(key.data(), peers_[peer].data(), key.size());
            vllm_->ipc_handles_[key] = reinterpret_cast<char *>(bases[peer]);
        }
        captured_from_ = vllm_->d_rank_data_base_;
        CHECK(cudaDeviceSynchronize());
    }

    // Enqueues an all-reduce on another program's stream. vLLM's reads what is in `registered`.
    void enqueue(const std::string &library, const void *from, void *to, size_t bytes, cudaStream_t on) {
        Task task;
        task.library = library;
        task.bytes = bytes;
        refuse(task);
        stream_ = on;
        if (library == "vllm") {
            if (from != source()) {
                throw Absent("vLLM's kernel was given other memory than it has registered");
            }
            const int count = static_cast<int>(bytes / sizeof(T));
            vllm_->allreduce<T>(on, source(), static_cast<T *>(to), count, vllm::kMaxBlocks);
        } else {
            fused(library, from, to, bytes);
        }
    }

    // Writes the addresses that the calls of vLLM's read in a graph that was captured since.
    void register_captured(long calls) {
        std::vector<std::string> handles;
        for (const std::string &handle : peers_) {
            std::string repeated;
            for (long each = 0; each < calls; ++each) {
                repeated += handle;
            }
            handles.push_back(repeated);
        }
        const std::vector<int64_t> places(calls, static_cast<int64_t>(layout_.source));
        vllm_->register_graph_buffers(handles, std::vector<std::vector<int64_t>>(world_, places));
        CHECK(cudaDeviceSynchronize());
    }

    void *registered() const { return source(); }

    std::string obey(const Task &task) {
        if (task.verb == "between" && task.rest.size() == 3) {
            return timed_between(task);
        }
        refuse(task);
        if (task.verb == "check" && task.rest.empty()) {
            return checked(task);
        }
        if (task.verb == "time" && task.rest.size() == 3) {
            return timed(task);
        }
        if (task.verb == "single" && task.rest.size() == 1) {
            return single(task, positive(task.rest[0]));
        }
        throw Absent("unknown command " + task.verb);
    }

  private:
    // Room for the token, and whole pages.
    static size_t larger(size_t largest) { return (std::max(largest, token_bytes) + 4095) / 4096 * 4096; }

    static cudaIpcMemHandle_t parsed(const std::string &text) {
        cudaIpcMemHandle_t handle;
        if (text.size() != 2 * sizeof handle) {
            throw std::runtime_error("`" + text + "` is no handle");
        }
        for (size_t index = 0; index < sizeof handle; ++index) {
            reinterpret_cast<unsigned char *>(&handle)[index] =
                static_cast<unsigned char>(std::stoi(text.substr(2 * index, 2), nullptr, 16));
        }
        return handle;
    }

    static long positive(const std::string &text) {
        long value = std::atol(text.c_str());
        if (value <= 0) {
            throw Absent("`" + text + "` is not a number of calls");
        }
        return value;
    }

    T *source() const { return reinterpret_cast<T *>(shared_ + layout_.source); }
    T *destination() const { return reinterpret_cast<T *>(destination_); }

    void refuse(const Task &task) const {
        const size_t count = task.bytes / sizeof(T), rows = count / row;
        if (task.bytes > largest_) {
            throw Absent("more bytes than were announced");
        }
        if (task.bytes == 0 || task.bytes % 16 != 0) {
            throw Absent("it takes multiples of 16 bytes");
        }
        if (task.library == "vllm") {
            if (task.in_place) {
                throw Absent("peers may read the source after results are stored");
            }
            return;
        }
        const bool one_shot = task.library.rfind("one-shot", 0) == 0;
        if (!one_shot && task.library != "two-shot") {
            throw Absent("there is no library " + task.library);
        }
        if (count > row && count % row != 0) {
            throw Absent("it takes whole rows of 8192 elements");
        }
        if (one_shot && task.bytes * world_ > layout_.lamport_bytes) {
            throw Absent("its Lamport buffers have 512 MiB for all ranks' messages");
        }
        // The package's own condition.
        if (!one_shot && rows <= static_cast<size_t>(world_)) {
            throw Absent("two-shot takes more rows of 8192 elements than ranks");
        }
        if (count >= most_elements) {
            throw Absent("it takes less than 2^30 elements");
        }
    }

    // Enqueues TensorRT-LLM's kernel.
    template <int ranks>
    void fused(const std::string &library, const void *from, void *to, size_t bytes) {
        const size_t count = bytes / sizeof(T);
        AllReduceFusionParams<T> call{};
        call.nranks = ranks;
        call.rank = rank_;
        call.size = static_cast<int>(count);
        call.hidden_dim = static_cast<int>(std::min(count, row));
        call.workspace = workspace_;
        call.allreduce_in = const_cast<void *>(from);
        call.allreduce_out = to;
        call.use_oneshot = library != "two-shot";
        call.stream = stream_;
        call.pattern = AllReduceFusionPattern::kAllReduce;
        call.trigger_completion_at_end = library != "one-shot";
        const bool dependent = !plain_ && library != "one-shot-plain";
        // Sums are in float.
        constexpr bool widened = !std::is_same_v<T, float>;
        constexpr AllReduceFusionPattern sum = AllReduceFusionPattern::kAllReduce;
        CHECK((allreduce_fusion_kernel_launcher<sum, T, ranks, widened>(call, dependent)));
    }

    void fused(const std::string &library, const void *from, void *to, size_t bytes) {
        switch (world_) {
        case 2: return fused<2>(library, from, to, bytes);
        case 4: return fused<4>(library, from, to, bytes);
        default: return fused<8>(library, from, to, bytes);
        }
    }

    void call(const Task &task) {
        if (task.library == "vllm") {
            const int count = static_cast<int>(task.bytes / sizeof(T));
            vllm_->allreduce<T>(stream_, source(), destination(), count, vllm::kMaxBlocks);
        } else {
            fused(task.library, task.in_place ? destination() : source(), destination(), task.bytes);
        }
    }

    // Enqueues one turn of a loop.
    void turn(const Task &task) {
        if (between_) {
            between_(stream_);
        }
        if (task.verb != "between") {
            call(task);
        }
    }

    // Lets no stream continue before all ranks have reached this point.
    void start_together() { fused("one-shot-plain", token_, token_, token_bytes); }

    // Returns the number of wrong elements, and of guard bytes that have changed.
    unsigned long long wrong(const Task &task, size_t guarded) {
        unsigned long long found = 0;
        CHECK(cudaMemsetAsync(wrong_, 0, sizeof *wrong_, stream_));
        compare<<<blocks, threads, 0, stream_>>>(destination(), task.bytes / sizeof(T), world_, most_, guarded, wrong_);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpyAsync(&found, wrong_, sizeof found, cudaMemcpyDeviceToHost, stream_));
        CHECK(cudaStreamSynchronize(stream_));
        return found;
    }

    std::string checked(const Task &task) {
        const size_t count = task.bytes / sizeof(T);
        CHECK(cudaMemsetAsync(destination_, 0xff, largest_ + guard, stream_));
        fill<<<blocks, threads, 0, stream_>>>(task.in_place ? destination() : source(), count, rank_, most_);
        CHECK(cudaGetLastError());
        start_together();
        call(task);
        unsigned long long found = wrong(task, guard);
        return "wrong " + std::to_string(found) + " " + std::to_string(count);
    }

    // Returns the time of `work` in nanoseconds.
    template <class Work>
    double clocked(Work work) {
        start_together();
        CHECK(cudaEventRecord(begin_, stream_));
        work();
        CHECK(cudaEventRecord(end_, stream_));
        CHECK(cudaEventSynchronize(end_));
        float milliseconds = 0;
        CHECK(cudaEventElapsedTime(&milliseconds, begin_, end_));
        return milliseconds * 1e6;
    }

    // Returns nanoseconds for one turn of a loop or a graph.
    double nanoseconds(const Task &task, const std::vector<std::string> &how) {
        const long calls = positive(how[1]), launches = positive(how[2]);
        if (how[0] == "graph") {
            capture(task, calls);
            CHECK(cudaGraphLaunch(graph_, stream_));
            const double all = clocked([&] {
                for (long launch = 0; launch < launches; ++launch) {
                    CHECK(cudaGraphLaunch(graph_, stream_));
                }
            });
            return all / launches / calls;
        }
        turn(task);
        const double all = clocked([&] {
            for (long each = 0; each < calls; ++each) {
                turn(task);
            }
        });
        return all / calls;
    }

    static std::string result(double nanoseconds) {
        char text[64];
        std::snprintf(text, sizeof text, "result %.3f", nanoseconds);
        return text;
    }

    // Times the kernel between calls alone.
    std::string timed_between(const Task &task) {
        if (!between_) {
            throw Absent("no kernel between calls was asked for");
        }
        return result(nanoseconds(task, task.rest));
    }

    std::string timed(const Task &task) {
        const double found_ns = nanoseconds(task, task.rest);
        // In place, each call reads the sum of the call before.
        if (!task.in_place) {
            if (unsigned long long found = wrong(task, 0)) {
                throw std::runtime_error(task.name() + ": " + std::to_string(found) +
                                         " wrong elements after timed calls");
            }
        }
        return result(found_ns);
    }

    // Captures a graph of calls, unless it is the last one that was captured.
    void capture(const Task &task, long calls) {
        const std::string name = task.name() + " " + std::to_string(calls);
        if (graph_of_ == name) {
            return;
        }
        if (graph_ != nullptr) {
            CHECK(cudaGraphExecDestroy(graph_));
            graph_ = nullptr;
            graph_of_.clear();
        }
        // Whatever a first call sets up is not part of a capture.
        turn(task);
        CHECK(cudaStreamSynchronize(stream_));
        vllm_->d_rank_data_base_ = captured_from_;
        cudaGraph_t graph;
        CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
        for (long each = 0; each < calls; ++each) {
            turn(task);
        }
        CHECK(cudaStreamEndCapture(stream_, &graph));
        CHECK(cudaGraphInstantiate(&graph_, graph, 0));
        CHECK(cudaGraphDestroy(graph));
        graph_of_ = name;
        if (task.library == "vllm") {
            // A captured call reads the sources' addresses from a table, which is written after the capture.
            register_captured(calls);
        }
    }

    std::string single(const Task &task, long samples) {
        std::string text = "samples";
        for (long sample = 0; sample < samples; ++sample) {
            start_together();
            CHECK(cudaStreamSynchronize(stream_));
            const int64_t begin = now_ns();
            call(task);
            CHECK(cudaStreamSynchronize(stream_));
            text += " " + std::to_string(now_ns() - begin);
        }
        return text;
    }

    const int rank_, world_;
    const Layout layout_;
    const size_t largest_;
    const unsigned most_; // largest element, so that sums are exact
    const bool plain_;
    Kernel between_;
    cudaStream_t stream_ = nullptr;
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
    unsigned char *shared_ = nullptr, *destination_ = nullptr, *token_ = nullptr;
    unsigned long long *wrong_ = nullptr;
    cudaIpcMemHandle_t handle_;
    std::vector<std::string> peers_; // handles of all ranks' memory, as bytes
    void **workspace_ = nullptr;
    std::unique_ptr<vllm::CustomAllreduce> vllm_;
    vllm::RankData *captured_from_ = nullptr;
    cudaGraphExec_t graph_ = nullptr;
    std::string graph_of_;
};

// ---- commands ----

Task parsed(const std::string &line, const std::string &type) {
    std::istringstream words(line);
    Task task;
    std::string operation, element, placement;
    words >> task.verb;
    if (task.verb != "between") {
        if (!(words >> task.library >> operation >> element >> task.bytes >> placement)) {
            throw Absent("`" + line + "` has too few words");
        }
        if (operation != "all_reduce") {
            throw Absent("it has an all-reduce only");
        }
        if (element != type) {
            throw Absent("the process was started for " + type);
        }
    }
    task.in_place = placement == "in";
    for (std::string word; words >> word;) {
        task.rest.push_back(word);
    }
    return task;
}

// Returns the handles in a line, each after a space.
std::vector<std::string> handles(const std::string &line) {
    std::istringstream words(line);
    std::string word;
    if (!(words >> word) || word != "shared") {
        throw std::runtime_error("`" + line + "` instead of handles");
    }
    std::vector<std::string> all;
    while (words >> word) {
        all.push_back(word);
    }
    return all;
}

template <class T>
void serve(const Arguments &given) {
    // Never deleted: freeing memory could wait for peers that are gone.
    Rank<T> *rank = nullptr;
    busy();
    try {
        rank = new Rank<T>(given);
    } catch (const std::exception &failure) {
        return answer(std::string("absent ") + failure.what());
    }
    idle();
    answer("shared " + rank->handle());
    std::string line;
    if (!std::getline(std::cin, line) || line == "quit") {
        return;
    }
    busy();
    try {
        rank->connect(handles(line));
    } catch (const std::exception &failure) {
        return answer(std::string("absent ") + failure.what());
    }
    idle();
    answer("ready flashinfer-python " FLASHINFER_VERSION);
    while (std::getline(std::cin, line) && line != "quit") {
        busy();
        std::string reply;
        try {
            reply = rank->obey(parsed(line, given.type));
        } catch (const Absent &reason) {
            reply = std::string("absent ") + reason.what();
        }
        idle();
        answer(reply);
    }
}

// Reads the words of the command line; throws if they are not those of the usage.
Arguments arguments(const std::vector<std::string> &words) {
    size_t next = 0;
    const auto word = [&] { return words.at(next++); };
    const auto number = [&] { return std::stoull(word()); };
    Arguments given{};
    given.rank = std::stoi(word());
    given.world = std::stoi(word());
    given.ordinal = std::stoi(word());
    given.largest = number();
    given.type = word();
    while (next < words.size()) {
        const std::string option = word();
        if (option == "--plain") {
            given.plain = true;
        } else if (option == "--copy") {
            const size_t bytes = number();
            const auto copy_blocks = static_cast<unsigned>(number()), copy_threads = static_cast<unsigned>(number());
            given.between = [=] { return copy_kernel(bytes, copy_blocks, copy_threads); };
        } else if (option == "--gemm") {
            const uint64_t m = number(), n = number(), k = number();
            const std::string file = word();
            given.between = [=] { return gemm_kernel(m, n, k, file); };
        } else {
            throw std::invalid_argument(option);
        }
    }
    return given;
}

using Bf16 = Rank<__nv_bfloat16>;
std::string failure; // of the last call below

// Does what a call below asks for; returns whether it did, and keeps the failure if not.
template <class Work>
int done(Work work) {
    try {
        work();
        return 1;
    } catch (const std::exception &thrown) {
        failure = thrown.what();
        return 0;
    }
}

} // namespace

// The kernels for bf16 tensors on another program's streams: benches/python/decode.py loads this file as a library. Calls
// that return int return 0 after a failure.
#define LIBRARY_CALL extern "C" __attribute__((visibility("default")))

LIBRARY_CALL const char *flashinfer_version() { return FLASHINFER_VERSION; }
LIBRARY_CALL const char *flashinfer_failure() { return failure.c_str(); }

// Returns a rank on GPU `ordinal` for calls of at most `largest` bytes; null after a failure.
LIBRARY_CALL void *flashinfer_open(int rank, int world, int ordinal, size_t largest) {
    Arguments given{};
    given.rank = rank;
    given.world = world;
    given.ordinal = ordinal;
    given.largest = largest;
    Bf16 *opened = nullptr;
    done([&] { opened = new Bf16(given); });
    return opened;
}

// Copies the rank's handle, of 128 letters and a zero.
LIBRARY_CALL int flashinfer_handle(void *rank, char *to) {
    return done([&] { std::strcpy(to, static_cast<Bf16 *>(rank)->handle().c_str()); });
}

// `line`: `shared`, then the handles of all ranks, in their order, each after a space.
LIBRARY_CALL int flashinfer_connect(void *rank, const char *line) {
    return done([&] { static_cast<Bf16 *>(rank)->connect(handles(line)); });
}

LIBRARY_CALL int flashinfer_all_reduce(void *rank, const char *library, const void *from, void *to, size_t bytes,
                                       cudaStream_t on) {
    return done([&] { static_cast<Bf16 *>(rank)->enqueue(library, from, to, bytes, on); });
}

// The memory that vLLM's kernel reads.
LIBRARY_CALL void *flashinfer_registered(void *rank) { return static_cast<Bf16 *>(rank)->registered(); }

LIBRARY_CALL int flashinfer_register_captured(void *rank, long calls) {
    return done([&] { static_cast<Bf16 *>(rank)->register_captured(calls); });
}

int main(int count, char **words) {
    Arguments given;
    try {
        given = arguments({words + 1, words + count});
    } catch (const std::logic_error &) {
        std::fprintf(stderr, "usage: flashinfer_collectives RANK WORLD ORDINAL LARGEST TYPE [--plain] "
                             "[--copy BYTES BLOCKS THREADS | --gemm M N K FILE]\n");
        return 2;
    }
    answers = dup(STDOUT_FILENO);
    if (answers < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        std::perror("flashinfer_collectives: dup");
        return 1;
    }
    // Code is loaded before a kernel waits for a peer: loading may wait until the device is idle.
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    std::thread(watch).detach();
    try {
        if (given.world != 2 && given.world != 4 && given.world != 8) {
            answer("absent it takes 2, 4 or 8 GPUs");
        } else if (given.type == "float") {
            serve<float>(given);
        } else if (given.type == "half") {
            serve<half>(given);
        } else if (given.type == "bfloat16") {
            serve<__nv_bfloat16>(given);
        } else {
            answer("absent it adds bfloat16, half and float, not " + given.type);
        }
    } catch (const std::exception &failure) {
        fail(failure.what());
    }
    _exit(0);
}
