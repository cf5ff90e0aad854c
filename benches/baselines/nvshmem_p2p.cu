// NVSHMEM's one-sided put and get between two GPUs of a node, as a baseline.
//
// A benchmark controls two processes, one per rank of a pair, line by line through stdin and stdout,
// so that it can interleave them with its own measurements. NVSHMEM's output goes to stderr; stdout
// carries answers only.
//
//   nvshmem_p2p --rank 0|1 --device ORDINAL --bytes MAX [--deadline SECONDS]
//
//   rank 1 < uid HEX                       the line that rank 0 printed
//   rank 0 > uid HEX
//   both > ready VERSION
//   both < measure put|get BYTES BLOCKS THREADS WARMUPS REPEATS both|one
//   both > result NANOSECONDS WRONG        nanoseconds per launch; 0 on a rank that launched nothing
//   both < latency BYTES THREADS WARMUPS ROUNDS
//   both > latency MEDIAN MIN P99          nanoseconds one way
//   both < quit
//   both > error TEXT                      then the process exits with a nonzero status
//
// Both ranks get the same commands in the same order. With `one`, rank 0 moves the bytes and rank 1 is
// idle. WRONG counts the wrong bytes at this rank after a transfer into memory in which every byte was
// wrong before. Multicast is always disabled, whatever the environment says.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include <cuda_runtime.h>
#include <nvshmem.h>
#include <nvshmemx.h>

namespace {

// ---- answers, failures, the watchdog ----

int answers = -1; // the descriptor that was stdout

__attribute__((format(printf, 1, 2))) void answer(const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    length = std::clamp(length, 0, static_cast<int>(sizeof line) - 2);
    line[length] = '\n';
    // One write per line: an answer shorter than PIPE_BUF is never mixed with the watchdog's.
    for (char *at = line, *end = line + length + 1; at < end;) {
        ssize_t written = write(answers, at, end - at);
        if (written <= 0) {
            _exit(1); // the benchmark is gone
        }
        at += written;
    }
}

// Ends the process at once, since a destructor or a collective call could wait for a peer that is gone.
template <typename... Arguments>
[[noreturn]] void fail(const char *format, Arguments... arguments) {
    char text[768];
    snprintf(text, sizeof text, format, arguments...);
    answer("error %s", text);
    _exit(1);
}

void check(cudaError_t status, const char *call) {
    if (status != cudaSuccess) {
        fail("%s: %s (%d)", call, cudaGetErrorString(status), static_cast<int>(status));
    }
}
#define CHECK(call) check((call), #call)

int64_t now_ms() {
    using namespace std::chrono;
    return duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
}

std::atomic<int64_t> busy_since{0}; // 0 while waiting for a command
std::atomic<const char *> activity{"starting"};

void busy(const char *what) {
    activity = what;
    busy_since = now_ms();
}
void idle() { busy_since = 0; }

void watch(int64_t deadline_ms) {
    for (;;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        int64_t since = busy_since;
        if (since != 0 && now_ms() - since > deadline_ms) {
            fail("no progress for %lld s while %s; is the other rank of the pair alive?",
                 static_cast<long long>(deadline_ms / 1000), activity.load());
        }
    }
}

// ---- kernels ----

// A random byte per place, the same on both ranks for the same seed (SplitMix64's finalizer).
__device__ unsigned char pattern(uint64_t seed, uint64_t place) {
    uint64_t word = place + seed * 0x9e3779b97f4a7c15ull;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
    return static_cast<unsigned char>(word >> 56);
}

__device__ size_t first_place() { return blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; }
__device__ size_t stride() { return gridDim.x * static_cast<size_t>(blockDim.x); }

__global__ void fill(unsigned char *data, size_t bytes, uint64_t seed, unsigned char flip) {
    for (size_t place = first_place(); place < bytes; place += stride()) {
        data[place] = pattern(seed, place) ^ flip;
    }
}

__global__ void count_wrong(const unsigned char *data, size_t bytes, uint64_t seed,
                            unsigned long long *wrong) {
    unsigned long long mine = 0;
    for (size_t place = first_place(); place < bytes; place += stride()) {
        mine += data[place] != pattern(seed, place);
    }
    if (mine != 0) {
        atomicAdd(wrong, mine);
    }
}

// A block's share of a transfer, split at multiples of 16 bytes so that every block can use vector accesses.
struct Share {
    size_t begin;
    size_t bytes;
};
__device__ Share share_of_block(size_t bytes) {
    size_t each = ((bytes + gridDim.x - 1) / gridDim.x + 15) / 16 * 16;
    size_t begin = min(bytes, blockIdx.x * each);
    return {begin, min(bytes, begin + each) - begin};
}

__global__ void put(char *destination, const char *source, size_t bytes, int peer) {
    Share share = share_of_block(bytes);
    if (share.bytes != 0) {
        nvshmemx_putmem_block(destination + share.begin, source + share.begin, share.bytes, peer);
    }
}

__global__ void get(char *destination, const char *source, size_t bytes, int peer) {
    Share share = share_of_block(bytes);
    if (share.bytes != 0) {
        nvshmemx_getmem_block(destination + share.begin, source + share.begin, share.bytes, peer);
    }
}

// Rank 0 sends first, rank 1 answers. A sample is the time between two arrivals at a rank: one round trip.
__global__ void ping_pong(char *destination, const char *source, size_t bytes, uint64_t *signal,
                          uint64_t epoch, unsigned rounds, int rank, int peer, long long *cycles,
                          unsigned long long *nanoseconds) {
    unsigned long long begin_ns = 0;
    long long begin = 0, last = 0;
    for (unsigned round = 0; round <= rounds; ++round) {
        ++epoch;
        if (rank == 0) {
            nvshmemx_putmem_signal_block(destination, source, bytes, signal, epoch,
                                         NVSHMEM_SIGNAL_SET, peer);
        }
        if (threadIdx.x == 0) {
            nvshmem_signal_wait_until(signal, NVSHMEM_CMP_GE, epoch);
            long long arrival = clock64();
            if (round == 0) {
                begin = arrival;
                asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin_ns));
            } else {
                cycles[round - 1] = arrival - last;
            }
            last = arrival;
        }
        __syncthreads();
        if (rank != 0) {
            nvshmemx_putmem_signal_block(destination, source, bytes, signal, epoch,
                                         NVSHMEM_SIGNAL_SET, peer);
        }
    }
    if (threadIdx.x == 0) {
        unsigned long long end_ns;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(end_ns));
        // The global timer is too coarse for one round; over all rounds it calibrates the cycle counter.
        nanoseconds[0] = end_ns - begin_ns;
        nanoseconds[1] = static_cast<unsigned long long>(clock64() - begin);
    }
}

