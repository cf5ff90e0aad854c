// Pieces through inboxes: every member stores what it has for another member into that member's inbox, piece by piece,
// and each member takes the pieces from its own memory. So a call needs no address in a peer's memory but the inbox's.
//
// Warps work in pairs. One warp pushes: once each peer has taken the previous piece from a slot, it stores the next
// piece there and raises a flag. The other warp takes: once all peers' pieces have arrived, it does its work with them
// and raises a flag that the slots are free. Counters are never reset, and a call ends only after it has taken every
// piece sent to it, so the next call, of any grid and any kernel on these inboxes, continues with them.
#pragma once

#include "symmem/group.h"

namespace symmem {

constexpr uint32 piece_row = arch::warp_size * 16;  // bytes that a warp moves in one access

SYMMEM_DEVICE uint32 piece_lane() { return arch::thread_index() % arch::warp_size; }

// Copies at most a piece with one warp, `vectors` loads of a thread in flight.
template <int vectors = 4>
SYMMEM_DEVICE void copy_piece(uint64 destination, uint64 source, uint32 bytes) {
  const uint32 whole = bytes & ~15u;
  if (((destination | source) & 15) == 0) {
    // All loads of a step come before its stores.
    SYMMEM_ROLLED
    for (uint32 offset = piece_lane() * 16; offset < whole; offset += vectors * piece_row) {
      arch::Vector16 loaded[vectors];
      SYMMEM_UNROLL
      for (int vector = 0; vector < vectors; ++vector) {
        const uint32 at = offset + vector * piece_row;
        loaded[vector] = at < whole ? arch::load(pointer<const arch::Vector16>(source + at)) : arch::Vector16{};
      }
      SYMMEM_UNROLL
      for (int vector = 0; vector < vectors; ++vector) {
        const uint32 at = offset + vector * piece_row;
        if (at < whole) arch::store(pointer<arch::Vector16>(destination + at), loaded[vector]);
      }
    }
  } else {
    SYMMEM_ROLLED
    for (uint32 offset = piece_lane() * 16; offset < whole; offset += piece_row) {
      store_anywhere(destination + offset, load_anywhere(source + offset));
    }
  }
  SYMMEM_ROLLED
  for (uint32 at = whole + piece_lane(); at < bytes; at += arch::warp_size) {
    arch::store(pointer<uint8>(destination + at), arch::load(pointer<const uint8>(source + at)));
  }
}

// A warp of a pair. Warps beyond the last whole pair do nothing.
struct PieceWarp {
  SYMMEM_DEVICE PieceWarp() {
    const uint32 pairs = arch::thread_count() / (2 * arch::warp_size);
    const uint32 warp = arch::thread_index() / arch::warp_size;
    works = warp < 2 * pairs;
    pushes = warp < pairs;
    channel = arch::block_index() * pairs + (pushes ? warp : warp - pairs);
    channels = arch::block_count() * pairs;
  }

  bool works;
  bool pushes;      // else it takes
  uint32 channel;   // of the pair
  uint32 channels;  // of the grid
};

// A pair's channel, which talks to the same channel of the peers. `Arguments` has the inboxes and their division.
//
// A channel carries as many pieces to and from every peer as its share of the longest message has, some of them empty, so
// that one count serves all peers.
template <class Arguments>
class PieceChannel {
 public:
  SYMMEM_DEVICE PieceChannel(const Arguments& arguments, Members& members, const PieceWarp& warp)
      : arguments_(arguments),
        members_(members),
        offset_(warp.channel * arguments.channel_bytes),
        step_(static_cast<uint64>(warp.channels) * arguments.piece_bytes),
        begin(static_cast<uint64>(warp.channel) * arguments.piece_bytes),
        number(arch::load(counter(warp.pushes))) {}

  // For the pushing warp, called by every thread: waits until the peers have taken the previous piece in this slot.
  // Returns false if the wait gave up.
  SYMMEM_DEVICE bool wait_free() { return wait(members_.world(), number + 1 - arguments_.slots); }

  // Says that this piece is in the peers' slots, and for the taking warp that this rank's data has been read.
  SYMMEM_DEVICE void pushed() const {
    arch::release_wave();
    arch::warp_barrier();
    each_peer([&](uint32 peer) { arch::publish_flag(word(peer, members_.rank()), number + 1); });
    if (piece_lane() == 0) arch::publish_taken(word(members_.rank(), members_.rank()), number + 1);
  }

