// Two-shot all-reduces in Lamport packets: each member reduces its share of all members' elements, and sends the result to
// all. So it sends two shares to each peer, where a one-shot sum sends all elements. A thread sends a result once it has all
// members' elements of it: no thread waits for another.
//
// A small kernel and one for all calls, as in reduce_lamport.h. All members' messages are of the same length, so that every
// member hears from each; what follows a short share is zeros.
#pragma once

#include "symmem/reduce_lamport.h"

namespace symmem {

// The shares of a call. A message has two parts, each of `vectors()`: a share, and its sender's result.
template <class Element>
class LamportShares {
 public:
  explicit SYMMEM_DEVICE LamportShares(const ReduceLamportArguments& arguments) : arguments_(arguments) {}

  SYMMEM_DEVICE uint32 vectors() const { return static_cast<uint32>(arguments_.share_bytes / 16); }
  // A member's share of this rank's elements, and of the result.
  SYMMEM_DEVICE LamportMessage source(uint32 member) const { return {arguments_.sources[member], length(member)}; }
  SYMMEM_DEVICE LamportMessage destination(uint32 member) const {
    return {arguments_.destination + member * arguments_.share_bytes, length(member)};
  }

 private:
  SYMMEM_DEVICE uint64 length(uint32 member) const {
    const uint64 bytes = arguments_.count * sizeof(typename Element::Bits);
    const uint64 before = member * arguments_.share_bytes;
    if (bytes <= before) return 0;
    return bytes - before < arguments_.share_bytes ? bytes - before : arguments_.share_bytes;
  }

  const ReduceLamportArguments& arguments_;
};

// Sums or averages whole vectors at multiples of 16, one of each share per thread, in a group of `fixed_world` if that is not
// 0, else of at most lamport_peers + 1. Called by every thread of every block, as the other kernel here.
template <class Element, uint32 fixed_world>
SYMMEM_DEVICE void sum_few_shares(const ReduceLamportArguments& arguments) {
  constexpr int most = fixed_world != 0 ? fixed_world - 1 : lamport_peers;
  Group group(arguments.group);
  LamportInboxes<fixed_world, ReduceLamportArguments> inboxes(arguments, group);
  const uint32 rank = group.rank();
  const uint32 peers = inboxes.peers();
  const uint32 place = inboxes.thread();
  const uint32 share = static_cast<uint32>(arguments.share_bytes / 16);
  const uint32 vectors = static_cast<uint32>(arguments.count * sizeof(typename Element::Bits) / 16);
  const bool used = place < share;
  // Returns the index of this thread's vector of a member's share; behind the last vector if the share is short.
  const auto at = [&](uint32 member) { return member * share + place; };
  arch::wait_for_prerequisites();
  // The sources first: their loads wait for nothing.
  arch::Vector16 sent[most], own[1] = {};
  SYMMEM_UNROLL
  for (int peer = 0; peer < most; ++peer) {
    sent[peer] = {};
    if (!used || static_cast<uint32>(peer) >= peers) continue;
    const uint32 member = group.after(peer + 1);
    if (at(member) < vectors) sent[peer] = arch::load(pointer<const arch::Vector16>(arguments.sources[member]) + place);
  }
  if (used && at(rank) < vectors) own[0] = arch::load(pointer<const arch::Vector16>(arguments.sources[rank]) + place);
  const bool good = inboxes.begin() && used;
  SYMMEM_UNROLL
  for (int peer = 0; peer < most; ++peer) {
    if (good && static_cast<uint32>(peer) < peers) inboxes.send_after(peer + 1, place, to_packet(sent[peer]));
  }
  inboxes.count();
  if (!good) return;
  own[0] = from_packet(to_packet(own[0]));
  arch::Vector16 results[1];
  const Sum sum(arguments.reduce);
  if (!reduce_arrived<Element, most, 1>(inboxes, rank, sum, place, 0, 1, own, results)) return;
  // The blocks of the peers that this block waits for are resident: they have sent.
  group.answered(arguments.dependents);
  const arch::Vector16 packet = to_packet(results[0]);
  SYMMEM_UNROLL
  for (int peer = 0; peer < most; ++peer) {
    if (static_cast<uint32>(peer) < peers) inboxes.send_after(peer + 1, share + place, packet);
  }
  arch::Vector16* destination = pointer<arch::Vector16>(arguments.destination);
  // As the peers get it, or members would get different bits.
  if (at(rank) < vectors) arch::store(destination + at(rank), from_packet(packet));
  arch::Vector16 data[most][1];
  if (!inboxes.template receive<most, 1>(0, share + place, 0, 1, data)) return;
  SYMMEM_UNROLL
  for (int peer = 0; peer < most; ++peer) {
    if (static_cast<uint32>(peer) >= peers) continue;
    // The inbox has the peers in the members' order.
    const uint32 member = static_cast<uint32>(peer) < rank ? peer : peer + 1;
    if (at(member) < vectors) arch::store(destination + at(member), data[peer][0]);
  }
}

// Sums or averages messages of any length at any address, in any group.
template <class Element, int most>
SYMMEM_DEVICE void sum_shares(const ReduceLamportArguments& arguments) {
  Group group(arguments.group);
  LamportInboxes<0, ReduceLamportArguments> inboxes(arguments, group);
  const LamportShares<Element> shares(arguments);
  arch::wait_for_prerequisites();
  bool good = inboxes.begin();
  SYMMEM_ROLLED
  for (uint32 place = inboxes.thread(); good && place < shares.vectors(); place += inboxes.threads()) {
    SYMMEM_ROLLED
    for (uint32 step = 1; step < inboxes.world(); ++step) {
      const uint32 member = group.after(step);
      inboxes.send_to(member, place, to_packet(shares.source(member).load(place)));
    }
  }
  inboxes.count();
  SYMMEM_ROLLED
  for (uint32 place = inboxes.thread(); good && place < shares.vectors(); place += inboxes.threads()) {
    const arch::Vector16 own[1] = {from_packet(to_packet(shares.source(group.rank()).load(place)))};
    arch::Vector16 results[1];
    good = reduce_arrived<Element, most, 1>(inboxes, group.rank(), Sum(arguments.reduce), place, 0, 1, own, results);
    if (!good) break;
    const arch::Vector16 packet = to_packet(results[0]);
    SYMMEM_ROLLED
    for (uint32 step = 1; step < inboxes.world(); ++step) inboxes.send_to(group.after(step), shares.vectors() + place, packet);
    shares.destination(group.rank()).store(place, from_packet(packet));
  }
  SYMMEM_ROLLED
  for (uint32 place = inboxes.thread(); good && place < shares.vectors(); place += inboxes.threads()) {
    SYMMEM_ROLLED
    for (uint32 peer = 0; good && peer < inboxes.peers(); ++peer) {
      arch::Vector16 data[1][1];
      good = inboxes.template receive<1, 1>(peer, shares.vectors() + place, 0, 1, data);
      if (good) shares.destination(peer < group.rank() ? peer : peer + 1).store(place, data[0][0]);
    }
  }
  arch::end_waits();
}

}  // namespace symmem
