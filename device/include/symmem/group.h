// The members of one collective call, and barriers among blocks of the same index. No barrier spans a grid: block b
// talks only to block b of its peers. See CollectiveGroup for the memory layout.
#pragma once

#include "symmem/wait.h"

namespace symmem {

// Waits for the stream's previous kernels. Must come before any access to the group's memory. The stream's next kernel
// may start once every block has heard from the blocks that it waits for: Members::barrier, packets and pieces see to it.
// So at most one kernel of a stream lacks peers that are resident.
SYMMEM_DEVICE void enter_collective() { arch::wait_for_prerequisites(); }

// What a block tells its peers by a barrier, besides that it has come.
enum class Tells : uint32 {
  entered,  // what its stream's earlier kernels stored in this rank's own memory; this kernel has stored nothing
  taken,    // that it has read their data; since it entered, it has stored nothing that they access
  stored,   // all that it has stored
};

// The members of a call, as this rank numbers them, and this thread's waits for them.
class Group {
 public:
  SYMMEM_DEVICE explicit Group(const CollectiveGroup& group) : group_(group), waiter_(group.watch) {}

  SYMMEM_DEVICE uint32 rank() const { return arch::anew(group_.rank); }
  SYMMEM_DEVICE uint32 world() const { return arch::anew(group_.world); }
  SYMMEM_DEVICE Waiter& waiter() { return waiter_; }
  SYMMEM_DEVICE WaitKind kind() const {
    return static_cast<WaitKind>(static_cast<uint32>(WaitKind::collective) + group_.operation);
  }
  SYMMEM_DEVICE uint32 channel() const { return group_.slot; }
  // Returns a member's rank in the communicator.
  SYMMEM_DEVICE uint32 number(uint32 member) const { return group_.members[member]; }

  // Starts dependents once every block that this one waits for has answered, unless the caller wants them later.
  SYMMEM_DEVICE void answered() const { answered(group_.dependents); }
  SYMMEM_DEVICE static void answered(uint32 dependents) {
    if (dependents == static_cast<uint32>(Dependents::answered)) arch::start_dependents_of_answered();
  }

  // Returns the peer `step` ranks after this one, for `step` from 1 to world - 1. Members thus begin with different
  // peers.
  SYMMEM_DEVICE uint32 after(uint32 step) const {
    const uint32 member = rank() + step;
    return member < world() ? member : member - world();
  }

 protected:
  const CollectiveGroup& group_;
  Waiter waiter_;
};

// A block's view of the group. It keeps the block's counters in registers; `leave` writes them back.
class Members : public Group {
 public:
  // Called by every thread of the block, after enter_collective.
  SYMMEM_DEVICE explicit Members(const CollectiveGroup& group) : Group(group), own_(slot(rank())) {
    const uint64 counters = arch::load(pointer<const uint64>(own_ + slot_counters));
    barriers_ = static_cast<uint32>(counters);
    uses_ = static_cast<uint32>(counters >> 32);
  }

  // Returns this block's slot at a member.
  SYMMEM_DEVICE uint64 slot(uint32 member) const {
    return arch::per_thread(group_.slots[member] + arch::block_index() * slot_bytes);
  }

  // Waits for the same block of every member. Called by every thread. If it returns true, this block sees what the
  // others tell. Returns false if a wait gave up.
  SYMMEM_DEVICE bool barrier(Tells tells) {
    // Tells::taken would need no release, but which of the two a reduction tells is known at run time only.
    if (tells != Tells::entered) arch::release_wave();
    return barrier([&](uint32 epoch, uint32 first, uint32 stride) {
      for (uint32 step = first + 1; step < world(); step += stride) {
        uint32* word = pointer<uint32>(slot(after(step)) + slot_words + rank() * 4);
        if (tells == Tells::entered) {
          arch::publish_entered(word, epoch);
        } else if (tells == Tells::taken) {
          arch::publish_taken(word, epoch);
        } else {
          arch::publish_flag(word, epoch);
        }
      }
    });
  }

  // The same, with `raise(epoch, thread, threads)`, called by every thread, to raise this block's words at its peers
  // from the previous epoch to `epoch`. It may or may not raise this rank's own word, for which no member waits.
  template <class Raise>
  SYMMEM_DEVICE bool barrier(Raise raise) {
    const uint32 epoch = ++barriers_;
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
    if (!arch::block_all(arrived)) return false;
    answered();
    return true;
  }

  // Return the bytes of a packet inbox, and the address at member `at` of this block's inbox for packets from `from`.
  SYMMEM_DEVICE uint32 inbox_bytes() const {
    return arch::per_thread(group_.packet_bytes / 2 / group_.world & ~15u);
  }
  SYMMEM_DEVICE uint64 inbox(uint32 at, uint32 from, uint32 half, uint32 capacity) const {
    return region(at) + static_cast<uint64>(half * group_.world + from) * capacity;
  }

  // Takes `count` uses of packets, whose flags are `flag` and the following ones, never 0. Called by every thread.
  // Returns false if a wait gave up. When the 32-bit flags wrap, it clears all packets, so that no old packet passes
  // for a new one.
  SYMMEM_DEVICE bool take_uses(uint32 count, uint32& flag) {
    if (uses_ > ~0u - count && !clear_packets()) return false;
    flag = uses_ + 1;
    uses_ += count;
    return true;
  }

  // Writes the counters back. Called by every thread at the end, after a block barrier that follows the last wait.
  SYMMEM_DEVICE void leave() {
    if (arch::thread_index() != 0) return;
    arch::store(pointer<uint64>(own_ + slot_counters), static_cast<uint64>(uses_) << 32 | barriers_);
  }

 private:
  SYMMEM_DEVICE uint64 region(uint32 member) const {
    const uint64 offset = static_cast<uint64>(arch::block_index()) * group_.packet_bytes;
    return arch::per_thread(group_.slots[member] + slot_blocks * slot_bytes + offset);
  }

  // Clears the region between two barriers: before the first, all packets have been received; after the second, all
  // members have cleared.
  SYMMEM_DEVICE bool clear_packets() {
    if (!barrier(Tells::stored)) return false;
    const uint64 begin = region(rank());
    for (uint64 offset = arch::per_thread(arch::thread_index()) * 16; offset + 16 <= group_.packet_bytes;
         offset += arch::thread_count() * 16) {
      arch::store(pointer<arch::Vector16>(begin + offset), arch::Vector16{});
    }
    uses_ = 0;
    return barrier(Tells::stored);
  }

  const uint64 own_;
  uint32 barriers_;
  uint32 uses_;
};

}  // namespace symmem
