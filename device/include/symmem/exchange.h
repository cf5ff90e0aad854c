// Concurrent sends and receives: the sender announces the address of its bytes; the receiver loads them and confirms.
//
// Block part * world + p of the grid receives one part of the message from member p. The last block announces and waits
// for the receipts. A pair counts in the slot of that block number, at the sender for the receiver and at the receiver
// for the sender, so its counters do not depend on the number of parts in a call.
//
// What only its sender can address goes through the sender's staging: block part * world + p copies one chunk of its part
// there, announces it, and waits for the receipt before it goes on with the next. In between it receives a chunk from p,
// so that two members which send to each other do not wait for each other. Members need not know how the others send.
#pragma once

#include "symmem/copy.h"
#include "symmem/group.h"

namespace symmem {

// Words of an announcement, each in half a packet: the token's two words, then the two words of the size in bytes.
constexpr uint32 announcement_words = 4;
// Loads of a thread in flight: as many as leave registers for the place in two messages.
constexpr int exchange_vectors = 6;
constexpr uint64 slot_sends = slot_counters + 8;
constexpr uint64 slot_receipts = slot_counters + 12;

SYMMEM_DEVICE bool names_own_memory(uint64 token) { return token >> token_offset_bits == own_row; }
SYMMEM_DEVICE uint64 token_offset(uint64 token) { return token & ((1ull << token_offset_bits) - 1); }

// A chunk of one block's part of a message, of which `done` bytes have gone. An empty part is one empty chunk.
struct Chunk {
  SYMMEM_DEVICE Chunk(uint64 message, Share share, uint64 done, uint32 most) {
    const uint64 part = ((message + share.count - 1) / share.count + 15) & ~15ull;
    const uint64 first = part * share.index < message ? part * share.index : message;
    const uint64 left = (message - first < part ? message - first : part) - done;
    begin = first + done;
    bytes = left < most ? left : most;
    is_last = left <= most;
  }

  uint64 begin;  // from the message's first byte
  uint64 bytes;
  bool is_last;
};

// One rank's side of an exchange. Every thread of a block constructs it.
class Exchange {
 public:
  SYMMEM_DEVICE explicit Exchange(const ExchangeArguments& arguments)
      : arguments_(arguments), group_(arguments.group), waiter_(arguments.group.watch) {}

  // Announces this rank's sends of memory that its peers can address, then waits for their receipts. Announcing all first
  // avoids a deadlock in rings and in sends to itself.
  SYMMEM_DEVICE void announce() {
    const uint32 pairs = group_.world * arguments_.blocks_per_peer;
    arch::release_wave();
    arch::block_barrier();
    for (uint32 index = arch::thread_index(); index < pairs * announcement_words; index += arch::thread_count()) {
      const uint32 number = index / announcement_words;
      const uint32 member = number % group_.world;
      if (!is_announced(member)) continue;
      announce(member, number / group_.world, index % announcement_words, next(slot(group_.rank, number) + slot_sends));
    }
    // All threads have read the counters.
    arch::block_barrier();
    for (uint32 number = arch::thread_index(); number < pairs; number += arch::thread_count()) {
      const uint32 member = number % group_.world;
      if (!is_announced(member)) continue;
      const uint64 own = slot(group_.rank, number);
      const uint32 count = next(own + slot_sends);
      arch::store(pointer<uint32>(own + slot_sends), count);
      confirmed(member, own, count);
    }
  }

