// Module `split_reduce`: GEMM + reduce-scatter and GEMM + all-reduce for few rows, in one launch. sm_90a only.
//
// The product is that of `split_gemm` without a gather: a tile has all rows, B is read once, and K is split among the blocks
// of a cluster.
// As soon as a cluster has a tile of this rank's partial sums, it sends it to the ranks that want it, in Lamport packets
// (symmem/lamport.h): no rank waits for another before it stores, and none signals. Then it adds the packets of the same
// tile from all peers, whose clusters of the same number send them.
//
// A block sends and adds its share of the tile. A packet is 16 bytes of adjacent columns of one row. A part of
// an inbox has a place for each packet of the rows that the receiver wants, row by row. Behind them it has one for each
// block: at its start, a block tells the peers' blocks of its number that it is resident. So a rank that owns no rows
// also gets packets from each peer in each call, and does not run ahead of them: see symmem/lamport.h.
#include "gathered_gemm/split_gemm.h"
#include "symmem/reduce_lamport.h"

using namespace symmem;

namespace {

// Steps of B that a block loads into L2 before earlier kernels have ended. It saves 1 us; with eight, nothing (16 x 8192 x
// 4096 takes 19.5 us with four, 20.4 with none, 20.5 with eight).
constexpr uint32 prefetched = 4;

// A kernel's argument: the portable arguments, and tensor maps of the matrices. A box of A has a tile's rows.
struct TensorReducedArguments {
  TensorMap a;
  TensorMap b;
  ReducedGemmArguments arguments;
};

// What LamportInboxes reads of a kernel's arguments.
struct Inboxes {
  const uint64* inboxes;  // each member's
  uint64 counters;        // this rank's three words
  uint32 part_bytes;
  LamportPair pair;  // for kernels of a group of two alone, which this is not
};

using Lamport = LamportInboxes<0, Inboxes>;

// Rows of the sum.
struct Rows {
  uint64 first, count;
};

// Returns the rows of the sum that a member wants.
SYMMEM_DEVICE Rows rows_of(const ReducedGemmArguments& arguments, uint32 member) {
  const uint64 all = arguments.shape.m;
  if (arguments.all != 0) return {0, all};
  const uint64 first = member * arguments.shard;
  if (first >= all) return {all, 0};
  return {first, all - first < arguments.shard ? all - first : arguments.shard};
}

// Returns the number of packets for the rows that a member wants, at most.
SYMMEM_DEVICE uint32 packets_of(const ReducedGemmArguments& arguments) {
  const uint32 columns = arguments.partial == static_cast<uint32>(ElementType::f32) ? 4 : 8;
  const uint64 rows = arguments.all != 0 || arguments.shard > arguments.shape.m ? arguments.shape.m : arguments.shard;
  return static_cast<uint32>(rows * ((arguments.shape.n + columns - 1) / columns));
}

// The packets of a block: its share of a tile. The warps of all blocks of the cluster take whole rows in turn, so a
// thread's packets are of the same columns.
template <class Partial>
class TileShare {
 public:
  // Columns of a packet.
  static constexpr uint32 columns = 16 / sizeof(typename Partial::Bits);
  // Packets of a row.
  static constexpr uint32 wide = tile_columns / columns;
  static_assert(arch::warp_size % wide == 0, "a warp has a part of a row");

  SYMMEM_DEVICE TileShare(const GemmShape& shape, const SplitTile& tile)
      : part_(tile.part),
        parts_(tile.parts),
        per_row_(static_cast<uint32>((shape.n + columns - 1) / columns)),
        first_(static_cast<uint32>(tile.column / columns) + arch::thread_index() % wide) {}

  // A thread's first row, the distance to its next one, and its columns, of the tile.
  SYMMEM_DEVICE uint32 row() const {
    const uint32 warp = arch::thread_index() / arch::warp_size, lane = arch::thread_index() % arch::warp_size;
    return (warp * parts_ + part_) * (arch::warp_size / wide) + lane / wide;
  }
  SYMMEM_DEVICE uint32 stride() const { return parts_ * (threads / wide); }
  SYMMEM_DEVICE uint32 column() const { return arch::thread_index() % wide * columns; }
  // Returns whether there are such columns.
  SYMMEM_DEVICE bool exists() const { return first_ < per_row_; }
  // The place in a part of the packet of a row among those that the receiver wants, and the distance to the next one.
  SYMMEM_DEVICE uint32 place(uint64 row) const { return static_cast<uint32>(row) * per_row_ + first_; }
  SYMMEM_DEVICE uint32 place_stride() const { return stride() * per_row_; }

