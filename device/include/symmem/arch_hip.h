// AMD CDNA GPUs: gfx90a (MI200), gfx942 (MI300) and gfx950 (MI350). Uses clang's builtins and no header of ROCm.
//
// Accesses are builtins and not inline assembly, because the compiler counts outstanding accesses to place s_waitcnt
// and does not see those of inline assembly. `cargo xtask kernels lint` checks the generated code.
//
// Source for the code of each memory order and for the instructions: LLVM's "User Guide for AMDGPU Backend", memory
// models of gfx90a and gfx942 (gfx950 has the latter's).
#pragma once

#include "symmem/abi.h"

#define SYMMEM_DEVICE inline __attribute__((device, always_inline))
#define SYMMEM_HOST_DEVICE __attribute__((host, device))
#define SYMMEM_KERNEL(threads) extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, threads))) void
// A kernel with two waves on each SIMD, which leaves it half of the registers.
#define SYMMEM_KERNEL_OF_TWO(threads) \
  extern "C" __attribute__((global, amdgpu_flat_work_group_size(threads, threads), amdgpu_waves_per_eu(2, 2))) void

#if defined(SYMMEM_LAUNCH_ARGUMENT)  // symmem's own kernels: see Launch
#define SYMMEM_ARGUMENTS(T) const symmem::arch::Launch, const T
#else
#define SYMMEM_ARGUMENTS(T) const T
#endif

#define SYMMEM_ENTRY_POINT __attribute__((global))
#define SYMMEM_UNROLL _Pragma("unroll")
#define SYMMEM_ROLLED _Pragma("unroll 1")
#define SYMMEM_HAS_BULK 0
#define SYMMEM_HAS_HALF_CONVERSIONS 1
#define SYMMEM_HAS_F8_CONVERSIONS 0
#define SYMMEM_HAS_MATRIX 1
#if defined(__gfx942__) || defined(__gfx950__)
#define SYMMEM_HAS_MATRIX_F8 1
#else
#define SYMMEM_HAS_MATRIX_F8 0
#endif