  // Receives a block's part of a member's message, and sends its part of what only this rank can address: in turn, so that
  // there is one copy in the code. Each turn works out anew what it needs, so that no register holds it meanwhile.
  SYMMEM_DEVICE void pair(uint32 block) {
    bool sends = names_own_memory(arguments_.send_tokens[Pair(*this, block).member]);
    bool receives = arguments_.destinations[Pair(*this, block).member] != no_token;
    uint64 sent = 0, received = 0;
    if (!sends && !receives) return;
    for (bool sending = sends;;) {
      Copy copy;
      const Pair before(*this, block);
      if (sending) {
        copy = to_staging(before, sent);
      } else if (!announced(before, received, copy)) {
        return;
      }
      if (copy.source != copy.destination) {
        copy_vector<exchange_vectors>(copy.destination, copy.source, copy.bytes, copy.share);
      }
      arch::release_wave();
      arch::block_barrier();
      const Pair pair(*this, block);
      if (sending) {
        for (uint32 word = arch::thread_index(); word < announcement_words; word += arch::thread_count()) {
          announce(pair.member, pair.share.index, word, next(pair.own + slot_sends));
        }
      } else {
        if (arch::thread_index() == 0) confirm(pair, copy.count);
        receives = copy.is_chunk && !received_chunk(pair, received).is_last;
        received = arch::per_thread(received + arguments_.chunk_bytes);
      }
      if (sends && !(sending && receives)) {
        if (!is_confirmed(pair)) return;
        sends = !sent_chunk(pair, sent).is_last;
        sent = arch::per_thread(sent + arguments_.chunk_bytes);
      }
      sending = sends && !(sending && receives);
      if (!sends && !receives) return;
      // All threads see the counts.
      arch::block_barrier();
    }
  }

 private:
  // What a block's index says.
  struct Pair {
    SYMMEM_DEVICE Pair(const Exchange& exchange, uint32 block) {
      const uint32 number = arch::anew(block), world = exchange.group_.world;
      member = number % world;
      share = Share{number / world, exchange.arguments_.blocks_per_peer};
      own = exchange.slot(exchange.group_.rank, number);
    }

    uint32 member;
    Share share;
    uint64 own;  // this block's slot
  };

  struct Copy {
    uint64 destination, source, bytes;
    Share share;
    bool is_chunk;
    uint32 count;  // of the announcement, if it comes from a peer
  };

  SYMMEM_DEVICE Chunk sent_chunk(const Pair& pair, uint64 done) const {
    return Chunk(arguments_.send_bytes[pair.member], pair.share, done, arguments_.chunk_bytes);
  }
  SYMMEM_DEVICE Chunk received_chunk(const Pair& pair, uint64 done) const {
    return Chunk(arguments_.receive_bytes[pair.member], pair.share, done, arguments_.chunk_bytes);
  }

  // Returns the copy of a chunk to this rank's staging.
  SYMMEM_DEVICE Copy to_staging(const Pair& pair, uint64 done) const {
    const Chunk chunk = sent_chunk(pair, done);
    const uint64 source = token_offset(arguments_.send_tokens[pair.member]) + chunk.begin;
    return {staged(group_.rank, pair.member, pair.share.index), source, chunk.bytes, Share{0, 1}, true, 0};
  }

  // Waits for what a member announces next, this block's part or a chunk of it, and says what to copy. Returns false if
  // there is nothing: then the wait gave up, or there is a record of what does not fit.
  SYMMEM_DEVICE bool announced(const Pair& pair, uint64 done, Copy& copy) {
    const uint32 member = pair.member, part = pair.share.index;
    const uint32 count = next(pair.own + slot_receipts);
    const uint64* words = pointer<const uint64>(announcement(group_.rank, part, member));
    bool arrived = true;
    for (uint32 word = arch::thread_index(); arrived && word < announcement_words; word += arch::thread_count()) {
      uint32 half = 0;
      arrived = waiter_.until_packet(words + word, count, half, kind(), group_.members[member], group_.slot);
      // After the next barrier, the block sees what the sender's kernels stored before.
      if (arrived) arch::acquire_flag(words + word);
    }
    if (!arch::block_all(arrived)) return false;
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
      return false;
    }
    const uint64 destination = arguments_.destinations[member];
    if (names_own_memory(token)) {
      const Chunk chunk = received_chunk(pair, done);
      copy = {destination + chunk.begin, staged(member, group_.rank, part), chunk.bytes, Share{0, 1}, true, count};
      return true;
    }
    const uint64 row = token >> token_offset_bits;
    const uint64* bases = pointer<const uint64>(arguments_.table) + row * arguments_.table_ranks;
    const uint64 base = arch::load(bases + group_.members[member]);
    if (base == 0 && sent != 0) {
      // This rank has freed the allocation: the host has removed it from the table and unmapped it.
      if (part == 0 && arch::thread_index() == 0) {
        waiter_.leave(WaitKind::given_up, group_.members[member], group_.slot, 0, 0);
      }
      return false;
    }
    copy = {destination, base + token_offset(token), sent, pair.share, false, count};
    return true;
  }