 private:
  const uint32 part_;
  const uint32 parts_;
  const uint32 per_row_;  // packets of a whole row
  const uint32 first_;    // the place in a whole row
};

// Loads the first steps of B into L2.
template <bool b_rows>
SYMMEM_DEVICE void prefetch_b(const TensorMap* b, const SplitTile& tile) {
  const uint32 column = static_cast<uint32>(tile.column);
  for (uint32 step = 0; step < prefetched && step < tile.steps; ++step) {
    const uint32 at = tile.at(step);
    if (b_rows) {
      tensor_prefetch(b, column, at);
      tensor_prefetch(b, column + half_columns, at);
    } else {
      tensor_prefetch(b, at, column);
    }
  }
}

// Loads this rank's A.
template <uint32 rows>
SYMMEM_DEVICE void load_own_a(const TensorMap* a, const SplitRing<rows>& ring, const SplitTile& tile) {
  using Ring = SplitRing<rows>;
  RingCursor<Ring::stages> cursor;
  for (uint32 step = 0; step < tile.steps; ++step, cursor.advance()) {
    if (step >= cursor.count) barrier_wait(ring.empty(cursor.stage), cursor.parity ^ 1);
    const uint32 full = ring.full_a(cursor.stage);
    barrier_expect(full, Ring::a_bytes);
    tensor_load(ring.a(cursor.stage), a, tile.at(step), 0, full);
  }
}

// Adds the cluster's sums of a packet's columns, part by part, and rounds them to the partial type.
template <class Partial, uint32 rows>
SYMMEM_DEVICE arch::Vector16 sum_parts(const SplitRing<rows>& ring, const SplitTile& tile, uint32 row, uint32 column) {
  constexpr uint32 columns = TileShare<Partial>::columns;
  float numbers[most_parts][columns] = {};
  SYMMEM_UNROLL
  for (uint32 part = 0; part < most_parts; ++part) {
    if (part >= tile.parts) continue;
    SYMMEM_UNROLL
    for (uint32 four = 0; four < columns; four += 4) {
      float loaded[4];
      load_four(shared_at(ring.sum(row, column + four), part), loaded);
      SYMMEM_UNROLL
      for (uint32 next = 0; next < 4; ++next) numbers[part][four + next] = loaded[next];
    }
  }
  float sums[columns] = {};
  SYMMEM_UNROLL
  for (uint32 part = 0; part < most_parts; ++part) {
    SYMMEM_UNROLL
    for (uint32 next = 0; next < columns; ++next) sums[next] += numbers[part][next];
  }
  arch::Vector16 rounded;
  Accumulation<Partial, 4>::narrow(sums, rounded.words);
  return rounded;
}

SYMMEM_DEVICE void keep(uint32 shared, const arch::Vector16& vector) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(vector.words[0]), "r"(vector.words[1]),
               "r"(vector.words[2]), "r"(vector.words[3])
               : "memory");
}

SYMMEM_DEVICE arch::Vector16 kept(uint32 shared) {
  arch::Vector16 vector;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(vector.words[0]), "=r"(vector.words[1]), "=r"(vector.words[2]), "=r"(vector.words[3])
               : "r"(shared)
               : "memory");
  return vector;
}

// Sends this block's share of the tile to the members that want it, and keeps the rows that this rank wants where the
// tile's sums were: no other thread reads them.
template <class Partial, uint32 rows>
SYMMEM_DEVICE void send_share(const ReducedGemmArguments& arguments, const SplitRing<rows>& ring, const SplitTile& tile,
                              const TileShare<Partial>& share, const Lamport& inboxes, bool sends) {
  const uint32 rank = arguments.group.rank, world = arguments.group.world;
  for (uint32 row = share.row(); row < arguments.shape.m && share.exists(); row += share.stride()) {
    const arch::Vector16 packet = to_packet(sum_parts<Partial>(ring, tile, row, share.column()));
    keep(ring.sum(row, share.column()), packet);
    if (!sends) continue;
    if (arguments.all != 0) {
      SYMMEM_ROLLED
      for (uint32 step = 1; step < world; ++step) {
        const uint32 member = rank + step < world ? rank + step : rank + step - world;
        inboxes.send_to(member, share.place(row), packet);
      }
    } else {
      const uint32 owner = static_cast<uint32>(row / arguments.shard);
      if (owner != rank) inboxes.send_to(owner, share.place(row - owner * arguments.shard), packet);
    }
  }
}

