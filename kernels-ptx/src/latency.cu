// Module `latency`: round trips between two ranks, timed inside one kernel on each.
#include "symmem/copy.h"
#include "symmem/wait.h"

using namespace symmem;

namespace {

SYMMEM_DEVICE void finish(const LatencyArguments& arguments, bool complete, uint64 start) {
  arch::store_relaxed(pointer<uint64>(arguments.result), complete ? arch::nanoseconds() - start : ~0ull);
}

}  // namespace

// One thread; each way is one 8-byte packet of data and flag. The flags must hold `base` at the start.
SYMMEM_KERNEL(1024) symmem_latency_packet(SYMMEM_ARGUMENTS(LatencyArguments) arguments) {
  if (arch::block_index() != 0 || arch::thread_index() != 0) return;
  Waiter waiter(arguments.watch);
  const uint64* inbox = pointer<const uint64>(arguments.local);
  uint64* outbox = pointer<uint64>(arguments.remote);
  const uint64 start = arch::nanoseconds();
  bool complete = true;
  uint32 data = arguments.base;
  for (uint32 round = 1; complete && round <= arguments.rounds; ++round) {
    const uint32 flag = arguments.base + round;
    if (arguments.first != 0) arch::store_relaxed(outbox, static_cast<uint64>(flag) << 32 | data);
    complete = waiter.until_packet(inbox, flag, data, arguments.peer, 0);
    if (complete && arguments.first == 0) {
      arch::store_relaxed(outbox, static_cast<uint64>(flag) << 32 | (data + 1));
    }
  }
  finish(arguments, complete, start);
}

// One block; each way is a put of `bytes` by all its threads, a release and a signal. The payload goes
// round: each rank sends on what it received, so that at the end both hold what the first rank held.
SYMMEM_KERNEL(1024) symmem_latency_signal(SYMMEM_ARGUMENTS(LatencyArguments) arguments) {
  if (arch::block_index() != 0) return;
  Waiter waiter(arguments.watch);
  const uint32* flag = pointer<const uint32>(arguments.local);
  uint32* peer_flag = pointer<uint32>(arguments.remote);
  const uint64 start = arch::nanoseconds();
  bool complete = true;
  for (uint32 turn = 0; complete && turn < 2 * arguments.rounds; ++turn) {
    const uint32 value = arguments.base + turn / 2 + 1;
    if ((turn % 2 == 0) == (arguments.first != 0)) {
      copy_words<1, arch::Vector16>(arguments.remote + signal_stride, arguments.local + signal_stride,
                                     arguments.bytes);
      publish(peer_flag, value);
    } else {
      bool arrived = true;
      if (arch::thread_index() == 0) {
        arrived = waiter.until_reached(flag, value, WaitKind::signal, arguments.peer, 0);
      }
      complete = arch::block_all(arrived);
    }
  }
  if (arch::thread_index() == 0) finish(arguments, complete, start);
}
