// LL packets (NCCL's low-latency protocol): 4 bytes of data and 4 bytes of flag in each 8 bytes, two of those in each
// 16-byte store. The receiver polls the data itself, so a message needs one crossing of the link, no fence, and twice
// its bytes.
//
// Blocks share a message in units of 8 bytes, and take tiles of one unit per thread in turn. What exceeds an inbox goes
// in further rounds. In every use of packets, each member sends at least one packet to each other and waits for one
// from each, and a block barrier ends the use. So when a block begins a use, its peers have read the packets of the use
// before the previous one, and two halves are enough.
#pragma once

#include "symmem/group.h"

namespace symmem {

// Data bytes in a packet.
constexpr uint64 unit_bytes = 8;
// Number of members to which packets are sent, or from which they are polled, together.
constexpr int peers_at_once = 8;

// The order in which a block's threads process messages; the longest message has `units` units.
class PacketRounds {
 public:
  SYMMEM_DEVICE PacketRounds(uint64 units, uint32 inbox_bytes) : units_(arch::per_thread(units)) {
    const uint32 threads = arch::thread_count();
    const uint32 packets = inbox_bytes / sizeof(arch::Packet);
    // If an inbox holds fewer packets than the block has threads, some threads are idle.
    width_ = threads < packets ? threads : packets;
    tiles_ = packets / width_;
    stride_ = arch::per_thread(static_cast<uint64>(width_) * arch::block_count());
    begin_ = arch::per_thread(static_cast<uint64>(width_) * arch::block_index());
  }

  // An iterator over this thread's units of this round.
  class Walk {
   public:
    SYMMEM_DEVICE explicit Walk(const PacketRounds& rounds)
        : unit(rounds.begin_ + arch::thread_index()), place(arch::per_thread(arch::thread_index())), rounds_(rounds),
          tiles_(place < rounds.width_ ? rounds.tiles_ : 0) {}
    SYMMEM_DEVICE bool more() const { return tiles_ != 0 && (unit < rounds_.units_ || always()); }
    SYMMEM_DEVICE void next() {
      unit = arch::per_thread(unit + rounds_.stride_);
      place += rounds_.width_;
      --tiles_;
    }
    // Whether to send a packet even if the message has no such unit.
    SYMMEM_DEVICE bool always() const { return place == 0; }

    uint64 unit;   // index in the message
    uint32 place;  // index in the inbox

   private:
    const PacketRounds& rounds_;
    uint32 tiles_;
  };
  SYMMEM_DEVICE Walk walk() const { return Walk(*this); }

  // Proceeds to the next round; returns false if this block has none.
  SYMMEM_DEVICE bool next() {
    begin_ = arch::per_thread(begin_ + stride_ * tiles_);
    return begin_ < units_;
  }