namespace symmem {
namespace arch {

constexpr uint32 warp_size = 64;

// A device of MI200 is one die; MI300 and MI350 have eight, unless they are partitioned.
#if defined(__gfx90a__)
constexpr uint32 dies = 1;
#else
constexpr uint32 dies = 8;
#endif

// The address spaces of global memory and of a kernel's arguments. Accesses through generic pointers would be flat
// accesses, which also wait for shared memory.
#define SYMMEM_GLOBAL __attribute__((address_space(1)))
#define SYMMEM_CONSTANT __attribute__((address_space(4)))

// ---- geometry ----

// Moves the value to vector registers. There are only 102 scalar registers for values that a wave's threads share, and
// the compiler would spill the rest.
SYMMEM_DEVICE uint32 per_thread(uint32 value) {
  asm volatile("" : "+v"(value));
  return value;
}

SYMMEM_DEVICE uint64 per_thread(uint64 value) {
  asm volatile("" : "+v"(value));
  return value;
}

// Tells the compiler that the value is equal in all lanes; otherwise it would run a loop over it lane by lane.
SYMMEM_DEVICE uint32 opaque(uint32 value) { return __builtin_amdgcn_readfirstlane(per_thread(value)); }
SYMMEM_DEVICE uint64 opaque(uint64 value) { return per_thread(value); }
SYMMEM_DEVICE uint32 anew(uint32 value) { return opaque(value); }
// Takes one register; a condition that the compiler knows would be a mask in two.
SYMMEM_DEVICE bool anew(bool value) { return opaque(static_cast<uint32>(value)) != 0; }

SYMMEM_DEVICE void set_any(uint32& value) { asm volatile("" : "=v"(value)); }
SYMMEM_DEVICE void set_any(uint64& value) { asm volatile("" : "=v"(value)); }

// The first argument of symmem's own kernels, before the struct of abi.h. It holds what would otherwise be read from
// hidden arguments, or from the dispatch packet in host memory.
struct Launch {
  uint32 blocks;
  uint32 threads;
  uint32 tick_ns;  // nanoseconds per tick of the constant clock: 1000000 / hipDeviceAttributeWallClockRate (kHz)
  uint32 reserved;
};
static_assert(sizeof(Launch) == 16, "Launch changed size");

SYMMEM_DEVICE uint32 thread_index() { return __builtin_amdgcn_workitem_id_x(); }
SYMMEM_DEVICE uint32 block_index() { return __builtin_amdgcn_workgroup_id_x(); }

#if defined(SYMMEM_LAUNCH_ARGUMENT)

SYMMEM_DEVICE const SYMMEM_CONSTANT Launch* launch() {
  return (const SYMMEM_CONSTANT Launch*)__builtin_amdgcn_kernarg_segment_ptr();
}
SYMMEM_DEVICE uint32 thread_count() { return anew(launch()->threads); }
SYMMEM_DEVICE uint32 block_count() { return anew(launch()->blocks); }
SYMMEM_DEVICE uint32 tick_ns() { return launch()->tick_ns; }

#else  // users' kernels, to which the runtime passes hidden arguments

SYMMEM_DEVICE uint32 thread_count() { return __builtin_amdgcn_workgroup_size_x(); }
SYMMEM_DEVICE uint32 block_count() {
  return __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x();
}
// The constant clock runs at 25 MHz on MI200 and at 100 MHz on later devices (figures of RCCL).
SYMMEM_DEVICE uint32 tick_ns() {
#if defined(__gfx90a__)
  return 40;
#else
  return 10;
#endif
}

#endif

SYMMEM_DEVICE uint8* dynamic_shared() {
  extern __attribute__((shared, aligned(128))) uint8 symmem_dynamic_shared[];
  return symmem_dynamic_shared;
}

SYMMEM_DEVICE uint64 nanoseconds() { return __builtin_amdgcn_s_memrealtime() * tick_ns(); }

// Sleeps for 64 clocks, so that a polling wave leaves the compute unit to others.
SYMMEM_DEVICE void pause() { __builtin_amdgcn_s_sleep(1); }
SYMMEM_DEVICE void pause_in_crowd() { pause(); }

// ---- dependent launch: there is none ----

SYMMEM_DEVICE void start_dependents() {}
SYMMEM_DEVICE void start_dependents_of_answered() {}
SYMMEM_DEVICE void wait_for_prerequisites() {}
SYMMEM_DEVICE void end_waits() {}

// ---- data ----

struct alignas(16) Vector16 {
  uint32 words[4];
};

SYMMEM_DEVICE uint8 load(const uint8* pointer) { return *(const SYMMEM_GLOBAL uint8*)pointer; }
SYMMEM_DEVICE uint16 load(const uint16* pointer) { return *(const SYMMEM_GLOBAL uint16*)pointer; }
SYMMEM_DEVICE uint32 load(const uint32* pointer) { return *(const SYMMEM_GLOBAL uint32*)pointer; }
SYMMEM_DEVICE uint64 load(const uint64* pointer) { return *(const SYMMEM_GLOBAL uint64*)pointer; }

SYMMEM_DEVICE void store(uint8* pointer, uint8 value) { *(SYMMEM_GLOBAL uint8*)pointer = value; }
SYMMEM_DEVICE void store(uint16* pointer, uint16 value) { *(SYMMEM_GLOBAL uint16*)pointer = value; }
SYMMEM_DEVICE void store(uint32* pointer, uint32 value) { *(SYMMEM_GLOBAL uint32*)pointer = value; }
SYMMEM_DEVICE void store(uint64* pointer, uint64 value) { *(SYMMEM_GLOBAL uint64*)pointer = value; }

typedef uint32 Words4 __attribute__((ext_vector_type(4)));

// Nontemporal, since kernels stream vectors and touch each once. RCCL does the same (op128.h).
SYMMEM_DEVICE Vector16 load(const Vector16* pointer) {
  return __builtin_bit_cast(Vector16, __builtin_nontemporal_load((const SYMMEM_GLOBAL Words4*)pointer));
}

SYMMEM_DEVICE void store(Vector16* pointer, const Vector16& value) {
  __builtin_nontemporal_store(__builtin_bit_cast(Words4, value), (SYMMEM_GLOBAL Words4*)pointer);
}

SYMMEM_DEVICE uint32 funnel(uint32 low, uint32 high, uint32 bits) {
  return __builtin_amdgcn_alignbit(high, low, bits);
}

// ---- numbers ----

SYMMEM_DEVICE float float_of(uint32 bits) { return __builtin_bit_cast(float, bits); }
SYMMEM_DEVICE double float_of(uint64 bits) { return __builtin_bit_cast(double, bits); }
SYMMEM_DEVICE float reciprocal_root(float number) { return __builtin_amdgcn_rsqf(number); }
SYMMEM_DEVICE uint32 bits_of(float number) { return __builtin_bit_cast(uint32, number); }
SYMMEM_DEVICE uint64 bits_of(double number) { return __builtin_bit_cast(uint64, number); }

SYMMEM_DEVICE float widen_f16(uint32 bits) {
  return static_cast<float>(__builtin_bit_cast(_Float16, static_cast<uint16>(bits)));
}

template <class Narrow>
SYMMEM_DEVICE uint32 narrow_pair(float low, float high) {
  const uint32 first = __builtin_bit_cast(uint16, static_cast<Narrow>(low));
  return static_cast<uint32>(__builtin_bit_cast(uint16, static_cast<Narrow>(high))) << 16 | first;
}

SYMMEM_DEVICE uint32 narrow_f16(float low, float high) { return narrow_pair<_Float16>(low, high); }
SYMMEM_DEVICE uint32 narrow_bf16(float low, float high) { return narrow_pair<__bf16>(low, high); }

// ---- order ----

// Records the address of the next instruction in a section that is not loaded. The lint reads this section to check
// each publication and to notice missing ones.
#if defined(SYMMEM_LAUNCH_ARGUMENT)
#define SYMMEM_PUBLISHES "\n0:\n\t.pushsection .symmem.publishes,\"\",@progbits\n\t.quad 0b\n\t.popsection"
#else
#define SYMMEM_PUBLISHES ""
#endif

// Waits until this wave's stores, and a preceding write-back, are complete.
SYMMEM_DEVICE void drain() { asm volatile("s_waitcnt vmcnt(0)" ::: "memory"); }

// Waits until all accesses are complete, in a way that the compiler counts (drain it does not see).
SYMMEM_DEVICE void settle_loads() { __builtin_amdgcn_s_waitcnt(0x0f70); }

// LLVM up to 22 can drop its own wait after the write-back, which the flag would then overtake (fixed by llvm-project's
// pull request 178316). `drain` is a wait that it cannot drop.
SYMMEM_DEVICE void release_system() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
  drain();
}

SYMMEM_DEVICE void acquire_system() { __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, ""); }

