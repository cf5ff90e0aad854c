// Shared by the warpgroup GEMM kernels: their argument, and conversions to and from stored elements.
#pragma once

#include "gathered_gemm/cluster.h"
#include "gathered_gemm/wgmma.h"
#include "symmem/gathered_gemm.h"

namespace symmem {

constexpr uint32 depth = 64;  // elements: the 128 bytes of the swizzle
constexpr uint32 atom_bytes = 8 * depth * gemm_element_bytes;

// A kernel's argument: the portable arguments, and tensor maps of the matrices. A box of A has a tile's rows. A box of
// B has as many columns as the kernel defines, or, if rows of B are contiguous, `depth` rows of as many elements.
struct TensorGemmArguments {
  TensorMap own;       // this rank's shard of A
  TensorMap gathered;  // the whole A
  TensorMap b;
  GatheredGemmArguments arguments;
  uint32 below, beside;  // tiles of a cluster that share B, and A; for the kernel that splits K
};

template <bool f16>
SYMMEM_DEVICE uint32 narrow(float low, float high) {
  return f16 ? arch::narrow_f16(low, high) : arch::narrow_bf16(low, high);
}

template <bool f16>
SYMMEM_DEVICE float widen(uint16 bits) {
  return f16 ? arch::widen_f16(bits) : arch::float_of(static_cast<uint32>(bits) << 16);
}

}  // namespace symmem
