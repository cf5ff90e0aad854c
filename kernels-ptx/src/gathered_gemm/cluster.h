// Access to the shared memory of other blocks of a cluster: PTX ISA, "Cluster of cooperative thread arrays" and
// "Distributed shared memory". From sm_90 on.
#pragma once

#include "gathered_gemm/tensor_copy.h"

namespace symmem {

SYMMEM_DEVICE uint32 cluster_rank() {
  uint32 value;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(value));
  return value;
}

SYMMEM_DEVICE uint32 cluster_size() {
  uint32 value;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(value));
  return value;
}

// The two halves of a cluster barrier, each called by every thread. Writes to shared memory before the first
// half are visible after the second.
SYMMEM_DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
SYMMEM_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Returns the address at which block `rank` of the cluster has what this block has at `address`.
SYMMEM_DEVICE uint32 shared_at(uint32 address, uint32 rank) {
  uint32 there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// Makes initialized barriers usable by the other blocks of the cluster, from the next cluster barrier on.
SYMMEM_DEVICE void barriers_initialised() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// Arrives at a barrier of block `rank`, with the default scope, the block. A cluster scope would order writes
// that no thread makes here, and costs 0.4 us.
SYMMEM_DEVICE void barrier_arrive_at(uint32 barrier, uint32 rank) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(shared_at(barrier, rank)) : "memory");
}

// As tensor_load, but into the shared memory of every block whose bit in `ranks` is set, at the same address
// and for the same barrier in each.
SYMMEM_DEVICE void tensor_load_shared(uint32 shared, const TensorMap* map, uint32 x, uint32 y, uint32 barrier,
                                      uint32 ranks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
      "{%2, %3}], [%4], %5;" ::"r"(shared),
      "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(static_cast<uint16>(ranks))
      : "memory");
}

// As tensor_load_shared, with the hint of tensor_load_once.
SYMMEM_DEVICE void tensor_load_once_shared(uint32 shared, const TensorMap* map, uint32 x, uint32 y, uint32 barrier,
                                           uint32 ranks) {
  uint64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_"
      "hint [%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(shared),
      "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(static_cast<uint16>(ranks)), "l"(policy)
      : "memory");
}

// Loads a word of a block's shared memory; the address is a cluster address.
SYMMEM_DEVICE uint32 load_one(uint32 address) {
  uint32 word;
  asm volatile("ld.shared::cluster.b32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
  return word;
}

// Loads four floats of a block's shared memory; the address is a cluster address.
SYMMEM_DEVICE void load_four(uint32 address, float (&numbers)[4]) {
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(numbers[0]), "=f"(numbers[1]), "=f"(numbers[2]), "=f"(numbers[3])
               : "r"(address)
               : "memory");
}

}  // namespace symmem
