// Put, get, signal and wait for users' kernels, which take a Handle by value as an argument.
//
//   extern "C" __global__ void push(const symmem::Handle handle, ...) {
//     symmem::put(handle, peer, 0, source, bytes);
//     symmem::signal(handle, peer);
//     if (!symmem::wait(handle, other)) return;  // gave up; the host reports why
//     ... handle.bases[handle.rank] holds what `other` put ...
//   }
//
// Every thread of every block of the grid must call each function, with the same peer. A grid of more than one block
// may signal each peer once per launch and wait for each peer once per launch, because one word per peer counts the
// blocks. Grids that use the same channel and peer must be ordered by one stream.
//
// A wait spins on the device. All blocks that others wait for must be co-resident: launch no more than fit.
//
// word.h, included here, has fence, quiet and atomic operations on words at any rank.
//
// A module that includes this header also has an empty kernel, named after SYMMEM_HANDLE_VERSION. The library looks it
// up before it hands out the module's kernels, and so refuses code from headers of another version: a kernel that takes
// a Handle of another layout would use wrong addresses. (A kernel, since every driver finds kernels by name. Compilers
// make variables of a whole program local, and reading one takes a copy from the device. A template, since linkers merge
// its copies in several files.)
#pragma once

#include "symmem/copy.h"
#include "symmem/signal.h"
#include "symmem/wait.h"
#include "symmem/word.h"

#if defined(SYMMEM_ENTRY_POINT)  // not on the host
template <unsigned version>
SYMMEM_ENTRY_POINT void symmem_handle_version() {}
template SYMMEM_ENTRY_POINT void symmem_handle_version<SYMMEM_HANDLE_VERSION>();
#endif

namespace symmem {

// Returns the address on this device of byte `offset` of a rank's buffer.
template <class T>
SYMMEM_DEVICE T* address(const Handle& handle, uint32 rank, uint64 offset = 0) {
  return pointer<T>(handle.bases[rank] + offset);
}

// Copies `bytes` bytes from `source` to the buffer of `peer`, from byte `destination` on. A later signal makes them
// visible to the peer; it covers all earlier puts and plain stores of the grid.
SYMMEM_DEVICE void put(const Handle& handle, uint32 peer, uint64 destination, const void* source, uint64 bytes) {
  copy_vector<4>(handle.bases[peer] + destination, reinterpret_cast<uint64>(source), bytes);
}

// Copies `bytes` bytes of the buffer of `peer`, from byte `source` on, to `destination`.
SYMMEM_DEVICE void get(const Handle& handle, uint32 peer, void* destination, uint64 source, uint64 bytes) {
  copy_vector<4>(reinterpret_cast<uint64>(destination), handle.bases[peer] + source, bytes);
}

// Signals `peer` once every block has called it. A peer that has waited for the signal sees what the grid stored
// before. Signals are counted, so none is lost if the peer is late.
SYMMEM_DEVICE void signal(const Handle& handle, uint32 peer) {
  SignalTarget target;
  target.word = handle.signals[peer] + handle.rank * signal_stride;
  target.epoch = handle.given + peer * sizeof(uint32);
  target.arrivals = handle.arrivals + peer * sizeof(uint32);
  target.value = 0;
  target.reserved = 0;
  give_signal(target);
}

// Waits for the next signal of `peer`; all threads of the block then see what the peer stored before it. Returns false
// if the deadline, counted from this call, has passed or the host has aborted: leave the kernel then, the host reports
// the failure. All threads of the block get the same result.
SYMMEM_DEVICE bool wait(const Handle& handle, uint32 peer) {
  bool arrived = true;
  if (arch::thread_index() == 0) {
    uint32* waited = pointer<uint32>(handle.waited + peer * sizeof(uint32));
    const uint32 expected = arch::load_relaxed(waited) + 1;
    Waiter waiter(handle.watch);
    const uint32* word = pointer<uint32>(handle.signals[handle.rank] + peer * signal_stride);
    arrived = waiter.until_reached(word, expected, WaitKind::signal, peer, handle.channel);
    // The last block advances the count, after every block has read it.
    const uint32 blocks = arch::block_count();
    uint32* departures = pointer<uint32>(handle.departures + peer * sizeof(uint32));
    if (blocks == 1) {
      arch::store_relaxed(waited, expected);
    } else if (arch::arrive(departures) == blocks - 1) {
      arch::reset(departures);
      arch::store_relaxed(waited, expected);
    }
  }
  return arch::block_all(arrived);
}

}  // namespace symmem
