// Copies by bulk asynchronous copies from global to shared to global memory. One thread issues a ring of stages, so a
// block keeps more bytes in flight than its registers could hold. The arch header has the instructions and their
// source.
#pragma once

#include "symmem/copy.h"

#if SYMMEM_HAS_BULK

namespace symmem {

constexpr uint32 bulk_alignment = 128;

// Returns the bytes of dynamic shared memory of a ring: its barriers, then its stages.
SYMMEM_HOST_DEVICE constexpr uint64 bulk_shared_memory(uint32 stages, uint32 stage_bytes) {
  return (stages * 8ull + bulk_alignment - 1) / bulk_alignment * bulk_alignment +
         static_cast<uint64>(stages) * stage_bytes;
}

// The progress of a ring's loads or stores: bytes done, stage, and parity of the stage's phase.
struct BulkCursor {
  uint64 done;
  uint32 stage;
  uint32 parity;

  SYMMEM_DEVICE void advance(uint32 piece, uint32 stages) {
    done += piece;
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Copies through a ring. Called by one thread. Addresses, `bytes` and `stage_bytes` are multiples of 16. On return
// everything is written, and a release by this thread covers it.
//
// A stage is reloaded when all but the `pending` youngest stores have read their stages; those stores keep the path to
// the destination busy. Measured: `pending` = 1 is enough; smaller pieces at the start and end, or a second issuing
// thread, gain nothing.
template <int pending>
SYMMEM_DEVICE void bulk_ring(uint64 destination, uint64 source, uint64 bytes, uint32 stages,
                             uint32 stage_bytes) {
  uint8* shared = arch::dynamic_shared();
  arch::BulkBarrier* barriers = reinterpret_cast<arch::BulkBarrier*>(shared);
  uint8* ring = shared + bulk_shared_memory(stages, 0);
  BulkCursor loads = {0, 0, 0};
  BulkCursor stores = {0, 0, 0};
  const auto piece_at = [&](uint64 done) {
    return bytes - done < stage_bytes ? static_cast<uint32>(bytes - done) : stage_bytes;
  };
  const auto load_next = [&] {
    const uint32 piece = piece_at(loads.done);
    arch::bulk_expect(barriers + loads.stage, piece);
    arch::bulk_load(ring + loads.stage * stage_bytes, pointer<const uint8>(source + loads.done), piece,
                    barriers + loads.stage);
    loads.advance(piece, stages);
  };

  for (uint32 stage = 0; stage < stages; ++stage) arch::bulk_barrier_initialise(barriers + stage);
  arch::wait_for_prerequisites();
  // Makes the initialized barriers, and what an acquire made visible to this thread, visible to bulk copies.
  arch::fence_async_proxy();
  for (uint32 stage = 0; stage < stages && loads.done < bytes; ++stage) load_next();

  for (uint32 stored = 1; stores.done < bytes; ++stored) {
    const uint32 piece = piece_at(stores.done);
    arch::bulk_wait(barriers + stores.stage, stores.parity);
    arch::bulk_store(pointer<uint8>(destination + stores.done), ring + stores.stage * stage_bytes, piece);
    arch::bulk_commit();
    stores.advance(piece, stages);
    if (stored > pending && loads.done < bytes) {
      arch::bulk_wait_read<pending>();
      load_next();
    }
  }
  arch::bulk_wait_complete();
}

// Copies with bulk copies, one span per block. Called by every thread of every block, with
// bulk_shared_memory(stages, stage_bytes) bytes of dynamic shared memory. Falls back to ordinary accesses if the
// addresses differ modulo 16, if stages <= pending, or if stage_bytes is not a positive multiple of 16. Waits for the
// launch's prerequisites itself, after the setup that does not depend on them, and then allows the next kernel to start.
template <int pending = 1>
SYMMEM_DEVICE void copy_bulk(uint64 destination, uint64 source, uint64 bytes, uint32 stages,
                             uint32 stage_bytes) {
  if (((destination - source) & 15) != 0 || stages <= pending || stage_bytes == 0 || (stage_bytes & 15) != 0) {
    arch::wait_for_prerequisites();
    arch::start_dependents();
    copy_vector<4>(destination, source, bytes);
    return;
  }
  uint64 head = (0 - destination) & 15;
  if (head > bytes) head = bytes;
  const uint64 tail = (bytes - head) & 15;
  const uint64 body = bytes - head - tail;
  uint64 begin = 0;
  uint64 end = body;
  const uint32 blocks = arch::block_count();
  if (blocks > 1) {
    const uint64 span = (body / 16 + blocks - 1) / blocks * 16;
    begin = span * arch::block_index();
    if (begin > body) begin = body;
    if (end > begin + span) end = begin + span;
  }
  if (arch::thread_index() == 0 && begin < end) {
    bulk_ring<pending>(destination + head + begin, source + head + begin, end - begin, stages, stage_bytes);
  }
  arch::wait_for_prerequisites();
  // The first thread gets here last; the others are free to start the next kernel while it copies.
  arch::start_dependents();
  copy_edges(destination, source, bytes, head, tail);
}

}  // namespace symmem

#endif  // SYMMEM_HAS_BULK
