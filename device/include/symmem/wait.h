// Waits that end: at the flag, at a deadline, or when the host sets the abort word. A wait that gives up
// leaves a record and returns false; its kernel then leaves by early exit. A trap would destroy the
// context.
#pragma once

#include "symmem/memory.h"

namespace symmem {

// Nanoseconds between two reads of the abort word by a thread, so it leaves at the latest that long after the
// abort. Each read crosses the host's bus, and hundreds at once delay their kernel, and so all peers' kernels,
// by tens of microseconds, as measured: the threads of a grid read one after the other, `abort_turn_ns` apart,
// and not before `abort_patience_ns`, when what they wait for is late anyway.
constexpr uint64 abort_poll_ns = 10000000;
constexpr uint64 abort_turn_ns = 100;
constexpr uint64 abort_patience_ns = 100000;
// Reads of the flag between two reads of the clock.
constexpr uint32 polls_per_clock = 16;

// One thread's waits within one kernel. Made at the kernel's start, from which the deadline counts.
class Waiter {
 public:
  SYMMEM_DEVICE explicit Waiter(const Watch& watch)
      : watch_(watch), start_(arch::nanoseconds()), look_(start_ + abort_patience_ns + turn()) {}

  // Until *word has reached `expected`; what was stored before the flag is then visible to this thread.
  SYMMEM_DEVICE bool until_reached(const uint32* word, uint32 expected, WaitKind kind, uint32 peer,
                                   uint32 slot) {
    uint32 seen = arch::load_flag(word);
    while (!reached(seen, expected)) {
      // Nothing but load and compare in here: anything more delays the flag, by 50 ns as measured.
      for (uint32 polls = polls_per_clock; !reached(seen, expected) && polls != 0; --polls) {
        arch::pause();
        seen = arch::load_flag(word);
      }
      if (!reached(seen, expected) && gives_up(kind, peer, slot, expected, seen)) return false;
    }
    arch::acquire_flag(word);
    return true;
  }

  // Until the upper half of *packet is `flag`; its lower half is then in `data`. Flag and data are one
  // access, so no fence is needed, and nothing else is ordered by it.
  SYMMEM_DEVICE bool until_packet(const uint64* packet, uint32 flag, uint32& data, WaitKind kind, uint32 peer,
                                  uint32 slot) {
    uint64 seen = arch::load_relaxed(packet);
    while (static_cast<uint32>(seen >> 32) != flag) {
      for (uint32 polls = polls_per_clock; static_cast<uint32>(seen >> 32) != flag && polls != 0; --polls) {
        arch::pause();
        seen = arch::load_relaxed(packet);
      }
      const uint32 last = static_cast<uint32>(seen >> 32);
      if (last != flag && gives_up(kind, peer, slot, flag, last)) return false;
    }
    data = static_cast<uint32>(seen);
    return true;
  }

  // Between rounds of polls_per_clock reads: whether it is time to give up, and then the record is left.
  SYMMEM_DEVICE bool gives_up(WaitKind kind, uint32 peer, uint32 slot, uint32 expected, uint32 seen) {
    const uint64 now = arch::nanoseconds();
    if (now - start_ >= watch_.deadline_ns) {
      record(kind, peer, slot, expected, seen, WaitReason::deadline, now);
      return true;
    }
    if (watch_.abort != 0 && now >= look_) {
      look_ = now + abort_poll_ns;
      if (arch::load_relaxed(pointer<uint32>(watch_.abort)) != 0) {
        record(kind, peer, slot, expected, seen, WaitReason::abort, now);
        return true;
      }
    }
    return false;
  }

  // Leaves a record of something other than a wait that ended too late.
  SYMMEM_DEVICE void leave(WaitKind kind, uint32 peer, uint32 slot, uint32 expected, uint32 seen) {
    record(kind, peer, slot, expected, seen, WaitReason::none, arch::nanoseconds());
  }

 private:
  // This thread's place among those of the grid.
  static SYMMEM_DEVICE uint64 turn() {
    const uint64 thread = static_cast<uint64>(arch::block_index()) * arch::thread_count() + arch::thread_index();
    return thread * abort_turn_ns % abort_poll_ns;
  }

  // The first to give up writes; the others find the record taken.
  SYMMEM_DEVICE void record(WaitKind kind, uint32 peer, uint32 slot, uint32 expected, uint32 seen,
                            WaitReason reason, uint64 now) {
    if (watch_.record == 0) return;
    // Opaque, or the addresses of its fields would be kept in registers around every loop that waits.
    WaitRecord* record = pointer<WaitRecord>(arch::opaque(watch_.record));
    if (arch::compare_exchange(&record->state, 0, 1) != 0) return;
    arch::store_relaxed(&record->kind, static_cast<uint32>(kind));
    arch::store_relaxed(&record->rank, watch_.rank);
    arch::store_relaxed(&record->peer, peer);
    arch::store_relaxed(&record->slot, slot);
    arch::store_relaxed(&record->expected, expected);
    arch::store_relaxed(&record->seen, seen);
    arch::store_relaxed(&record->reason, static_cast<uint32>(reason));
    arch::store_relaxed(&record->elapsed_ns, now - start_);
    arch::publish_flag(&record->state, 2);
  }

  const Watch& watch_;
  const uint64 start_;
  uint64 look_;  // when this thread reads the abort word next
};

// One thread waits for a signal, as `wait` says.
SYMMEM_DEVICE bool wait_signal(const SignalWait& wait) {
  Waiter waiter(wait.watch);
  const uint32 expected = advance(wait.epoch, wait.value);
  return waiter.until_reached(pointer<uint32>(wait.word), expected, WaitKind::signal, wait.peer, wait.slot);
}

}  // namespace symmem