 private:
  uint64 units_;
  uint64 stride_;
  uint64 begin_;
  uint32 width_;
  uint32 tiles_;
};

SYMMEM_DEVICE uint64 units_of(uint64 bytes) { return (bytes + unit_bytes - 1) / unit_bytes; }

// Returns whether a unit is whole and aligned, so that one access suffices.
SYMMEM_DEVICE bool is_whole(uint64 message, uint64 bytes, uint64 unit) {
  return (unit + 1) * unit_bytes <= bytes && message % unit_bytes == 0;
}

SYMMEM_DEVICE uint64 load_whole(uint64 message, uint64 unit) { return arch::load(pointer<const uint64>(message) + unit); }

// Loads a partial or unaligned unit; bytes after the message's end are zero.
SYMMEM_DEVICE uint64 load_part(uint64 message, uint64 bytes, uint64 unit) {
  uint64 value = 0;
  uint64 offset = unit * unit_bytes;
  SYMMEM_ROLLED
  for (uint32 bits = 0; bits < 64 && offset < bytes; bits += 8, ++offset) {
    value |= static_cast<uint64>(arch::load(pointer<const uint8>(message + offset))) << bits;
  }
  return value;
}

SYMMEM_DEVICE void store_part(uint64 message, uint64 bytes, uint64 unit, uint64 value) {
  uint64 offset = unit * unit_bytes;
  SYMMEM_ROLLED
  for (uint32 bits = 0; bits < 64 && offset < bytes; bits += 8, ++offset) {
    arch::store(pointer<uint8>(message + offset), static_cast<uint8>(value >> bits));
  }
}

SYMMEM_DEVICE uint64 load_unit(uint64 message, uint64 bytes, uint64 unit) {
  return is_whole(message, bytes, unit) ? load_whole(message, unit) : load_part(message, bytes, unit);
}

SYMMEM_DEVICE void store_unit(uint64 message, uint64 bytes, uint64 unit, uint64 value) {
  if (is_whole(message, bytes, unit)) {
    arch::store(pointer<uint64>(message) + unit, value);
  } else {
    store_part(message, bytes, unit, value);
  }
}

// Copies a message with the whole grid.
SYMMEM_DEVICE void copy_units(uint64 destination, uint64 source, uint64 bytes) {
  const uint64 stride = static_cast<uint64>(arch::thread_count()) * arch::block_count();
  uint64 unit = static_cast<uint64>(arch::thread_count()) * arch::block_index() + arch::thread_index();
  SYMMEM_ROLLED
  for (; unit < units_of(bytes); unit += stride) store_unit(destination, bytes, unit, load_unit(source, bytes, unit));
}

// Returns the index of the lowest set bit; `bits` is not 0.
SYMMEM_DEVICE uint32 lowest(uint32 bits) {
  uint32 index = 0;
  SYMMEM_ROLLED
  while ((bits >> index & 1) == 0) ++index;
  return index;
}

// One use of packets: one half's inboxes and the flag.
class PacketUse {
 public:
  SYMMEM_DEVICE PacketUse(Members& members, uint32 inbox_bytes, uint32 flag)
      : members_(members), inbox_bytes_(inbox_bytes), flag_(flag) {}

  SYMMEM_DEVICE void send(uint32 member, uint32 place, uint64 unit) const {
    const uint64 inbox = members_.inbox(member, members_.rank(), flag_ & 1, inbox_bytes_);
    const uint64 flag = static_cast<uint64>(flag_) << 32;
    const arch::Packet packet = {{flag | static_cast<uint32>(unit), flag | unit >> 32}};
    arch::store_packet(pointer<arch::Packet>(inbox) + place, packet);
  }

  // Waits for packets from the members from `first` on, at `rows` places each, `width` apart from `place` on, all at once:
  // for those whose bits are set in `wanted`, `rows` bits for each member. Returns false if a wait gave up.
  template <int most, int rows = 1>
  SYMMEM_DEVICE bool receive(uint32 first, uint32 wanted, uint32 place, arch::Packet* packets, uint32 width = 0) const {
    const uint64 inbox = members_.inbox(members_.rank(), first, flag_ & 1, inbox_bytes_) + place * sizeof(arch::Packet);
    SYMMEM_UNROLL
    for (int index = 0; index < most * rows; ++index) {
      arch::set_any(packets[index].halves[0]);
      arch::set_any(packets[index].halves[1]);
    }
    uint32 missing = wanted;
    while (missing != 0) {
      // Only loads and compares here: see Waiter::until_reached.
      SYMMEM_ROLLED
      for (uint32 polls = polls_per_clock; missing != 0 && polls != 0; --polls) {
        // Recompute the addresses in each round: registers are scarcer than instructions here.
        const uint64 base = arch::opaque(inbox);
        const uint32 step = arch::per_thread(inbox_bytes_);
        SYMMEM_UNROLL
        for (int index = 0; index < most * rows; ++index) {
          if ((missing >> index & 1) == 0) continue;
          const uint64 at = static_cast<uint64>(index / rows) * step + index % rows * (width * sizeof(arch::Packet));
          packets[index] = arch::load_packet(pointer<const arch::Packet>(base + at));
        }
        SYMMEM_UNROLL
        for (int index = 0; index < most * rows; ++index) {
          // The two halves arrive independently.
          const uint64* halves = packets[index].halves;
          if ((missing >> index & 1) != 0 && flag_in(halves[0]) == flag_ && flag_in(halves[1]) == flag_) missing &= ~(1u << index);
        }
        arch::pause();
      }
      if (missing != 0 && gives_up(first + lowest(missing) / rows)) return false;
    }
    return true;
  }

