// Matrix multiplication by warpgroups: PTX ISA, "Asynchronous warpgroup-level matrix instructions". sm_90a only.
#pragma once

#include "symmem/arch.h"

// Operands: 4, 8, … 128 accumulators from d[n] on.
#define SYMMEM_4(n) "+f"(d[n]), "+f"(d[n + 1]), "+f"(d[n + 2]), "+f"(d[n + 3])
#define SYMMEM_16(n) SYMMEM_4(n), SYMMEM_4(n + 4), SYMMEM_4(n + 8), SYMMEM_4(n + 12)
#define SYMMEM_8(n) SYMMEM_4(n), SYMMEM_4(n + 4)
#define SYMMEM_32(n) SYMMEM_16(n), SYMMEM_16(n + 16)
#define SYMMEM_64(n) SYMMEM_32(n), SYMMEM_32(n + 32)
#define SYMMEM_128(n) SYMMEM_64(n), SYMMEM_64(n + 64)

namespace symmem {

// Describes a matrix in shared memory in the 128-byte swizzle of a tensor copy: rows of 64 elements, of which eight
// form an atom of 1024 bytes. `leading` is the distance in bytes from an atom to the next across the row, `stride`
// that to the next one down (PTX ISA, "Matrix descriptor format"). The address is a multiple of 1024, plus an offset.
SYMMEM_DEVICE uint64 matrix_descriptor(uint32 address, uint32 leading, uint32 stride) {
  constexpr uint64 swizzle_128 = 1ull << 62;
  return (address & 0x3ffffu) >> 4 | static_cast<uint64>(leading >> 4) << 16 | static_cast<uint64>(stride >> 4) << 32 |
         swizzle_128;
}

// Begins a group of matrix instructions: registers and earlier writes to shared memory are ready.
SYMMEM_DEVICE void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Ends a group.
SYMMEM_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until all but the `pending` youngest groups are done.
template <int pending>
SYMMEM_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// Names of 8, 16, … 128 accumulators in the instruction's text.
#define SYMMEM_NAMES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define SYMMEM_NAMES_16 SYMMEM_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define SYMMEM_NAMES_32 \
  SYMMEM_NAMES_16 \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, " \
  "%27, %28, %29, %30, %31"
#define SYMMEM_NAMES_64 \
  SYMMEM_NAMES_32 \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, " \
  "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SYMMEM_NAMES_128 \
  SYMMEM_NAMES_64 \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, " \
  "%83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, " \
  "%102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, " \
  "%118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// One instruction; `A` and the parameters after it name the operands that follow the accumulators.
#define SYMMEM_MULTIPLY(COLUMNS, TYPE, NAMES, ACCUMULATORS, A, B, ACCUMULATE, A_TRANSPOSED, B_TRANSPOSED) \
  asm volatile("{ .reg .pred p;\n\tsetp.ne.b32 p, " ACCUMULATE ", 0;\n\t" \
               "wgmma.mma_async.sync.aligned.m64n" COLUMNS "k16.f32." TYPE "." TYPE " {" NAMES "}, " A ", " B \
               ", p, 1, 1, " A_TRANSPOSED ", " B_TRANSPOSED "; }" \
               : ACCUMULATORS \
               : "l"(a), "l"(b), "r"(accumulate), "n"(a_transposed ? 1 : 0), "n"(b_transposed ? 1 : 0))

// D = A B, plus D if `accumulate`: 64 by `columns`, 16 deep, by the four warps of a warpgroup. In memory A is
// stored by rows and B by columns, unless they are transposed. Warp w, lane l holds rows 16 w + l / 4 and that
// plus 8. Of every eight columns j, elements 4 j and 4 j + 1 are columns 8 j + 2 (l % 4) and the next one of
// the first row, and the next two elements those of the other row.
template <uint32 columns>
struct Warpgroup;

#define SYMMEM_WARPGROUP(COLUMNS, COUNT, ...) \
  template <> \
  struct Warpgroup<COLUMNS> { \
    template <bool f16, bool a_transposed, bool b_transposed> \
    static SYMMEM_DEVICE void multiply(float (&d)[COUNT], uint64 a, uint64 b, uint32 accumulate) { \
      if (f16) { \
        SYMMEM_MULTIPLY(#COLUMNS, "f16", SYMMEM_NAMES_##COUNT, SYMMEM_##COUNT(0), __VA_ARGS__); \
      } else { \
        SYMMEM_MULTIPLY(#COLUMNS, "bf16", SYMMEM_NAMES_##COUNT, SYMMEM_##COUNT(0), __VA_ARGS__); \
      } \
    } \
  };

SYMMEM_WARPGROUP(16, 8, "%8", "%9", "%10", "%11", "%12")
SYMMEM_WARPGROUP(32, 16, "%16", "%17", "%18", "%19", "%20")
SYMMEM_WARPGROUP(64, 32, "%32", "%33", "%34", "%35", "%36")
SYMMEM_WARPGROUP(128, 64, "%64", "%65", "%66", "%67", "%68")
SYMMEM_WARPGROUP(256, 128, "%128", "%129", "%130", "%131", "%132")

#undef SYMMEM_WARPGROUP
#undef SYMMEM_MULTIPLY
#undef SYMMEM_NAMES_128
#undef SYMMEM_NAMES_64
#undef SYMMEM_NAMES_32
#undef SYMMEM_NAMES_16
#undef SYMMEM_NAMES_8
#undef SYMMEM_128
#undef SYMMEM_64
#undef SYMMEM_32
#undef SYMMEM_16
#undef SYMMEM_8
#undef SYMMEM_4

// Changes the number of registers per thread of a warpgroup, from here on.
template <int count>
SYMMEM_DEVICE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
SYMMEM_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

}  // namespace symmem
