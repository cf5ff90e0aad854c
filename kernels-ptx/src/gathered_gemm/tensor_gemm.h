// What the kernels that multiply by warpgroups have in common: what they take, and numbers as they are stored.
#pragma once

#include "gathered_gemm/cluster.h"
#include "gathered_gemm/wgmma.h"
#include "symmem/gathered_gemm.h"

namespace symmem {

constexpr uint32 depth = 64;  // elements: the 128 bytes of the swizzle
constexpr uint32 atom_bytes = 8 * depth * gemm_element_bytes;

// What a kernel takes: the arguments, and the matrices as tensor copies see them. Boxes of A are a tile's rows; those
// of B so many columns as the kernel says, or where its rows are contiguous `depth` rows of as many.
struct TensorGemmArguments {
  TensorMap own;       // this rank's shard of A
  TensorMap gathered;  // the whole A
  TensorMap b;
  GatheredGemmArguments arguments;
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