  // Returns the data of a packet.
  SYMMEM_DEVICE static uint64 unit_in(const arch::Packet& packet) {
    return packet.halves[1] << 32 | (packet.halves[0] & 0xffffffffu);
  }

 private:
  SYMMEM_DEVICE static uint32 flag_in(uint64 half) { return static_cast<uint32>(half >> 32); }

  // Records the previous flag as the value seen, since the inbox may hold a packet of any age.
  SYMMEM_DEVICE bool gives_up(uint32 member) const {
    return members_.waiter().gives_up(members_.kind(), members_.number(member), members_.channel(), flag_, flag_ - 1);
  }

  Members& members_;
  const uint32 inbox_bytes_;
  const uint32 flag_;
};

// Sends one unit to each peer whose message has that unit. `sources` and `bytes` are functions of the member.
template <class Sources, class Bytes>
SYMMEM_DEVICE void send_unit(const Members& members, const PacketUse& use, const PacketRounds::Walk& walk,
                             Sources sources, Bytes bytes) {
  SYMMEM_ROLLED
  for (uint32 first = arch::opaque(1u); first < members.world(); first += peers_at_once) {
    uint64 units[peers_at_once];
    SYMMEM_UNROLL
    for (int peer = 0; peer < peers_at_once; ++peer) arch::set_any(units[peer]);
    uint32 whole = 0;
    uint32 same = 0;
    uint32 parts = 0;
    uint64 last = 0;
    // All loads before the first store. If consecutive messages are the same memory, one load serves them.
    SYMMEM_UNROLL
    for (int peer = 0; peer < peers_at_once; ++peer) {
      if (first + peer >= members.world()) continue;
      const uint32 member = members.after(first + peer);
      const uint64 source = sources(member);
      const uint64 length = bytes(member);
      if (is_whole(source, length, walk.unit)) {
        whole |= 1u << peer;
        if (peer > 0 && source == last) {
          same |= 1u << peer;
        } else {
          units[peer] = load_whole(source, walk.unit);
        }
        last = source;
      } else {
        if (walk.always() || walk.unit < units_of(length)) parts |= 1u << peer;
        last = 0;
      }
    }
    // Wait for all loads here. AMD counts loads and stores together, so a wait between two stores would also wait until
    // the first one is written.
    SYMMEM_UNROLL
    for (int peer = 0; peer < peers_at_once; ++peer) units[peer] = arch::per_thread(units[peer]);
    SYMMEM_UNROLL
    for (int peer = 0; peer < peers_at_once; ++peer) {
      if ((whole >> peer & 1) == 0) continue;
      if (peer > 0 && (same >> peer & 1) != 0) units[peer] = units[peer - 1];
      use.send(members.after(first + peer), walk.place, units[peer]);
    }
    SYMMEM_ROLLED
    for (; parts != 0; parts &= parts - 1) {
      const uint32 member = members.after(first + lowest(parts));
      use.send(member, walk.place, load_part(sources(member), bytes(member), walk.unit));
    }
  }
}

// Receives one unit from each peer whose message has that unit, and stores it at its destination.
template <class Destinations, class Bytes>
SYMMEM_DEVICE bool receive_unit(const Members& members, const PacketUse& use, const PacketRounds::Walk& walk,
                                Destinations destinations, Bytes bytes) {
  SYMMEM_ROLLED
  for (uint32 first = arch::opaque(0u); first < members.world(); first += peers_at_once) {
    uint32 whole = 0;
    uint32 parts = 0;
    SYMMEM_UNROLL
    for (int peer = 0; peer < peers_at_once; ++peer) {
      const uint32 member = first + peer;
      if (member >= members.world() || member == members.rank()) continue;
      const uint64 length = bytes(member);
      if (is_whole(destinations(member), length, walk.unit)) {
        whole |= 1u << peer;
      } else if (walk.always() || walk.unit < units_of(length)) {
        parts |= 1u << peer;
      }
    }
    arch::Packet packets[peers_at_once];
    if (!use.receive<peers_at_once>(first, whole | parts, walk.place, packets)) return false;
    // Recompute addresses: no registers are left for them beside the packets.
    const uint32 again = arch::opaque(first);
    SYMMEM_UNROLL
    for (int peer = 0; peer < peers_at_once; ++peer) {
      if ((whole >> peer & 1) != 0) arch::store(pointer<uint64>(destinations(again + peer)) + walk.unit, PacketUse::unit_in(packets[peer]));
    }
    SYMMEM_ROLLED
    for (; parts != 0; parts &= parts - 1) {
      const uint32 which = lowest(parts);
      uint64 value = 0;
      SYMMEM_UNROLL
      for (int peer = 0; peer < peers_at_once; ++peer) {
        if (static_cast<uint32>(peer) == which) value = PacketUse::unit_in(packets[peer]);
      }
      store_part(destinations(again + which), bytes(again + which), walk.unit, value);
    }
  }
  return true;
}

// Sends and receives messages as PacketArguments says. Called by every thread of every block.
SYMMEM_DEVICE void collective_packets(const PacketArguments& arguments) {
  enter_collective();
  Members members(arguments.group);
  const auto sources = [&](uint32 member) { return arguments.sources[member]; };
  const auto destinations = [&](uint32 member) { return arguments.destinations[member]; };
  const auto send_bytes = [&](uint32 member) { return arguments.send_bytes[member]; };
  const auto receive_bytes = [&](uint32 member) { return arguments.receive_bytes[member]; };
  const uint32 own = members.rank();
  uint64 longest = 0;
  for (uint32 member = 0; member < members.world(); ++member) {
    const uint64 sent = arguments.send_bytes[member];
    const uint64 received = arguments.receive_bytes[member];
    if (member == own) continue;
    if (sent > longest) longest = sent;
    if (received > longest) longest = received;
  }
  const uint32 inbox_bytes = members.inbox_bytes();
  PacketRounds rounds(units_of(longest), inbox_bytes);
  bool first = true;
  bool good = true;
  do {
    uint32 flag = 0;
    if (!members.take_uses(1, flag)) return;
    const PacketUse use(members, inbox_bytes, flag);
    SYMMEM_ROLLED
    for (PacketRounds::Walk walk = rounds.walk(); walk.more(); walk.next()) {
      send_unit(members, use, walk, sources, send_bytes);
    }
    // Copy this rank's own part while packets are in flight.
    const uint32 self = arch::anew(own);
    if (first && arguments.destinations[self] != arguments.sources[self]) {
      copy_units(arguments.destinations[self], arguments.sources[self], arguments.send_bytes[self]);
    }
    first = false;
    SYMMEM_ROLLED
    for (PacketRounds::Walk walk = rounds.walk(); good && walk.more(); walk.next()) {
      good = receive_unit(members, use, walk, destinations, receive_bytes);
    }
    // The first thread has a packet from every peer's block; after the vote would be later by a barrier.
    if (good && arch::thread_index() == 0) members.answered();
    good = arch::block_all(good);
  } while (good && rounds.next());
  members.leave();
}

}  // namespace symmem
