// Modules `reduce_packets` (sm_90) and `reduce_packets_sm_80`: reductions in packets, a kernel for each type of elements.
#include "symmem/reduce_packets.h"

using namespace symmem;

#define SYMMEM_ENTRY(type)                                                                 \
  SYMMEM_KERNEL(512) symmem_reduce_packets_##type(SYMMEM_ARGUMENTS(ReducePacketArguments) arguments) {          \
    collective_reduce_packets<ElementType::type>(arguments);                                             \
  }

SYMMEM_ENTRY(i8)
SYMMEM_ENTRY(u8)
SYMMEM_ENTRY(i16)
SYMMEM_ENTRY(u16)
SYMMEM_ENTRY(i32)
SYMMEM_ENTRY(u32)
SYMMEM_ENTRY(i64)
SYMMEM_ENTRY(u64)
SYMMEM_ENTRY(f16)
SYMMEM_ENTRY(bf16)
SYMMEM_ENTRY(f32)
SYMMEM_ENTRY(f64)
SYMMEM_ENTRY(f8_e4m3)
SYMMEM_ENTRY(f8_e5m2)

#undef SYMMEM_ENTRY
