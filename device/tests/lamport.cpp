// Tests reductions and moves in Lamport packets, on the same inboxes, on the host twin. `cargo xtask twin` builds and runs
// them under AddressSanitizer and UndefinedBehaviorSanitizer, and under ThreadSanitizer. Ranks are host threads that launch
// grids one after the other, without synchronization between calls. A seed determines types, data, lengths, alignments,
// kernels and schedule.
//
// Verified to fail if what was read is not emptied, if only one buffer is used, if only three of a packet's words are
// awaited, if a rank takes its own elements as they are, and if a rank sends after a wait has given up; of moves, if a word
// is marked at no thread or at the wrong one, and if the marks of all words may be empty; of two-shot calls, if the places
// of results are not emptied, if results are sent to the places of shares, if a rank stores its own result as it is, and if
// it does not wait for its peers' results; of calls with one sender or receiver, if empty messages are not sent; of kernels
// for a fixed number of members, if all packets go to the place for one peer, if all peers get the elements of one, and if
// one peer is left out.
#include "lamport_calls.h"

#include <variant>

namespace {

void calls(uint32 seed, uint32 ranks) {
  if (ranks == 1) return;  // there is nobody to send to
  Random random(seed * 100 + ranks);
  arch::schedule() = seed;
  World world(ranks, 1, 1, ranks * 2 * 16, 0);
  // At least a line of a move.
  Inboxes inboxes(ranks, 16 * (arch::line_threads + up_to(random, 19)));
  std::vector<Either> calls;
  std::vector<uint32> dice;
  // More where there are kernels for just that number of ranks; in a world of 8, each takes long.
  const int count = ranks == 2 || ranks == 4 ? 18 : ranks == 8 ? 12 : 7;
  for (int call = 0; call < count; ++call) {
    calls.emplace_back(world, inboxes.part_bytes, random);
    for (uint32 rank = 0; rank < ranks; ++rank) dice.push_back(static_cast<uint32>(random() >> 8));
  }
  std::vector<std::thread> running;
  for (uint32 rank = 0; rank < ranks; ++rank) {
    running.emplace_back([&, rank] {
      for (size_t call = 0; call < calls.size(); ++call) {
        calls[call].launch(world, inboxes, rank, dice[call * ranks + rank]);
      }
    });
  }
  for (auto& thread : running) thread.join();
  const std::string what = " (seed " + std::to_string(seed) + ", world " + std::to_string(ranks) + ", call ";
  for (size_t call = 0; call < calls.size(); ++call) calls[call].check(ranks, what + std::to_string(call) + ")");
  expect(world.record.state == 0, "no wait gave up");
  arch::schedule() = 0;
}

// A kernel, and the memory of a rank that calls it with messages of two lines, or of two vectors for sums.
struct Waiting {
  uint32 ranks;
  std::variant<Kernel, MoveKernel> kernel;
  uint64 bytes;     // of a message, or of a share
  uint32 receiver;  // a rank, or every_member
  bool two_shot = false;

  explicit Waiting(Kernel kernel, uint32 ranks = 3, uint32 receiver = every_member)
      : ranks(ranks), kernel(kernel), bytes(2 * 16), receiver(receiver) {}
  explicit Waiting(MoveKernel kernel, uint32 ranks = 3, uint32 receiver = every_member)
      : ranks(ranks), kernel(kernel), bytes(2 * 16 * line_vectors), receiver(receiver) {}

  static Waiting for_shares(Kernel kernel, uint32 ranks = 3) {
    Waiting waiting(kernel, ranks);
    waiting.two_shot = true;
    return waiting;
  }

  uint32 part_bytes() const { return 2 * 16 * arch::line_threads; }