// Adds the bias to the sums of a packet's columns, rounds them and stores them.
template <bool f16, class Partial>
SYMMEM_DEVICE void store_sums(const ReducedGemmArguments& arguments, uint64 row, uint64 column,
                              const Accumulation<Partial, 4>& accumulation) {
  using Element = typename ElementOf<f16 ? ElementType::f16 : ElementType::bf16>::Type;
  constexpr uint32 columns = Accumulation<Partial, 4>::count;
  constexpr uint32 words = columns / 2;
  const GemmShape& shape = arguments.shape;
  const uint32 left = shape.n - column < columns ? static_cast<uint32>(shape.n - column) : columns;
  float sums[columns];
  SYMMEM_UNROLL
  for (uint32 next = 0; next < columns; ++next) {
    sums[next] = accumulation.wide(next);
    if (arguments.bias == 0 || next >= left) continue;
    sums[next] += widen<f16>(arch::load(pointer<const uint16>(arguments.bias) + column + next));
  }
  uint32 rounded[words];
  Accumulation<Element, words>::narrow(sums, rounded);
  const uint64 address = arguments.c + (row * shape.c_stride + column) * gemm_element_bytes;
  if (left == columns && (address & (columns * gemm_element_bytes - 1)) == 0) {
    if constexpr (words == 4) {
      arch::store(pointer<arch::Vector16>(address), arch::Vector16{{rounded[0], rounded[1], rounded[2], rounded[3]}});
    } else {
      arch::store(pointer<uint64>(address), static_cast<uint64>(rounded[1]) << 32 | rounded[0]);
    }
    return;
  }
  SYMMEM_UNROLL
  for (uint32 next = 0; next < columns; ++next) {
    if (next < left) arch::store(pointer<uint16>(address) + next, static_cast<uint16>(rounded[next / 2] >> (next % 2 * 16)));
  }
}

// Adds all members' sums of the rows that this rank wants. Polls the packets of `most` peers and of all of a
// thread's rows at once, if K is split in two at least.
template <bool f16, int most, class Partial, uint32 rows>
SYMMEM_DEVICE void add_shares(const ReducedGemmArguments& arguments, const SplitRing<rows>& ring, const SplitTile& tile,
                              const TileShare<Partial>& share, Lamport& inboxes) {
  constexpr uint32 half = rows * tile_columns / TileShare<Partial>::columns / 2;
  constexpr int all = (half + threads - 1) / threads;
  // As many as registers suffice for.
  constexpr int together = most > 1 ? 1 : all < 3 ? all : 3;
  const Rows wanted = rows_of(arguments, arguments.group.rank);
  const Sum operation(static_cast<uint32>(ReduceOperation::sum));
  if (!share.exists()) return;
  // Rows go to threads as in send_share.
  const uint64 end = wanted.first + wanted.count;
  uint64 row = share.row();
  while (row < wanted.first) row += share.stride();
  for (; row < end; row += together * share.stride()) {
    arch::Vector16 own[together];
    uint32 valid = 0;
    SYMMEM_UNROLL
    for (int index = 0; index < together; ++index) {
      const uint64 at = row + index * share.stride();
      own[index] = {};
      if (at >= end) continue;
      valid |= 1u << index;
      own[index] = from_packet(kept(ring.sum(static_cast<uint32>(at), share.column())));
    }
    const auto store = [&](int index, Accumulation<Partial, 4>& sums) {
      if ((valid >> index & 1) == 0) return;
      const uint64 at = row + index * share.stride() - wanted.first;
      store_sums<f16>(arguments, at, tile.column + share.column(), sums);
    };
    const bool good = sum_arrived<Partial, most, together, false>(
        inboxes, arguments.group.rank, operation, share.place(row - wanted.first), share.place_stride(), valid, own, store);
    if (!good) return;
  }
}

// Tells all peers' blocks of this number that this block is resident, waits for theirs, and then starts dependents: the
// blocks that it waits for need no more room. So the next kernel begins as soon as the first block of this one ends.
// Called by every thread of a warp.
SYMMEM_DEVICE void meet(const ReducedGemmArguments& arguments, Group& group, Lamport& inboxes, uint32 place) {
  bool met = true;
  for (uint32 peer = arch::thread_index() % arch::warp_size; peer < inboxes.peers(); peer += arch::warp_size) {
    inboxes.send_to(group.after(peer + 1), place, to_packet({}));
  }
  for (uint32 peer = arch::thread_index() % arch::warp_size; peer < inboxes.peers(); peer += arch::warp_size) {
    arch::Vector16 packets[1][1];
    met = met && inboxes.receive<1, 1>(peer, place, 0, 1, packets);
  }
  if (arch::warp_all(met)) group.answered(arguments.group.dependents);
}

