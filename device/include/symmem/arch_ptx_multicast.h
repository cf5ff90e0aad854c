// Accesses to multicast addresses, from sm_90 on: the switch between the devices reduces what is loaded, and hands
// what is stored to every member.
//
// Only these instructions may touch such an address (PTX ISA, "Data movement and conversion instructions:
// multimem"). Which types and operations there are is that chapter's table; `cargo xtask kernels multimem`
// assembles each form that stands here, and shows that its neighbours which do not are refused.
//
// Order. Every access is relaxed at system scope: each reaches other devices, and a weak one might be kept in L1.
// A multicast address and a member's own name the same bytes, so to the memory model they are aliases: what is
// stored by one and loaded by the other needs a proxy fence of that kind on the way. Each way from before a barrier
// to behind it passes the thread that raises the flags, so there it stands, once. It stands once more at the end of a
// kernel, for the words themselves: the next kernel may raise them by the members' own addresses. (NCCL's kernels
// have none, and are not known to go wrong; the ISA makes no exception.)
#pragma once

#include "symmem/arch_ptx.h"

namespace symmem {
namespace arch {

// Elements at a multicast address, as many as one access has, of all members, reduced in no order that is promised:
// a 16-byte vector of floats, or one element of another type.
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

// At every member. There is no vector of plain bits: floats, of which nothing is computed, stand for them.
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

// Adds 1 to a uint32 at every member, behind what this thread, and by a block barrier its block, did before. Where
// none of that is at peers, a release at device scope will do: it has reached this device's own memory, which is
// where whoever sees the flag reads it. Where the flag also says that peers' sources have been read, no scope is
// needed for that: their values have been loaded, since they were stored (see publish_taken). CuTeDSL's distributed
// kernels count on that, and save the wait for stores on the link; the memory model's words would have system scope.
// The tag names it to the lint.
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

// Whatever this thread did at a multicast address comes before what follows at a member's own, and the other way
// round.
SYMMEM_DEVICE void fence_aliases() { asm volatile("fence.proxy.alias;" ::: "memory"); }

}  // namespace arch
}  // namespace symmem
