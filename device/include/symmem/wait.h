// Waits that end when the flag arrives, at a deadline, or when the host sets the abort word. A wait that gives up
// writes a record and returns false, and its kernel returns early. A trap would destroy the context.
//
// The first wait that sees the abort word also sets Watch::aborted, a word in this device's memory, by which all other
// waits of the communicator on this device give up at once. Otherwise each kernel of a queue would need up to
// 10 ms to notice the same abort.
#pragma once

#include "symmem/memory.h"

namespace symmem {

// A thread reads the abort word about every 10 ms, so it leaves at most that long after an abort. Each read crosses the
// host's bus, and hundreds at once delay the kernel and its peers by tens of microseconds (measured). Therefore eight
// threads of a grid share a turn of 1 µs, and the first comes only after 0.1 ms of waiting. Times are counted in
// units of 1,024 ns in 32 bits, since registers are scarce, and wrap.
constexpr uint64 abort_unit_ns = 1024;
constexpr uint32 abort_poll_units = 10000;
constexpr uint32 abort_patience_units = 100;
constexpr uint32 abort_threads_per_unit = 8;
// Reads of the flag between two reads of the clock and of Watch::aborted. A wait whose flag arrives sooner pays for
// neither; any other pays for one more load from this device's L2 in 17. (A test on each kernel's entry would add a load
// to every call, by all blocks from one cache line.)
constexpr uint32 polls_per_clock = 16;

// Returns the same values, to be read again here. Otherwise the compiler would keep them in scalar registers around every
// waiting loop, and on AMD there are few.
SYMMEM_DEVICE const Watch& read_anew(const Watch& watch) { return (&watch)[arch::anew(0u)]; }

// Returns whether a wait on this device has seen the abort word.
SYMMEM_DEVICE bool aborted_before(const Watch& watch) {
  const uint64 aborted = read_anew(watch).aborted;
  return aborted != 0 && arch::load_relaxed(pointer<uint32>(aborted)) != 0;
}

// One thread's waits in one kernel. The deadline counts from the thread's first look at the clock, when a wait was not
// answered within polls_per_clock reads: a thread whose flags are there reads no clock.
class Waiter {
 public:
  SYMMEM_DEVICE explicit Waiter(const Watch& watch) : watch_(watch), look_(turn()) {}

  // Waits until *word has reached `expected`. This thread then sees what was stored before the flag. Returns false if
  // the wait gave up, as all waits here do.
  SYMMEM_DEVICE bool until_reached(const uint32* word, uint32 expected, WaitKind kind, uint32 peer,
                                   uint32 slot) {
    uint32 seen = arch::load_flag(word);
    while (!reached(seen, expected)) {
      // Only load and compare here: anything more delays the flag by 50 ns (measured).
      for (uint32 polls = polls_per_clock; !reached(seen, expected) && polls != 0; --polls) {
        arch::pause();
        seen = arch::load_flag(word);
      }
      if (!reached(seen, expected) && gives_up(kind, peer, slot, expected, seen)) return false;
    }
    arch::acquire_flag(word);
    return true;
  }

  // Waits until the upper half of *packet is `flag`, then stores the lower half in `data`. Flag and data are one
  // access, so no fence is needed, and no other access is ordered.
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

  // Returns whether to give up, and writes the record in that case. Called every polls_per_clock reads.
  SYMMEM_DEVICE bool gives_up(WaitKind kind, uint32 peer, uint32 slot, uint32 expected, uint32 seen) {
    const uint64 now = arch::per_thread(arch::nanoseconds());
    if (start_ == 0) start_ = now;
    if (now - start_ >= watch_.deadline_ns) {
      record(kind, peer, slot, expected, seen, WaitReason::deadline, now);
      return true;
    }
    if (watch_.abort != 0) {
      const uint64 aborted = arch::per_thread(read_anew(watch_).aborted);
      const uint32 waited = static_cast<uint32>((now - start_) / abort_unit_ns);
      const bool in_turn = static_cast<int>(waited - look_) >= 0;
      if (in_turn) look_ = waited + abort_poll_units;
      if (arch::load_relaxed(pointer<uint32>(in_turn ? watch_.abort : aborted)) != 0) {
        // One record is enough: each attempt to write it crosses the host's bus.
        if (arch::compare_exchange(pointer<uint32>(aborted), 0, 1) == 0) {
          record(kind, peer, slot, expected, seen, WaitReason::abort, now);
        }
        return true;
      }
    }
    return false;
  }

  // Writes a record of a failure other than a wait that gave up.
  SYMMEM_DEVICE void leave(WaitKind kind, uint32 peer, uint32 slot, uint32 expected, uint32 seen) {
    record(kind, peer, slot, expected, seen, WaitReason::none, arch::nanoseconds());
  }

 private:
  // Returns when this thread reads the abort word first.
  static SYMMEM_DEVICE uint32 turn() {
    const uint32 thread = arch::block_index() * arch::thread_count() + arch::thread_index();
    return abort_patience_units + thread / abort_threads_per_unit % 8192;
  }

  // Writes the record, unless another thread has.
  SYMMEM_DEVICE void record(WaitKind kind, uint32 peer, uint32 slot, uint32 expected, uint32 seen,
                            WaitReason reason, uint64 now) {
    if (watch_.record == 0) return;
    // Opaque, or the compiler would keep the addresses of its fields in registers around every waiting loop.
    WaitRecord* record = pointer<WaitRecord>(arch::opaque(watch_.record));
    if (arch::compare_exchange(&record->state, 0, 1) != 0) return;
    arch::store_relaxed(&record->kind, static_cast<uint32>(kind));
    arch::store_relaxed(&record->rank, watch_.rank);
    arch::store_relaxed(&record->peer, peer);
    arch::store_relaxed(&record->slot, slot);
    arch::store_relaxed(&record->expected, expected);
    arch::store_relaxed(&record->seen, seen);
    arch::store_relaxed(&record->reason, static_cast<uint32>(reason));
    arch::store_relaxed(&record->elapsed_ns, start_ == 0 ? 0 : now - start_);
    arch::publish_flag(&record->state, 2);
  }

  const Watch& watch_;
  uint64 start_ = 0;  // 0 before the first look at the clock
  uint32 look_;       // when this thread reads the abort word next, counted from the start
};

// Waits for a signal. Called by one thread. Returns false if the wait gave up.
SYMMEM_DEVICE bool wait_signal(const SignalWait& wait) {
  Waiter waiter(wait.watch);
  const uint32 expected = advance(wait.epoch, wait.value);
  return waiter.until_reached(pointer<uint32>(wait.word), expected, WaitKind::signal, wait.peer, wait.slot);
}

}  // namespace symmem
