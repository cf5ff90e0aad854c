// Accesses to NVLS multicast addresses, from sm_90 on: the switch reduces loads over all members and broadcasts stores
// to all members.
//
// Only multimem instructions may access such an address (PTX ISA, "Data movement and conversion instructions:
// multimem"). That chapter lists the types and operations; `cargo xtask kernels multimem` checks that each form used
// here assembles and that similar forms which do not exist are rejected.
//
// Order. Every access is relaxed at system scope, since it reaches other devices and a weak access might stay in L1. A
// multicast address and a member's own address are aliases in the memory model: between a store through one and a load
// through the other there must be an alias proxy fence. Every such path across a barrier goes through the thread that
// raises the flags, which therefore issues one fence. A second fence at the end of a kernel covers the flag words,
// which the next kernel may raise through the members' own addresses. (NCCL's kernels have no such fence and are not
// known to fail, but the ISA makes no exception.)
#pragma once

#include "symmem/arch_ptx.h"

namespace symmem {
namespace arch {

// Loads the elements of one access at a multicast address, reduced over all members in an unspecified order: a 16-byte
// vector of floats, or one element of another type.
template <ElementType type, ReduceOperation operation>
struct MulticastReduction;

#define SYMMEM_MULTICAST_VECTOR(type, form)                                                             \
  template <>                                                                                           \
  struct MulticastReduction<ElementType::type, ReduceOperation::sum> {                                  \
    SYMMEM_DEVICE static Vector16 load(uint64 address) {                                                \
      Vector16 value;                                                                                   \
      asm volatile("multimem.ld_reduce.relaxed.sys.global.add." form " {%0, %1, %2, %3}, [%4];"         \
                   : "=r"(value.words[0]), "=r"(value.words[1]), "=r"(value.words[2]), "=r"(value.words[3])\
                   : "l"(address)                                                                       \
                   : "memory");                                                                         \
      return value;                                                                                     \
    }                                                                                                   \
  };

SYMMEM_MULTICAST_VECTOR(f16, "acc::f32.v4.f16x2")
SYMMEM_MULTICAST_VECTOR(bf16, "acc::f32.v4.bf16x2")
SYMMEM_MULTICAST_VECTOR(f32, "v4.f32")
SYMMEM_MULTICAST_VECTOR(f8_e4m3, "acc::f16.v4.e4m3x4")
SYMMEM_MULTICAST_VECTOR(f8_e5m2, "acc::f16.v4.e5m2x4")

#undef SYMMEM_MULTICAST_VECTOR

#define SYMMEM_MULTICAST_SCALAR(type, operation, form, Word, constraint)                                \
  template <>                                                                                           \
  struct MulticastReduction<ElementType::type, ReduceOperation::operation> {                            \
    SYMMEM_DEVICE static Word load(uint64 address) {                                                    \
      Word value;                                                                                       \
      asm volatile("multimem.ld_reduce.relaxed.sys.global." form " %0, [%1];"                           \
                   : constraint(value)                                                                  \
                   : "l"(address)                                                                       \
                   : "memory");                                                                         \
      return value;                                                                                     \
    }                                                                                                   \
  };

SYMMEM_MULTICAST_SCALAR(i32, sum, "add.s32", uint32, "=r")
SYMMEM_MULTICAST_SCALAR(i32, minimum, "min.s32", uint32, "=r")
SYMMEM_MULTICAST_SCALAR(i32, maximum, "max.s32", uint32, "=r")
SYMMEM_MULTICAST_SCALAR(u32, sum, "add.u32", uint32, "=r")
SYMMEM_MULTICAST_SCALAR(u32, minimum, "min.u32", uint32, "=r")
SYMMEM_MULTICAST_SCALAR(u32, maximum, "max.u32", uint32, "=r")
SYMMEM_MULTICAST_SCALAR(i64, minimum, "min.s64", uint64, "=l")
SYMMEM_MULTICAST_SCALAR(i64, maximum, "max.s64", uint64, "=l")
SYMMEM_MULTICAST_SCALAR(u64, sum, "add.u64", uint64, "=l")
SYMMEM_MULTICAST_SCALAR(u64, minimum, "min.u64", uint64, "=l")
SYMMEM_MULTICAST_SCALAR(u64, maximum, "max.u64", uint64, "=l")
SYMMEM_MULTICAST_SCALAR(f64, sum, "add.f64", uint64, "=l")

#undef SYMMEM_MULTICAST_SCALAR

// Stores at every member. There is no vector form for plain bits, so this uses f32 vectors; the bits are unchanged.
SYMMEM_DEVICE void multicast_store(uint64 address, const Vector16& value) {
  asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(value.words[0]),
               "r"(value.words[1]), "r"(value.words[2]), "r"(value.words[3])
               : "memory");
}

SYMMEM_DEVICE void multicast_store(uint64 address, uint32 value) {
  asm volatile("multimem.st.relaxed.sys.global.b32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

SYMMEM_DEVICE void multicast_store(uint64 address, uint64 value) {
  asm volatile("multimem.st.relaxed.sys.global.b64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

// Adds 1 to a uint32 at every member, after the earlier accesses of this thread and, before a block barrier, of its
// block. Without earlier stores at peers, a release at device scope is enough: the stores have reached this device's
// memory, from which every reader of the flag loads them. The flag may also say that peers' sources have been read.
// That needs no scope, because the loaded values have been stored, so the loads are complete (see publish_taken).
// CuTeDSL's distributed kernels rely on the same and save the wait for stores on the link, although the memory model,
// read strictly, asks for system scope. The lint allows device scope only with this tag.
SYMMEM_DEVICE void multicast_raise(uint64 word, bool stored_at_peers) {
  if (stored_at_peers) {
    asm volatile(
        "fence.proxy.alias;\n\t"
        "multimem.red.release.sys.global.add.u32 [%0], 1;" ::"l"(word)
        : "memory");
  } else {
    asm volatile(
        "fence.proxy.alias;\n\t"
        "multimem.red.release.gpu.global.add.u32 [%0], 1; /* own_memory */" ::"l"(word)
        : "memory");
  }
}

// Orders this thread's earlier accesses to multicast addresses before its later accesses to members' own addresses, and
// the other way round.
SYMMEM_DEVICE void fence_aliases() { asm volatile("fence.proxy.alias;" ::: "memory"); }

}  // namespace arch
}  // namespace symmem