  // Launches the call at one rank, every element of whose messages is `number`, and returns what arrives from each member,
  // or the sums. Bytes that the kernel does not store are 0xA5.
  Buffer launch(World& world, Inboxes& inboxes, uint32 rank, float number) const {
    Buffer input(bytes * ranks, 0), output(bytes * ranks, 0);
    for (uint64 at = 0; at < input.size(); at += 4) std::memcpy(input.memory.data() + at, &number, 4);
    if (const Kernel* sum = std::get_if<Kernel>(&kernel)) {
      auto arguments = inboxes.arguments<ReduceLamportArguments>(world, rank);
      for (uint32 member = 0; member < ranks; ++member) arguments.sources[member] = input.at(two_shot ? member * bytes : 0);
      arguments.destination = output.at();
      arguments.count = (two_shot ? ranks : 1) * bytes / 4;
      arguments.reduce = 1;
      arguments.share_bytes = two_shot ? bytes : 0;
      arguments.receiver = receiver;
      arguments.pair = pair_of(arguments);
      world.launch(*sum, arguments);
    } else {
      auto arguments = inboxes.arguments<MoveLamportArguments>(world, rank);
      for (uint32 member = 0; member < ranks; ++member) {
        arguments.sources[member] = input.at(member * bytes);
        arguments.destinations[member] = output.at(member * bytes);
      }
      arguments.bytes = bytes;
      arguments.sender = every_member;
      arguments.receiver = receiver;
      arguments.pair = pair_of(arguments);
      world.launch(std::get<MoveKernel>(kernel), arguments);
    }
    return output;
  }

  // Returns whether floats of what launch() returned have a value, from a byte on and as many as a message has.
  bool all(const Buffer& output, uint64 byte, float value) const {
    for (uint64 at = byte; at < byte + bytes; at += 4) {
      float number;
      std::memcpy(&number, output.memory.data() + at, 4);
      if (number != value) return false;
    }
    return true;
  }

