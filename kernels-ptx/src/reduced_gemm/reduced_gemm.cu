// Module `reduced_gemm`: GEMM + reduce-scatter and + all-reduce in one launch, for large tiles. sm_90a only.
//
// As in `gathered_gemm`, two warpgroups of a block compute tiles of 128 by 256, and one thread of a third warpgroup
// loads the operands into a ring of stages. Two more warps of that third warpgroup are the other side of the two
// mailboxes: they send tiles of other ranks' rows, load what the peers have sent for tiles of the own rows, and send
// finished rows on. The ring has three stages, since the mailboxes need the room of the fourth.
#include "reduced_gemm/mailbox.h"
#include "symmem/reduced_gemm.h"

using namespace symmem;

namespace {

// The kernels' argument: tensor maps of this rank's A and B, in boxes as in TensorGemmArguments.
struct TensorReducedArguments {
  TensorMap a;
  TensorMap b;
  ReducedGemmArguments arguments;
};

constexpr uint32 stages = 3;
constexpr uint32 warpgroups = 2;
constexpr uint32 warpgroup_rows = tile_rows / warpgroups;
// Threads of a warp that send, and bytes of a partial sum that each stores between two looks at the clock: few, so that the
// link is used evenly.
constexpr uint32 senders = 4;
constexpr uint32 burst_bytes = 128;
// Sums leave during the main loop of the next tile: for each of its stages, during 80 % of the cycles that the matrix units
// need for one. At full speed the stores of all blocks together fill the link, tensor copies wait behind them, and the main
// loop stands still until they have left (benches/NOTES.md).
constexpr uint32 sending_cycles = 1024 * 80 / 100;
using Ring = TileRing<stages>;
using Tiles = ReducedTiles<tile_rows, tile_columns, band>;

SYMMEM_DEVICE Mailbox mailbox(const Ring& ring, uint32 warpgroup) {
  return {(ring.end() + 127) / 128 * 128 + warpgroup * Mailbox::bytes};
}

// Returns the same arguments. What the compiler computes from them is not shared with other warps' code, through which it
// would stay in registers: there are none to spare on either side of a mailbox.
SYMMEM_DEVICE const ReducedGemmArguments& apart(const ReducedGemmArguments& arguments) {
  return (&arguments)[arch::opaque(0u)];
}

SYMMEM_DEVICE bool is_wide(const ReducedGemmArguments& arguments) {
  return arguments.partial == static_cast<uint32>(ElementType::f32);
}

// Keeps the ring full; run by one thread.
template <bool b_rows>
SYMMEM_DEVICE void load_tiles(const TensorReducedArguments& tensors, const Ring& ring) {
  const ReducedGemmArguments& arguments = tensors.arguments;
  const Tiles tiles(arguments, cluster_size());
  RingCursor<stages> cursor;
  ReducedTile tile;
  // The tensor copies read what earlier kernels wrote.
  arch::fence_async_proxy();
  for (uint32 index = arch::block_index(); index < tiles.count(); index += arch::block_count()) {
    tiles.find(index, tile);
    const uint32 row = static_cast<uint32>(tile.place.row), column = static_cast<uint32>(tile.place.column);
    const uint32 length = static_cast<uint32>(arguments.shape.k);
    constexpr uint32 boxes = tile_columns / box_columns<b_rows>;
    for (uint32 at = 0; at < length; at += depth) {
      load_stage<b_rows>(ring, cursor, &tensors.a, at, row, &tensors.b, column, at, boxes);
    }
  }
}

// Lets bursts of stores leave at even intervals.
class Pace {
 public:
  // Begins `count` bursts, which are to take `cycles` in all. With 0 they do not wait.
  SYMMEM_DEVICE void begin(uint32 cycles, uint32 count) {
    interval_ = cycles / count;
    next_ = clock() + interval_;
  }

  // Ends a burst, and waits until the next one may begin. Called by every thread of the warp.
  SYMMEM_DEVICE void wait() {
    while (interval_ != 0 && static_cast<int>(clock() - next_) < 0) asm volatile("nanosleep.u32 64;");
    next_ += interval_;
  }

 private:
  static SYMMEM_DEVICE uint32 clock() {
    uint32 value;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(value)::"memory");
    return value;
  }

  uint32 next_ = 0, interval_ = 0;
};

// A warp's side of a warpgroup's mailbox. All functions are called by every thread of the warp.
class Carrier {
 public:
  SYMMEM_DEVICE Carrier(const ReducedGemmArguments& arguments, const ReducedWords& words, uint32 epoch, Mailbox box,
                        uint32 warpgroup)
      : arguments_(arguments), words_(words), epoch_(epoch), waits_(arguments, words, epoch), box_(box),
        warpgroup_(warpgroup) {}

