// Module `gathered_gemm`: all-gather + GEMM, one kernel per type, order of B and size of tiles, for targets with matrix
// instructions of waves. 8-bit floats are for targets with such instructions, and for a B stored by columns, in which they lie
// as those take them.
#include "symmem/tile_gemm.h"

#if SYMMEM_HAS_MATRIX

using namespace symmem;

#define SYMMEM_ENTRY(type, order, rows, columns)                                                                     \
  SYMMEM_KERNEL_OF_TWO(512)                                                                                          \
  symmem_gathered_gemm_##type##_##order##_##rows##x##columns(SYMMEM_ARGUMENTS(GatheredGemmArguments) arguments) {     \
    gathered_gemm<ElementType::type, MatrixOrder::order, rows, columns>(arguments);                                  \
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
#if SYMMEM_HAS_MATRIX_F8
SYMMEM_ENTRIES(f8_e4m3, columns)
#endif

#undef SYMMEM_ENTRIES
#undef SYMMEM_ENTRY

#endif  // SYMMEM_HAS_MATRIX
