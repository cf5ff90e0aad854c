// Module `latency`: round trips between two ranks, timed inside one kernel on each.
#include "symmem/wait.h"

using namespace symmem;

namespace {

SYMMEM_DEVICE void finish(const LatencyArguments& arguments, bool complete, uint64 nanoseconds) {
  arch::store_relaxed(pointer<uint64>(arguments.result), complete ? nanoseconds : ~0ull);
}

// Returns word `index` of the payload in round `value`.
SYMMEM_DEVICE uint64 payload(uint32 value, uint64 index) {
  return (static_cast<uint64>(value) << 32 | 0x5ee5u) ^ (index * 0x9e3779b97f4a7c15ull);
}

}  // namespace

// Ping-pong by one thread; each message is one 8-byte packet of data and flag. The flags must be `base` at the start.
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
    complete = waiter.until_packet(inbox, flag, data, WaitKind::signal, arguments.peer, 0);
    if (complete && arguments.first == 0) {
      arch::store_relaxed(outbox, static_cast<uint64>(flag) << 32 | (data + 1));
    }
  }
  finish(arguments, complete, arch::nanoseconds() - start);
}

// Ping-pong by one block; each message is a put of `bytes` (a multiple of 8) by all threads, a release and a signal.
// The payload comes from registers, as in a kernel that puts computed values. A rank checks it after it has sent its
// answer, so the check is not timed. This is safe because two slots alternate, and a slot is rewritten only after the
// answer to the round in between. A wrong payload counts as a wait that gave up.
SYMMEM_KERNEL(1024) symmem_latency_signal(SYMMEM_ARGUMENTS(LatencyArguments) arguments) {
  if (arch::block_index() != 0) return;
  Waiter waiter(arguments.watch);
  const uint32* flag = pointer<const uint32>(arguments.local);
  uint32* peer_flag = pointer<uint32>(arguments.remote);
  const uint64 words = arguments.bytes / 8;
  const uint64 start = arch::nanoseconds();
  bool complete = true;
  bool right = true;
  for (uint32 turn = 0; complete && turn < 2 * arguments.rounds; ++turn) {
    const uint32 value = arguments.base + turn / 2 + 1;
    const uint64 slot = signal_stride + (value % 2) * arguments.bytes;
    if ((turn % 2 == 0) == (arguments.first != 0)) {
      uint64* outbox = pointer<uint64>(arguments.remote + slot);
      for (uint64 word = arch::thread_index(); word < words; word += arch::thread_count()) {
        arch::store(outbox + word, payload(value, word));
      }
      publish(peer_flag, value);
      // The first rank has nothing to check before its first answer.
      const uint32 checked = arguments.first != 0 ? value - 1 : value;
      if (turn == 0) continue;
      const uint64* inbox = pointer<const uint64>(arguments.local + signal_stride + (checked % 2) * arguments.bytes);
      for (uint64 word = arch::thread_index(); word < words; word += arch::thread_count()) {
        right = right && arch::load(inbox + word) == payload(checked, word);
      }
    } else {
      bool arrived = true;
      if (arch::thread_index() == 0) {
        arrived = waiter.until_reached(flag, value, WaitKind::signal, arguments.peer, 0);
      }
      complete = arch::block_all(arrived);
    }
  }
  const uint64 end = arch::nanoseconds();
  complete = arch::block_all(right) && complete;
  if (arch::thread_index() == 0) finish(arguments, complete, end - start);
}
