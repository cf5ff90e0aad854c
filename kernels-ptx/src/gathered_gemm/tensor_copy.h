// Tensor copies and the barriers they arrive at: PTX ISA, "Data movement and conversion instructions: tensor copy"
// and "Parallel synchronization and communication instructions: mbarrier". sm_90 on.
#pragma once

#include "symmem/arch.h"

namespace symmem {

// A matrix in global memory and how boxes of it lie in shared memory; the driver encodes it (cuTensorMapEncodeTiled).
struct alignas(64) TensorMap {
  uint64 words[16];
};

// Barriers are addresses in shared memory here, eight bytes each. One that is to be waited for by others needs the
// block barrier behind it.
SYMMEM_DEVICE void barrier_initialise(uint32 barrier, uint32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

SYMMEM_DEVICE void barrier_arrive(uint32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives, and keeps the phase open until so many bytes have come.
SYMMEM_DEVICE void barrier_expect(uint32 barrier, uint32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Until the phase of that parity has ended. Ends by this block's own doing: no deadline is needed.
SYMMEM_DEVICE void barrier_wait(uint32 barrier, uint32 parity) {
  asm volatile(
      "{ .reg .pred p;\n\t"
      "AGAIN:\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n\t"
      "@!p bra AGAIN; }" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// The box of a matrix that begins at (x, y), x along its rows, to shared memory. What lies outside is zero.
SYMMEM_DEVICE void tensor_load(uint32 shared, const TensorMap* map, uint32 x, uint32 y, uint32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          shared),
      "l"(map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}

// The same of what is not read again before others need the cache: the policy is the one that `createpolicy` makes for
// evict_first of all.
SYMMEM_DEVICE void tensor_load_once(uint32 shared, const TensorMap* map, uint32 x, uint32 y, uint32 barrier) {
  uint64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, "
      "%3}], [%4], %5;" ::"r"(shared),
      "l"(map), "r"(x), "r"(y), "r"(barrier), "l"(policy)
      : "memory");
}

// Where one is in a ring of stages: which, and the parity of the phase in which it is filled. It is emptied in the
// other one, the first time before it was ever filled.
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
