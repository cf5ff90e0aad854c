// Module `cluster_gemm`: all-gather + GEMM for a few hundred rows of an A that is sharded by columns, in one launch. sm_90a
// only.
//
// Such a GEMM takes as long as multiplying takes. A tile is 256 rows and only 64 columns of C, so that there are enough tiles
// for the device if K is divided by two or not at all, and the tiles of a cluster load A and B for each other. It is computed
// transposed, as in split_gemm.cu. Each block starts with the own columns, behind which the gather hides.
#include "gathered_gemm/cluster_gemm.h"

using namespace symmem;

namespace {

// Called by every thread of every block, with shared memory for the ring, its barriers and 1024 bytes to align it.
template <bool f16, bool b_rows, uint32 rows>
SYMMEM_DEVICE void cluster_gemm(const TensorGemmArguments& given) {
  const GatheredGemmArguments& arguments = given.arguments;
  const ClusterRing<rows> ring = {(arch::shared_address(arch::dynamic_shared()) + atom_bytes - 1) / atom_bytes *
                                  atom_bytes};
  const ClusterTile tile(arguments, rows, {given.below, given.beside});
  prepare(ring, tile);
  arch::wait_for_prerequisites();
  const uint32 warpgroup = arch::thread_index() / loading_threads;
  const uint32 epoch = arch::load_relaxed(calls_of_block(arguments)) + 1;
  if (warpgroup == 0) {
    give_registers<120>();
    // The tensor copies read what earlier kernels wrote.
    arch::fence_async_proxy();
    const uint32 warp = arch::thread_index() / arch::warp_size;
    if (arch::thread_index() == 0) load_b<b_rows>(&given.b, ring, tile);
    if (warp == 1) load_a(given, ring, tile, epoch);
    // The own columns can be multiplied meanwhile.
    if (warp > 1) push_at_once(arguments, epoch, IdleWarps{});
    arch::warp_barrier();
  } else {
    take_registers<192>();
    multiply_part<f16, b_rows>(ring, tile, warpgroup - 1);
  }
  cluster_arrive();
  cluster_wait();
  // No thread of the cluster waits for a peer any more.
  arch::start_dependents();
  // All reads of the call counter are done, so it may change.
  if (arch::thread_index() == 0) arch::store_relaxed(calls_of_block(arguments), epoch);
  add_parts<f16>(arguments, ring, tile);
  // No block exits while others read its sums, or load for it.
  cluster_arrive();
  cluster_wait();
}

}  // namespace

#define SYMMEM_CLUSTER_GEMM(element, f16, rows)                                                                    \
  SYMMEM_KERNEL(384) symmem_cluster_gemm_##element##_rows_##rows(SYMMEM_ARGUMENTS(TensorGemmArguments) given) {     \
    cluster_gemm<f16, true, rows>(given);                                                                          \
  }                                                                                                                \
  SYMMEM_KERNEL(384) symmem_cluster_gemm_##element##_columns_##rows(SYMMEM_ARGUMENTS(TensorGemmArguments) given) {  \
    cluster_gemm<f16, false, rows>(given);                                                                         \
  }

SYMMEM_CLUSTER_GEMM(f16, true, 256)
SYMMEM_CLUSTER_GEMM(bf16, false, 256)
