// Module `reduce_packets`: reductions in LL packets, one kernel per element type.
#include "symmem/reduce_packets.h"

using namespace symmem;

#define SYMMEM_ENTRY(type)                                                                 \
  SYMMEM_KERNEL(512) symmem_reduce_packets_##type(SYMMEM_ARGUMENTS(ReducePacketArguments) arguments) {          \
    collective_reduce_packets<ElementType::type>(arguments);                                             \
  }

SYMMEM_EACH_ELEMENT(SYMMEM_ENTRY)

#undef SYMMEM_ENTRY
