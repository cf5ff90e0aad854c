// Selects the arch header of the target. The names below, in namespace symmem::arch, are everything that differs
// between targets; all other headers are portable.
//
// Attributes
//   SYMMEM_DEVICE               an inlined function of device code
//   SYMMEM_HOST_DEVICE          a function that the host program may call too
//   SYMMEM_KERNEL(threads)      an entry point, launched with blocks of at most `threads` threads
//   SYMMEM_KERNEL_OF_TWO(threads)   an entry point, launched with blocks of `threads` threads, whose warps share a
//                               scheduler in pairs; if SYMMEM_HAS_MATRIX is 1
//   SYMMEM_ENTRY_POINT          an entry point without arguments; not defined on the host
//   SYMMEM_UNROLL               before a loop to unroll completely
//   SYMMEM_ROLLED               before a loop not to unroll
//   SYMMEM_ARGUMENTS(T)         the type of a kernel's only argument, passed by value and read-only
//
// Geometry (grids and blocks are one-dimensional)
//   thread_index, thread_count, block_index, block_count, warp_size
//   dynamic_shared()            the block's dynamic shared memory, 128-byte aligned
//   block_barrier()             waits for all threads of the block; orders their shared and global accesses
//   block_all(condition)        a block barrier that returns whether the condition held for every thread
//   warp_barrier()              waits for all threads of a full warp; orders their accesses
//   warp_all(condition)         a warp barrier that returns whether the condition held for every thread
//   line_threads                32, or the threads of a warp if there are fewer: these adjacent threads are a line
//   line_votes(condition)       returns a bit for each thread of the caller's line, from the first on. Called by all
//                               threads of the line, as the next one; both order no accesses
//   from_last_of_line(value)    returns the value of the line's last thread
//   line_exchange(value, distance)   returns the value of the line's thread whose index differs in the bit `distance`. Called
//                               by all threads of a warp
//   nanoseconds()               a clock common to all blocks of the device
//   pause()                     a pause for polling loops
//   pause_in_crowd()            the same where many threads poll: 0.1 us on NVIDIA, elsewhere as pause()
//   opaque(value)               returns the value, hidden from the compiler: it cannot keep what a loop computes
//                               from it in registers around the loop. A uint32 must be equal in all threads of
//                               a warp
//   anew(value), per_thread(value)   return the value. On targets with few scalar registers, the compiler does not
//                               keep what is computed from anew() in them, and keeps per_thread() in vector
//                               registers. anew() takes a value that is equal in all threads of a warp, also a
//                               bool
//   set_any(variable)           gives a uint32 or uint64 any value, where only some paths of a loop set it and only they use it.
//                               Otherwise, on AMD, a register holds its old value around the loop. Costs no instruction
//   settle_loads()              before a loop of loads and stores. On AMD, whose compiler may otherwise wait at the loop's
//                               top for a load before the loop, and with it for the stores of each round. Elsewhere
//                               it does nothing
//
// Dependent launch: if the launch asked for it, the stream's next kernel may become resident while this one runs.
// Otherwise, and on targets without it, these functions do nothing.
//   wait_for_prerequisites()    waits until the stream's previous kernels are complete and visible
//   start_dependents()          allows the stream's next kernel to start once every block has called it, by any
//                               thread, or has ended. Call it after wait_for_prerequisites and after the block's
//                               last wait for a peer: the next kernel occupies compute units from then until this
//                               grid ends. While this grid still needs a peer, they could be those that a kernel of
//                               another stream needs to answer that peer. After the last wait the grid ends by
//                               itself, so the next kernel holds nothing that a peer could be waiting for
//   start_dependents_of_answered()   the same while the block still waits, once it has heard from every block that it
//                               waits for. When all blocks of the grid have, the blocks that they still need are
//                               resident, and need no more room to answer
//   end_waits()                 waits for all threads of the block, then starts dependents. For kernels in which
//                               some of the threads wait
//
// Data: plain accesses, ordered by the functions below; overloads for uint8, uint16, uint32, uint64 and Vector16
//   load(pointer), store(pointer, value)
//   funnel(low, high, bits)     the low 32 bits of (high:low) >> bits, bits < 32
//
// Numbers
//   float_of(bits), bits_of(number)           bit casts, also between 64 bits and double
//   reciprocal_root(number)                   1 / sqrt(number), with a relative error of at most 2^-22
//   widen_f16(bits)                           if SYMMEM_HAS_HALF_CONVERSIONS is 1, like the next two
//   narrow_f16(low, high), narrow_bf16(low, high)   two numbers in 32 bits, rounded to nearest even
//   narrow_f8_e4m3(low, high)                 two numbers in 16 bits, alike, if SYMMEM_HAS_F8_CONVERSIONS is 1; saturates
//
// Words that other devices or the host access: system scope, uint32 and uint64
//   load_relaxed, store_relaxed
//   compare_exchange            relaxed; returns the previous value
//   load_acquire
//   fetch_add, fetch_set, fetch_compare_set   acquire and release; return the previous value
//
// Packets of data and flag (symmem/packets.h): 16 bytes, each half a single access of 8 bytes
//   load_packet, store_packet   relaxed, system scope
// Packets without a flag (symmem/lamport.h): a Vector16, each of whose words is a single access or a part of one
//   load_packet, store_packet   relaxed, system scope
//
// Order
//   release_wave()              called by each thread after its stores and before a barrier of block or warp, so
//                               that a publish_flag by one thread after the barrier covers those stores
//   publish_flag(word, value)   system release, then a relaxed store of the flag
//   publish_taken(word, value)  a relaxed store of a flag that says only that data was read. It is ordered after
//                               this warp's loads before a warp_barrier, if their values were used. It covers no
//                               stores and waits for none
//   publish_entered(word, value)   a store of a flag in a kernel that has stored nothing yet: it covers what the kernels
//                               for which wait_for_prerequisites waited have stored in this device's memory
//   load_flag(word)             a load of the flag in a polling loop
//   acquire_flag(word)          system acquire, after load_flag has seen the value. The word must hold the value
//                               of one of the three stores above, which says what it covers, or a later value
//                               from the same rank
//   load_word(word)             a load in a polling loop of a word that any rank may change
//   acquire_words()             system acquire, after load_word has seen the expected value
//   fence_system()              system acquire and release
//   arrive(counter)             adds 1 to a counter of this device's grids, acquire and release at device scope.
//                               On targets whose device release does not reach peers (it may write back only the
//                               L2 of its die), it releases at system scope
//   arrive_taken(counter)       the same for blocks that have only read: relaxed. It is ordered after the block's
//                               loads before a block barrier, if their values were used, and covers no stores
//   reset(counter)              sets the counter to 0 for the next grid
//
// Bulk copies through shared memory, if SYMMEM_HAS_BULK is 1
//   bulk_barrier_initialise, bulk_expect, bulk_load, bulk_wait, bulk_store, bulk_commit,
//   bulk_wait_read<pending>, bulk_wait_complete, fence_async_proxy
//
// Matrices, if SYMMEM_HAS_MATRIX is 1: a warp computes squares of 16 by 16
//   dies                        the dies of a device, each with an L2 cache, which take the blocks of a grid in turn
//   load_reused(pointer)        loads a Vector16 or uint64 that this block or others will read again soon
//   uniform(value)              the value, which is equal in all threads of the warp, in registers that they share
//   store_shared(pointer, value)   stores one element, or a uint32, uint64 or Vector16 of them, in shared memory, aligned to its size
//   load_shared<T>(pointer)     loads a uint64 or Vector16 that this thread has stored
//   paired(first, second, high)   the lower or higher elements of two words that hold two elements each
//   block_all(condition, votes)   as block_all, with room for 16 words in shared memory
//   drain()                     waits until this warp's accesses to global memory are complete
//   shared_barrier()            a block barrier that orders accesses to shared memory alone. No stores to global memory
//                               may be in flight
//   loads_to_shared             whether there is load_to_shared
//   load_to_shared(to, base, offset)   begins to load 16 bytes of this thread from base + offset to shared memory: to the
//                               warp's `to`, which like `base` is equal in its threads, behind those of lower threads
//   wait_for_loads<left>()      waits until at most `left` of this warp's loads are in flight
//   keep_order()                the compiler moves no instructions across it
//   set_priority<level>()       the priority of this warp's instructions, 0 to 3
//   MatrixPart                  a thread's `values` of the square, matrix_values = 256 / warp_size of them
//   matrix_row(i), matrix_column(i)   the place in the square of this thread's value i. Values 4 j to 4 j + 3 are
//                               adjacent in a row
//   MatrixFragment              a thread's part of 16 lines of 32 elements
//   load_fragment<type, Place>(lines)   loads it from shared memory; Place::at(line, unit) is the element at which eight
//                               adjacent elements of a line begin, a multiple of 16 bytes
//   loads_transposed            whether there is load_transposed
//   load_transposed<type, length>(lines, place)   loads it from shared memory in which the lines lie across:
//                               place(depth, quarter) is the element at which the elements begin that lines 4 quarter to
//                               4 quarter + 3 have at a depth below 4 of eight, a multiple of 8 bytes. Those of the depths
//                               from 4 on lie 4 length elements behind
//   matrix_multiply_add<type>(part, a, b, step)   adds a product of f16 or bf16 matrices: 16 rows of a times 16 columns
//                               of b, in matrix_steps<type> steps that may go in any order
//
//   converts<type>              whether matrix instructions have the type in another encoding. If so:
//   Conversion                  end(begin(word), nans) returns a word of four elements in that encoding, but for NaN; in `nans`,
//                               which begins as 0, it marks what is NaN
//   has_nans(nans)              whether any thread of the warp has marked a NaN
//   with_nans(word)             returns a converted word with its NaN in that encoding, too
//
// Matrices of f8_e4m3, if SYMMEM_HAS_MATRIX_F8 is 1: the same functions, whose elements are pairs
//   matrix_f8_unit              the factor by which their products are too small
//
// Multicast addresses, which map the same bytes of every member, if SYMMEM_MULTICAST_HARDWARE is defined.
// Otherwise symmem/multicast.h uses the members' own addresses
//   MulticastReduction<type, operation>::load(address)   loads the elements of one access, reduced over all members
//   multicast_store(address, value)   stores at every member; overloads for uint32, uint64 and Vector16
//   multicast_raise(word, stored_at_peers)   adds 1 to a uint32 at every member, after what the block did before a
//                               block barrier; `stored_at_peers` says whether those stores include peers' memory
//   fence_aliases()             orders this thread's accesses to multicast addresses and to the members' own addresses
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
