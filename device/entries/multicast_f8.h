// Module `multicast_f8`: reductions of floats of 8 bits by multicast addresses, whose sums a switch makes in f16. Few
// devices have them, and nothing chooses them by itself.
#include "symmem/multicast.h"

using namespace symmem;

#define SYMMEM_ENTRY(type)                                                                            \
  SYMMEM_KERNEL(512) symmem_multicast_reduce_##type(SYMMEM_ARGUMENTS(MulticastArguments) arguments) { \
    collective_multicast_reduce<ElementType::type>(arguments);                                        \
  }

SYMMEM_ENTRY(f8_e4m3)
SYMMEM_ENTRY(f8_e5m2)

#undef SYMMEM_ENTRY
