// Module `reduce_lamport`: sums and averages in Lamport packets, one-shot and, `two_shot`, in shares. For each floating-point
// type of at most 32 bits, a kernel for all calls, and one, `rooted`, for those in which one member receives; and for the
// usual types, small ones: `few` for one vector a thread; `pair1`, `pair2` and `pair4` for as many vectors a thread in a
// group of two.
#include "symmem/reduce_lamport_two_shot.h"

using namespace symmem;

#define SYMMEM_ENTRY(name, ...)                                                                          \
  SYMMEM_KERNEL(512) symmem_reduce_lamport_##name(SYMMEM_ARGUMENTS(ReduceLamportArguments) arguments) {  \
    __VA_ARGS__(arguments);                                                                              \
  }

#define SYMMEM_ANY(type)                                                                                 \
  SYMMEM_ENTRY(type, sum_any<ElementOf<ElementType::type>::Type, 1, false>)                              \
  SYMMEM_ENTRY(rooted_##type, sum_any<ElementOf<ElementType::type>::Type, 1, true>)                      \
  SYMMEM_ENTRY(two_shot_##type, sum_shares<ElementOf<ElementType::type>::Type, 1>)

#define SYMMEM_SMALL(type)                                                                               \
  SYMMEM_ENTRY(few_##type, sum_few_vectors<ElementOf<ElementType::type>::Type, lamport_peers, 1, 0, true>) \
  SYMMEM_ENTRY(pair1_##type, sum_few_vectors<ElementOf<ElementType::type>::Type, 1, 1, 2, false>)        \
  SYMMEM_ENTRY(pair2_##type, sum_few_vectors<ElementOf<ElementType::type>::Type, 1, 2, 2, false>)        \
  SYMMEM_ENTRY(pair4_##type, sum_few_vectors<ElementOf<ElementType::type>::Type, 1, 4, 2, false>)        \
  SYMMEM_ENTRY(four_##type, sum_few_vectors<ElementOf<ElementType::type>::Type, 3, 1, 4, true>)          \
  SYMMEM_ENTRY(eight_##type, sum_few_vectors<ElementOf<ElementType::type>::Type, 7, 1, 8, true>)         \
  SYMMEM_ENTRY(scatter_four_##type, sum_few_vectors<ElementOf<ElementType::type>::Type, 3, 1, 4, false>) \
  SYMMEM_ENTRY(scatter_eight_##type, sum_few_vectors<ElementOf<ElementType::type>::Type, 7, 1, 8, false>) \
  SYMMEM_ENTRY(two_shot_few_##type, sum_few_shares<ElementOf<ElementType::type>::Type, 0>)               \
  SYMMEM_ENTRY(two_shot_four_##type, sum_few_shares<ElementOf<ElementType::type>::Type, 4>)              \
  SYMMEM_ENTRY(two_shot_eight_##type, sum_few_shares<ElementOf<ElementType::type>::Type, 8>)

SYMMEM_ANY(f16)
SYMMEM_ANY(bf16)
SYMMEM_ANY(f32)
SYMMEM_ANY(f8_e4m3)
SYMMEM_ANY(f8_e5m2)
SYMMEM_SMALL(f16)
SYMMEM_SMALL(bf16)
SYMMEM_SMALL(f32)

#undef SYMMEM_SMALL
#undef SYMMEM_ANY
#undef SYMMEM_ENTRY
