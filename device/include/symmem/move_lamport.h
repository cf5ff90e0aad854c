// Moves in Lamport packets. What is moved may be any bits, also those of the empty word. So a line of packets, one of each
// of `line_threads` adjacent threads, has a vector of marks in the last thread's place: bit t of its word w says that word w
// of thread t's data is the one for which the empty word stands. The last thread has no data, and its own bits are always
// set, so that no word of the marks is empty. Of 32 vectors 31 are data: fewer bytes are lost than by a flag in each line
// of 128 bytes (NCCL's LL128), and no line need arrive as a whole.
//
// Small kernels for the usual calls, of equal messages between all members, and one for all, as in reduce_lamport.h, with
// which they share the inboxes.
#pragma once

#include "symmem/lamport.h"

namespace symmem {

// Number of data vectors in a line.
constexpr uint32 line_vectors = arch::line_threads - 1;
// The word of data for which the empty word would stand.
constexpr uint32 marked_word = ~0u;

// Where a thread's packet lies in the inbox, and its vector in the message.
class LinePlace {
 public:
  SYMMEM_DEVICE explicit LinePlace(uint32 place) : place(place) {}

  SYMMEM_DEVICE uint32 lane() const { return place % arch::line_threads; }
  SYMMEM_DEVICE bool is_marks() const { return lane() == line_vectors; }
  // The line's first vector, and this thread's, as indices in the message.
  SYMMEM_DEVICE uint32 first() const { return place / arch::line_threads * line_vectors; }
  SYMMEM_DEVICE uint32 vector() const { return first() + lane(); }

