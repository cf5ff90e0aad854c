// Concurrent sends and receives: the sender announces the address of its bytes; the receiver loads them and confirms.
//
// Block part * world + p of the grid receives one part of the message from member p. The last block announces and waits
// for the receipts. A pair counts in the slot of that block number, at the sender for the receiver and at the receiver
// for the sender, so its counters do not depend on the number of parts in a call.
#pragma once

#include "symmem/copy.h"
#include "symmem/group.h"

namespace symmem {

// Words of an announcement, each in half a packet: the token's two words, then the two words of the size in bytes.
constexpr uint32 announcement_words = 4;
// A token is a row of the table, shifted by this, plus an offset.
constexpr uint32 token_offset_bits = 48;
constexpr uint64 slot_sends = slot_counters + 8;
constexpr uint64 slot_receipts = slot_counters + 12;

// One rank's side of an exchange. Every thread of a block constructs it.
class Exchange {
 public:
  SYMMEM_DEVICE explicit Exchange(const ExchangeArguments& arguments)
      : arguments_(arguments), group_(arguments.group), waiter_(arguments.group.watch) {}

  // Announces all sends of this rank, then waits for all receipts. Announcing all first avoids a deadlock in rings and
  // in sends to itself.
  SYMMEM_DEVICE void send() {
    const uint32 pairs = group_.world * arguments_.blocks_per_peer;
    arch::release_wave();
    arch::block_barrier();
    for (uint32 index = arch::thread_index(); index < pairs * announcement_words; index += arch::thread_count()) {
      const uint32 number = index / announcement_words;
      const uint32 word = index % announcement_words;
      const uint32 member = number % group_.world;
      const uint64 token = arguments_.send_tokens[member];
      if (token == no_token) continue;
      const uint64 value = word < 2 ? token : arguments_.send_bytes[member];
      const uint64 half = word % 2 == 0 ? value & 0xffffffffu : value >> 32;
      const uint64 count = next(slot(group_.rank, number) + slot_sends);
      arch::publish_flag(pointer<uint64>(announcement(member, number / group_.world, group_.rank)) + word,
                         count << 32 | half);
    }
    // All threads have read the counters.
    arch::block_barrier();
    for (uint32 number = arch::thread_index(); number < pairs; number += arch::thread_count()) {
      const uint32 member = number % group_.world;
      if (arguments_.send_tokens[member] == no_token) continue;
      const uint64 own = slot(group_.rank, number);
      const uint32 count = next(own + slot_sends);
      arch::store(pointer<uint32>(own + slot_sends), count);
      waiter_.until_reached(pointer<const uint32>(own + slot_received + member * 4), count, kind(),
                            group_.members[member], group_.slot);
    }
  }

  // Receives this block's part of a member's message.
  SYMMEM_DEVICE void receive(uint32 member, uint32 part) {
    if (arguments_.destinations[member] == no_token) return;
    const uint64 own = slot(group_.rank, part * group_.world + member);
    const uint32 count = next(own + slot_receipts);
    const uint64* words = pointer<const uint64>(announcement(group_.rank, part, member));
    bool arrived = true;
    for (uint32 word = arch::thread_index(); arrived && word < announcement_words; word += arch::thread_count()) {
      uint32 half = 0;
      arrived = waiter_.until_packet(words + word, count, half, kind(), group_.members[member], group_.slot);
      // After the next barrier, the block sees what the sender's kernels stored before.
      if (arrived) arch::acquire_flag(words + word);
    }
    if (!arch::block_all(arrived)) return;
    uint64 halves[announcement_words];
    SYMMEM_UNROLL
    for (uint32 word = 0; word < announcement_words; ++word) halves[word] = arch::load_relaxed(words + word) & 0xffffffffu;
    const uint64 token = halves[1] << 32 | halves[0];
    const uint64 sent = halves[3] << 32 | halves[2];
    const uint64 expected = arguments_.receive_bytes[member];
    if (sent != expected) {
      if (part == 0 && arch::thread_index() == 0) {
        waiter_.leave(WaitKind::size, group_.members[member], group_.slot, saturated(expected), saturated(sent));
      }
      return;
    }
    const uint64 row = token >> token_offset_bits;
    const uint64* bases = pointer<const uint64>(arguments_.table) + row * arguments_.table_ranks;
    const uint64 base = arch::load(bases + group_.members[member]);
    if (base == 0 && sent != 0) {
      // This rank has freed the allocation: the host has removed it from the table and unmapped it.
      if (part == 0 && arch::thread_index() == 0) {
        waiter_.leave(WaitKind::given_up, group_.members[member], group_.slot, 0, 0);
      }
      return;
    }
    const uint64 source = base + (token & ((1ull << token_offset_bits) - 1));
    if (source != arguments_.destinations[member]) {
      copy_vector<8>(arguments_.destinations[member], source, sent, Share{part, arguments_.blocks_per_peer});
    }
    arch::release_wave();
    arch::block_barrier();
    if (arch::thread_index() == 0) {
      arch::store(pointer<uint32>(own + slot_receipts), count);
      arch::publish_flag(
          pointer<uint32>(slot(member, part * group_.world + group_.rank) + slot_received + group_.rank * 4), count);
    }
  }

 private:
  SYMMEM_DEVICE WaitKind kind() const {
    return static_cast<WaitKind>(static_cast<uint32>(WaitKind::collective) + group_.operation);
  }
  SYMMEM_DEVICE uint64 slot(uint32 at, uint32 number) const { return group_.slots[at] + number * slot_bytes; }
  SYMMEM_DEVICE uint64 announcement(uint32 at, uint32 part, uint32 sender) const {
    return slot(at, part * group_.world + sender) + slot_announcements + sender * 32;
  }
  SYMMEM_DEVICE static uint32 next(uint64 counter) { return arch::load(pointer<const uint32>(counter)) + 1; }
  SYMMEM_DEVICE static uint32 saturated(uint64 bytes) { return bytes >> 32 == 0 ? static_cast<uint32>(bytes) : ~0u; }

  const ExchangeArguments& arguments_;
  const CollectiveGroup& group_;
  Waiter waiter_;
};

// Sends and receives as ExchangeArguments says. Called by every thread of every block.
SYMMEM_DEVICE void collective_exchange(const ExchangeArguments& arguments) {
  enter_collective();
  Exchange exchange(arguments);
  const uint32 block = arch::block_index();
  const uint32 pairs = arguments.group.world * arguments.blocks_per_peer;
  if (block < pairs) {
    exchange.receive(block % arguments.group.world, block / arguments.group.world);
  } else {
    exchange.send();
  }
  arch::end_waits();
}

}  // namespace symmem