// ---- commands ----

struct Pair {
    int rank;
    int peer;
    size_t capacity;
    char *source;
    char *destination;
    uint64_t *signal;
    uint64_t epoch = 0;
    uint64_t commands = 0;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    unsigned long long *wrong;
};

constexpr unsigned most_rounds = 1u << 20;
constexpr unsigned fill_blocks = 264, fill_threads = 256;

void barrier(Pair &pair, const char *what) {
    CHECK(cudaStreamSynchronize(pair.stream));
    nvshmem_barrier_all();
    busy(what);
}

void measure(Pair &pair, const std::string &direction, size_t bytes, unsigned blocks,
             unsigned threads, unsigned warmups, unsigned repeats, const std::string &traffic) {
    const bool putting = direction == "put";
    const bool launches = traffic == "both" || pair.rank == 0;
    const bool receives = traffic == "both" || pair.rank == (putting ? 1 : 0);
    const uint64_t own_seed = 2 * pair.commands + pair.rank;
    const uint64_t peer_seed = 2 * pair.commands + pair.peer;
    auto launch = [&] {
        (putting ? put : get)<<<blocks, threads, 0, pair.stream>>>(pair.destination, pair.source,
                                                                  bytes, pair.peer);
    };
    auto *destination = reinterpret_cast<unsigned char *>(pair.destination);
    auto *source = reinterpret_cast<unsigned char *>(pair.source);

    fill<<<fill_blocks, fill_threads, 0, pair.stream>>>(source, bytes, own_seed, 0);
    CHECK(cudaGetLastError());
    barrier(pair, "warming up");
    for (unsigned i = 0; launches && i < warmups; ++i) {
        launch();
    }
    CHECK(cudaGetLastError());
    barrier(pair, "timing");
    CHECK(cudaEventRecord(pair.begin, pair.stream));
    for (unsigned i = 0; launches && i < repeats; ++i) {
        launch();
    }
    CHECK(cudaEventRecord(pair.end, pair.stream));
    CHECK(cudaGetLastError());
    barrier(pair, "checking");
    float milliseconds = 0;
    CHECK(cudaEventElapsedTime(&milliseconds, pair.begin, pair.end));

    // Make every byte wrong, then transfer once more: every correct byte comes from this launch.
    fill<<<fill_blocks, fill_threads, 0, pair.stream>>>(destination, bytes, peer_seed, 0xff);
    CHECK(cudaMemsetAsync(pair.wrong, 0, sizeof *pair.wrong, pair.stream));
    barrier(pair, "checking");
    if (launches) {
        launch();
    }
    CHECK(cudaGetLastError());
    barrier(pair, "checking");
    unsigned long long wrong = 0;
    if (receives) {
        count_wrong<<<fill_blocks, fill_threads, 0, pair.stream>>>(destination, bytes, peer_seed,
                                                                   pair.wrong);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpyAsync(&wrong, pair.wrong, sizeof wrong, cudaMemcpyDeviceToHost,
                              pair.stream));
    }
    // No rank may begin the next command, which fills its source, while a peer still counts.
    barrier(pair, "checking");
    double nanoseconds = launches ? milliseconds * 1e6 / repeats : 0.0;
    answer("result %.3f %llu", nanoseconds, wrong);
}