SYMMEM_DEVICE void fence_system() {
  release_system();
  acquire_system();
}

// Each wave waits until its stores are in the L2 (or at the peer): s_barrier does not wait for them. All waves of a block
// share one L2, and a write-back covers all of it, so the release of the thread that publishes suffices for the block.
// (LLVM's "User Guide for AMDGPU Backend", memory model of gfx942: buffer_wbl2 writes back all dirty lines.)
SYMMEM_DEVICE void release_wave() { drain(); }

// ---- words that other devices or the host see ----

template <class Word>
SYMMEM_DEVICE Word load_relaxed(const Word* word) {
  return __hip_atomic_load((const SYMMEM_GLOBAL Word*)word, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}

template <class Word>
SYMMEM_DEVICE void store_relaxed(Word* word, Word value) {
  __hip_atomic_store((SYMMEM_GLOBAL Word*)word, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}

template <class Word>
SYMMEM_DEVICE Word compare_set_relaxed(Word* word, Word expected, Word desired) {
  __hip_atomic_compare_exchange_strong((SYMMEM_GLOBAL Word*)word, &expected, desired, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  return expected;
}

SYMMEM_DEVICE uint32 compare_exchange(uint32* word, uint32 expected, uint32 desired) {
  return compare_set_relaxed(word, expected, desired);
}

template <class Word>
SYMMEM_DEVICE Word load_acquire(const Word* word) {
  const Word value = load_relaxed(word);
  acquire_system();
  return value;
}

template <class Word>
SYMMEM_DEVICE Word fetch_add(Word* word, Word operand) {
  release_system();
  const Word seen = __hip_atomic_fetch_add((SYMMEM_GLOBAL Word*)word, operand, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  acquire_system();
  return seen;
}

template <class Word>
SYMMEM_DEVICE Word fetch_set(Word* word, Word operand) {
  release_system();
  const Word seen = __hip_atomic_exchange((SYMMEM_GLOBAL Word*)word, operand, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  acquire_system();
  return seen;
}

template <class Word>
SYMMEM_DEVICE Word fetch_compare_set(Word* word, Word expected, Word operand) {
  release_system();
  const Word seen = compare_set_relaxed(word, expected, operand);
  acquire_system();
  return seen;
}

// ---- packets ----

struct alignas(16) Packet {
  uint64 halves[2];
};

// Two accesses, since the halves of a vector access are not guaranteed to be atomic.
SYMMEM_DEVICE Packet load_packet(const Packet* packet) {
  return {{load_relaxed(&packet->halves[0]), load_relaxed(&packet->halves[1])}};
}

SYMMEM_DEVICE void store_packet(Packet* packet, const Packet& value) {
  store_relaxed(&packet->halves[0], value.halves[0]);
  store_relaxed(&packet->halves[1], value.halves[1]);
}

SYMMEM_DEVICE Vector16 load_packet(const Vector16* packet) {
  const uint64* halves = reinterpret_cast<const uint64*>(packet);
  const uint64 low = load_relaxed(halves), high = load_relaxed(halves + 1);
  return {{static_cast<uint32>(low), static_cast<uint32>(low >> 32), static_cast<uint32>(high), static_cast<uint32>(high >> 32)}};
}

SYMMEM_DEVICE void store_packet(Vector16* packet, const Vector16& value) {
  uint64* halves = reinterpret_cast<uint64*>(packet);
  store_relaxed(halves, static_cast<uint64>(value.words[1]) << 32 | value.words[0]);
  store_relaxed(halves + 1, static_cast<uint64>(value.words[3]) << 32 | value.words[2]);
}

// ---- flags ----

template <class Word>
SYMMEM_DEVICE void release_and_store(Word* word, Word value) {
  // These assembly comments keep the compiler from merging the release or the store with equal code on other paths.
  asm volatile("; publishes" ::: "memory");
  release_system();
  asm volatile(SYMMEM_PUBLISHES ::: "memory");
  store_relaxed(word, value);
  asm volatile("; published" ::: "memory");
}

SYMMEM_DEVICE void publish_flag(uint32* word, uint32 value) { release_and_store(word, value); }
SYMMEM_DEVICE void publish_flag(uint64* word, uint64 value) { release_and_store(word, value); }

// A release: the L2 may hold what earlier kernels stored, and peers do not read through it.
SYMMEM_DEVICE void publish_entered(uint32* word, uint32 value) { release_and_store(word, value); }

// Poll relaxed and acquire once: each acquire invalidates the caches.
SYMMEM_DEVICE uint32 load_flag(const uint32* word) { return load_relaxed(word); }

template <class Word>
SYMMEM_DEVICE void acquire_flag(const Word*) {
  acquire_system();
}

template <class Word>
SYMMEM_DEVICE Word load_word(const Word* word) {
  return load_relaxed(word);
}

SYMMEM_DEVICE void acquire_words() { acquire_system(); }

// Every block releases, since a release writes back only the L2 of its own die.
SYMMEM_DEVICE uint32 arrive(uint32* counter) { return fetch_add(counter, 1u); }
// Sound for the reason that publish_taken has.
SYMMEM_DEVICE uint32 arrive_taken(uint32* counter) {
  return __hip_atomic_fetch_add((SYMMEM_GLOBAL uint32*)counter, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
SYMMEM_DEVICE void reset(uint32* counter) { store_relaxed(counter, 0u); }

// Sound without a release: a load whose value was used is complete, so it cannot see a later store. A release would
// wait for the results that the same wave has just stored to peers.
SYMMEM_DEVICE void publish_taken(uint32* word, uint32 value) { store_relaxed(word, value); }

// ---- blocks ----

// s_barrier orders no accesses. The fences make the compiler wait for shared memory and keep accesses on their side of
// the barrier.
SYMMEM_DEVICE void block_barrier() {
  drain();
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// Each wave votes; the second barrier keeps a wave from voting again before all have counted.
SYMMEM_DEVICE bool block_all(bool condition, uint32* votes) {
  const uint32 waves = (thread_count() + warp_size - 1) / warp_size;
  const uint32 thread = per_thread(thread_index());
  const bool wave = __builtin_amdgcn_ballot_w64(!condition) == 0;
  if (thread % warp_size == 0) votes[thread / warp_size] = wave;
  block_barrier();
  uint32 all = 1;
  for (uint32 index = 0; index < waves; ++index) all &= votes[index];
  block_barrier();
  return all != 0;
}

SYMMEM_DEVICE bool block_all(bool condition) {
  static __attribute__((shared)) uint32 votes[1024 / warp_size];
  return block_all(condition, votes);
}

// A wave runs in lockstep and its accesses keep their order, so only the compiler needs the barrier.
SYMMEM_DEVICE void warp_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

SYMMEM_DEVICE bool warp_all(bool condition) {
  const bool all = __builtin_amdgcn_ballot_w64(!condition) == 0;
  warp_barrier();
  return all;
}

// A wave has two lines, of which one may be idle: only the threads of active lines vote.
constexpr uint32 line_threads = 32;

SYMMEM_DEVICE uint32 line_votes(bool condition) {
  const uint64 votes = __builtin_amdgcn_ballot_w64(condition);
  const bool second = thread_index() % warp_size >= line_threads;
  return per_thread(second ? static_cast<uint32>(votes >> 32) : static_cast<uint32>(votes));
}

SYMMEM_DEVICE uint32 from_last_of_line(uint32 value) {
  const uint32 first = __builtin_amdgcn_readlane(value, line_threads - 1);
  const uint32 second = __builtin_amdgcn_readlane(value, warp_size - 1);
  return per_thread(thread_index() % warp_size >= line_threads ? second : first);
}

SYMMEM_DEVICE uint32 line_exchange(uint32 value, uint32 distance) {
  const uint32 lane = thread_index() % warp_size ^ distance;
  return static_cast<uint32>(__builtin_amdgcn_ds_bpermute(static_cast<int>(lane * 4), static_cast<int>(value)));
}

// ---- matrices ----

#define SYMMEM_SHARED __attribute__((address_space(3)))

SYMMEM_DEVICE Vector16 load_reused(const Vector16* pointer) {
  return __builtin_bit_cast(Vector16, *(const SYMMEM_GLOBAL Words4*)pointer);
}

SYMMEM_DEVICE uint64 load_reused(const uint64* pointer) { return *(const SYMMEM_GLOBAL uint64*)pointer; }

// Moves a value that is equal in all lanes to scalar registers.
SYMMEM_DEVICE uint32 uniform(uint32 value) { return __builtin_amdgcn_readfirstlane(value); }
SYMMEM_DEVICE uint64 uniform(uint64 value) {
  return static_cast<uint64>(uniform(static_cast<uint32>(value >> 32))) << 32 | uniform(static_cast<uint32>(value));
}

typedef uint64 SharedPair __attribute__((may_alias));
typedef uint32 SharedWord __attribute__((may_alias));
typedef uint32 SharedWords4 __attribute__((ext_vector_type(4), may_alias));

SYMMEM_DEVICE void store_shared(uint16* pointer, uint16 value) { *(SYMMEM_SHARED uint16*)pointer = value; }
SYMMEM_DEVICE void store_shared(uint16* pointer, uint32 value) { *(SYMMEM_SHARED SharedWord*)pointer = value; }
SYMMEM_DEVICE void store_shared(uint16* pointer, uint64 value) { *(SYMMEM_SHARED SharedPair*)pointer = value; }
SYMMEM_DEVICE void store_shared(uint16* pointer, const Vector16& value) {
  *(SYMMEM_SHARED SharedWords4*)pointer = __builtin_bit_cast(SharedWords4, value);
}

// Element `high` of each pair of two words: one v_perm_b32.
SYMMEM_DEVICE uint32 paired(uint32 first, uint32 second, uint32 high) {
  return __builtin_amdgcn_perm(second, first, high != 0 ? 0x07060302u : 0x05040100u);
}

// The fences order shared memory alone, so loads from global memory stay in flight.
SYMMEM_DEVICE void shared_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}

// Only gfx950 loads 16 bytes per lane to shared memory. The compiler would make each load from shared memory wait for all
// of these, so they are inline assembly, and `wait_for_loads` counts them. The compiler's own waits do not know of them
// and wait for too many accesses, never too few.
#if defined(__gfx950__)
constexpr bool loads_to_shared = true;

SYMMEM_DEVICE void load_to_shared(uint16* to, uint64 base, uint32 offset) {
  const uint32 first = uniform(static_cast<uint32>(reinterpret_cast<uint64>((SYMMEM_SHARED uint16*)to)));
  // A wait state between the move to m0 and its use: the compiler does not look into the assembly.
  asm volatile("s_mov_b32 m0, %2\n\ts_nop 0\n\tglobal_load_lds_dwordx4 %0, %1"
               :
               : "v"(offset), "s"(base), "s"(first)
               : "memory");
}
#else
constexpr bool loads_to_shared = false;
__attribute__((device)) void load_to_shared(uint16*, uint64, uint32);  // only declared
#endif

template <uint32 left>
SYMMEM_DEVICE void wait_for_loads() {
  asm volatile("s_waitcnt vmcnt(%0)" : : "n"(left) : "memory");
}

SYMMEM_DEVICE void keep_order() { __builtin_amdgcn_sched_barrier(0); }

template <uint32 level>
SYMMEM_DEVICE void set_priority() {
  __builtin_amdgcn_s_setprio(level);
}

typedef _Float16 Half4 __attribute__((ext_vector_type(4)));
typedef short Bfloat4 __attribute__((ext_vector_type(4)));
typedef _Float16 Half8 __attribute__((ext_vector_type(8)));
typedef __bf16 Bfloat8 __attribute__((ext_vector_type(8)));
typedef float Float4 __attribute__((ext_vector_type(4)));

template <class T>
SYMMEM_DEVICE T load_shared(const uint16* pointer) {
  return *(const SYMMEM_SHARED T*)pointer;
}

constexpr uint32 matrix_values = 4;

struct MatrixPart {
  float values[matrix_values];
};

// Lane l has eight elements of each operand, of row l % 16 from depth 8 (l / 16) on, or of such a column; and of the
// result column l % 16 and rows 4 (l / 16) on (CDNA3 ISA, "Matrix Arithmetic Instructions"). The operands are swapped
// here, so that a lane's four results are adjacent in a row.
SYMMEM_DEVICE uint32 matrix_row(uint32) { return thread_index() % 16; }
SYMMEM_DEVICE uint32 matrix_column(uint32 value) { return thread_index() % warp_size / 16 * 4 + value; }

struct MatrixFragment {
  SharedWords4 words;
};

template <ElementType, class Place>
SYMMEM_DEVICE MatrixFragment load_fragment(const uint16* lines) {
  const uint32 place = Place::at(thread_index() % 16, thread_index() % warp_size / 16);
  return {*(const SYMMEM_SHARED SharedWords4*)(lines + place)};
}

// Returns one of the two halves of a lane's elements. Both operands are halved alike, so it does not matter that an instruction
// of half the depth is not given the first depths and then the others.
template <class Half>
SYMMEM_DEVICE Half half_of(const MatrixFragment& fragment, uint32 step) {
  typedef uint32 Words2 __attribute__((ext_vector_type(2)));
  const Words2 words = step == 0 ? fragment.words.lo : fragment.words.hi;
  return __builtin_bit_cast(Half, words);
}

#if SYMMEM_HAS_MATRIX_F8
SYMMEM_DEVICE Float4 multiply_add_f8(const MatrixFragment& a, const MatrixFragment& b, Float4 sums, uint32 step) {
  return __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(half_of<long>(b, step), half_of<long>(a, step), sums, 0, 0, 0);
}
#endif

#if defined(__gfx950__)

constexpr bool loads_transposed = true;

// Each lane reads four elements. In a group of 16 lanes, lanes 4 i to 4 i + 3 read the 16 columns of line i, and lane l gets
// column l of the four lines. All lanes must be active, and addresses are multiples of 8 (CDNA4 ISA, "MFMA Transpose Load
// from LDS"). The ISA does not say which lane gets which element: Modular's MAX (`amd_tile_io.mojo`), GEMMs in FlyDSL and
// Primus-Turbo's attention agree on it.
template <ElementType, uint32 length, class Place>
SYMMEM_DEVICE MatrixFragment load_transposed(const uint16* lines, const Place& place) {
  typedef short Short4 __attribute__((ext_vector_type(4)));
  typedef uint32 Words2 __attribute__((ext_vector_type(2)));
  const uint32 lane = thread_index() % warp_size;
  const uint16* const from = lines + place(lane / 16 * 8 + lane % 16 / 4, lane % 4);
  const auto half = [&](uint32 depth) {
    return __builtin_bit_cast(Words2, __builtin_amdgcn_ds_read_tr16_b64_v4i16((SYMMEM_SHARED Short4*)(from + depth * length)));
  };
  const Words2 low = half(0), high = half(4);
  return {SharedWords4{low.x, low.y, high.x, high.y}};
}

template <ElementType type>
constexpr uint32 matrix_steps = type == ElementType::f8_e4m3 ? 2 : 1;

template <ElementType type>
SYMMEM_DEVICE void matrix_multiply_add(MatrixPart& part, const MatrixFragment& a, const MatrixFragment& b, uint32 step) {
  Float4 sums = __builtin_bit_cast(Float4, part);
  if constexpr (type == ElementType::f16) {
    sums = __builtin_amdgcn_mfma_f32_16x16x32_f16(__builtin_bit_cast(Half8, b.words), __builtin_bit_cast(Half8, a.words), sums, 0, 0, 0);
  } else if constexpr (type == ElementType::bf16) {
    sums = __builtin_amdgcn_mfma_f32_16x16x32_bf16(__builtin_bit_cast(Bfloat8, b.words), __builtin_bit_cast(Bfloat8, a.words), sums, 0, 0, 0);
  } else {
    static_assert(type == ElementType::f8_e4m3, "f16, bf16 and f8_e4m3");
    sums = multiply_add_f8(a, b, sums, step);
  }
  part = __builtin_bit_cast(MatrixPart, sums);
}

constexpr float matrix_f8_unit = 1;

template <ElementType>
constexpr bool converts = false;
struct Conversion {  // only declared, as what follows
  __attribute__((device)) uint32 begin(uint32);
  __attribute__((device)) uint32 end(uint32, uint32&);
};
__attribute__((device)) bool has_nans(uint32);
__attribute__((device)) uint32 with_nans(uint32);

#else

constexpr bool loads_transposed = false;
template <ElementType, uint32 length, class Place>
__attribute__((device)) MatrixFragment load_transposed(const uint16*, const Place&);  // only declared

template <ElementType>
constexpr uint32 matrix_steps = 2;

template <ElementType type>
SYMMEM_DEVICE void matrix_multiply_add(MatrixPart& part, const MatrixFragment& a, const MatrixFragment& b, uint32 step) {
  Float4 sums = __builtin_bit_cast(Float4, part);
  if constexpr (type == ElementType::f16) {
    sums = __builtin_amdgcn_mfma_f32_16x16x16f16(half_of<Half4>(b, step), half_of<Half4>(a, step), sums, 0, 0, 0);
  } else if constexpr (type == ElementType::bf16) {
    sums = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(half_of<Bfloat4>(b, step), half_of<Bfloat4>(a, step), sums, 0, 0, 0);
#if SYMMEM_HAS_MATRIX_F8
  } else {
    static_assert(type == ElementType::f8_e4m3, "f16, bf16 and f8_e4m3");
    sums = multiply_add_f8(a, b, sums, step);
#endif
  }
  part = __builtin_bit_cast(MatrixPart, sums);
}

// gfx942 has E4M3 in another encoding ("FNUZ"): the same bits stand for half of the number, except that a sign without anything
// else is NaN and not -0, and that all ones without the sign, which are NaN in OCP E4M3, are a number (CDNA3 ISA, "Data
// Format Conversion"; OCP 8-bit Floating Point Specification).
constexpr float matrix_f8_unit = 4;

SYMMEM_DEVICE constexpr uint32 magnitudes_of(uint32 word) { return word & 0x7f7f7f7f; }
SYMMEM_DEVICE constexpr uint32 signs_of(uint32 word) { return word & 0x80808080; }

// The conversion of a word of four numbers, in two halves. NaN stays as it is, which is another number here.
class Conversion {
 public:
  SYMMEM_DEVICE constexpr uint32 begin(uint32 word) {
    // Unknown to the compiler, which would otherwise use one instruction more.
    magnitudes_ = __builtin_is_constant_evaluated() ? magnitudes_of(word) : per_thread(magnitudes_of(word));
    // The sum does not reach the next byte: it has the sign of those that are not zero.
    nonzero_ = magnitudes_ + 0x7f7f7f7f;
    return word;
  }

  // Returns the word, in which zeros have lost their sign. `nans` gets the sign of what is NaN.
  SYMMEM_DEVICE constexpr uint32 end(uint32 word, uint32& nans) {
    nans |= magnitudes_ + 0x01010101;
    return (word & nonzero_) | magnitudes_;
  }

 private:
  uint32 magnitudes_ = 0, nonzero_ = 0;
};

// Of a converted word, what was NaN becomes a sign alone.
SYMMEM_DEVICE constexpr uint32 with_nans(uint32 word) {
  const uint32 nans = signs_of(magnitudes_of(word) + 0x01010101);
  return (word & ~(nans - (nans >> 7))) | nans;
}

SYMMEM_DEVICE constexpr bool converts_f8(uint32 word, uint32 expected, bool has_nans) {
  Conversion conversion;
  uint32 nans = 0;
  const uint32 converted = conversion.end(conversion.begin(word), nans);
  return with_nans(converted) == expected && (signs_of(nans) != 0) == has_nans && (has_nans || converted == expected);
}
static_assert(converts_f8(0x80'00'81'01, 0x00'00'81'01, false) && converts_f8(0x7f'ff'7e'80, 0x80'80'7e'00, true), "E4M3");

template <ElementType type>
constexpr bool converts = type == ElementType::f8_e4m3;

SYMMEM_DEVICE bool has_nans(uint32 nans) {
  return __builtin_amdgcn_ballot_w64(signs_of(nans) != 0) != 0;
}

#endif

#undef SYMMEM_SHARED
#undef SYMMEM_PUBLISHES
#undef SYMMEM_GLOBAL
#undef SYMMEM_CONSTANT

}  // namespace arch
}  // namespace symmem
