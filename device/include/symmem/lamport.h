// Lamport packets: a word that cannot be data is its own flag. An inbox is full of that word; a sender stores data over
// it, 16 bytes of data in 16, and the receiver polls the data until no word of it is empty. So a message needs one
// crossing of the link, no fence, no barrier and no second store. (The method of TensorRT-LLM's one-shot all-reduce,
// which takes the negative zero as the empty word; the name is for L. Lamport, "Concurrent reading and writing", 1977.)
//
// Packets carry the complement of the data, so that the empty word is 0, as in fresh memory. The data that it stands for
// has all bits set: in every floating-point type of at most 32 bits a NaN, or several. Where data holds it, the sender
// clears the word's sign bit, and it is still NaN. A rank changes its own elements alike, or members would get different
// bits. Integers and f64 have no such word; what is only moved keeps every bit, by marks (move_lamport.h).
//
// An inbox has two buffers, used in turn, each with a part for every sender. A vector's place in its part follows from its
// index in the message, and its sender and its receiver are threads of the same index in grids of the same size. So a
// block waits only for the blocks of its number, and they are resident once a packet of each has come. The receiver
// empties a place when it has read it. A peer stores there again in the call after next. Its stream begins that one only
// after it has received all of this rank's packets of the next call, and this rank sends those only after the kernel that
// empties has completed. (This leans on the boundary between kernels: what a completed kernel stored in its own device's
// memory is overtaken by no later store.) So in every call each member sends packets to each other and waits for packets
// from each, also where it has no data for it; and none sends after a call in which a wait gave up: that call's places may
// still be full.
#pragma once

#include "symmem/element.h"
#include "symmem/group.h"

namespace symmem {

// How often a wait that gave up reads whether this grid's other blocks have sent: for some milliseconds.
constexpr uint32 most_polls_for_blocks = 4096;
// Number of peers whose packets are polled together.
constexpr int lamport_peers = 7;

// Returns the packet of a vector of data.
SYMMEM_DEVICE arch::Vector16 to_packet(const arch::Vector16& data) {
  arch::Vector16 packet;
  SYMMEM_UNROLL
  for (int word = 0; word < 4; ++word) {
    const uint32 complement = ~data.words[word];
    packet.words[word] = complement == 0 ? 0x80000000u : complement;
  }
  return packet;
}

SYMMEM_DEVICE arch::Vector16 from_packet(const arch::Vector16& packet) {
  return {{~packet.words[0], ~packet.words[1], ~packet.words[2], ~packet.words[3]}};
}

// Words arrive independently.
SYMMEM_DEVICE bool has_arrived(const arch::Vector16& packet) {
  return packet.words[0] != 0 && packet.words[1] != 0 && packet.words[2] != 0 && packet.words[3] != 0;
}

// Returns the index of the lowest set bit; `bits` is not 0.
SYMMEM_DEVICE uint32 lowest_bit(uint32 bits) {
  uint32 index = 0;
  SYMMEM_ROLLED
  while ((bits >> index & 1) == 0) ++index;
  return index;
}

// A grid's view of the inboxes in one call. `fixed_world` is the number of members if the compiler shall know it, or 0.
// Arguments is ReduceLamportArguments or MoveLamportArguments, whose calls share the inboxes.
//
// The counters are the number of the buffer in turn, the number of blocks that have read it, and whether a wait on these
// inboxes has given up.
template <uint32 fixed_world, class Arguments>
class LamportInboxes {
 public:
  // Reads only the arguments, so that it may come before wait_for_prerequisites.
  SYMMEM_DEVICE LamportInboxes(const Arguments& arguments, Group& group)
      : arguments_(arguments),
        group_(group),
        thread_(arch::block_index() * arch::thread_count() + arch::thread_index()),
        own_(fixed_world == 2 ? arguments.pair.inbox : arguments.inboxes[group.rank()]) {
    SYMMEM_UNROLL
    for (int index = 0; index < known_peers; ++index) {
      const uint32 member = group.after(index + 1);
      parts_[index] = fixed_world == 2 ? arguments.pair.peer_inbox : arguments.inboxes[member] + offset_at(member);
    }
  }

  SYMMEM_DEVICE uint32 world() const { return fixed_world != 0 ? fixed_world : group_.world(); }
  SYMMEM_DEVICE uint32 peers() const { return world() - 1; }
  // This thread's index in the grid, and the number of threads.
  SYMMEM_DEVICE uint32 thread() const { return thread_; }
  SYMMEM_DEVICE uint32 threads() const { return arch::block_count() * arch::thread_count(); }

