// Module `reduce`: reductions between two barriers, one kernel per element type.
#include "symmem/reduce.h"

using namespace symmem;

#define SYMMEM_ENTRY(type)                                                                 \
  SYMMEM_KERNEL(512) symmem_reduce_##type(SYMMEM_ARGUMENTS(ReduceArguments) arguments) {          \
    collective_reduce<ElementType::type>(arguments);                                             \
  }

SYMMEM_EACH_ELEMENT(SYMMEM_ENTRY)

#undef SYMMEM_ENTRY
