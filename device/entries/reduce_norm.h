// Module `reduce_norm`: sums of rows in Lamport packets with residual and norm. A kernel for all calls, and small ones for the
// types of 16 bits and one vector a thread, in groups of two (`pair`) and of any number (`few`); `plain` without LayerNorm and 8 bits.
#include "symmem/reduce_norm.h"

using namespace symmem;

#define SYMMEM_ENTRY(name, ...)                                                                     \
  SYMMEM_KERNEL(1024) symmem_reduce_norm_##name(SYMMEM_ARGUMENTS(ReduceNormArguments) arguments) {  \
    __VA_ARGS__(arguments);                                                                         \
  }

#define SYMMEM_EACH(type)                                                                             \
  SYMMEM_ENTRY(type, norm_any<ElementOf<ElementType::type>::Type>)                                    \
  SYMMEM_ENTRY(pair_##type, norm_few_vectors<ElementOf<ElementType::type>::Type, 1, 2, false>)        \
  SYMMEM_ENTRY(pair_plain_##type, norm_few_vectors<ElementOf<ElementType::type>::Type, 1, 2, true>)   \
  SYMMEM_ENTRY(few_##type, norm_few_vectors<ElementOf<ElementType::type>::Type, 2, 0, false>)         \
  SYMMEM_ENTRY(few_plain_##type, norm_few_vectors<ElementOf<ElementType::type>::Type, 2, 0, true>)

SYMMEM_EACH(f16)
SYMMEM_EACH(bf16)
SYMMEM_ENTRY(f32, norm_any<ElementOf<ElementType::f32>::Type>)

#undef SYMMEM_EACH
#undef SYMMEM_SMALL
#undef SYMMEM_ENTRY