  // Carries the sums of all tiles of the block, and waits for the block's share of the peers' finished sums.
  SYMMEM_DEVICE void carry() {
    const CollectiveGroup& group = arguments_.group;
    if (arch::block_index() == 0 && warpgroup_ == 0) tell_entered(arguments_, words_, epoch_);
    // Until all members have entered, they may still read what the last call stored. The first tile takes longer.
    waits_.until_entered();
    const Tiles tiles(arguments_, cluster_size());
    ReducedTile tile;
    for (uint32 index = arch::block_index(); index < tiles.count(); index += arch::block_count()) {
      tiles.find(index, tile);
      if (!tile.exists()) continue;
      // After its last tile, the block has nothing to compute that could be held up.
      const bool last = index + arch::block_count() >= tiles.count();
      const uint32 cycles = last ? 0 : static_cast<uint32>(arguments_.shape.k / depth) * sending_cycles;
      if (tile.place.shard != group.rank) {
        send(tile, cycles);
        continue;
      }
      for (uint32 place = 0; place + 1 < group.world; ++place) load(tile, place);
      if (sends_on(arguments_)) send_rows(tile, cycles);
    }
    if (!sends_on(arguments_)) return;
    for (uint32 place = 0; place + 1 < group.world; ++place) {
      const uint32 owner = sender_at(group, place);
      waits_.until_finished(owner, arch::block_index() * arch::warp_size + lane(), tiles.existing(owner),
                            arch::block_count() * arch::warp_size, warpgroup_);
    }
  }

 private:
  static SYMMEM_DEVICE uint32 lane() { return arch::thread_index() % arch::warp_size; }

  // Bytes of a warp's partial sums of a whole tile.
  SYMMEM_DEVICE uint32 warp_bytes() const {
    return warp_rows * tile_columns * (is_wide(arguments_) ? 4 : gemm_element_bytes);
  }
  static constexpr uint32 piece_bytes = piece_vectors * vector_bytes;

  // Returns the address of a warp's partial sums of a tile in an inbox.
  SYMMEM_DEVICE uint64 in_inbox(uint32 at, uint32 place, uint32 tile, uint32 warp) const {
    const uint64 number = static_cast<uint64>(place) * Tiles::most(arguments_) + tile;
    return arguments_.inboxes[at] + ((number * warpgroups + warpgroup_) * 4 + warp) * warp_bytes();
  }

  SYMMEM_DEVICE void until_ready() {
    barrier_wait(box_.ready(), turns_ & 1);
    ++turns_;
  }

  // Waits until a piece has left, and gives the box back.
  SYMMEM_DEVICE void give_back() const {
    arch::bulk_commit();
    arch::bulk_wait_read<0>();
    arch::warp_barrier();
    if (lane() == 0) barrier_arrive(box_.sent());
  }

  // Sends a whole tile to its owner, in `cycles` cycles.
  SYMMEM_DEVICE void send(const ReducedTile& tile, uint32 cycles) {
    const CollectiveGroup& group = arguments_.group;
    const uint32 owner = tile.place.shard;
    const uint64 to = in_inbox(owner, place_of_sender(group, owner, group.rank), tile.number, lane() % senders);
    const uint32 burst = cycles == 0 ? piece_bytes : burst_bytes;
    const bool good = waits_.good();
    SYMMEM_ROLLED
    for (uint32 first = 0; first < warp_bytes(); first += piece_bytes) {
      until_ready();
      if (first == 0) pace_.begin(cycles, warp_bytes() / burst);
      SYMMEM_ROLLED
      for (uint32 at = 0; at < piece_bytes; at += burst) {
        if (good && lane() < senders) store(to + first + at, box_.region(lane()) + at, burst);
        pace_.wait();
      }
      give_back();
    }
    arch::bulk_wait_complete();
    arch::warp_barrier();
    if (good && lane() == 0) {
      arch::publish_flag(words_.arrived(owner, group.rank, tile.number, warpgroup_), epoch_);
    }
    arch::warp_barrier();
  }

