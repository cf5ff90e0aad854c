// For users' own kernels: put, get, signal and wait on the buffer and the channel that a Handle names.
//
//   __global__ void step(const __grid_constant__ symmem::Handle handle) {
//     symmem::put(handle, peer, to, from, bytes);       // the whole grid
//     symmem::signal(handle, peer);                     // the whole grid, once
//     if (symmem::wait(handle, peer)) { ... }           // one block
//   }
//
// Signals count themselves: the n-th wait for a peer is over when that peer has given n signals. All that
// wait leave when the deadline has passed or the host has called the job off, and return false; the kernel
// then returns, and the host says what happened.
#pragma once

#include "symmem/copy.h"
#include "symmem/signal.h"
#include "symmem/wait.h"
#include "symmem/word.h"

namespace symmem {

// The byte at `offset` of a rank's buffer.
SYMMEM_DEVICE uint64 address_at(const Handle& handle, uint32 rank, uint64 offset) {
  return handle.bases[rank] + offset;
}

// An element of a rank's buffer, to load and store like any memory.
template <class T>
SYMMEM_DEVICE T* element_at(const Handle& handle, uint32 rank, uint64 index) {
  return pointer<T>(handle.bases[rank]) + index;
}

// Copies from this rank's buffer to a peer's, offsets and length in bytes. Called by every thread of every
// block that shares: the whole grid unless it is said otherwise. Nobody may count on it before a signal.
SYMMEM_DEVICE void put(const Handle& handle, uint32 peer, uint64 to, uint64 from, uint64 bytes,
                       Share share = share_of_grid()) {
  copy_vector<8>(address_at(handle, peer, to), address_at(handle, handle.rank, from), bytes, share);
}

// Copies from a peer's buffer to this rank's.
SYMMEM_DEVICE void get(const Handle& handle, uint32 peer, uint64 to, uint64 from, uint64 bytes,
                       Share share = share_of_grid()) {
  copy_vector<8>(address_at(handle, handle.rank, to), address_at(handle, peer, from), bytes, share);
}

// The signal to give to a peer, for give_signal and for the host's transfers.
SYMMEM_DEVICE SignalTarget signal_target(const Handle& handle, uint32 peer) {
  const uint64 epochs = handle.epochs + peer * handle_epoch_bytes;
  return SignalTarget{handle.signals[peer] + handle.rank * signal_stride, epochs, epochs + 8, 0, 0};
}

// Gives a peer one signal once every block of the grid has called this: whoever waits for it sees all that
// the grid stored before. Called once by every thread of every block.
SYMMEM_DEVICE void signal(const Handle& handle, uint32 peer) { give_signal(signal_target(handle, peer)); }

// Waits for a peer's next signal. Called by every thread of one block; grids that wait for the same peer are
// ordered by their stream. Once it has returned true, what the peer stored before it signalled is visible
// to the block.
SYMMEM_DEVICE bool wait(const Handle& handle, uint32 peer) {
  bool arrived = true;
  if (arch::thread_index() == 0) {
    const SignalWait wait{handle.signals[handle.rank] + peer * signal_stride,
                          handle.epochs + peer * handle_epoch_bytes + 4,
                          handle.watch, 0, peer, handle.channel, 0};
    arrived = wait_signal(wait);
  }
  return arch::block_all(arrived);
}

}  // namespace symmem
