// Module `gathered_gemm`: all-gather + GEMM, one kernel per type and order of B, for targets with matrix instructions
// of waves.
#include "symmem/tile_gemm.h"

#if SYMMEM_HAS_MATRIX

using namespace symmem;

// The launching code has the same constants.
static_assert(gemm_shared_bytes == 36864 && gemm_tile == 128, "the crate of these kernels says otherwise");

#define SYMMEM_ENTRY(type, order)                                                                                       \
  SYMMEM_KERNEL(256) symmem_gathered_gemm_##type##_##order(SYMMEM_ARGUMENTS(GatheredGemmArguments) arguments) {         \
    gathered_gemm<ElementType::type, MatrixOrder::order>(arguments);                                                   \
  }

SYMMEM_ENTRY(f16, rows)
SYMMEM_ENTRY(f16, columns)
SYMMEM_ENTRY(bf16, rows)
SYMMEM_ENTRY(bf16, columns)

#undef SYMMEM_ENTRY

#endif  // SYMMEM_HAS_MATRIX
