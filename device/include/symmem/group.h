// The members of one collective call, and how blocks of the same index keep in step across them: no grid
// waits for itself, each block knows only its fellows of the same index. See CollectiveGroup for where
// things lie.
#pragma once

#include "symmem/wait.h"

namespace symmem {

// Enters a collective kernel: nothing of the group may be touched before the kernels before this one have
// ended. The stream's next kernel may take its place from here on, and not sooner: so at most two of a
// stream are on the device at once, however many have been launched.
SYMMEM_DEVICE void enter_collective() {
  arch::wait_for_prerequisites();
  arch::start_dependents();
}

// A block's view of the group. Its counters are read once, kept in registers, and written back by `leave`.
class Members {
 public:
  // Called by every thread of the block, after enter_collective.
  SYMMEM_DEVICE explicit Members(const CollectiveGroup& group)
      : group_(group), waiter_(group.watch), own_(slot(rank())) {
    const uint64 counters = arch::load(pointer<const uint64>(own_ + slot_counters));
    barriers_ = static_cast<uint32>(counters);
    uses_ = static_cast<uint32>(counters >> 32);
  }

  SYMMEM_DEVICE uint32 rank() const { return arch::anew(group_.rank); }
  SYMMEM_DEVICE uint32 world() const { return arch::anew(group_.world); }
  SYMMEM_DEVICE Waiter& waiter() { return waiter_; }
  SYMMEM_DEVICE WaitKind kind() const {
    return static_cast<WaitKind>(static_cast<uint32>(WaitKind::collective) + group_.operation);
  }
  SYMMEM_DEVICE uint32 channel() const { return group_.slot; }
  // The communicator's number of a member.
  SYMMEM_DEVICE uint32 number(uint32 member) const { return group_.members[member]; }

  // The peer that comes `step` after this rank, from 1 to world - 1: so that not all begin with the same.
  SYMMEM_DEVICE uint32 after(uint32 step) const {
    const uint32 member = rank() + step;
    return member < world() ? member : member - world();
  }

  // This block's slot at a member.
  SYMMEM_DEVICE uint64 slot(uint32 member) const {
    return arch::per_thread(group_.slots[member] + arch::block_index() * slot_bytes);
  }

  // Called by every thread. Once it has returned true, what each member's same block stored before, and
  // what its earlier kernels stored, is visible to this block. False: a wait gave up.
  SYMMEM_DEVICE bool barrier() {
    return barrier([&](uint32 epoch, uint32 first, uint32 stride) {
      for (uint32 step = first + 1; step < world(); step += stride) {
        arch::publish_flag(pointer<uint32>(slot(after(step)) + slot_words + rank() * 4), epoch);
      }
    });
  }

  // The same where `raise(epoch, thread, threads)`, called by every thread, takes the words that this block raises
  // from the epoch before to this one. Nobody waits for the own word, which it may raise or not.
  template <class Raise>
  SYMMEM_DEVICE bool barrier(Raise raise) {
    const uint32 epoch = ++barriers_;
    arch::release_wave();
    arch::block_barrier();
    const uint32 first = arch::thread_index();
    const uint32 stride = arch::thread_count();
    raise(epoch, first, stride);
    bool arrived = true;
    for (uint32 step = first + 1; arrived && step < world(); step += stride) {
      const uint32 peer = after(step);
      arrived = waiter_.until_reached(pointer<const uint32>(own_ + slot_words + peer * 4), epoch, kind(),
                                      number(peer), group_.slot);
    }
    return arch::block_all(arrived);
  }

  // Of packets: bytes of an inbox, and where this block's inbox for what `from` sends in a half lies at `at`.
  SYMMEM_DEVICE uint32 inbox_bytes() const {
    return arch::per_thread(static_cast<uint32>(group_.packet_bytes / 2) / group_.world & ~15u);
  }
  SYMMEM_DEVICE uint64 inbox(uint32 at, uint32 from, uint32 half, uint32 capacity) const {
    return region(at) + static_cast<uint64>(half * group_.world + from) * capacity;
  }

  // Takes `count` uses of packets, whose flags are `flag` and the ones after it, never 0. Called by every
  // thread; false: a wait gave up. Once in 2^32 uses the flags start anew, and no packet of the last round
  // may be taken for one of this.
  SYMMEM_DEVICE bool take_uses(uint32 count, uint32& flag) {
    if (uses_ > ~0u - count && !clear_packets()) return false;
    flag = uses_ + 1;
    uses_ += count;
    return true;
  }

  // Called by every thread at the end, behind a block barrier.
  SYMMEM_DEVICE void leave() {
    if (arch::thread_index() != 0) return;
    arch::store(pointer<uint64>(own_ + slot_counters), static_cast<uint64>(uses_) << 32 | barriers_);
  }

 private:
  SYMMEM_DEVICE uint64 region(uint32 member) const {
    return arch::per_thread(group_.slots[member] + slot_blocks * slot_bytes + arch::block_index() * group_.packet_bytes);
  }

  // Between two barriers: before, all have received what was sent; after, all have cleared.
  SYMMEM_DEVICE bool clear_packets() {
    if (!barrier()) return false;
    const uint64 begin = region(rank());
    for (uint64 offset = arch::per_thread(arch::thread_index()) * 16; offset + 16 <= group_.packet_bytes;
         offset += arch::thread_count() * 16) {
      arch::store(pointer<arch::Vector16>(begin + offset), arch::Vector16{});
    }
    uses_ = 0;
    return barrier();
  }

  const CollectiveGroup& group_;
  Waiter waiter_;
  const uint64 own_;
  uint32 barriers_;
  uint32 uses_;
};

}  // namespace symmem
