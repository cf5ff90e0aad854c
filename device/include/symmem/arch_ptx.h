// NVIDIA GPUs. Every access that another device may see is inline assembly with scope and order, since compilers weaken
// builtins: clang 22 turns a system-scope acq_rel fetch-add into a relaxed gpu-scope one, and const __restrict into
// ld.global.nc. `cargo xtask kernels lint` checks the accesses.
//
// Scopes and orders: PTX ISA, chapter "Memory consistency model".
#pragma once

#include "symmem/abi.h"

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define SYMMEM_DEVICE __device__ __forceinline__
#define SYMMEM_HOST_DEVICE __host__ __device__
#define SYMMEM_KERNEL(threads) extern "C" __global__ __launch_bounds__(threads, 1) void
#define SYMMEM_ARGUMENTS(T) const __grid_constant__ T
#define SYMMEM_ENTRY_POINT __global__
#else  // clang without NVIDIA's headers
#define SYMMEM_DEVICE inline __attribute__((device, always_inline))
#define SYMMEM_HOST_DEVICE __attribute__((host, device))
#define SYMMEM_KERNEL(threads) extern "C" __attribute__((global, launch_bounds(threads, 1))) void
#define SYMMEM_ARGUMENTS(T) const __attribute__((grid_constant)) T
#define SYMMEM_ENTRY_POINT __attribute__((global))
#endif

#define SYMMEM_UNROLL _Pragma("unroll")
#define SYMMEM_ROLLED _Pragma("unroll 1")

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // undefined while nvcc parses for the host
#define SYMMEM_HAS_BULK 1
#else
#define SYMMEM_HAS_BULK 0
#endif

#define SYMMEM_HAS_HALF_CONVERSIONS 1
#define SYMMEM_HAS_F8_CONVERSIONS SYMMEM_HAS_BULK  // from sm_89 on
#define SYMMEM_HAS_MATRIX 0
#define SYMMEM_HAS_MATRIX_F8 0

namespace symmem {
namespace arch {

constexpr uint32 warp_size = 32;

SYMMEM_DEVICE uint32 thread_index() {
  uint32 value;
  asm("mov.u32 %0, %%tid.x;" : "=r"(value));
  return value;
}

SYMMEM_DEVICE uint32 thread_count() {
  uint32 value;
  asm("mov.u32 %0, %%ntid.x;" : "=r"(value));
  return value;
}

SYMMEM_DEVICE uint32 block_index() {
  uint32 value;
  asm("mov.u32 %0, %%ctaid.x;" : "=r"(value));
  return value;
}

SYMMEM_DEVICE uint32 block_count() {
  uint32 value;
  asm("mov.u32 %0, %%nctaid.x;" : "=r"(value));
  return value;
}

SYMMEM_DEVICE uint8* dynamic_shared() {
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
  extern __shared__ __align__(128) uint8 symmem_dynamic_shared[];
#else
  extern __attribute__((shared, aligned(128))) uint8 symmem_dynamic_shared[];
#endif
  return symmem_dynamic_shared;
}

SYMMEM_DEVICE void warp_barrier() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }

// A warp comes to the block's barriers whole; the lint wants a barrier of the warp right before each. With barriers to which a warp's threads may come one by
// one, others of the block went on while a thread still polled, when two processes took turns on an H200; see
// benches/NOTES.md.
SYMMEM_DEVICE void block_barrier() {
  asm volatile(
      "bar.warp.sync 0xffffffff;\n\t"
      "barrier.sync.aligned 0;" ::
          : "memory");
}

SYMMEM_DEVICE bool block_all(bool condition) {
  uint32 all;
  asm volatile(
      "{ .reg .pred p, q;\n\t"
      "setp.ne.u32 p, %1, 0;\n\t"
      "bar.warp.sync 0xffffffff;\n\t"
      "barrier.red.and.pred.aligned q, 0, p;\n\t"
      "selp.u32 %0, 1, 0, q; }"
      : "=r"(all)
      : "r"(static_cast<uint32>(condition))
      : "memory");
  return all != 0;
}

// A vote orders no accesses; the barrier after it does.
SYMMEM_DEVICE bool warp_all(bool condition) {
  uint32 all;
  asm volatile(
      "{ .reg .pred p, q;\n\t"
      "setp.ne.u32 p, %1, 0;\n\t"
      "vote.sync.all.pred q, p, 0xffffffff;\n\t"
      "selp.u32 %0, 1, 0, q; }"
      : "=r"(all)
      : "r"(static_cast<uint32>(condition))
      : "memory");
  warp_barrier();
  return all != 0;
}

constexpr uint32 line_threads = 32;

SYMMEM_DEVICE uint32 line_votes(bool condition) {
  uint32 votes;
  asm volatile(
      "{ .reg .pred p;\n\t"
      "setp.ne.u32 p, %1, 0;\n\t"
      "vote.sync.ballot.b32 %0, p, 0xffffffff; }"
      : "=r"(votes)
      : "r"(static_cast<uint32>(condition)));
  return votes;
}

SYMMEM_DEVICE uint32 from_last_of_line(uint32 value) {
  uint32 last;
  asm volatile("shfl.sync.idx.b32 %0, %1, 31, 31, 0xffffffff;" : "=r"(last) : "r"(value));
  return last;
}

SYMMEM_DEVICE uint32 line_exchange(uint32 value, uint32 distance) {
  uint32 other;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(other) : "r"(value), "r"(distance));
  return other;
}