  // Loads a peer's partial sums of a tile.
  SYMMEM_DEVICE void load(const ReducedTile& tile, uint32 place) {
    const CollectiveGroup& group = arguments_.group;
    const bool good = waits_.until_arrived(sender_at(group, place), tile.number, warpgroup_);
    SYMMEM_ROLLED
    for (uint32 first = 0; first < warp_bytes(); first += piece_bytes) {
      if (lane() == 0 && good) {
        arch::fence_async_proxy();
        barrier_expect(box_.loaded(), 4 * piece_bytes);
        for (uint32 warp = 0; warp < 4; ++warp) {
          const uint64 from = in_inbox(group.rank, place, tile.number, warp) + first;
          load(box_.region(warp), from, piece_bytes, box_.loaded());
        }
      } else if (lane() == 0) {
        barrier_arrive(box_.loaded());
      }
      until_ready();
    }
  }

  // Sends the rows of the finished sum to all members, this rank included, in `cycles` cycles.
  SYMMEM_DEVICE void send_rows(const ReducedTile& tile, uint32 cycles) {
    const CollectiveGroup& group = arguments_.group;
    const bool good = waits_.good();
    until_ready();
    pace_.begin(cycles, warpgroup_rows / senders * (group.world - 1));
    const GemmShape& shape = arguments_.shape;
    const uint64 first = tile.place.row + warpgroup_ * warpgroup_rows;
    const uint32 bytes = row_bytes(tile);
    const uint32 rows = good && lane() < senders ? rows_from(tile, first) : 0;
    uint64 to = ((first + lane()) * shape.c_stride + tile.place.column) * gemm_element_bytes;
    SYMMEM_ROLLED
    for (uint32 turn = 0; turn < warpgroup_rows; turn += senders) {
      const uint32 row = turn + lane();
      const uint32 from = box_.region(row / warp_rows) + row % warp_rows * row_stride;
      if (row < rows) store(arguments_.results[group.rank] + to, from, bytes);
      SYMMEM_ROLLED
      for (uint32 step = 1; step < group.world; ++step) {
        if (row < rows) store(arguments_.results[shard_of_step(group, step)] + to, from, bytes);
        pace_.wait();
      }
      to += senders * shape.c_stride * gemm_element_bytes;
    }
    give_back();
    arch::bulk_wait_complete();
    arch::warp_barrier();
    SYMMEM_ROLLED
    for (uint32 member = lane(); good && member < group.world; member += arch::warp_size) {
      if (member == group.rank) continue;
      arch::publish_flag(words_.finished(member, group.rank, tile.number, warpgroup_), epoch_);
    }
    arch::warp_barrier();
  }

  // Returns the number of rows of a warpgroup that the sum has from row `first` on.
  static SYMMEM_DEVICE uint32 rows_from(const ReducedTile& tile, uint64 first) {
    if (first >= tile.place.rows_end) return 0;
    const uint64 left = tile.place.rows_end - first;
    return left < warpgroup_rows ? static_cast<uint32>(left) : warpgroup_rows;
  }

  // Returns the bytes of a tile's row that the sum has.
  SYMMEM_DEVICE uint32 row_bytes(const ReducedTile& tile) const {
    const uint64 left = arguments_.shape.n - tile.place.column;
    return (left < tile_columns ? static_cast<uint32>(left) : tile_columns) * gemm_element_bytes;
  }

  static SYMMEM_DEVICE void store(uint64 global, uint32 shared, uint32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(shared), "r"(bytes)
                 : "memory");
  }
  static SYMMEM_DEVICE void load(uint32 shared, uint64 global, uint32 bytes, uint32 barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
        "l"(global), "r"(bytes), "r"(barrier)
        : "memory");
  }

  const ReducedGemmArguments& arguments_;
  const ReducedWords& words_;
  const uint32 epoch_;
  ReducedWaits waits_;
  const Mailbox box_;
  const uint32 warpgroup_;
  Pace pace_;
  uint32 turns_ = 0;
};

// Adds the peers' partial sums of a tile of the own rows, and stores or sends its rows.
template <bool f16, bool wide>
SYMMEM_DEVICE void finish_tile(const ReducedGemmArguments& arguments, const ReducedTile& tile, uint32 skip,
                               Sender& sender, float (&d)[tile_columns / 2]) {
  SYMMEM_ROLLED
  for (uint32 peer = 1; peer < arguments.group.world; ++peer) sender.add<f16, wide>(d);
  if (arguments.bias != 0) add_bias<f16>(arguments, tile.place, d);
  if (sends_on(arguments)) return sender.send_rows<f16>(d);
  const uint64 first = owned_rows(arguments, arguments.group.rank).first;
  GemmTile place = tile.place;
  place.row -= first;
  place.rows_end -= first;
  store_tile<f16>(arguments, place, skip, d);
}

