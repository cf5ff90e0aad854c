// Every rank puts its outbox into the next rank's inbox, signals, waits for the previous rank's signal, and stores
// twice what it received.
#include "symmem/handle.h"

using namespace symmem;

// ring.rs declares the same struct.
struct RingArguments {
  Handle inbox;   // a symmetric buffer of `count` 32-bit words
  uint64 outbox;  // address of `count` words in this rank's memory
  uint64 result;  // address of `count` words in this rank's memory
  uint64 count;
};

SYMMEM_KERNEL(256) symmem_example_ring(SYMMEM_ARGUMENTS(RingArguments) ring) {
  const Handle& inbox = ring.inbox;
  const uint32 next = (inbox.rank + 1) % inbox.world;
  const uint32 previous = (inbox.rank + inbox.world - 1) % inbox.world;

  put(inbox, next, 0, pointer<const uint32>(ring.outbox), ring.count * sizeof(uint32));
  signal(inbox, next);
  if (!wait(inbox, previous)) return;

  const uint32* received = address<const uint32>(inbox, inbox.rank);
  uint32* result = pointer<uint32>(ring.result);
  const uint64 threads = static_cast<uint64>(arch::block_count()) * arch::thread_count();
  const uint64 first = static_cast<uint64>(arch::block_index()) * arch::thread_count() + arch::thread_index();
  for (uint64 index = first; index < ring.count; index += threads) {
    arch::store(result + index, 2 * arch::load(received + index));
  }
}
