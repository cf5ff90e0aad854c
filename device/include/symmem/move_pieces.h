// Moves by pushing pieces through inboxes.
#pragma once

#include "symmem/pieces.h"

namespace symmem {

// Loads of a thread in flight: those of a piece of 4 KiB, with warps of 32 threads.
constexpr int move_vectors = 8;

// Copies a piece of this rank's message to itself, if it is not in place.
SYMMEM_DEVICE void keep_piece(const PieceArguments& arguments, const Members& members,
                              const PieceChannel<PieceArguments>& channel) {
  const uint32 own = members.rank();
  const uint64 destination = arguments.destinations[own], source = arguments.sources[own];
  if (destination == source) return;
  copy_piece<move_vectors>(destination + channel.begin, source + channel.begin,
                           channel.bytes_of(arguments.receive_bytes[own]));
}

// Takes a piece of every peer's message.
SYMMEM_DEVICE void take_pieces(const PieceArguments& arguments, const Members& members,
                               const PieceChannel<PieceArguments>& channel) {
  const uint64 slots = channel.slots(members.rank());
  SYMMEM_ROLLED
  for (uint32 step = 1; step < members.world(); ++step) {
    const uint32 peer = members.after(step);
    copy_piece<move_vectors>(arguments.destinations[peer] + channel.begin, channel.slot_from(peer, slots),
                             channel.bytes_of(arguments.receive_bytes[peer]));
  }
}

// Sends and receives messages as PieceArguments says. Called by every thread of every block, with at least two warps per
// block.
SYMMEM_DEVICE void collective_pieces(const PieceArguments& arguments) {
  enter_collective();
  Members members(arguments.group);
  const PieceWarp warp;
  if (!warp.works) return;
  PieceChannel<PieceArguments> channel(arguments, members, warp);
  SYMMEM_ROLLED
  for (; channel.begin < arguments.longest; channel.next()) {
    if (warp.pushes) {
      if (!channel.wait_free()) return;
      SYMMEM_ROLLED
      for (uint32 step = 1; step < members.world(); ++step) {
        const uint32 peer = members.after(step);
        copy_piece<move_vectors>(channel.slot_at(peer), arguments.sources[peer] + channel.begin,
                                 channel.bytes_of(arguments.send_bytes[peer]));
      }
      channel.pushed();
    } else {
      keep_piece(arguments, members, channel);
      if (!channel.wait_arrived()) return;
      if (arguments.in_place != 0 && !channel.wait_pushed()) return;
      take_pieces(arguments, members, channel);
      channel.taken();
    }
  }
  channel.leave(warp.pushes);
}

}  // namespace symmem