// Computes a warpgroup's rows of every tile of the block. `wide`: partial sums travel as f32. This is decided here, since
// the accumulators of a warpgroup that chooses after each tile do not stay in registers.
template <bool f16, bool b_rows, bool wide>
SYMMEM_DEVICE void multiply_tiles(const ReducedGemmArguments& arguments, const Ring& ring, uint32 warpgroup) {
  const Tiles tiles(arguments, cluster_size());
  const uint32 skip = warpgroup * warpgroup_rows;
  const uint32 steps = static_cast<uint32>((arguments.shape.k + depth - 1) / depth);
  Sender sender(mailbox(ring, warpgroup));
  RingCursor<stages> cursor;
  for (uint32 index = arch::block_index(); index < tiles.count(); index += arch::block_count()) {
    float d[tile_columns / 2];
    multiply_steps<f16, b_rows, tile_columns>(ring, skip, steps, cursor, d);
    // Found only here, since there are no registers for it in the main loop.
    ReducedTile tile;
    tiles.find(index, tile);
    if (!tile.exists()) continue;
    if (tile.place.shard == arguments.group.rank) {
      finish_tile<f16, wide>(arguments, tile, skip, sender, d);
    } else {
      sender.send<f16, wide>(d);
    }
  }
}

// Called by all 384 threads of every block, with shared memory for the ring, the mailboxes, and 1024 bytes to align
// them.
template <bool f16, bool b_rows>
SYMMEM_DEVICE void reduced_gemm(const TensorReducedArguments& tensors) {
  const ReducedGemmArguments& arguments = tensors.arguments;
  const Ring ring = {(arch::shared_address(arch::dynamic_shared()) + atom_bytes - 1) / atom_bytes * atom_bytes};
  if (arch::thread_index() == 0) {
    ring_initialise(ring);
    for (uint32 warpgroup = 0; warpgroup < warpgroups; ++warpgroup) mailbox(ring, warpgroup).initialise();
    barriers_initialised();
    const uint32 aborted = aborted_before(arguments.group.watch);
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(ring.aborted()), "r"(aborted) : "memory");
    arch::fence_async_proxy();
  }
  cluster_arrive();
  cluster_wait();
  // The blocks of a cluster load for each other, so what the first one saw counts for all.
  if (load_one(shared_at(ring.aborted(), 0)) != 0) {
    cluster_arrive();
    cluster_wait();
    return;
  }
  const uint32 warpgroup = arch::thread_index() / 128;
  if (warpgroup == 0) {
    give_registers<56>();
    const uint32 warp = arch::opaque(arch::thread_index()) / arch::warp_size;
    if (warp == 0) {
      if (arch::thread_index() == 0) load_tiles<b_rows>(tensors, ring);
    } else if (warp <= warpgroups) {
      const ReducedWords words(apart(arguments), Tiles::most(arguments), warpgroups);
      const uint32 epoch = arch::load_relaxed(words.calls()) + 1;
      Carrier(arguments, words, epoch, mailbox(ring, warp - 1), warp - 1).carry();
    }
    arch::warp_barrier();
  } else {
    take_registers<224>();
    if (is_wide(arguments)) {
      multiply_tiles<f16, b_rows, true>(arguments, ring, warpgroup - 1);
    } else {
      multiply_tiles<f16, b_rows, false>(arguments, ring, warpgroup - 1);
    }
  }
  // No block exits while the other may still load for it, or arrive at its barriers.
  cluster_arrive();
  cluster_wait();
  if (arch::thread_index() == 0) {
    uint32* calls = ReducedWords(apart(arguments), 0, warpgroups).calls();
    arch::store_relaxed(calls, arch::load_relaxed(calls) + 1);
  }
}

}  // namespace

SYMMEM_KERNEL(384) symmem_reduced_gemm_f16_rows(SYMMEM_ARGUMENTS(TensorReducedArguments) tensors) {
  reduced_gemm<true, true>(tensors);
}

SYMMEM_KERNEL(384) symmem_reduced_gemm_f16_columns(SYMMEM_ARGUMENTS(TensorReducedArguments) tensors) {
  reduced_gemm<true, false>(tensors);
}

SYMMEM_KERNEL(384) symmem_reduced_gemm_bf16_rows(SYMMEM_ARGUMENTS(TensorReducedArguments) tensors) {
  reduced_gemm<false, true>(tensors);
}

SYMMEM_KERNEL(384) symmem_reduced_gemm_bf16_columns(SYMMEM_ARGUMENTS(TensorReducedArguments) tensors) {
  reduced_gemm<false, false>(tensors);
}
