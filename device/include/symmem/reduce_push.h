// Reductions by pushing: every member stores its elements of another member's share into that member's inbox, piece by
// piece, and each member reduces from its own memory. Stores need less link bandwidth than loads, which also send a
// request: 1.22 against 1.28 raw bytes per byte of payload (measured).
//
// The warp that takes reduces all peers' pieces with this rank's piece, in the members' order. Results may go to peers'
// memory. No barrier need stand before those stores: a result is stored when a piece has come from every member, and a
// member sends pieces only once it has entered the call, and reads what a result overwrites before it sends the piece.
#pragma once

#include "symmem/pieces.h"
#include "symmem/reduce.h"

namespace symmem {

// What one warp of a pair does.
template <class Element, class Operation>
class PushedReduction {
 public:
  using Bits = typename Element::Bits;

  SYMMEM_DEVICE PushedReduction(const ReducePushArguments& arguments, Members& members, const Operation& operation,
                                const PieceWarp& warp)
      : arguments_(arguments), members_(members), operation_(operation), channel_(arguments, members, warp) {}

  // Pushes all pieces. Called by the pushing warp. Returns false if a wait gave up.
  SYMMEM_DEVICE bool push() {
    for (const uint64 longest = longest_share(); channel_.begin < longest; channel_.next()) {
      if (!channel_.wait_free()) return false;
      for (uint32 step = 1; step < members_.world(); ++step) {
        const uint32 peer = members_.after(step);
        copy_piece(channel_.slot_at(peer), arguments_.sources[peer] + channel_.begin, bytes_of(peer));
      }
      channel_.pushed();
    }
    channel_.leave(true);
    return true;
  }

  // Takes and reduces all pieces. Called by the taking warp. Returns false if a wait gave up.
  SYMMEM_DEVICE bool take() {
    uint64 addresses = arguments_.reduce.sources[members_.rank()];
    each_destination(arguments_.reduce, [&](uint64 destination) { addresses |= destination; });
    const bool in_vectors = (addresses & 15) == 0;
    for (const uint64 longest = longest_share(); channel_.begin < longest; channel_.next()) {
      if (!channel_.wait_arrived()) return false;
      reduce_piece(bytes_of(members_.rank()), in_vectors);
      channel_.taken();
    }
    channel_.leave(false);
    return true;
  }

 private:
  SYMMEM_DEVICE uint64 longest_share() const {
    uint64 longest = 0;
    SYMMEM_ROLLED
    for (uint32 member = 0; member < members_.world(); ++member) {
      if (arguments_.counts[member] > longest) longest = arguments_.counts[member];
    }
    return longest * sizeof(Bits);
  }

  SYMMEM_DEVICE uint32 bytes_of(uint32 member) const {
    return channel_.bytes_of(arguments_.counts[member] * sizeof(Bits));
  }

  // Returns the address of a member's piece; this rank's piece is still in its source.
  SYMMEM_DEVICE uint64 piece_of(uint32 member, uint64 own, uint64 others) const {
    return member == members_.rank() ? own : channel_.slot_from(member, others);
  }

  // Reduces in vectors if all addresses are multiples of 16, then in elements. For this device's memory, four loads in
  // flight per thread of half a block are enough.
  SYMMEM_DEVICE void reduce_piece(uint32 bytes, bool in_vectors) const {
    constexpr int most = 4;
    const uint32 world = members_.world();
    const uint64 begin = channel_.begin;
    const uint64 own = arguments_.reduce.sources[members_.rank()] + begin;
    const uint64 others = channel_.slots(members_.rank());
    const uint32 whole = in_vectors ? bytes & ~15u : 0;
    arch::settle_loads();
    for (uint32 offset = piece_lane() * 16; offset < whole; offset += piece_row) {
      // Opaque, or the compiler would keep an address per member in registers around the loop.
      const uint64 mine = arch::opaque(own), theirs = arch::opaque(others);
      Accumulation<Element, 4> sum[1];
      arch::Vector16 result[1];
      reduce_vectors<Element, 1, most>(
          world, operation_,
          [&](int, uint32 member, arch::Vector16& loaded) {
            if (member < world) loaded = arch::load(pointer<const arch::Vector16>(piece_of(member, mine, theirs) + offset));
          },
          sum, result);
      each_destination(arguments_.reduce, [&](uint64 destination) {
        arch::store(pointer<arch::Vector16>(destination + begin + offset), result[0]);
      });
    }
    SYMMEM_ROLLED
    for (uint32 offset = whole + piece_lane() * sizeof(Bits); offset < bytes; offset += arch::warp_size * sizeof(Bits)) {
      const Bits result = reduce_element<Element>(
          world, operation_, [&](uint32 member) { return piece_of(member, own, others) + offset; });
      each_destination(arguments_.reduce,
                       [&](uint64 destination) { arch::store(pointer<Bits>(destination + begin + offset), result); });
    }
  }

  const ReducePushArguments& arguments_;
  Members& members_;
  const Operation& operation_;
  PieceChannel<ReducePushArguments> channel_;
};

// Runs the channels of a block. Called by every thread. Returns false to the threads of a warp that gave up.
template <class Element, class Operation>
SYMMEM_DEVICE bool push_and_take(const ReducePushArguments& arguments, Members& members, const Operation& operation) {
  const PieceWarp warp;
  if (!warp.works) return true;
  PushedReduction<Element, Operation> reduction(arguments, members, operation, warp);
  return warp.pushes ? reduction.push() : reduction.take();
}

// Reduces as ReducePushArguments says. Called by every thread of every block, with at least two warps per block.
// Addresses are multiples of an element's size.
template <ElementType type>
SYMMEM_DEVICE void collective_reduce_push(const ReducePushArguments& arguments) {
  using Element = typename ElementOf<type>::Type;
  enter_collective();
  Members members(arguments.reduce.group);
  const bool done = is_sum(arguments.reduce.reduce)
                        ? push_and_take<Element>(arguments, members, Sum(arguments.reduce.reduce))
                        : push_and_take<Element>(arguments, members, Selection(arguments.reduce.reduce));
  if (arguments.barrier == 0 || !arch::block_all(done)) return;
  members.barrier(Tells::stored);
  members.leave();
}

}  // namespace symmem