void latency(Pair &pair, size_t bytes, unsigned threads, unsigned warmups, unsigned rounds) {
    long long *cycles = nullptr;
    unsigned long long *spent = nullptr;
    CHECK(cudaMalloc(&cycles, (static_cast<size_t>(warmups) + rounds) * sizeof *cycles));
    CHECK(cudaMalloc(&spent, 2 * sizeof *spent));
    barrier(pair, "measuring latency");
    ping_pong<<<1, threads, 0, pair.stream>>>(pair.destination, pair.source, bytes, pair.signal,
                                              pair.epoch, warmups + rounds, pair.rank, pair.peer,
                                              cycles, spent);
    CHECK(cudaGetLastError());
    pair.epoch += static_cast<uint64_t>(warmups) + rounds + 1;
    barrier(pair, "measuring latency");
    std::vector<long long> samples(rounds);
    unsigned long long total[2];
    CHECK(cudaMemcpy(samples.data(), cycles + warmups, rounds * sizeof *cycles,
                     cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(total, spent, sizeof total, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(cycles));
    CHECK(cudaFree(spent));
    if (total[1] == 0) {
        fail("the clock did not advance in %u rounds", rounds);
    }
    std::sort(samples.begin(), samples.end());
    double one_way = 0.5 * static_cast<double>(total[0]) / static_cast<double>(total[1]);
    answer("latency %.1f %.1f %.1f", samples[rounds / 2] * one_way, samples[0] * one_way,
           samples[std::min<size_t>(rounds - 1, rounds * size_t{99} / 100)] * one_way);
}

// Runs one command; returns false for `quit`.
bool obey(Pair &pair, const std::string &line) {
    char word[16] = "", direction[8] = "", traffic[8] = "";
    unsigned long long bytes = 0;
    unsigned blocks = 0, threads = 0, warmups = 0, repeats = 0;
    if (line == "quit") {
        return false;
    }
    busy("setting up");
    ++pair.commands;
    if (sscanf(line.c_str(), "%15s", word) == 1 && strcmp(word, "measure") == 0) {
        if (sscanf(line.c_str(), "measure %7s %llu %u %u %u %u %7s", direction, &bytes, &blocks,
                   &threads, &warmups, &repeats, traffic) != 7 ||
            (strcmp(direction, "put") != 0 && strcmp(direction, "get") != 0) ||
            (strcmp(traffic, "both") != 0 && strcmp(traffic, "one") != 0)) {
            fail("not understood: '%s'; expected: measure put|get BYTES BLOCKS THREADS WARMUPS "
                 "REPEATS both|one", line.c_str());
        }
        if (bytes == 0 || bytes > pair.capacity || blocks == 0 || threads == 0 || threads > 1024 ||
            repeats == 0) {
            fail("out of range: '%s'; 1 to %zu bytes, 1 block or more, 1 to 1024 threads, 1 repeat "
                 "or more", line.c_str(), pair.capacity);
        }
        measure(pair, direction, bytes, blocks, threads, warmups, repeats, traffic);
    } else if (strcmp(word, "latency") == 0) {
        if (sscanf(line.c_str(), "latency %llu %u %u %u", &bytes, &threads, &warmups, &repeats) !=
            4) {
            fail("not understood: '%s'; expected: latency BYTES THREADS WARMUPS ROUNDS",
                 line.c_str());
        }
        if (bytes == 0 || bytes > pair.capacity || threads == 0 || threads > 1024 ||
            repeats == 0 || repeats > most_rounds || warmups > most_rounds) {
            fail("out of range: '%s'; 1 to %zu bytes, 1 to 1024 threads, 1 to %u rounds",
                 line.c_str(), pair.capacity, most_rounds);
        }
        latency(pair, bytes, threads, warmups, repeats);
    } else {
        fail("not understood: '%s'; commands are measure, latency and quit", line.c_str());
    }
    return true;
}

// ---- start ----

// Reads a line from stdin; returns false at its end.
bool read_line(std::string &line) {
    line.clear();
    for (int byte; (byte = getchar()) != EOF;) {
        if (byte == '\n') {
            return true;
        }
        line.push_back(static_cast<char>(byte));
        if (line.size() > 4096) {
            fail("a command is longer than 4096 bytes");
        }
    }
    return false;
}

// Rank 0 creates the identifier with which the processes meet; the benchmark passes it to rank 1.
void exchange(int rank, nvshmemx_uniqueid_t &id) {
    auto *bytes = reinterpret_cast<unsigned char *>(&id);
    if (rank == 0) {
        if (nvshmemx_get_uniqueid(&id) != 0) {
            fail("nvshmemx_get_uniqueid failed; check that the interface named by "
                 "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME exists");
        }
        std::string text;
        for (size_t i = 0; i < sizeof id; ++i) {
            char digits[3];
            snprintf(digits, sizeof digits, "%02x", bytes[i]);
            text += digits;
        }
        answer("uid %s", text.c_str());
        return;
    }
    std::string line;
    if (!read_line(line)) {
        _exit(0); // rank 0 did not start, and the benchmark is gone
    }
    if (line.size() != 4 + 2 * sizeof id || line.compare(0, 4, "uid ") != 0) {
        fail("expected 'uid ' and %zu hexadecimal digits first", 2 * sizeof id);
    }
    for (size_t i = 0; i < sizeof id; ++i) {
        unsigned value;
        if (sscanf(line.c_str() + 4 + 2 * i, "%2x", &value) != 1) {
            fail("the identifier is not hexadecimal at digit %zu", 2 * i);
        }
        bytes[i] = static_cast<unsigned char>(value);
    }
}

struct Options {
    int rank = -1;
    int device = -1;
    size_t bytes = 0;
    int64_t deadline_s = 60;
};

Options parse(int count, char **words) {
    Options options;
    for (int i = 1; i < count; i += 2) {
        std::string name = words[i];
        char *end = nullptr;
        long long value = i + 1 < count ? strtoll(words[i + 1], &end, 10) : -1;
        if (end == nullptr || end == words[i + 1] || *end != '\0' || value < 0) {
            fail("%s needs a number", name.c_str());
        }
        if (name == "--rank") {
            options.rank = static_cast<int>(value);
        } else if (name == "--device") {
            options.device = static_cast<int>(value);
        } else if (name == "--bytes") {
            options.bytes = static_cast<size_t>(value);
        } else if (name == "--deadline") {
            options.deadline_s = value;
        } else {
            fail("unknown option %s", name.c_str());
        }
    }
    if (options.rank < 0 || options.rank > 1 || options.device < 0 || options.bytes == 0 ||
        options.deadline_s == 0) {
        fail("usage: nvshmem_p2p --rank 0|1 --device ORDINAL --bytes MAX [--deadline SECONDS]");
    }
    return options;
}

void set_environment(size_t bytes) {
    // Multicast stays disabled: this baseline runs on machines on which it must not be used.
    setenv("NVSHMEM_DISABLE_NVLS", "1", 1);
    setenv("NVSHMEM_REMOTE_TRANSPORT", "none", 1);
    setenv("NVSHMEM_DISABLE_NCCL", "1", 1);
    // The processes run on one machine, so loopback suffices.
    setenv("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "lo", 0);
    // Room for both buffers: without CUDA's virtual memory, the heap has a fixed size.
    setenv("NVSHMEM_SYMMETRIC_SIZE", std::to_string(2 * bytes + (size_t{256} << 20)).c_str(), 0);
}

} // namespace

int main(int count, char **words) {
    answers = dup(STDOUT_FILENO);
    if (answers < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        return 1;
    }
    Options options = parse(count, words);
    set_environment(options.bytes);
    std::thread(watch, options.deadline_s * 1000).detach();

    // NVSHMEM keeps a pointer to the identifier, so it lives as long as main.
    nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
    busy("exchanging the identifier");
    exchange(options.rank, id);
    busy("initializing NVSHMEM");
    // Set the device first, since NVSHMEM binds to the current one.
    CHECK(cudaSetDevice(options.device));
    nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
    if (nvshmemx_set_attr_uniqueid_args(options.rank, 2, &id, &attributes) != 0) {
        fail("nvshmemx_set_attr_uniqueid_args failed");
    }
    if (nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes) != 0) {
        fail("nvshmemx_init_attr failed on rank %d, device %d; set NVSHMEM_DEBUG=INFO for the reason on "
             "stderr; NVSHMEM_DISABLE_CUDA_VMM=1 may help in a container",
             options.rank, options.device);
    }

    Pair pair{};
    pair.rank = options.rank;
    pair.peer = 1 - options.rank;
    pair.capacity = options.bytes;
    busy("allocating");
    pair.source = static_cast<char *>(nvshmem_malloc(options.bytes));
    pair.destination = static_cast<char *>(nvshmem_malloc(options.bytes));
    pair.signal = static_cast<uint64_t *>(nvshmem_calloc(1, sizeof *pair.signal));
    if (pair.source == nullptr || pair.destination == nullptr || pair.signal == nullptr) {
        fail("nvshmem_malloc of %zu bytes failed on rank %d; lower --bytes", options.bytes,
             options.rank);
    }
    if (nvshmem_ptr(pair.source, pair.peer) == nullptr) {
        fail("device %d of rank %d cannot address its peer's memory", options.device, options.rank);
    }
    CHECK(cudaStreamCreateWithFlags(&pair.stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&pair.begin));
    CHECK(cudaEventCreate(&pair.end));
    CHECK(cudaMalloc(&pair.wrong, sizeof *pair.wrong));
    // Load the kernels now: a lazy load would disturb the first measurement, or wait for a running kernel.
    cudaFuncAttributes loaded;
    CHECK(cudaFuncGetAttributes(&loaded, put));
    CHECK(cudaFuncGetAttributes(&loaded, get));
    CHECK(cudaFuncGetAttributes(&loaded, fill));
    CHECK(cudaFuncGetAttributes(&loaded, count_wrong));
    CHECK(cudaFuncGetAttributes(&loaded, ping_pong));
    barrier(pair, "starting");

    int major = 0, minor = 0, patch = 0;
    nvshmemx_vendor_get_version_info(&major, &minor, &patch);
    idle();
    answer("ready %d.%d.%d", major, minor, patch);
    std::string line;
    for (;;) {
        if (!read_line(line)) {
            _exit(1); // the benchmark ended without `quit`, so the peer may be gone too
        }
        if (!obey(pair, line)) {
            break;
        }
        idle();
    }
    busy("finalizing");
    nvshmem_barrier_all();
    nvshmem_free(pair.signal);
    nvshmem_free(pair.destination);
    nvshmem_free(pair.source);
    nvshmem_finalize();
    _exit(0);
}
