// LL packets for the usual calls: whole units of 8 bytes at multiples of 8, at most `rows` a thread, in one round. What is
// only jumped over costs as much as a tenth of a small kernel's time, since each jump misses the instruction cache. So
// there are neither loops over rounds nor code for odd ends, and the sources are loaded before the counters are needed. The
// packets are those of collective_packets, so each member chooses its own kernel.
#pragma once

#include "symmem/packets.h"

namespace symmem {

// Sends and receives as PacketArguments says, in a group of two if `pair`, else of at most peers_at_once. Called by every
// thread of every block.
template <bool pair, int rows>
SYMMEM_DEVICE void move_few_units(const PacketArguments& arguments) {
  constexpr int most = pair ? 1 : peers_at_once;
  const uint32 own = arguments.group.rank;
  const uint32 world = pair ? 2 : arguments.group.world;
  const uint32 first = pair ? own ^ 1 : 0;
  const uint32 width = arch::thread_count();
  const uint64 stride = static_cast<uint64>(width) * arch::block_count() * unit_bytes;
  const uint64 offset = static_cast<uint64>(width * arch::block_index() + arch::thread_index()) * unit_bytes;
  const auto is_peer = [&](uint32 index) { return pair || (index < world && index != own); };
  // The first thread sends even if the message has no such unit, so that each use has a packet.
  const auto goes = [&](uint64 bytes, int row) {
    return offset + row * stride < bytes || (row == 0 && arch::thread_index() == 0);
  };
  enter_collective();
  Members members(arguments.group);
  // The sources first: their loads wait for nothing.
  uint64 units[most][rows];
  SYMMEM_UNROLL
  for (int peer = 0; peer < most; ++peer) {
    SYMMEM_UNROLL
    for (int row = 0; row < rows; ++row) {
      units[peer][row] = 0;
      const uint64 at = offset + row * stride;
      if (!is_peer(peer) || at >= arguments.send_bytes[first + peer]) continue;
      units[peer][row] = arch::load(pointer<const uint64>(arguments.sources[first + peer] + at));
    }
  }
  const uint32 inbox_bytes = members.inbox_bytes();
  uint32 flag = 0;
  if (!members.take_uses(1, flag)) return;
  const PacketUse use(members, inbox_bytes, flag);
  uint32 wanted = 0;
  SYMMEM_UNROLL
  for (int peer = 0; peer < most; ++peer) {
    if (!is_peer(peer)) continue;
    SYMMEM_UNROLL
    for (int row = 0; row < rows; ++row) {
      if (goes(arguments.send_bytes[first + peer], row)) use.send(first + peer, arch::thread_index() + row * width, units[peer][row]);
      if (goes(arguments.receive_bytes[first + peer], row)) wanted |= 1u << (peer * rows + row);
    }
  }
  // Copy this rank's own part while packets are in flight.
  if (arguments.destinations[own] != arguments.sources[own]) {
    SYMMEM_UNROLL
    for (int row = 0; row < rows; ++row) {
      const uint64 at = offset + row * stride;
      if (at >= arguments.send_bytes[own]) continue;
      arch::store(pointer<uint64>(arguments.destinations[own] + at), arch::load(pointer<const uint64>(arguments.sources[own] + at)));
    }
  }
  // All threads of the block have loaded the counters. The next use of them is another kernel's.
  arch::block_barrier();
  members.leave();
  arch::Packet packets[most * rows];
  if (!use.receive<most, rows>(first, wanted, arch::thread_index(), packets, width)) return;
  // It has a packet from every peer's block.
  if (arch::thread_index() == 0) members.answered();
  SYMMEM_UNROLL
  for (int peer = 0; peer < most; ++peer) {
    SYMMEM_UNROLL
    for (int row = 0; row < rows; ++row) {
      const uint64 at = offset + row * stride;
      if (!is_peer(peer) || at >= arguments.receive_bytes[first + peer]) continue;
      arch::store(pointer<uint64>(arguments.destinations[first + peer] + at), PacketUse::unit_in(packets[peer * rows + row]));
    }
  }
}

}  // namespace symmem
