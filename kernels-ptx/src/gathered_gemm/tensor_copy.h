// Tensor copies (TMA) and the barriers at which they arrive: PTX ISA, "Data movement and conversion instructions:
// tensor copy" and "Parallel synchronization and communication instructions: mbarrier". From sm_90 on.
#pragma once

#include "symmem/arch.h"

namespace symmem {

// A matrix in global memory and the layout of its boxes in shared memory, encoded by the driver
// (cuTensorMapEncodeTiled).
struct alignas(64) TensorMap {
  uint64 words[16];
};

// Barriers are addresses in shared memory, of eight bytes each. Other threads may use an initialized barrier
// only after a block barrier.
SYMMEM_DEVICE void barrier_initialise(uint32 barrier, uint32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

SYMMEM_DEVICE void barrier_arrive(uint32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives, and keeps the phase open until `bytes` bytes have arrived.
SYMMEM_DEVICE void barrier_expect(uint32 barrier, uint32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Waits until the phase of this parity has ended. Needs no deadline, because only this cluster's own work ends it.
SYMMEM_DEVICE void barrier_wait(uint32 barrier, uint32 parity) {
  asm volatile(
      "{ .reg .pred p;\n\t"
      "AGAIN:\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n\t"
      "@!p bra AGAIN; }" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Copies the box of a matrix that begins at (x, y), x along its rows, to shared memory. Elements out of bounds
// are zero.
SYMMEM_DEVICE void tensor_load(uint32 shared, const TensorMap* map, uint32 x, uint32 y, uint32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          shared),
      "l"(map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}

// As tensor_load, for data that is read once: hints L2 to evict it first (`createpolicy` with evict_first for
// all of it).
SYMMEM_DEVICE void tensor_load_once(uint32 shared, const TensorMap* map, uint32 x, uint32 y, uint32 barrier) {
  uint64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, "
      "%3}], [%4], %5;" ::"r"(shared),
      "l"(map), "r"(x), "r"(y), "r"(barrier), "l"(policy)
      : "memory");
}

// Loads the box of a matrix that begins at (x, y) into L2. It has no effect on what any thread reads, so it may come
// before earlier kernels have written the matrix.
SYMMEM_DEVICE void tensor_prefetch(const TensorMap* map, uint32 x, uint32 y) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(map), "r"(x), "r"(y)
               : "memory");
}

// A position in a ring of stages: the stage, and the parity of the phase in which it is filled. It is emptied
// in the other phase, and counts as empty before the first fill.
template <uint32 stages>
struct RingCursor {
  static constexpr uint32 count = stages;

  uint32 stage = 0;
  uint32 parity = 0;

  SYMMEM_DEVICE void advance() {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
  SYMMEM_DEVICE uint32 before() const { return stage == 0 ? stages - 1 : stage - 1; }
};

}  // namespace symmem
