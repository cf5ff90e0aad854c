// Reductions by pushing: every member stores what another is to reduce into that one's inbox, piece by piece,
// and each reduces from its own memory. A load costs its request too: 1.28 raw bytes on a link for one of
// payload, a store 1.22 (H200).
//
// Warps work in pairs. One pushes: once each peer has taken the piece that was in the slot before, it stores
// the next and raises a flag behind it. The other takes: once all peers' pieces are there, it reduces them with
// the own one, in the members' order, and raises a flag that the slots are free. Counters are never reset, and
// a call does not end before all it was sent has been taken: so the next call, of any grid, goes on from there.
#pragma once

#include "symmem/reduce.h"

namespace symmem {

// A pair of warps, and the pairs of the same number at the peers.
template <class Element, class Operation>
class PushChannel {
 public:
  using Bits = typename Element::Bits;

  SYMMEM_DEVICE PushChannel(const ReducePushArguments& arguments, Members& members, const Operation& operation,
                            uint32 channel, uint32 channels)
      : arguments_(arguments),
        members_(members),
        operation_(operation),
        offset_(channel * arguments.channel_bytes),
        begin_(static_cast<uint64>(channel) * arguments.piece_bytes),
        step_(static_cast<uint64>(channels) * arguments.piece_bytes) {}

  // By the warp that pushes. False: a wait gave up.
  SYMMEM_DEVICE bool push() {
    const uint32 world = members_.world();
    const uint64 longest = longest_share();
    uint32* counter = word(members_.rank(), 2 * world);
    uint32 number = arch::load(counter);
    if (begin_ >= longest) return true;
    for (uint64 begin = begin_; begin < longest; begin += step_, ++number) {
      // Of the piece before in the same slot.
      if (!wait(world, number + 1 - arguments_.slots)) return false;
      for (uint32 step = 1; step < world; ++step) {
        const uint32 peer = members_.after(step);
        const uint64 slot = slots(peer, number) + sender(peer, members_.rank()) * sender_bytes();
        store_piece(slot, arguments_.sources[peer] + begin, bytes_of(peer, begin));
      }
      arch::release_wave();
      arch::warp_barrier();
      each_peer([&](uint32 peer) { arch::publish_flag(word(peer, members_.rank()), number + 1); });
    }
    if (lane() == 0) arch::store(counter, number);
    return true;
  }

  // By the warp that takes. False: a wait gave up.
  SYMMEM_DEVICE bool take() {
    const uint32 world = members_.world();
    const uint64 longest = longest_share();
    uint32* counter = word(members_.rank(), 2 * world) + 1;
    uint32 number = arch::load(counter);
    if (begin_ >= longest) return true;
    uint64 addresses = arguments_.reduce.sources[members_.rank()];
    each_destination(arguments_.reduce, [&](uint64 destination) { addresses |= destination; });
    const bool in_vectors = (addresses & 15) == 0;
    for (uint64 begin = begin_; begin < longest; begin += step_, ++number) {
      if (!wait(0, number + 1)) return false;
      reduce_piece(begin, bytes_of(members_.rank(), begin), number, in_vectors);
      arch::warp_barrier();
      each_peer([&](uint32 peer) { arch::publish_taken(word(peer, world + members_.rank()), number + 1); });
    }
    if (lane() == 0) arch::store(counter, number);
    return true;
  }

 private:
  static constexpr uint32 row = arch::warp_size * 16;  // bytes that a warp moves at once

  SYMMEM_DEVICE static uint32 lane() { return arch::thread_index() % arch::warp_size; }

  SYMMEM_DEVICE uint32* word(uint32 at, uint32 index) const {
    return pointer<uint32>(arguments_.inboxes[at] + offset_ + index * push_word_stride);
  }

  // The slots, at a member, for pieces of that number; and from those of one sender to those of the next.
  SYMMEM_DEVICE uint64 slots(uint32 at, uint32 number) const {
    const uint64 words = ((2 * members_.world() + 1) * push_word_stride + 127) & ~127ull;
    const uint32 index = number & (arguments_.slots - 1);
    return arguments_.inboxes[at] + offset_ + words + static_cast<uint64>(index) * arguments_.piece_bytes;
  }
  SYMMEM_DEVICE uint64 sender_bytes() const { return static_cast<uint64>(arguments_.slots) * arguments_.piece_bytes; }
  SYMMEM_DEVICE static uint32 sender(uint32 at, uint32 from) { return from < at ? from : from - 1; }

  // All members' channels carry as many pieces, some of them empty: so that one count does for all peers.
  SYMMEM_DEVICE uint64 longest_share() const {
    uint64 longest = 0;
    SYMMEM_ROLLED
    for (uint32 member = 0; member < members_.world(); ++member) {
      if (arguments_.counts[member] > longest) longest = arguments_.counts[member];
    }
    return longest * sizeof(Bits);
  }

  SYMMEM_DEVICE uint32 bytes_of(uint32 member, uint64 begin) const {
    const uint64 bytes = arguments_.counts[member] * sizeof(Bits);
    if (begin >= bytes) return 0;
    return bytes - begin < arguments_.piece_bytes ? static_cast<uint32>(bytes - begin) : arguments_.piece_bytes;
  }

  // Deals the peers out among the lanes.
  template <class Work>
  SYMMEM_DEVICE void each_peer(Work work) const {
    SYMMEM_ROLLED
    for (uint32 step = lane() + 1; step < members_.world(); step += arch::warp_size) work(members_.after(step));
  }

