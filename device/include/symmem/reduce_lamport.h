// One-shot sums in Lamport packets: small kernels for the usual calls, in which every member receives, and one for all.
// What is only jumped over costs as much as a tenth of a small kernel's time, since each jump misses the instruction cache.
// So a small kernel has neither loops over tiles nor code for odd ends, and reads all addresses before it waits for its
// prerequisites. All kernels' packets are the same, so each member chooses its own.
#pragma once

#include "symmem/lamport.h"

namespace symmem {

// Adds up this rank's vectors, as packets would bring them, and those of all peers at `place`, in the members' order, and hands
// each sum to `take` with its index. Returns false if a wait gave up.
template <class Element, int most, int places, bool keeps, class Inboxes, class Operation, class Take>
SYMMEM_DEVICE bool sum_arrived(Inboxes& inboxes, uint32 rank, const Operation& operation, uint32 place, uint32 stride,
                               uint32 valid, const arch::Vector16 (&own)[places], const Take& take) {
  Accumulation<Element, 4> sums[places];
  SYMMEM_ROLLED
  for (uint32 first = 0; first < inboxes.peers(); first += most) {
    arch::Vector16 data[most][places];
    if (!inboxes.template receive<most, places, keeps>(first, place, stride, valid, data)) return false;
    SYMMEM_UNROLL
    for (int peer = 0; peer < most; ++peer) {
      const uint32 number = first + peer;
      if (number >= inboxes.peers()) continue;
      SYMMEM_UNROLL
      for (int index = 0; index < places; ++index) {
        if (number == 0) {
          const arch::Vector16 member_0 = rank == 0 ? own[index] : data[peer][index];
          sums[index].begin(member_0.words);
        } else if (number == rank) {
          sums[index].add(own[index].words, operation);
        }
        if (number != 0 || rank == 0) sums[index].add(data[peer][index].words, operation);
      }
    }
  }
  SYMMEM_UNROLL
  for (int index = 0; index < places; ++index) {
    if (rank == inboxes.peers()) sums[index].add(own[index].words, operation);
    take(index, sums[index]);
  }
  return true;
}

// The same, and rounds the results.
template <class Element, int most, int places, class Inboxes, class Operation>
SYMMEM_DEVICE bool reduce_arrived(Inboxes& inboxes, uint32 rank, const Operation& operation,
                                  uint32 place, uint32 stride, uint32 valid, const arch::Vector16 (&own)[places],
                                  arch::Vector16 (&results)[places]) {
  const auto round = [&](int index, Accumulation<Element, 4>& sum) {
    sum.finish(results[index].words, operation, inboxes.world());
  };
  return sum_arrived<Element, most, places, false>(inboxes, rank, operation, place, stride, valid, own, round);
}

// Sums or averages whole vectors at multiples of 16, at most `places` per thread, in a group of `fixed_world` if that is not
// 0. `alike` says that all members reduce the same elements. Called by every thread of every block, as the other kernels here.
template <class Element, int most, int places, uint32 fixed_world, bool alike>
SYMMEM_DEVICE void sum_few_vectors(const ReduceLamportArguments& arguments) {
  // Number of vectors to send, for each place.
  constexpr int different = alike ? 1 : most;
  Group group(arguments.group);
  LamportInboxes<fixed_world, ReduceLamportArguments> inboxes(arguments, group);
  const uint32 rank = group.rank();
  const uint32 vectors = static_cast<uint32>(arguments.count * sizeof(typename Element::Bits) / 16);
  const uint32 place = inboxes.thread();
  const uint32 stride = inboxes.threads();
  const uint64 mine = (fixed_world == 2 ? arguments.pair.source : arguments.sources[rank]) + place * 16ull;
  uint64 sent[different];
  SYMMEM_UNROLL
  for (int peer = 0; peer < different; ++peer) {
    sent[peer] = (fixed_world == 2 ? arguments.pair.sent : arguments.sources[group.after(peer + 1)]) + place * 16ull;
  }
  const uint64 destination = arguments.destination + place * 16ull;
  arch::wait_for_prerequisites();
  // The sources first: their loads wait for nothing.
  arch::Vector16 own[places], packets[places][different];
  uint32 valid = 0;
  SYMMEM_UNROLL
  for (int index = 0; index < places; ++index) {
    own[index] = {};
    SYMMEM_UNROLL
    for (int peer = 0; peer < different; ++peer) packets[index][peer] = {};
    if (place + index * stride >= vectors) continue;
    valid |= 1u << index;
    own[index] = arch::load(pointer<const arch::Vector16>(mine + index * (stride * 16ull)));
    if constexpr (!alike) {
      SYMMEM_UNROLL
      for (int peer = 0; peer < different; ++peer) {
        packets[index][peer] = arch::load(pointer<const arch::Vector16>(sent[peer] + index * (stride * 16ull)));
      }
    }
  }
  if (!inboxes.begin()) valid = 0;
  SYMMEM_UNROLL
  for (int index = 0; index < places; ++index) {
    const arch::Vector16 packet = to_packet(own[index]);
    own[index] = from_packet(packet);
    if ((valid >> index & 1) == 0) continue;
    SYMMEM_UNROLL
    for (int peer = 0; peer < most; ++peer) {
      if (static_cast<uint32>(peer) >= inboxes.peers()) continue;
      inboxes.send_after(peer + 1, place + index * stride, alike ? packet : to_packet(packets[index][alike ? 0 : peer]));
    }
  }
  inboxes.count();
  if (valid == 0) return;
  arch::Vector16 results[places];
  const Sum sum(arguments.reduce);
  const bool good =
      reduce_arrived<Element, most, places>(inboxes, rank, sum, place, stride, valid, own, results);
  if (!good) return;
  // The blocks of the peers that this block waits for are resident: they have sent.
  group.answered(arguments.dependents);
  SYMMEM_UNROLL
  for (int index = 0; index < places; ++index) {
    if ((valid >> index & 1) != 0) arch::store(pointer<arch::Vector16>(destination + index * (stride * 16ull)), results[index]);
  }
}

// Sums or averages messages of any length at any address, in any group; if `rooted`, for the receiver only. Calls
// with a receiver have a kernel of their own: its tests would cost every other call up to 3 %.
template <class Element, int most, bool rooted>
SYMMEM_DEVICE void sum_any(const ReduceLamportArguments& arguments) {
  Group group(arguments.group);
  LamportInboxes<0, ReduceLamportArguments> inboxes(arguments, group);
  const uint32 rank = group.rank();
  const uint64 bytes = arguments.count * sizeof(typename Element::Bits);
  const uint32 vectors = static_cast<uint32>((bytes + 15) / 16);
  const auto receives = [&](uint32 member) { return !rooted || is_named(arguments.receiver, member); };
  arch::wait_for_prerequisites();
  const bool good = inboxes.begin();
  const uint32 end = good ? vectors : 0;
  SYMMEM_ROLLED
  for (uint32 place = inboxes.thread(); place < end; place += inboxes.threads()) {
    SYMMEM_ROLLED
    for (uint32 step = 1; step < inboxes.world(); ++step) {
      const uint32 member = group.after(step);
      // A vector of zeros goes to a member that does not receive.
      if (place != 0 && !receives(member)) continue;
      const LamportMessage message(arguments.sources[member], receives(member) ? bytes : 0);
      inboxes.send_to(member, place, to_packet(message.load(place)));
    }
  }
  inboxes.count();
  if (receives(rank)) {
    const Sum sum(arguments.reduce);
    SYMMEM_ROLLED
    for (uint32 place = inboxes.thread(); place < end; place += inboxes.threads()) {
      const arch::Vector16 own[1] = {from_packet(to_packet(LamportMessage(arguments.sources[rank], bytes).load(place)))};
      arch::Vector16 results[1];
      if (!reduce_arrived<Element, most, 1>(inboxes, rank, sum, place, 0, 1, own, results)) break;
      LamportMessage(arguments.destination, bytes).store(place, results[0]);
    }
  } else if (good && inboxes.thread() == 0) {
    SYMMEM_ROLLED
    for (uint32 peer = 0; peer < inboxes.peers(); ++peer) {
      arch::Vector16 zeros[1][1];
      if (!inboxes.template receive<1, 1>(peer, 0, 0, 1, zeros)) break;
    }
  }
  arch::end_waits();
}

}  // namespace symmem