  // Loads the counters. Called by every thread, before it sends. Returns false if an earlier wait gave up; then it must
  // not send. The loads are plain, so that one goes to the L2 for each multiprocessor. Strong ones would go there for each
  // warp, and the L2 serves one word once in about 1 ns.
  SYMMEM_DEVICE bool begin() {
    const uint32* counters = pointer<const uint32>(arguments_.counters);
    buffer_ = arch::load(counters);
    return arch::load(counters + 2) == 0;
  }

  // Store a packet at the member that comes `step` after this one, or at a given one. If `step` is known to the compiler,
  // the address was read before this kernel waited for its prerequisites, in a group of `fixed_world` for all members, else
  // for the next one.
  SYMMEM_DEVICE void send_after(uint32 step, uint32 place, const arch::Vector16& packet) const {
    if (step > known_peers) return send_to(group_.after(step), place, packet);
    arch::store_packet(pointer<arch::Vector16>(parts_[step - 1] + buffer_offset(buffer_) + place * 16ull), packet);
  }
  SYMMEM_DEVICE void send_to(uint32 member, uint32 place, const arch::Vector16& packet) const {
    const uint64 part = arguments_.inboxes[member] + offset_at(member);
    arch::store_packet(pointer<arch::Vector16>(part + buffer_offset(buffer_) + place * 16ull), packet);
  }

  // Counts the call. Called by every thread after it has sent.
  SYMMEM_DEVICE void count() const {
    arch::block_barrier();
    if (arch::thread_index() != 0) return;
    uint32* counters = pointer<uint32>(arguments_.counters);
    if (arch::arrive_taken(counters + 1) + 1 != arch::block_count()) return;
    // The last block: all threads have loaded the counters.
    arch::publish_taken(counters, buffer_ ^ 1);
    arch::reset(counters + 1);
  }

  // Waits for the packets of up to `most` peers from number `first` on at `places` places, `stride` apart from `place` on,
  // all at once, returns their data, and empties the places, unless it `keeps` them for a later call. `valid` has a bit for
  // each place that is used. Returns false if the wait gave up.
  template <int most, int places, bool keeps = false>
  SYMMEM_DEVICE bool receive(uint32 first, uint32 place, uint32 stride, uint32 valid,
                             arch::Vector16 (&data)[most][places]) {
    const uint64 from = own_ + buffer_offset(buffer_) + first * static_cast<uint64>(arguments_.part_bytes) + place * 16ull;
    uint32 missing = 0;
    SYMMEM_UNROLL
    for (int peer = 0; peer < most; ++peer) {
      if (first + peer < peers()) missing |= valid << (peer * places);
    }
    while (true) {
      // Only loads, compares and pauses here: see Waiter::until_reached.
      SYMMEM_ROLLED
      for (uint32 polls = polls_per_clock; polls != 0; --polls) {
        SYMMEM_UNROLL
        for (int peer = 0; peer < most; ++peer) {
          SYMMEM_UNROLL
          for (int index = 0; index < places; ++index) {
            if ((missing >> (peer * places + index) & 1) == 0) continue;
            data[peer][index] = arch::load_packet(place_of(from, peer, index, stride));
          }
        }
        SYMMEM_UNROLL
        for (int peer = 0; peer < most; ++peer) {
          SYMMEM_UNROLL
          for (int index = 0; index < places; ++index) {
            const uint32 bit = 1u << (peer * places + index);
            if ((missing & bit) != 0 && has_arrived(data[peer][index])) {
              missing &= ~bit;
              if (!keeps) arch::store_packet(place_of(from, peer, index, stride), arch::Vector16{});
              data[peer][index] = from_packet(data[peer][index]);
            }
          }
        }
        if (missing == 0) return true;
        if (is_crowd<places>()) {
          arch::pause_in_crowd();
        } else {
          arch::pause();
        }
      }
      if (gives_up(first + lowest_bit(missing) / places)) return false;
    }
  }

  // Empties all peers' places that an earlier call kept.
  SYMMEM_DEVICE void empty(uint32 place) const {
    const uint64 from = own_ + buffer_offset(buffer_) + place * 16ull;
    SYMMEM_ROLLED
    for (uint32 peer = 0; peer < peers(); ++peer) arch::store_packet(place_of(from, static_cast<int>(peer), 0, 0), arch::Vector16{});
  }