  // Tells a member that its `count`-th announcement has been received, and counts it. Called by one thread.
  SYMMEM_DEVICE void confirm(const Pair& pair, uint32 count) const {
    arch::store(pointer<uint32>(pair.own + slot_receipts), count);
    const uint64 theirs = slot(pair.member, pair.share.index * group_.world + group_.rank);
    arch::publish_flag(pointer<uint32>(theirs + slot_received + group_.rank * 4), count);
  }

  // Waits until a member has received the chunk that was announced, and counts it. Called by every thread; a block barrier
  // must follow. Returns false if the wait gave up.
  SYMMEM_DEVICE bool is_confirmed(const Pair& pair) {
    bool arrived = true;
    if (arch::thread_index() == 0) {
      const uint32 count = next(pair.own + slot_sends);
      arrived = confirmed(pair.member, pair.own, count);
      if (arrived) arch::store(pointer<uint32>(pair.own + slot_sends), count);
    }
    return arch::block_all(arrived);
  }

  // Returns whether the last block announces this rank's message to a member.
  SYMMEM_DEVICE bool is_announced(uint32 member) const {
    const uint64 token = arguments_.send_tokens[member];
    return token != no_token && !names_own_memory(token);
  }

  // Announces the `count`-th message or chunk of one by one word.
  SYMMEM_DEVICE void announce(uint32 member, uint32 part, uint32 word, uint32 count) const {
    const uint64 value = word < 2 ? arguments_.send_tokens[member] : arguments_.send_bytes[member];
    const uint64 half = word % 2 == 0 ? value & 0xffffffffu : value >> 32;
    arch::publish_flag(pointer<uint64>(announcement(member, part, group_.rank)) + word,
                       static_cast<uint64>(count) << 32 | half);
  }

  // Waits until a member has confirmed the `count`-th time. Returns false if the wait gave up.
  SYMMEM_DEVICE bool confirmed(uint32 member, uint64 own, uint32 count) {
    return waiter_.until_reached(pointer<const uint32>(own + slot_received + member * 4), count, kind(),
                                 group_.members[member], group_.slot);
  }

  SYMMEM_DEVICE WaitKind kind() const {
    return static_cast<WaitKind>(static_cast<uint32>(WaitKind::collective) + group_.operation);
  }
  SYMMEM_DEVICE uint64 slot(uint32 at, uint32 number) const { return group_.slots[at] + number * slot_bytes; }
  SYMMEM_DEVICE uint64 announcement(uint32 at, uint32 part, uint32 sender) const {
    return slot(at, part * group_.world + sender) + slot_announcements + sender * 32;
  }
  // Returns the staging at a member for what a block sends to another, which is not itself.
  SYMMEM_DEVICE uint64 staged(uint32 at, uint32 to, uint32 part) const {
    const uint64 number = part * (group_.world - 1) + (to < at ? to : to - 1);
    return group_.slots[at] + arguments_.staging + number * arguments_.chunk_bytes;
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
    exchange.pair(block);
  } else {
    exchange.announce();
  }
  arch::end_waits();
}

}  // namespace symmem