  // For the taking warp, called by every thread: waits for all peers' pieces. Returns false if the wait gave up.
  SYMMEM_DEVICE bool wait_arrived() {
    if (!wait(0, number + 1)) return false;
    // This block's peers are resident: one of their warps has pushed.
    members_.answered();
    return true;
  }

  // Waits until the pushing warp has read this rank's data of this piece. Returns false if the wait gave up.
  SYMMEM_DEVICE bool wait_pushed() {
    const uint32 rank = members_.rank();
    bool reached = true;
    if (piece_lane() == 0) {
      reached = members_.waiter().until_reached(word(rank, rank), number + 1, members_.kind(), members_.number(rank),
                                                members_.channel());
    }
    return arch::warp_all(reached);
  }

  // Says that the slots of this piece are free.
  SYMMEM_DEVICE void taken() const {
    arch::warp_barrier();
    each_peer([&](uint32 peer) {
      arch::publish_taken(word(peer, members_.world() + members_.rank()), number + 1);
    });
  }

  // Proceeds to the channel's next piece.
  SYMMEM_DEVICE void next() {
    begin += step_;
    ++number;
  }

  // Writes the count back, after the last piece. A wait of the whole warp must separate this from the loads of the count,
  // so a channel without a piece writes nothing.
  SYMMEM_DEVICE void leave(bool pushes) const {
    if (begin >= step_ && piece_lane() == 0) arch::store(counter(pushes), number);
  }

  // Return the address at a member of the first sender's slot for this piece, and this rank's slot at a peer, and at
  // this rank a member's slot.
  SYMMEM_DEVICE uint64 slots(uint32 at) const {
    const uint64 words = ((2 * members_.world() + 1) * push_word_stride + 127) & ~127ull;
    const uint32 index = number & (arguments_.slots - 1);
    return arguments_.inboxes[at] + offset_ + words + static_cast<uint64>(index) * arguments_.piece_bytes;
  }
  SYMMEM_DEVICE uint64 slot_at(uint32 peer) const { return sender(peer, members_.rank(), slots(peer)); }
  SYMMEM_DEVICE uint64 slot_from(uint32 member, uint64 slots) const { return sender(members_.rank(), member, slots); }

  // Returns the bytes of this piece of a message of `bytes`.
  SYMMEM_DEVICE uint32 bytes_of(uint64 bytes) const {
    if (begin >= bytes) return 0;
    return bytes - begin < arguments_.piece_bytes ? static_cast<uint32>(bytes - begin) : arguments_.piece_bytes;
  }

 private:
  SYMMEM_DEVICE uint32* word(uint32 at, uint32 index) const {
    return pointer<uint32>(arguments_.inboxes[at] + offset_ + index * push_word_stride);
  }
  SYMMEM_DEVICE uint32* counter(bool pushes) const {
    return word(members_.rank(), 2 * members_.world()) + (pushes ? 0 : 1);
  }

  // Returns the slot at member `at` for pieces from member `from`. A member's peers are numbered from 0.
  SYMMEM_DEVICE uint64 sender(uint32 at, uint32 from, uint64 slots) const {
    const uint32 index = from < at ? from : from - 1;
    return slots + index * (static_cast<uint64>(arguments_.slots) * arguments_.piece_bytes);
  }

  // Distributes the peers over the lanes.
  template <class Work>
  SYMMEM_DEVICE void each_peer(Work work) const {
    SYMMEM_ROLLED
    for (uint32 step = piece_lane() + 1; step < members_.world(); step += arch::warp_size) work(members_.after(step));
  }

  // Waits until every peer p has raised its word `first` + p here to `expected`.
  SYMMEM_DEVICE bool wait(uint32 first, uint32 expected) {
    bool reached = true;
    each_peer([&](uint32 peer) {
      reached = reached && members_.waiter().until_reached(word(members_.rank(), first + peer), expected, members_.kind(),
                                                           members_.number(peer), members_.channel());
    });
    return arch::warp_all(reached);
  }

  const Arguments& arguments_;
  Members& members_;
  const uint64 offset_;  // byte offset of the channel in every inbox
  const uint64 step_;    // bytes from one of its pieces to the next

 public:
  uint64 begin;   // byte offset of this piece in a message
  uint32 number;  // of this piece, counted from the first call on these inboxes
};

}  // namespace symmem