 private:
  // Returns whether a group of two has so many threads, with a vector for each, that their polls make packets late: with
  // pauses of 0.1 us, an all-reduce of 1 MiB takes 4.76 us, without 4.90 (two H200s). Pauses gain nothing where a thread has
  // several vectors, and take time where fewer threads poll.
  template <int places>
  SYMMEM_DEVICE bool is_crowd() const {
    return fixed_world == 2 && places == 1 && threads() >= 1u << 16;
  }

  static constexpr int known_peers = fixed_world > 2 ? fixed_world - 1 : 1;

  SYMMEM_DEVICE arch::Vector16* place_of(uint64 from, int peer, int index, uint32 stride) const {
    return pointer<arch::Vector16>(from + peer * static_cast<uint64>(arguments_.part_bytes) + index * (stride * 16ull));
  }

  SYMMEM_DEVICE uint64 buffer_offset(uint32 buffer) const {
    return static_cast<uint64>(buffer * peers()) * arguments_.part_bytes;
  }

  // Returns the offset of this rank's part in the first buffer of a member's inbox. A member's peers are numbered from 0
  // to world - 2.
  SYMMEM_DEVICE uint64 offset_at(uint32 member) const {
    const uint32 rank = group_.rank();
    return static_cast<uint64>(rank < member ? rank : rank - 1) * arguments_.part_bytes;
  }

  SYMMEM_DEVICE bool gives_up(uint32 peer) const {
    const uint32 member = peer < group_.rank() ? peer : peer + 1;
    if (!group_.waiter().gives_up(group_.kind(), group_.number(member), group_.channel(), 1, 0)) return false;
    uint32* counters = pointer<uint32>(arguments_.counters);
    // Not before the last block has loaded the counters, unless it does not come.
    for (uint32 polls = most_polls_for_blocks; polls != 0 && arch::load_flag(counters) == buffer_; --polls) arch::pause();
    arch::acquire_flag(counters);
    arch::store_relaxed(counters + 2, 1u);
    return true;
  }

  const Arguments& arguments_;
  Group& group_;
  const uint32 thread_;
  const uint64 own_;             // this rank's inbox
  uint64 parts_[known_peers];    // this rank's parts at the members that come after it
  uint32 buffer_ = 0;            // in turn
};

// Returns whether a member is the one that arguments name.
SYMMEM_DEVICE bool is_named(uint32 named, uint32 member) { return named == every_member || named == member; }

// A message of any length at any address, as vectors of which the last may be partial. One without bytes has no address.
class LamportMessage {
 public:
  SYMMEM_DEVICE LamportMessage(uint64 address, uint64 bytes) : address_(address), bytes_(bytes) {}

  // Loads a vector; bytes after the message's end are zero.
  SYMMEM_DEVICE arch::Vector16 load(uint32 place) const {
    if (is_whole(place)) return load_anywhere(address_ + place * 16ull);
    uint64 low = 0, high = 0;
    SYMMEM_ROLLED
    for (uint64 at = place * 16ull; at < (place + 1ull) * 16; ++at) {
      // Each byte comes in at the upper end.
      low = low >> 8 | high << 56;
      high = high >> 8 | static_cast<uint64>(at < bytes_ ? arch::load(pointer<const uint8>(address_ + at)) : 0) << 56;
    }
    return {{static_cast<uint32>(low), static_cast<uint32>(low >> 32), static_cast<uint32>(high), static_cast<uint32>(high >> 32)}};
  }

  SYMMEM_DEVICE void store(uint32 place, const arch::Vector16& vector) const {
    if (is_whole(place)) return store_anywhere(address_ + place * 16ull, vector);
    uint64 low = static_cast<uint64>(vector.words[1]) << 32 | vector.words[0];
    uint64 high = static_cast<uint64>(vector.words[3]) << 32 | vector.words[2];
    SYMMEM_ROLLED
    for (uint64 at = place * 16ull; at < (place + 1ull) * 16 && at < bytes_; ++at) {
      arch::store(pointer<uint8>(address_ + at), static_cast<uint8>(low));
      low = low >> 8 | high << 56;
      high >>= 8;
    }
  }

 private:
  SYMMEM_DEVICE bool is_whole(uint32 place) const { return (place + 1ull) * 16 <= bytes_; }

  const uint64 address_;
  const uint64 bytes_;
};

}  // namespace symmem
