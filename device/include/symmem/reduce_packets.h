// Reductions in LL packets. One-shot: every member sends each member its elements of that one's share. Two-shot: each
// member then sends its result to all in the same way.
#pragma once

#include "symmem/element.h"
#include "symmem/packets.h"

namespace symmem {

// Adds the packets of the members from `first` on.
template <int most, class Element, class Operation>
SYMMEM_DEVICE void add_packets(Accumulation<Element, 2>& result, const arch::Packet* packets, uint32 first, uint32 world,
                             const Operation& operation) {
  SYMMEM_UNROLL
  for (int peer = 0; peer < most; ++peer) {
    if (first + peer >= world) continue;
    const uint32 words[2] = {static_cast<uint32>(packets[peer].halves[0]), static_cast<uint32>(packets[peer].halves[1])};
    if (peer == 0 && first == 0) {
      result.begin(words);
    } else {
      result.add(words, operation);
    }
  }
}

// The two uses of a two-shot call need no block barrier between them: a member sends a unit of the second use only
// after it has read that unit of the first, so a peer that has received all of the second knows that the first was
// read.
template <class Element>
SYMMEM_DEVICE void reduce_packets(const ReducePacketArguments& arguments) {
  // 8-bit elements need registers for twice as many sums.
  constexpr int most = sizeof(typename Element::Bits) == 1 ? peers_at_once / 2 : peers_at_once;
  const bool summing = is_sum(arguments.reduce);
  const Sum sum(arguments.reduce);
  const Selection selection(arguments.reduce);
  Members members(arguments.group);
  const uint32 own = members.rank();
  const uint32 world = members.world();
  const auto sources = [&](uint32 member) { return arguments.sources[member]; };
  const auto destinations = [&](uint32 member) { return arguments.destinations[member]; };
  const auto bytes = [&](uint32 member) { return arguments.counts[member] * sizeof(typename Element::Bits); };
  uint64 longest = 0;
  for (uint32 member = 0; member < world; ++member) {
    if (bytes(member) > longest) longest = bytes(member);
  }
  const uint64 own_bytes = arch::per_thread(bytes(own));
  const bool two_shot = arguments.two_shot != 0;
  const uint32 inbox_bytes = members.inbox_bytes();
  PacketRounds rounds(units_of(longest), inbox_bytes);
  bool good = true;
  do {
    uint32 flag = 0;
    if (!members.take_uses(arch::anew(two_shot ? 2u : 1u), flag)) return;
    const PacketUse scatter(members, inbox_bytes, flag);
    const PacketUse gather(members, inbox_bytes, flag + 1);
    SYMMEM_ROLLED
    for (PacketRounds::Walk walk = rounds.walk(); walk.more(); walk.next()) {
      send_unit(members, scatter, walk, sources, bytes);
    }
    SYMMEM_ROLLED
    for (PacketRounds::Walk walk = rounds.walk(); good && walk.more(); walk.next()) {
      if (!walk.always() && walk.unit >= units_of(own_bytes)) break;
      Accumulation<Element, 2> result;
      const uint64 mine = load_unit(arguments.sources[arch::anew(own)], own_bytes, walk.unit);
      SYMMEM_ROLLED
      for (uint32 first = arch::opaque(0u); first < world; first += most) {
        const uint32 left = arch::anew(world) - first;
        uint32 wanted = left < most ? (1u << left) - 1 : (1u << most) - 1;
        const uint32 here = arch::anew(own) - first;  // beyond all peers if it is not among these
        if (here < most) wanted &= ~(1u << here);
        arch::Packet packets[peers_at_once];
        good = scatter.receive<most>(first, wanted, walk.place, packets);
        if (!good) break;
        SYMMEM_UNROLL
        for (int peer = 0; peer < most; ++peer) {
          if (static_cast<uint32>(peer) == here) packets[peer] = {{mine, mine >> 32}};
        }
        if (arch::anew(summing)) {
          add_packets<most>(result, packets, first, world, sum);
        } else {
          add_packets<most>(result, packets, first, world, selection);
        }
      }
      if (!good) break;
      uint32 words[2];
      if (arch::anew(summing)) {
        result.finish(words, sum, world);
      } else {
        result.finish(words, selection, world);
      }
      const uint64 reduced = static_cast<uint64>(words[1]) << 32 | words[0];
      if (arch::anew(two_shot)) {
        SYMMEM_ROLLED
        for (uint32 step = 1; step < arch::anew(world); ++step) gather.send(members.after(step), walk.place, reduced);
      }
      store_unit(arguments.destinations[arch::anew(own)], own_bytes, walk.unit, reduced);
    }
    if (arch::anew(two_shot)) {
      SYMMEM_ROLLED
      for (PacketRounds::Walk walk = rounds.walk(); good && walk.more(); walk.next()) {
        good = receive_unit(members, gather, walk, destinations, bytes);
      }
    }
    // As in collective_packets.
    if (good && arch::thread_index() == 0) members.answered();
    good = arch::block_all(good);
  } while (good && rounds.next());
  members.leave();
}

// Reduces as ReducePacketArguments says. Called by every thread of every block.
template <ElementType type>
SYMMEM_DEVICE void collective_reduce_packets(const ReducePacketArguments& arguments) {
  enter_collective();
  reduce_packets<typename ElementOf<type>::Type>(arguments);
}

}  // namespace symmem
