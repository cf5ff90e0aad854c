// Module `multicast`: NVLS multicast collectives, one reduction kernel per element type that the switch reduces and one
// kernel that moves bytes. Module `multicast_emulated`: the same through the members' own addresses.
#include "symmem/multicast.h"

using namespace symmem;

#define SYMMEM_ENTRY(type)                                                                            \
  SYMMEM_KERNEL(512) symmem_multicast_reduce_##type(SYMMEM_ARGUMENTS(MulticastArguments) arguments) { \
    collective_multicast_reduce<ElementType::type>(arguments);                                        \
  }

SYMMEM_ENTRY(i32)
SYMMEM_ENTRY(u32)
SYMMEM_ENTRY(i64)
SYMMEM_ENTRY(u64)
SYMMEM_ENTRY(f16)
SYMMEM_ENTRY(bf16)
SYMMEM_ENTRY(f32)
SYMMEM_ENTRY(f64)

#undef SYMMEM_ENTRY

SYMMEM_KERNEL(512) symmem_multicast_move(SYMMEM_ARGUMENTS(MulticastArguments) arguments) {
  collective_multicast_move(arguments);
}