  // Until every peer has raised its word here, the one behind `first`, to `expected`.
  SYMMEM_DEVICE bool wait(uint32 first, uint32 expected) {
    bool reached = true;
    each_peer([&](uint32 peer) {
      reached = reached && members_.waiter().until_reached(word(members_.rank(), first + peer), expected, members_.kind(),
                                                           members_.number(peer), members_.channel());
    });
    return arch::warp_all(reached);
  }

  // Vectors where the source has them at multiples of 16, then elements.
  SYMMEM_DEVICE void store_piece(uint64 destination, uint64 source, uint32 bytes) const {
    constexpr int vectors = 4;
    const uint32 whole = (source & 15) == 0 ? bytes & ~15u : 0;
    for (uint32 offset = lane() * 16; offset < whole; offset += vectors * row) {
      arch::Vector16 loaded[vectors];
      SYMMEM_UNROLL
      for (int vector = 0; vector < vectors; ++vector) {
        const uint32 at = offset + vector * row;
        loaded[vector] = at < whole ? arch::load(pointer<const arch::Vector16>(source + at)) : arch::Vector16{};
      }
      SYMMEM_UNROLL
      for (int vector = 0; vector < vectors; ++vector) {
        const uint32 at = offset + vector * row;
        if (at < whole) arch::store(pointer<arch::Vector16>(destination + at), loaded[vector]);
      }
    }
    SYMMEM_ROLLED
    for (uint32 offset = whole + lane() * sizeof(Bits); offset < bytes; offset += arch::warp_size * sizeof(Bits)) {
      arch::store(pointer<Bits>(destination + offset), arch::load(pointer<const Bits>(source + offset)));
    }
  }

  // Where a member's piece is; the own one never left its place.
  SYMMEM_DEVICE uint64 piece_of(uint32 member, uint64 own, uint64 others) const {
    return member == members_.rank() ? own : others + sender(members_.rank(), member) * sender_bytes();
  }

  // Vectors where all sides have them at multiples of 16, then elements. Four loads in flight in every thread
  // of half a block are enough for what lies in this device's memory.
  SYMMEM_DEVICE void reduce_piece(uint64 begin, uint32 bytes, uint32 number, bool in_vectors) const {
    constexpr int most = 4;
    const uint32 world = members_.world();
    const uint64 own = arguments_.reduce.sources[members_.rank()] + begin;
    const uint64 others = slots(members_.rank(), number);
    const uint32 whole = in_vectors ? bytes & ~15u : 0;
    for (uint32 offset = lane() * 16; offset < whole; offset += row) {
      // Opaque, or an address for each member would be kept in registers around the loop; and all is set before
      // it is used, since what is not takes its registers around the loop too.
      const uint64 mine = arch::opaque(own), theirs = arch::opaque(others);
      Accumulation<Element, 4> sum[1] = {};
      arch::Vector16 result[1];
      reduce_vectors<Element, 1, most>(
          world, operation_,
          [&](int, uint32 member, arch::Vector16& loaded) {
            loaded = arch::Vector16{};
            if (member < world) loaded = arch::load(pointer<const arch::Vector16>(piece_of(member, mine, theirs) + offset));
          },
          sum, result);
      each_destination(arguments_.reduce, [&](uint64 destination) {
        arch::store(pointer<arch::Vector16>(destination + begin + offset), result[0]);
      });
    }
    SYMMEM_ROLLED
    for (uint32 offset = whole + lane() * sizeof(Bits); offset < bytes; offset += arch::warp_size * sizeof(Bits)) {
      const Bits result = reduce_element<Element>(
          world, operation_, [&](uint32 member) { return piece_of(member, own, others) + offset; });
      each_destination(arguments_.reduce,
                       [&](uint64 destination) { arch::store(pointer<Bits>(destination + begin + offset), result); });
    }
  }

  const ReducePushArguments& arguments_;
  Members& members_;
  const Operation& operation_;
  const uint64 offset_;  // of the channel in every inbox
  const uint64 begin_;   // its first piece's byte in a share
  const uint64 step_;    // and from there to its next
};

// Called by every thread of the block. False for the threads of a warp that gave up.
template <class Element, class Operation>
SYMMEM_DEVICE bool push_and_take(const ReducePushArguments& arguments, Members& members, const Operation& operation) {
  const uint32 pairs = arch::thread_count() / (2 * arch::warp_size);
  const uint32 warp = arch::thread_index() / arch::warp_size;
  if (warp >= 2 * pairs) return true;
  const bool pushes = warp < pairs;
  const uint32 channel = arch::block_index() * pairs + (pushes ? warp : warp - pairs);
  PushChannel<Element, Operation> pair(arguments, members, operation, channel, arch::block_count() * pairs);
  return pushes ? pair.push() : pair.take();
}

// Called by every thread of every block, of two warps or more: ReducePushArguments says what. Addresses are
// multiples of an element's size.
template <ElementType type>
SYMMEM_DEVICE void collective_reduce_push(const ReducePushArguments& arguments) {
  using Element = typename ElementOf<type>::Type;
  enter_collective();
  Members members(arguments.reduce.group);
  const bool barriers = arguments.barriers != 0;
  if (barriers && !members.barrier()) return;
  const bool done = is_sum(arguments.reduce.reduce)
                        ? push_and_take<Element>(arguments, members, Sum(arguments.reduce.reduce))
                        : push_and_take<Element>(arguments, members, Selection(arguments.reduce.reduce));
  if (!barriers || !arch::block_all(done)) return;
  members.barrier();
  members.leave();
}

}  // namespace symmem
