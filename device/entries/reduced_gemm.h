// Module `reduced_gemm`: GEMM + reduce-scatter and + all-reduce, one kernel per type, order of B and size of tiles, for targets
// with matrix instructions of waves.
#include "symmem/tile_reduce.h"

#if SYMMEM_HAS_MATRIX

using namespace symmem;

#define SYMMEM_ENTRY(type, order, rows, columns)                                                                   \
  SYMMEM_KERNEL_OF_TWO(512)                                                                                        \
  symmem_reduced_gemm_##type##_##order##_##rows##x##columns(SYMMEM_ARGUMENTS(ReducedGemmArguments) arguments) {    \
    reduced_gemm<ElementType::type, MatrixOrder::order, rows, columns>(arguments);                                 \
  }

#define SYMMEM_ENTRIES(type, order)  \
  SYMMEM_ENTRY(type, order, 256, 256) \
  SYMMEM_ENTRY(type, order, 128, 256) \
  SYMMEM_ENTRY(type, order, 256, 128) \
  SYMMEM_ENTRY(type, order, 64, 256)  \
  SYMMEM_ENTRY(type, order, 256, 64)

SYMMEM_ENTRIES(f16, rows)
SYMMEM_ENTRIES(f16, columns)
SYMMEM_ENTRIES(bf16, rows)
SYMMEM_ENTRIES(bf16, columns)

#undef SYMMEM_ENTRIES
#undef SYMMEM_ENTRY

#endif  // SYMMEM_HAS_MATRIX