  bool receives(uint32 rank) const { return receiver == every_member || receiver == rank; }
  bool moves() const { return std::holds_alternative<MoveKernel>(kernel); }
};

const Waiting all_kernels[] = {Waiting(symmem_reduce_lamport_f32),
                               Waiting(symmem_reduce_lamport_rooted_f32, 3, 1),
                               Waiting(symmem_reduce_lamport_few_f32),
                               Waiting(symmem_reduce_lamport_pair1_f32, 2),
                               Waiting(symmem_reduce_lamport_four_f32, 4),
                               Waiting(symmem_reduce_lamport_scatter_four_f32, 4),
                               Waiting::for_shares(symmem_reduce_lamport_two_shot_f32),
                               Waiting::for_shares(symmem_reduce_lamport_two_shot_few_f32),
                               Waiting::for_shares(symmem_reduce_lamport_two_shot_four_f32, 4),
                               Waiting(symmem_move_lamport),
                               Waiting(symmem_move_lamport_rooted, 3, 1),
                               Waiting(symmem_move_lamport_few),
                               Waiting(symmem_move_lamport_pair1, 2),
                               Waiting(symmem_move_lamport_pair4, 2),
                               Waiting(symmem_move_lamport_four, 4)};

bool has_record(const WaitRecord& record, uint32 peer, uint32 reason) {
  return record.state == 2 && record.kind == 16 + operation && record.slot == 5 && record.peer == peer &&
         record.expected == 1 && record.seen == 0 && record.reason == reason;
}

// Grids of one block: a block whose threads begin only when another has given up sends nothing, and threads of the host may
// be far apart.

// Only rank 0 calls: it must leave at the deadline, or when the host has aborted.
void waits_end() {
  for (const Waiting& waiting : all_kernels) {
    for (const bool aborts : {false, true}) {
      World world(waiting.ranks, 1, 2 * arch::line_threads, waiting.ranks * 2 * 16, 4);
      if (!aborts) world.deadline = second / 50;
      Inboxes inboxes(world.ranks, waiting.part_bytes());
      std::thread host([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        if (aborts) __atomic_store_n(&world.abort, 1u, __ATOMIC_RELEASE);
      });
      const Buffer output = waiting.launch(world, inboxes, 0, 1);
      host.join();
      expect(has_record(world.record, 11, aborts ? 2 : 1) && world.record.rank == 10,
             "a wait for packets ends, and its record tells who waited for whom");
      // A move copies this rank's own message.
      const uint64 own = waiting.moves() && waiting.receiver == every_member ? waiting.bytes : 0;
      same(output, own, std::vector<uint8>(output.size() - own, 0xA5), "what has not come is not stored");
    }
  }
}

// The packets of rank 1 have come to rank 0, those of rank 2 and of any after it never do.
void the_peer_that_is_missing_is_named() {
  for (const Waiting& waiting : all_kernels) {
    if (waiting.ranks == 2) continue;
    World world(waiting.ranks, 1, 2 * arch::line_threads, waiting.ranks * 2 * 16, 4);
    world.deadline = second / 50;
    Inboxes inboxes(world.ranks, waiting.part_bytes());
    waiting.launch(world, inboxes, 1, 1);
    world.record = {};
    const Buffer output = waiting.launch(world, inboxes, 0, 1);
    expect(has_record(world.record, 12, 1) && world.record.rank == 10,
           "the record names the peer whose packets are missing");
    const uint64 missing = waiting.moves() ? 2 * waiting.bytes : 0;
    same(output, missing, std::vector<uint8>(output.size() - missing, 0xA5), "what has not come is not stored");
  }
}

// A rank that has given up sends no more: else its later packets would overwrite those that a late peer has not read.
void late_peers_get_what_was_sent_to_them() {
  for (const Waiting& waiting : all_kernels) {
    // Rank 0 never has the result that a late peer waits for.
    if (waiting.two_shot) continue;
    World world(waiting.ranks, 1, 2 * arch::line_threads, waiting.ranks * 2 * 16, 0);
    Inboxes inboxes(world.ranks, waiting.part_bytes());
    // Ranks from 1 on call, together.
    const auto call_late = [&](uint64 deadline, const std::function<void(uint32, const Buffer&)>& check) {
      world.record = {};
      world.deadline = deadline;
      std::vector<std::thread> running;
      for (uint32 rank = 1; rank < world.ranks; ++rank) {
        running.emplace_back([&, rank] { check(rank, waiting.launch(world, inboxes, rank, 10)); });
      }
      for (auto& thread : running) thread.join();
    };
    world.deadline = second / 100;
    for (int later = 0; later < 4; ++later) waiting.launch(world, inboxes, 0, 1.0f + static_cast<float>(later));
    expect(world.record.state == 2, "a rank whose peers do not come gives up");
    const float wanted = waiting.moves() ? 1.0f : 1.0f + 10.0f * static_cast<float>(world.ranks - 1);
    call_late(60 * second, [&](uint32 rank, const Buffer& late) {
      expect(!waiting.receives(rank) || waiting.all(late, 0, wanted), "a late peer gets what was sent to it");
    });
    expect(world.record.state == 0, "a late peer does not give up on what was sent to it");
    call_late(second / 100, [](uint32, const Buffer&) {});
    expect(world.record.state == 2, "a late peer waits in vain for what was not sent");
  }
}

// The last rank has sent its shares and has given up, so its result never comes.
void a_result_that_never_comes_is_not_stored() {
  for (const Waiting& waiting : all_kernels) {
    if (!waiting.two_shot) continue;
    const uint32 last = waiting.ranks - 1;
    World world(waiting.ranks, 1, 2 * arch::line_threads, waiting.ranks * 2 * 16, 0);
    Inboxes inboxes(world.ranks, waiting.part_bytes());
    const auto number_of = [](uint32 rank) { return static_cast<float>(1u << rank); };
    world.deadline = second / 50;
    waiting.launch(world, inboxes, last, number_of(last));
    world.record = {};
    // Enough for the others to find each other.
    world.deadline = second / 2;
    std::vector<std::thread> running;
    for (uint32 rank = 0; rank < last; ++rank) {
      running.emplace_back([&, rank] {
        const Buffer output = waiting.launch(world, inboxes, rank, number_of(rank));
        const float sum = number_of(waiting.ranks) - 1;
        expect(waiting.all(output, rank * waiting.bytes, sum), "a share whose elements have come is reduced");
        const std::vector<uint8> untouched(waiting.bytes, 0xA5);
        same(output, last * waiting.bytes, untouched, "a result that has not come is not stored");
      });
    }
    for (auto& thread : running) thread.join();
    expect(has_record(world.record, 10 + last, 1), "the record names the peer whose result is missing");
  }
}

}  // namespace

int main(int count, char** words) {
  waits_end();
  the_peer_that_is_missing_is_named();
  late_peers_get_what_was_sent_to_them();
  a_result_that_never_comes_is_not_stored();
  return run_seeds(count, words, "Lamport packets on the host twin", 8, calls);
}