SYMMEM_DEVICE uint64 nanoseconds() {
  uint64 value;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value)::"memory");
  return value;
}

// No pause: polling reads go to L2 and take longer than a pause would.
SYMMEM_DEVICE void pause() {}

SYMMEM_DEVICE void pause_in_crowd() { asm volatile("nanosleep.u32 100;"); }

SYMMEM_DEVICE uint32 opaque(uint32 value) {
  asm volatile("" : "+r"(value));
  return value;
}

SYMMEM_DEVICE uint64 opaque(uint64 value) {
  asm volatile("" : "+l"(value));
  return value;
}

// Registers are not scarce here.
SYMMEM_DEVICE uint32 anew(uint32 value) { return value; }
SYMMEM_DEVICE bool anew(bool value) { return value; }
SYMMEM_DEVICE uint32 per_thread(uint32 value) { return value; }
SYMMEM_DEVICE uint64 per_thread(uint64 value) { return value; }
SYMMEM_DEVICE void set_any(uint32&) {}
SYMMEM_DEVICE void set_any(uint64&) {}
SYMMEM_DEVICE void settle_loads() {}

// ---- dependent launch ----

SYMMEM_DEVICE void start_dependents() {
#if SYMMEM_HAS_BULK  // both came with sm_90
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

SYMMEM_DEVICE void wait_for_prerequisites() {
#if SYMMEM_HAS_BULK
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The lint finds the tag.
SYMMEM_DEVICE void start_dependents_of_answered() {
#if SYMMEM_HAS_BULK
  asm volatile("griddepcontrol.launch_dependents; /* answered */" ::: "memory");
#endif
}

SYMMEM_DEVICE void end_waits() {
#if SYMMEM_HAS_BULK
  block_barrier();
  start_dependents();
#endif
}

// ---- data ----

struct alignas(16) Vector16 {
  uint32 words[4];
};

// Volatile, so that the loads of an unrolled copy stay before its stores.
SYMMEM_DEVICE uint8 load(const uint8* pointer) {
  uint32 value;
  asm volatile("ld.global.u8 %0, [%1];" : "=r"(value) : "l"(pointer) : "memory");
  return static_cast<uint8>(value);
}

SYMMEM_DEVICE uint16 load(const uint16* pointer) {
  uint16 value;
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(value) : "l"(pointer) : "memory");
  return value;
}

SYMMEM_DEVICE uint32 load(const uint32* pointer) {
  uint32 value;
  asm volatile("ld.global.b32 %0, [%1];" : "=r"(value) : "l"(pointer) : "memory");
  return value;
}

SYMMEM_DEVICE uint64 load(const uint64* pointer) {
  uint64 value;
  asm volatile("ld.global.b64 %0, [%1];" : "=l"(value) : "l"(pointer) : "memory");
  return value;
}

SYMMEM_DEVICE Vector16 load(const Vector16* pointer) {
  Vector16 value;
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.words[0]), "=r"(value.words[1]), "=r"(value.words[2]), "=r"(value.words[3])
               : "l"(pointer)
               : "memory");
  return value;
}