  uint32 place;
};

// Returns the packet of a thread's vector, or the line's marks. Called by every thread of a line.
SYMMEM_DEVICE arch::Vector16 to_marked(const LinePlace& at, const arch::Vector16& data) {
  arch::Vector16 packet = to_packet(data);
  SYMMEM_UNROLL
  for (int word = 0; word < 4; ++word) {
    const uint32 marks = arch::line_votes(at.is_marks() || data.words[word] == marked_word);
    if (at.is_marks()) packet.words[word] = marks;
  }
  return packet;
}

// Returns a thread's vector from what LamportInboxes::receive returned. Called by every thread of a line.
SYMMEM_DEVICE arch::Vector16 from_marked(const LinePlace& at, arch::Vector16 data) {
  SYMMEM_UNROLL
  for (int word = 0; word < 4; ++word) {
    const uint32 marks = ~arch::from_last_of_line(data.words[word]);
    if ((marks >> at.lane() & 1) != 0) data.words[word] = marked_word;
  }
  return data;
}

// Moves whole vectors at multiples of 16, at most `places` per thread, in a group of `fixed_world` if that is not 0, else of
// at most lamport_peers + 1. Called by every thread of every block, as the other kernel here.
template <int most, int places, uint32 fixed_world>
SYMMEM_DEVICE void move_few_vectors(const MoveLamportArguments& arguments) {
  Group group(arguments.group);
  LamportInboxes<fixed_world, MoveLamportArguments> inboxes(arguments, group);
  const uint32 rank = group.rank();
  const uint32 vectors = static_cast<uint32>(arguments.bytes / 16);
  const uint32 stride = inboxes.threads();
  const uint32 peers = inboxes.peers();
  const MoveLamportPair pair = arguments.pair;
  const uint64 own_source = fixed_world == 2 ? pair.own_source : arguments.sources[rank];
  const uint64 own_destination = fixed_world == 2 ? pair.own_destination : arguments.destinations[rank];
  const auto place_of = [&](int index) { return LinePlace(inboxes.thread() + index * stride); };
  arch::wait_for_prerequisites();
  // The sources first: their loads wait for nothing.
  arch::Vector16 sent[most][places];
  uint32 valid = 0, filled = 0;
  SYMMEM_UNROLL
  for (int index = 0; index < places; ++index) {
    const LinePlace at = place_of(index);
    if (at.first() < vectors) valid |= 1u << index;
    if (!at.is_marks() && at.vector() < vectors) filled |= 1u << index;
    SYMMEM_UNROLL
    for (int peer = 0; peer < most; ++peer) {
      sent[peer][index] = {};
      if ((filled >> index & 1) == 0 || static_cast<uint32>(peer) >= peers) continue;
      const uint64 source = fixed_world == 2 ? pair.sent : arguments.sources[group.after(peer + 1)];
      sent[peer][index] = arch::load(pointer<const arch::Vector16>(source) + at.vector());
    }
  }
  // By vote, since the threads of a line send together.
  if (!arch::warp_all(inboxes.begin())) valid = 0;
  SYMMEM_UNROLL
  for (int index = 0; index < places; ++index) {
    // A line's threads agree on it, as their votes need.
    if ((valid >> index & 1) == 0) continue;
    const LinePlace at = place_of(index);
    SYMMEM_UNROLL
    for (int peer = 0; peer < most; ++peer) {
      if (static_cast<uint32>(peer) >= peers) continue;
      inboxes.send_after(peer + 1, at.place, to_marked(at, sent[peer][index]));
    }
  }
  inboxes.count();
  if (valid == 0) return;
  // Copy this rank's own part while packets are in flight.
  if (own_source != own_destination) {
    SYMMEM_UNROLL
    for (int index = 0; index < places; ++index) {
      if ((filled >> index & 1) == 0) continue;
      const uint32 vector = place_of(index).vector();
      const arch::Vector16 data = arch::load(pointer<const arch::Vector16>(own_source) + vector);
      arch::store(pointer<arch::Vector16>(own_destination) + vector, data);
    }
  }
  arch::Vector16 data[most][places];
  if (!arch::warp_all(inboxes.template receive<most, places>(0, inboxes.thread(), stride, valid, data))) return;
  // The blocks of the peers that this block waits for are resident: they have sent.
  group.answered(arguments.dependents);
  SYMMEM_UNROLL
  for (int index = 0; index < places; ++index) {
    if ((valid >> index & 1) == 0) continue;
    const LinePlace at = place_of(index);
    SYMMEM_UNROLL
    for (int peer = 0; peer < most; ++peer) {
      if (static_cast<uint32>(peer) >= peers) continue;
      const arch::Vector16 vector = from_marked(at, data[peer][index]);
      if ((filled >> index & 1) == 0) continue;
      // The inbox has the peers in the members' order.
      const uint32 member = static_cast<uint32>(peer) < rank ? peer : peer + 1;
      const uint64 destination = fixed_world == 2 ? pair.arriving : arguments.destinations[member];
      arch::store(pointer<arch::Vector16>(destination) + at.vector(), vector);
    }
  }
}

// Copies this rank's message to itself with the whole grid. Four loads at once hide their time.
template <class Inboxes>
SYMMEM_DEVICE void copy_own(const Inboxes& inboxes, uint64 destination, uint64 source, uint64 bytes) {
  const uint32 vectors = static_cast<uint32>((bytes + 15) / 16);
  const uint32 whole = ((source | destination) & 15) == 0 ? static_cast<uint32>(bytes / 16) : 0;
  const uint32 stride = inboxes.threads();
  SYMMEM_ROLLED
  for (uint32 first = inboxes.thread(); first < whole; first += 4 * stride) {
    arch::Vector16 data[4];
    SYMMEM_UNROLL
    for (int step = 0; step < 4; ++step) {
      if (first + step * stride < whole) data[step] = arch::load(pointer<const arch::Vector16>(source) + first + step * stride);
    }
    SYMMEM_UNROLL
    for (int step = 0; step < 4; ++step) {
      if (first + step * stride < whole) arch::store(pointer<arch::Vector16>(destination) + first + step * stride, data[step]);
    }
  }
  SYMMEM_ROLLED
  for (uint32 vector = whole + inboxes.thread(); vector < vectors; vector += stride) {
    LamportMessage(destination, bytes).store(vector, LamportMessage(source, bytes).load(vector));
  }
}

// Moves messages of any length from any address to any address, in any group; if `rooted`, from the sender to the receiver
// only. Calls with a root have a kernel of their own: its tests would cost every other call up to 10 %.
template <bool rooted>
SYMMEM_DEVICE void move_any(const MoveLamportArguments& arguments) {
  Group group(arguments.group);
  LamportInboxes<0, MoveLamportArguments> inboxes(arguments, group);
  const uint32 rank = group.rank();
  const auto bytes_between = [&](uint32 sender, uint32 receiver) -> uint64 {
    const bool sent = !rooted || (is_named(arguments.sender, sender) && is_named(arguments.receiver, receiver));
    return sent ? arguments.bytes : 0;
  };
  const uint32 vectors = static_cast<uint32>((arguments.bytes + 15) / 16);
  arch::wait_for_prerequisites();
  const uint32 end = arch::warp_all(inboxes.begin()) ? vectors : 0;
  // Return the end of a message's vectors, and of its packets. An empty message has a line, too.
  const auto filled_of = [end](uint64 bytes) { return rooted && bytes == 0 ? 0 : end; };
  const auto end_of = [end](uint64 bytes) { return rooted && bytes == 0 ? 1 : end; };
  SYMMEM_ROLLED
  for (LinePlace at(inboxes.thread()); at.first() < end; at.place += inboxes.threads()) {
    SYMMEM_ROLLED
    for (uint32 step = 1; step < inboxes.world(); ++step) {
      const uint32 member = group.after(step);
      const uint64 bytes = bytes_between(rank, member);
      if (rooted && at.first() >= end_of(bytes)) continue;
      arch::Vector16 data{};
      if (!at.is_marks() && at.vector() < filled_of(bytes)) data = LamportMessage(arguments.sources[member], bytes).load(at.vector());
      inboxes.send_to(member, at.place, to_marked(at, data));
    }
  }
  inboxes.count();
  // While packets are in flight.
  if (end != 0 && bytes_between(rank, rank) != 0 && arguments.sources[rank] != arguments.destinations[rank]) {
    copy_own(inboxes, arguments.destinations[rank], arguments.sources[rank], arguments.bytes);
  }
  bool good = true;
  SYMMEM_ROLLED
  for (LinePlace at(inboxes.thread()); good && at.first() < end; at.place += inboxes.threads()) {
    SYMMEM_ROLLED
    for (uint32 peer = 0; good && peer < inboxes.peers(); ++peer) {
      const uint32 member = peer < rank ? peer : peer + 1;
      const uint64 bytes = bytes_between(member, rank);
      if (rooted && at.first() >= end_of(bytes)) continue;
      arch::Vector16 data[1][1];
      good = arch::warp_all(inboxes.template receive<1, 1>(peer, at.place, 0, 1, data));
      const arch::Vector16 vector = from_marked(at, data[0][0]);
      if (!good || at.is_marks() || at.vector() >= filled_of(bytes)) continue;
      LamportMessage(arguments.destinations[member], bytes).store(at.vector(), vector);
    }
  }
  arch::end_waits();
}

}  // namespace symmem
