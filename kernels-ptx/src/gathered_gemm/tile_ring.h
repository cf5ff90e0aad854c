// The main loop of the warpgroup GEMM kernels with large tiles: tiles of 128 by 256, whose operands come by tensor
// copies through a ring of stages, 64 deep. One thread loads; two warpgroups multiply 64 rows each. If a cluster has
// two blocks, their tiles lie below each other, and each block loads half of B for both.
#pragma once

#include "gathered_gemm/tensor_gemm.h"

namespace symmem {

constexpr uint32 tile_rows = 128;
constexpr uint32 tile_columns = 256;
constexpr uint32 a_bytes = tile_rows * depth * gemm_element_bytes;
constexpr uint32 b_bytes = tile_columns * depth * gemm_element_bytes;
// Columns of a box of B. `b_rows`: the rows of B are contiguous; otherwise its columns are.
template <bool b_rows>
constexpr uint32 box_columns = b_rows ? 64 : 128;
template <bool b_rows>
constexpr uint32 box_bytes = box_columns<b_rows>* depth* gemm_element_bytes;
// Tiles along the rows that are computed side by side: with this many the device is full and uses the fewest
// rows of A and columns of B at a time. Half as many do nearly as well.
constexpr uint32 band = 16;

// Layout of shared memory.
template <uint32 stages>
struct TileRing {
  uint32 base;

  SYMMEM_DEVICE uint32 a(uint32 stage) const { return base + stage * a_bytes; }
  SYMMEM_DEVICE uint32 b(uint32 stage) const { return base + stages * a_bytes + stage * b_bytes; }
  // Barriers: both operands of a stage have arrived; all warpgroups of the cluster are done with them.
  SYMMEM_DEVICE uint32 full(uint32 stage) const { return base + stages * (a_bytes + b_bytes) + stage * 8; }
  SYMMEM_DEVICE uint32 empty(uint32 stage) const { return full(stages) + stage * 8; }
  // A word that is not 0 if an earlier kernel has seen an abort.
  SYMMEM_DEVICE uint32 aborted() const { return empty(stages); }
  SYMMEM_DEVICE uint32 end() const { return aborted() + 8; }
};

// Initializes the ring's barriers. Called by one thread, before barriers_initialised.
template <uint32 stages>
SYMMEM_DEVICE void ring_initialise(const TileRing<stages>& ring) {
  for (uint32 stage = 0; stage < stages; ++stage) {
    barrier_initialise(ring.full(stage), 1);
    barrier_initialise(ring.empty(stage), 2 * cluster_size());
  }
}

// Loads the next stage: the box of A at (a_x, a_y), and the first `needed` boxes of B of the tile at `column`, from row
// `b_row` on. In a cluster, each block loads a part of B for all. Called by one thread.
template <bool b_rows, uint32 stages>
SYMMEM_DEVICE void load_stage(const TileRing<stages>& ring, RingCursor<stages>& cursor, const TensorMap* a, uint32 a_x,
                              uint32 a_y, const TensorMap* b, uint32 column, uint32 b_row, uint32 needed) {
  constexpr uint32 boxes = tile_columns / box_columns<b_rows>;
  const uint32 sharers = cluster_size(), sharer = cluster_rank();
  barrier_wait(ring.empty(cursor.stage), cursor.parity ^ 1);
  const uint32 full = ring.full(cursor.stage);
  barrier_expect(full, a_bytes + needed * box_bytes<b_rows>);
  tensor_load(ring.a(cursor.stage), a, a_x, a_y, full);
  SYMMEM_UNROLL
  for (uint32 box = 0; box < boxes; ++box) {
    if (box == needed) break;
    const uint32 to = ring.b(cursor.stage) + box * box_bytes<b_rows>;
    const uint32 from = column + box * box_columns<b_rows>;
    const uint32 x = b_rows ? from : b_row;
    const uint32 y = b_rows ? b_row : from;
    if (sharers == 1) {
      tensor_load(to, b, x, y, full);
    } else if (box * sharers / needed == sharer) {
      tensor_load_shared(to, b, x, y, full, 3);
    }
  }
  cursor.advance();
}

// Signals that a stage is empty, by one thread per block of the cluster: each block loads a part of B into this
// stage, so all of them must know.
template <uint32 stages>
SYMMEM_DEVICE void give_back(const TileRing<stages>& ring, uint32 stage) {
  const uint32 thread = arch::thread_index() % 128;
  if (thread < cluster_size()) barrier_arrive_at(ring.empty(stage), thread);
}

// Multiplies a warpgroup's rows of a tile, those from `skip` on, by `columns` columns of B, in `steps` stages. Sets d.
template <bool f16, bool b_rows, uint32 columns, uint32 stages>
SYMMEM_DEVICE void multiply_steps(const TileRing<stages>& ring, uint32 skip, uint32 steps, RingCursor<stages>& cursor,
                                  float (&d)[columns / 2]) {
  for (uint32 step = 0; step < steps; ++step) {
    barrier_wait(ring.full(cursor.stage), cursor.parity);
    const uint64 a = matrix_descriptor(ring.a(cursor.stage) + skip * depth * gemm_element_bytes, 16, atom_bytes);
    const uint64 b = matrix_descriptor(ring.b(cursor.stage), b_rows ? box_bytes<b_rows> : 16, atom_bytes);
    wgmma_begin();
    SYMMEM_UNROLL
    for (uint32 part = 0; part < depth / 16; ++part) {
      // The next 16 elements: 32 bytes along a row, or two atoms down if rows of B are contiguous.
      const uint64 next_a = a + part * (32 >> 4);
      const uint64 next_b = b + part * ((b_rows ? 2 * atom_bytes : 32) >> 4);
      Warpgroup<columns>::template multiply<f16, false, b_rows>(d, next_a, next_b, step | part);
    }
    wgmma_commit();
    if (step != 0) {
      wgmma_wait<1>();
      give_back(ring, cursor.before());
    }
    cursor.advance();
  }
  wgmma_wait<0>();
  give_back(ring, cursor.before());
}

}  // namespace symmem