SYMMEM_DEVICE void store(uint8* pointer, uint8 value) {
  asm volatile("st.global.u8 [%0], %1;" ::"l"(pointer), "r"(static_cast<uint32>(value)) : "memory");
}

SYMMEM_DEVICE void store(uint16* pointer, uint16 value) {
  asm volatile("st.global.u16 [%0], %1;" ::"l"(pointer), "h"(value) : "memory");
}

SYMMEM_DEVICE void store(uint32* pointer, uint32 value) {
  asm volatile("st.global.b32 [%0], %1;" ::"l"(pointer), "r"(value) : "memory");
}

SYMMEM_DEVICE void store(uint64* pointer, uint64 value) {
  asm volatile("st.global.b64 [%0], %1;" ::"l"(pointer), "l"(value) : "memory");
}

SYMMEM_DEVICE void store(Vector16* pointer, const Vector16& value) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(pointer), "r"(value.words[0]),
               "r"(value.words[1]), "r"(value.words[2]), "r"(value.words[3])
               : "memory");
}

SYMMEM_DEVICE uint32 funnel(uint32 low, uint32 high, uint32 bits) {
  uint32 value;
  asm("shf.r.wrap.b32 %0, %1, %2, %3;" : "=r"(value) : "r"(low), "r"(high), "r"(bits));
  return value;
}

// ---- numbers ----

SYMMEM_DEVICE float float_of(uint32 bits) {
  float number;
  asm("mov.b32 %0, %1;" : "=f"(number) : "r"(bits));
  return number;
}

SYMMEM_DEVICE uint32 bits_of(float number) {
  uint32 bits;
  asm("mov.b32 %0, %1;" : "=r"(bits) : "f"(number));
  return bits;
}

SYMMEM_DEVICE float reciprocal_root(float number) {
  float root;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(number));
  return root;
}

SYMMEM_DEVICE double float_of(uint64 bits) {
  double number;
  asm("mov.b64 %0, %1;" : "=d"(number) : "l"(bits));
  return number;
}

SYMMEM_DEVICE uint64 bits_of(double number) {
  uint64 bits;
  asm("mov.b64 %0, %1;" : "=l"(bits) : "d"(number));
  return bits;
}

SYMMEM_DEVICE float widen_f16(uint32 bits) {
  float number;
  asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(static_cast<uint16>(bits)));
  return number;
}

SYMMEM_DEVICE uint32 narrow_f16(float low, float high) {
  uint32 bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}

SYMMEM_DEVICE uint32 narrow_bf16(float low, float high) {
  uint32 bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}

#if SYMMEM_HAS_F8_CONVERSIONS
SYMMEM_DEVICE uint32 narrow_f8_e4m3(float low, float high) {
  uint16 bits;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(high), "f"(low));
  return bits;
}
#endif

// ---- words that other devices or the host see ----

