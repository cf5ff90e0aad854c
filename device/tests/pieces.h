// Moves in pieces, alone and behind pushed reductions on the same inboxes.
#pragma once

#include "world.h"

namespace {

inline PieceArguments pieces(World& world, uint32 rank) {
  const ReducePushArguments pushed = world.push(rank);
  PieceArguments arguments{};
  arguments.group = pushed.reduce.group;
  std::memcpy(arguments.inboxes, pushed.inboxes, sizeof arguments.inboxes);
  arguments.channel_bytes = pushed.channel_bytes;
  arguments.channels = pushed.channels;
  arguments.slots = pushed.slots;
  arguments.piece_bytes = pushed.piece_bytes;
  return arguments;
}

// All-to-all of messages of any length: in place at some ranks and not at others, at any alignment. Several calls with
// different grids, through which each rank goes at its own speed.
inline void moves_in_pieces(World& world, Random& random) {
  const uint32 ranks = world.ranks;
  // In place, a message takes the room of the one that arrives, so those of a pair are as long as each other.
  const uint64 room = 300;
  std::vector<uint64> bytes(ranks * ranks);
  uint64 longest = up_to(random, 20);
  for (uint32 from = 0; from < ranks; ++from) {
    for (uint32 to = from; to < ranks; ++to) {
      const uint64 length = up_to(random, 3) == 0 ? 0 : up_to(random, room);
      bytes[from * ranks + to] = bytes[to * ranks + from] = length;
      longest = std::max(longest, length);
    }
  }
  const auto offset = [&] { return up_to(random, 1) * up_to(random, 17); };
  std::vector<Buffer> outputs = buffers(ranks, room * ranks, offset);
  fill(outputs, random);
  const std::vector<Buffer> inputs = outputs;
  std::vector<bool> in_place;
  bool any = false;
  for (uint32 rank = 0; rank < ranks; ++rank) {
    in_place.push_back(up_to(random, 1) != 0);
    any = any || in_place.back();
  }
  struct Grid {
    uint32 blocks, threads;
  };
  std::vector<Grid> grids;
  // An in-place call overwrites its input, so it cannot be repeated.
  for (uint32 left = any ? 0 : up_to(random, 2), done = 0; done <= left; ++done) {
    grids.push_back({1 + up_to(random, 1), 2 * arch::warp_size * (1 + up_to(random, 1)) + up_to(random, 2)});
  }
  std::vector<std::thread> running;
  for (uint32 rank = 0; rank < ranks; ++rank) {
    running.emplace_back([&, rank] {
      PieceArguments arguments = pieces(world, rank);
      for (uint32 member = 0; member < ranks; ++member) {
        arguments.sources[member] = (in_place[rank] ? outputs : inputs)[rank].at(member * room);
        arguments.destinations[member] = outputs[rank].at(member * room);
        arguments.send_bytes[member] = bytes[rank * ranks + member];
        arguments.receive_bytes[member] = bytes[member * ranks + rank];
      }
      arguments.longest = longest;
      arguments.in_place = in_place[rank];
      for (const Grid& grid : grids) arch::launch(grid.blocks, grid.threads, 0, [&] { symmem_move_pieces(arguments); });
    });
  }
  for (auto& thread : running) thread.join();
  for (uint32 rank = 0; rank < ranks; ++rank) {
    for (uint32 from = 0; from < ranks; ++from) {
      const uint64 length = bytes[from * ranks + rank];
      same(outputs[rank], from * room, bytes_of(inputs[from], rank * room, length), "pieces bring each part where it belongs");
      same(outputs[rank], from * room + length, bytes_of(inputs[rank], from * room + length, room - length),
           "pieces touch nothing behind a message");
    }
  }
}

}  // namespace