// Sends and adds this block's share, whose partial sums are of the type Partial.
template <bool f16, class Partial, uint32 rows>
SYMMEM_DEVICE void reduce_share(const ReducedGemmArguments& arguments, const SplitRing<rows>& ring,
                                const SplitTile& tile, Lamport& inboxes, bool good) {
  const TileShare<Partial> share(arguments.shape, tile);
  cluster_arrive();
  cluster_wait();
  send_share<Partial>(arguments, ring, tile, share, inboxes, good);
  arch::warp_barrier();
  cluster_arrive();
  inboxes.count();
  if (good) {
    if (inboxes.peers() == 1) {
      add_shares<f16, 1, Partial>(arguments, ring, tile, share, inboxes);
    } else {
      add_shares<f16, lamport_peers, Partial>(arguments, ring, tile, share, inboxes);
    }
  }
  arch::warp_barrier();
  // No block exits while others read its sums.
  cluster_wait();
}

// Called by every thread of every block, with shared memory for the ring, its barriers and 1024 bytes to align it.
template <bool f16, bool b_rows, uint32 rows>
SYMMEM_DEVICE void split_reduce(const TensorReducedArguments& given) {
  using Ring = SplitRing<rows>;
  const ReducedGemmArguments& arguments = given.arguments;
  const Ring ring = {(arch::shared_address(arch::dynamic_shared()) + atom_bytes - 1) / atom_bytes * atom_bytes};
  const SplitTile tile(arguments.shape, rows);
  if (arch::thread_index() == 0) {
    prefetch_b<b_rows>(&given.b, tile);
    for (uint32 stage = 0; stage < Ring::stages; ++stage) {
      barrier_initialise(ring.full_b(stage), 1);
      barrier_initialise(ring.full_a(stage), 1);
      barrier_initialise(ring.empty(stage), 2);
    }
    arch::fence_async_proxy();
  }
  const uint32 packets = packets_of(arguments);
  const Inboxes inbox = {arguments.inboxes, arguments.words[arguments.group.rank],
                         (packets + arch::block_count()) * 16, {}};
  Group group(arguments.group);
  Lamport inboxes(inbox, group);
  arch::block_barrier();
  arch::wait_for_prerequisites();
  const uint32 warpgroup = arch::thread_index() / 128;
  bool good;
  if (warpgroup == 0) {
    const uint32 warp = arch::thread_index() / arch::warp_size;
    // The tensor copies read what earlier kernels wrote.
    arch::fence_async_proxy();
    // All stages may be in flight: no signals queue up behind them, and the packets come after the last one.
    if (arch::thread_index() == 0) load_b<b_rows>(&given.b, ring, tile, Ring::stages);
    if (arch::thread_index() == arch::warp_size) load_own_a(&given.a, ring, tile);
    good = inboxes.begin();
    if (warp == 2 && good) meet(arguments, group, inboxes, packets + arch::block_index());
    arch::warp_barrier();
  } else {
    // If not good, an earlier call's wait gave up: its packets may still be there, and the peers have lost count.
    good = inboxes.begin();
    multiply_part<f16, b_rows>(ring, tile, warpgroup - 1);
  }
  if (arguments.partial == static_cast<uint32>(ElementType::f32)) {
    reduce_share<f16, ElementOf<ElementType::f32>::Type>(arguments, ring, tile, inboxes, good);
  } else {
    using Element = typename ElementOf<f16 ? ElementType::f16 : ElementType::bf16>::Type;
    reduce_share<f16, Element>(arguments, ring, tile, inboxes, good);
  }
}

}  // namespace

#define SYMMEM_SPLIT_REDUCE(element, f16, rows)                                                                       \
  SYMMEM_KERNEL(384) symmem_split_reduce_##element##_rows_##rows(SYMMEM_ARGUMENTS(TensorReducedArguments) given) {    \
    split_reduce<f16, true, rows>(given);                                                                             \
  }                                                                                                                   \
  SYMMEM_KERNEL(384) symmem_split_reduce_##element##_columns_##rows(SYMMEM_ARGUMENTS(TensorReducedArguments) given) { \
    split_reduce<f16, false, rows>(given);                                                                            \
  }

SYMMEM_SPLIT_REDUCE(f16, true, 16)
SYMMEM_SPLIT_REDUCE(f16, true, 32)
SYMMEM_SPLIT_REDUCE(f16, true, 64)
SYMMEM_SPLIT_REDUCE(f16, true, 128)
SYMMEM_SPLIT_REDUCE(bf16, false, 16)
SYMMEM_SPLIT_REDUCE(bf16, false, 32)
SYMMEM_SPLIT_REDUCE(bf16, false, 64)
SYMMEM_SPLIT_REDUCE(bf16, false, 128)