SYMMEM_DEVICE uint32 load_relaxed(const uint32* word) {
  uint32 value;
  asm volatile("ld.relaxed.sys.global.b32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}

SYMMEM_DEVICE uint64 load_relaxed(const uint64* word) {
  uint64 value;
  asm volatile("ld.relaxed.sys.global.b64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}

SYMMEM_DEVICE void store_relaxed(uint32* word, uint32 value) {
  asm volatile("st.relaxed.sys.global.b32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

SYMMEM_DEVICE void store_relaxed(uint64* word, uint64 value) {
  asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

SYMMEM_DEVICE uint32 compare_exchange(uint32* word, uint32 expected, uint32 desired) {
  uint32 seen;
  asm volatile("atom.relaxed.sys.global.cas.b32 %0, [%1], %2, %3;"
               : "=r"(seen)
               : "l"(word), "r"(expected), "r"(desired)
               : "memory");
  return seen;
}

SYMMEM_DEVICE uint32 load_acquire(const uint32* word) {
  uint32 value;
  asm volatile("ld.acquire.sys.global.b32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}

SYMMEM_DEVICE uint64 load_acquire(const uint64* word) {
  uint64 value;
  asm volatile("ld.acquire.sys.global.b64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}

SYMMEM_DEVICE uint32 fetch_add(uint32* word, uint32 operand) {
  uint32 seen;
  asm volatile("atom.acq_rel.sys.global.add.u32 %0, [%1], %2;" : "=r"(seen) : "l"(word), "r"(operand) : "memory");
  return seen;
}

SYMMEM_DEVICE uint64 fetch_add(uint64* word, uint64 operand) {
  uint64 seen;
  asm volatile("atom.acq_rel.sys.global.add.u64 %0, [%1], %2;" : "=l"(seen) : "l"(word), "l"(operand) : "memory");
  return seen;
}

SYMMEM_DEVICE uint32 fetch_set(uint32* word, uint32 operand) {
  uint32 seen;
  asm volatile("atom.acq_rel.sys.global.exch.b32 %0, [%1], %2;" : "=r"(seen) : "l"(word), "r"(operand) : "memory");
  return seen;
}

SYMMEM_DEVICE uint64 fetch_set(uint64* word, uint64 operand) {
  uint64 seen;
  asm volatile("atom.acq_rel.sys.global.exch.b64 %0, [%1], %2;" : "=l"(seen) : "l"(word), "l"(operand) : "memory");
  return seen;
}

SYMMEM_DEVICE uint32 fetch_compare_set(uint32* word, uint32 expected, uint32 operand) {
  uint32 seen;
  asm volatile("atom.acq_rel.sys.global.cas.b32 %0, [%1], %2, %3;"
               : "=r"(seen)
               : "l"(word), "r"(expected), "r"(operand)
               : "memory");
  return seen;
}

SYMMEM_DEVICE uint64 fetch_compare_set(uint64* word, uint64 expected, uint64 operand) {
  uint64 seen;
  asm volatile("atom.acq_rel.sys.global.cas.b64 %0, [%1], %2, %3;"
               : "=l"(seen)
               : "l"(word), "l"(expected), "l"(operand)
               : "memory");
  return seen;
}

// ---- packets ----

struct alignas(16) Packet {
  uint64 halves[2];
};

// Each element of a vector access is a separate access of 64 bits, which does not tear (PTX ISA, "Memory consistency
// model", vector data types).
SYMMEM_DEVICE Packet load_packet(const Packet* packet) {
  Packet value;
  asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(value.halves[0]), "=l"(value.halves[1])
               : "l"(packet)
               : "memory");
  return value;
}

SYMMEM_DEVICE Vector16 load_packet(const Vector16* pointer) {
  Vector16 value;
  asm volatile("ld.relaxed.sys.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.words[0]), "=r"(value.words[1]), "=r"(value.words[2]), "=r"(value.words[3])
               : "l"(pointer)
               : "memory");
  return value;
}

SYMMEM_DEVICE void store_packet(Vector16* pointer, const Vector16& value) {
  asm volatile("st.relaxed.sys.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(pointer), "r"(value.words[0]),
               "r"(value.words[1]), "r"(value.words[2]), "r"(value.words[3])
               : "memory");
}

SYMMEM_DEVICE void store_packet(Packet* packet, const Packet& value) {
  asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(packet), "l"(value.halves[0]),
               "l"(value.halves[1])
               : "memory");
}

// ---- order ----

SYMMEM_DEVICE void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// The lint allows device scope only with this tag, for a counter that only blocks of one grid access.
SYMMEM_DEVICE void fence_device() { asm volatile("fence.acq_rel.gpu; /* arrivals */" ::: "memory"); }

// No fence needed: PTX's causality order is transitive through a block barrier, so the fence of one thread covers
// earlier stores of the others (PTX ISA, "Memory consistency model", causality order). A fence by every warp would cost
// 0.8 us per signal (H200).
SYMMEM_DEVICE void release_wave() {}

// The lint finds the tag, and wants the fence.
SYMMEM_DEVICE void publish_flag(uint32* word, uint32 value) {
  fence_system();
  asm volatile("st.relaxed.sys.global.b32 [%0], %1; /* published */" ::"l"(word), "r"(value) : "memory");
}

SYMMEM_DEVICE void publish_flag(uint64* word, uint64 value) {
  fence_system();
  asm volatile("st.relaxed.sys.global.b64 [%0], %1; /* published */" ::"l"(word), "l"(value) : "memory");
}

// Sound without a fence: a load whose value was used is complete, so it cannot see a later store. A fence would wait
// for the results that the same warp has just stored to peers.
SYMMEM_DEVICE void publish_taken(uint32* word, uint32 value) { store_relaxed(word, value); }

// Without a fence, and beyond what PTX promises. The kernels before have completed, so what they stored in this device's
// memory is in its L2, through which every access to that memory goes, a peer's as well. (NCCL's symmetric kernels open
// with relaxed barriers likewise.) A put without a signal relies on the same: a kernel is complete when its stores are
// performed, at a peer as well. A fence takes 0.6 to 1.5 us even if it has nothing to wait for (benches/NOTES.md). The lint
// finds the tag.
SYMMEM_DEVICE void publish_entered(uint32* word, uint32 value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1; /* entered */" ::"l"(word), "r"(value) : "memory");
}

// Poll relaxed and acquire once: an acquiring load in the loop delays the flag by 0.09 us; a fence after the loop,
// which waits for earlier stores, by 0.6 us (H200).
SYMMEM_DEVICE uint32 load_flag(const uint32* word) { return load_relaxed(word); }

SYMMEM_DEVICE void acquire_flag(const uint32* word) { (void)load_acquire(word); }
SYMMEM_DEVICE void acquire_flag(const uint64* word) { (void)load_acquire(word); }

template <class Word>
SYMMEM_DEVICE Word load_word(const Word* word) {
  return load_relaxed(word);
}

SYMMEM_DEVICE void acquire_words() { fence_system(); }

SYMMEM_DEVICE uint32 arrive(uint32* counter) {
  uint32 before;
  fence_device();
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1; /* arrivals */" : "=r"(before) : "l"(counter) : "memory");
  fence_device();
  return before;
}

SYMMEM_DEVICE uint32 arrive_taken(uint32* counter) {
  uint32 before;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1; /* arrivals */" : "=r"(before) : "l"(counter) : "memory");
  return before;
}

SYMMEM_DEVICE void reset(uint32* counter) { store_relaxed(counter, 0); }

// ---- bulk copies: PTX ISA, "Data movement and conversion instructions: asynchronous copy" ----

#if SYMMEM_HAS_BULK

// A phase of this barrier ends when the expected bytes have arrived in shared memory.
struct BulkBarrier {
  uint64 state;
};

SYMMEM_DEVICE uint32 shared_address(const void* pointer) {
  uint32 address;
  asm("{ .reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a; }" : "=r"(address) : "l"(pointer));
  return address;
}

// Initializes for one arrival per phase, that of bulk_expect. A proxy fence must follow before the first bulk_load.
SYMMEM_DEVICE void bulk_barrier_initialise(BulkBarrier* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}

SYMMEM_DEVICE void bulk_expect(BulkBarrier* barrier, uint32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}

// Copies global to shared memory; `bytes` and both addresses are multiples of 16.
SYMMEM_DEVICE void bulk_load(uint8* shared, const uint8* global, uint32 bytes, BulkBarrier* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// Waits until the phase of that parity has ended. Needs no deadline, since it does not depend on a peer.
SYMMEM_DEVICE void bulk_wait(BulkBarrier* barrier, uint32 parity) {
  uint32 done;
  do {
    asm volatile(
        "{ .reg .pred p;\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  } while (done == 0);
}

// Copies shared to global memory; `bytes` and both addresses are multiples of 16.
SYMMEM_DEVICE void bulk_store(uint8* global, const uint8* shared, uint32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(shared_address(shared)), "r"(bytes)
               : "memory");
}

// Ends a group of this thread's bulk stores.
SYMMEM_DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until all but this thread's `pending` youngest groups have read their shared memory, which may then be reused.
// Their writes may still be in flight.
template <int pending>
SYMMEM_DEVICE void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

// Waits until this thread's bulk stores have been written, so that a release by this thread covers them.
SYMMEM_DEVICE void bulk_wait_complete() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// Orders ordinary accesses and bulk copies of the same memory, global and shared.
SYMMEM_DEVICE void fence_async_proxy() { asm volatile("fence.proxy.async;" ::: "memory"); }

#endif  // SYMMEM_HAS_BULK

}  // namespace arch
}  // namespace symmem
