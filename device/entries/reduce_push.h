// Module `reduce_push`: reductions by pushing, for the usual types of large reductions. Other types use `reduce`.
#include "symmem/reduce_push.h"

using namespace symmem;

#define SYMMEM_ENTRY(type)                                                                         \
  SYMMEM_KERNEL(1024) symmem_reduce_push_##type(SYMMEM_ARGUMENTS(ReducePushArguments) arguments) { \
    collective_reduce_push<ElementType::type>(arguments);                                          \
  }

SYMMEM_ENTRY(f16)
SYMMEM_ENTRY(bf16)
SYMMEM_ENTRY(f32)

#undef SYMMEM_ENTRY
