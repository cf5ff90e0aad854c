// Inboxes for Lamport packets of a world of host threads.
#pragma once

#include "symmem/reduce_lamport.h"

#include "world.h"

namespace {

inline LamportPair pair_of(const ReduceLamportArguments& arguments) {
  if (arguments.group.world != 2) return {};
  const uint32 rank = arguments.group.rank, peer = 1 - rank;
  return {arguments.sources[rank], arguments.sources[peer], arguments.inboxes[rank], arguments.inboxes[peer]};
}

// The inboxes of all ranks.
struct Inboxes {
  uint32 part_bytes;
  std::vector<std::vector<arch::Vector16>> inboxes;  // per rank
  std::vector<arch::Vector16> counters;              // per rank

  Inboxes(uint32 ranks, uint32 part_bytes) : part_bytes(part_bytes), counters(ranks) {
    for (uint32 rank = 0; rank < ranks; ++rank) inboxes.emplace_back(lamport_buffers * (ranks - 1) * part_bytes / 16);
  }

  template <class Arguments = ReduceLamportArguments>
  Arguments arguments(World& world, uint32 rank) {
    Arguments arguments{};
    arguments.group = world.group(rank);
    for (uint32 member = 0; member < world.ranks; ++member) arguments.inboxes[member] = address(inboxes[member].data());
    arguments.counters = address(&counters[rank]);
    arguments.part_bytes = part_bytes;
    return arguments;
  }
};

}  // namespace
