// Module `multicast_f8`: multicast reductions of fp8. The switch accumulates fp8 in f16, so the selector never chooses
// them, and few devices have them.
#include "symmem/multicast.h"

using namespace symmem;

#define SYMMEM_ENTRY(type)                                                                            \
  SYMMEM_KERNEL(512) symmem_multicast_reduce_##type(SYMMEM_ARGUMENTS(MulticastArguments) arguments) { \
    collective_multicast_reduce<ElementType::type>(arguments);                                        \
  }

SYMMEM_ENTRY(f8_e4m3)
SYMMEM_ENTRY(f8_e5m2)

#undef SYMMEM_ENTRY
