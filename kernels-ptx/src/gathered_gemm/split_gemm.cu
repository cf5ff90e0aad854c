// Module `split_gemm`: all-gather + GEMM for few rows, in one launch. sm_90a only.
//
// Such a GEMM takes as long as reading B takes. The gather hides behind the first stages of B, whose loads start
// before the ranks have met. A tile is 128 columns of C and all rows, so that B is read once. It is computed
// transposed, since the matrix instruction has 64 rows and C has few. There are few such tiles, so K is split among
// the blocks of a cluster, which add their sums through each other's shared memory, always in the same order.
#include "gathered_gemm/split_gemm.h"

using namespace symmem;

namespace {

// Called by every thread of every block, with shared memory for the ring, its barriers and 1024 bytes to align it.
template <bool f16, bool b_rows, uint32 rows>
SYMMEM_DEVICE void split_gemm(const TensorGemmArguments& given) {
  using Ring = SplitRing<rows>;
  const GatheredGemmArguments& arguments = given.arguments;
  const Ring ring = {(arch::shared_address(arch::dynamic_shared()) + atom_bytes - 1) / atom_bytes * atom_bytes};
  const SplitTile tile(arguments, rows);
  if (arch::thread_index() == 0) {
    for (uint32 stage = 0; stage < Ring::stages; ++stage) {
      barrier_initialise(ring.full_b(stage), 1);
      barrier_initialise(ring.full_a(stage), 1);
      barrier_initialise(ring.empty(stage), 2);
    }
    arch::fence_async_proxy();
  }
  arch::block_barrier();
  arch::wait_for_prerequisites();
  const uint32 warpgroup = arch::thread_index() / 128;
  if (warpgroup == 0) {
    if (rows >= 256) give_registers<56>();
    // The tensor copies read what earlier kernels wrote.
    arch::fence_async_proxy();
    const uint32 warp = arch::thread_index() / arch::warp_size;
    if (arch::thread_index() == 0) {
      load_b<b_rows>(&given.b, ring, tile, window_of(arch::block_count(), Ring::stages));
    }
    if (warp == 1) load_a(given, ring, tile, arch::load_relaxed(calls_of_block(arguments)) + 1);
    arch::warp_barrier();
  } else {
    const uint32 epoch = arch::load_relaxed(calls_of_block(arguments)) + 1;
    push_at_once(arguments, epoch, Warpgroups{});
    if (rows >= 256) take_registers<224>();
    multiply_part<f16, b_rows>(ring, tile, warpgroup - 1);
  }
  cluster_arrive();
  cluster_wait();
  // No thread of the cluster waits for a peer any more.
  arch::start_dependents();
  // Both threads' reads of the call counter are done, so it may change.
  if (arch::thread_index() == 0) {
    arch::store_relaxed(calls_of_block(arguments), arch::load_relaxed(calls_of_block(arguments)) + 1);
  }
  add_parts<f16>(arguments, ring, tile);
  // No block exits while others read its sums.
  cluster_arrive();
  cluster_wait();
}

}  // namespace

#define SYMMEM_SPLIT_GEMM(element, f16, rows)                                                                      \
  SYMMEM_KERNEL(384) symmem_split_gemm_##element##_rows_##rows(SYMMEM_ARGUMENTS(TensorGemmArguments) given) {       \
    split_gemm<f16, true, rows>(given);                                                                            \
  }                                                                                                                \
  SYMMEM_KERNEL(384) symmem_split_gemm_##element##_columns_##rows(SYMMEM_ARGUMENTS(TensorGemmArguments) given) {    \
    split_gemm<f16, false, rows>(given);                                                                           \
  }

SYMMEM_SPLIT_GEMM(f16, true, 16)
SYMMEM_SPLIT_GEMM(f16, true, 32)
SYMMEM_SPLIT_GEMM(f16, true, 64)
SYMMEM_SPLIT_GEMM(f16, true, 128)
SYMMEM_SPLIT_GEMM(f16, true, 256)
SYMMEM_SPLIT_GEMM(bf16, false, 16)
SYMMEM_SPLIT_GEMM(bf16, false, 32)
SYMMEM_SPLIT_GEMM(bf16, false, 64)
SYMMEM_SPLIT_GEMM(bf16, false, 128)
SYMMEM_SPLIT_GEMM(bf16, false, 256)
