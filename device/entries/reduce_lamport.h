// Module `reduce_lamport`: one-shot sums and averages in Lamport packets. For each floating-point type of at most 32 bits,
// a kernel for all calls; and for the usual types, small ones: `few` for one vector a thread; `pair1`, `pair2` and `pair4`
// for as many vectors a thread in a group of two.
#include "symmem/reduce_lamport.h"

using namespace symmem;

#define SYMMEM_ENTRY(name, ...)                                                                          \
  SYMMEM_KERNEL(512) symmem_reduce_lamport_##name(SYMMEM_ARGUMENTS(ReduceLamportArguments) arguments) {  \
    __VA_ARGS__(arguments);                                                                              \
  }

#define SYMMEM_ENTRIES(type)                                                                             \
  SYMMEM_ENTRY(type, sum_any<ElementOf<ElementType::type>::Type, 1>)                                     \
  SYMMEM_ENTRY(few_##type, sum_few_vectors<ElementOf<ElementType::type>::Type, lamport_peers, 1, 0>)     \
  SYMMEM_ENTRY(pair1_##type, sum_few_vectors<ElementOf<ElementType::type>::Type, 1, 1, 2>)               \
  SYMMEM_ENTRY(pair2_##type, sum_few_vectors<ElementOf<ElementType::type>::Type, 1, 2, 2>)               \
  SYMMEM_ENTRY(pair4_##type, sum_few_vectors<ElementOf<ElementType::type>::Type, 1, 4, 2>)

SYMMEM_ENTRIES(f16)
SYMMEM_ENTRIES(bf16)
SYMMEM_ENTRIES(f32)
SYMMEM_ENTRY(f8_e4m3, sum_any<ElementOf<ElementType::f8_e4m3>::Type, 1>)
SYMMEM_ENTRY(f8_e5m2, sum_any<ElementOf<ElementType::f8_e5m2>::Type, 1>)

#undef SYMMEM_ENTRIES
#undef SYMMEM_ENTRY
