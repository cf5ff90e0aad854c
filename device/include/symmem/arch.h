// Selects the arch header of the target. Everything a target does its own way is behind these names,
// in namespace symmem::arch; the other headers are portable.
//
// Attributes
//   SYMMEM_DEVICE               a function of device code, inlined
//   SYMMEM_HOST_DEVICE          a function that the host program may call too
//   SYMMEM_KERNEL(threads)      an entry point, called with blocks of at most `threads` threads
//   SYMMEM_UNROLL               before a loop that is to be unrolled whole
//   SYMMEM_ROLLED               before a loop that is not to be unrolled at all
//   SYMMEM_ARGUMENTS(T)         the type of a kernel's one argument, passed by value and read only
//
// Geometry (grids and blocks are one-dimensional)
//   thread_index, thread_count, block_index, block_count, warp_size
//   dynamic_shared()            the block's dynamic shared memory, 128-byte aligned
//   block_barrier()             all threads of the block; orders their shared and global accesses
//   block_all(condition)        the same, and whether the condition held for every thread
//   warp_barrier()              all threads of the warp, all of which exist; orders their accesses
//   warp_all(condition)         the same, and whether the condition held for every thread
//   nanoseconds()               a clock common to all blocks of the device
//   pause()                     in a polling loop
//   opaque(value)               the value, which the compiler then knows nothing of: what is computed from it
//                               in a loop is not kept in registers around it. A uint32 is the same for all
//                               threads of a warp
//   anew(value), per_thread(value)   the value. Where registers for what a warp's threads have in common are few,
//                               what is computed from the first is not kept in them, and the second is kept in
//                               each thread's own. The first is the same for all threads of a warp, and may be
//                               a bool
//
// Dependent launch: where the launch asked for it, the next kernel of the stream may become resident while
// this one runs. Without effect otherwise, and where a target has no such thing.
//   start_dependents()          from here on the stream's next kernel may start
//   wait_for_prerequisites()    until the stream's previous kernels are complete and visible
//
// Data: plain accesses, ordered by what is below; overloads for uint8, uint16, uint32, uint64 and Vector16
//   load(pointer), store(pointer, value)
//   funnel(low, high, bits)     the low 32 bits of (high:low) >> bits, bits < 32
//
// Numbers
//   float_of(bits), bits_of(number)           and the same of 64 bits with double
//   widen_f16(bits)                           where SYMMEM_HAS_HALF_CONVERSIONS is 1, as are the next two
//   narrow_f16(low, high), narrow_bf16(low, high)   two numbers, rounded to nearest even, in 32 bits
//
// Words that other devices or the host see: system scope, uint32 and uint64
//   load_relaxed, store_relaxed
//   compare_exchange            relaxed; returns what was there
//   load_acquire                a load that is ordered before what follows it
//   fetch_add, fetch_set, fetch_compare_set   acquire and release; return what was there
//
// Packets of data and flag (symmem/packets.h): 16 bytes, each half one access of 8 bytes by itself
//   load_packet, store_packet   relaxed, system scope
//
// Order
//   release_wave()              each thread, after its stores and before a barrier of block or warp, so that a
//                               later publish_flag by one thread behind it covers those stores
//   publish_flag(word, value)   system release, then a relaxed store of the flag
//   publish_taken(word, value)  a relaxed store of a flag that says only what has been read: it comes behind the
//                               loads of this warp before a warp_barrier whose values were used, and covers no
//                               store. Nobody's stores are waited for
//   load_flag(word)             a load of the flag, in a polling loop
//   acquire_flag(word)          after load_flag has seen the value: system acquire. The value was stored by
//                               one publish_flag, and what stands there now is that or a later one of the
//                               same giver
//   load_word(word)             a load of a word that anybody may change, in a polling loop
//   acquire_words()             after load_word has seen what was waited for: system acquire
//   fence_system()              system acquire and release
//   arrive(counter)             adds 1 to a counter of this device's own grids, acquire and release at
//                               device scope; where a device release does not reach peers (it may
//                               write back only its own die's L2) it releases at system scope
//   reset(counter)              zeroes it for the next grid
//
// Bulk copies through shared memory, where SYMMEM_HAS_BULK is 1
//   bulk_barrier_initialise, bulk_expect, bulk_load, bulk_wait, bulk_store, bulk_commit,
//   bulk_wait_read<pending>, bulk_wait_complete, fence_async_proxy
//
// Matrices, where SYMMEM_HAS_MATRIX is 1: squares of 16 by 16 by the threads of a warp together
//   load_reused(pointer)        a Vector16 that is read again soon, by this block or others
//   store_shared(pointer, value)   a uint32 or uint64 of elements into shared memory, aligned to its size
//   MatrixPart                  `values`, matrix_values of them: a thread's part of the square, 256 / warp_size
//   matrix_row(i), matrix_column(i)   where in the square this thread's value i is. Values 4 j to 4 j + 3 are
//                               neighbours of a row
//   matrix_multiply_add<type>(part, a, a_stride, b, b_stride)   adds a product to it, of f16 or bf16 in shared memory:
//                               16 rows of a and 16 columns of b, each 16 deep, whose elements are neighbours, and
//                               strides in elements from one to the next. All are multiples of 8 bytes
//
// Multicast addresses, behind which the same bytes of every member lie, where SYMMEM_MULTICAST_HARDWARE is defined.
// Where it is not, symmem/multicast.h goes by the members' own addresses
//   MulticastReduction<type, operation>::load(address)   as many elements as one access has, of all members, reduced
//   multicast_store(address, value)   at every member; overloads for uint32, uint64 and Vector16
//   multicast_raise(word, stored_at_peers)   adds 1 to a uint32 at every member, behind what the block did before a
//                               block barrier; said to be stored in own memory only, or at peers too
//   fence_aliases()             between what this thread did at a multicast address and what follows at own ones
#pragma once

#if defined(__CUDACC_RTC__)  // has no offsetof
#define SYMMEM_NO_OFFSETOF
#endif
#include "symmem/abi.h"

#if defined(__CUDA__) || defined(__CUDACC__) || defined(__CUDACC_RTC__)
#include "symmem/arch_ptx.h"
#if defined(SYMMEM_MULTICAST_HARDWARE)
#include "symmem/arch_ptx_multicast.h"
#endif
#elif defined(__HIP__)
#include "symmem/arch_hip.h"
#elif defined(__SPIRV__)
#error "symmem has no arch header for this target"
#else
#include "symmem/arch_host.h"
#endif
