// symmem: symmetric memory across the GPUs of a node. `cargo xtask capi --write` makes this file.
//
// A function returns 0, or why it failed: symmem_last_error has the message. Functions may be called from any thread. Calls
// on a stream enqueue work and return; every rank makes the same collective calls in the same order. No wait lasts longer
// than its deadline.

#ifndef SYMMEM_H
#define SYMMEM_H

#include <stddef.h>
#include <stdint.h>

// The result of a function. Later versions may add codes.
enum symmem_status {
  // No failure.
  SYMMEM_OK = 0,
  // An argument is invalid: null, out of range, or a handle that is not live.
  SYMMEM_INVALID_ARGUMENT = 1,
  // A call to the driver, the runtime, NCCL or RCCL failed.
  SYMMEM_BACKEND = 2,
  // A device has too little memory left.
  SYMMEM_OUT_OF_MEMORY = 3,
  // Ranks differ in a call, its arguments, the world or the version.
  SYMMEM_MISMATCH = 4,
  // A wait passed its deadline.
  SYMMEM_TIMEOUT = 5,
  // A rank's process ended. symmem_rebuild continues without it.
  SYMMEM_PEER_DIED = 6,
  // A rank failed and reported it; its own error has the cause.
  SYMMEM_PEER_FAILED = 7,
  // A rank left in good order while others still called.
  SYMMEM_PEER_LEFT = 8,
  // This rank called symmem_abort.
  SYMMEM_ABORTED = 9,
  // This process is a fork of the one that made the communicator, which it cannot use.
  SYMMEM_FORKED = 10,
  // The device, the backend or this version does not support the operation.
  SYMMEM_UNSUPPORTED = 11,
  // Peers cannot map the caller's memory, or a device.
  SYMMEM_NOT_SHAREABLE = 12,
  // There is no such device, or no backend can start.
  SYMMEM_NO_DEVICE = 13,
  // An environment variable has an unusable value.
  SYMMEM_ENVIRONMENT = 14,
  // The ranks cannot meet.
  SYMMEM_RENDEZVOUS = 15,
  // The operating system refused a call, or a failure of another kind; see the message.
  SYMMEM_SYSTEM = 16,
  // A fault in symmem itself. Please report it with the message.
  SYMMEM_INTERNAL = 17,
};

// An element type.
enum symmem_type {
  // Signed integer of 8 bits.
  SYMMEM_I8 = 1,
  // Unsigned integer of 8 bits.
  SYMMEM_U8 = 2,
  // Signed integer of 16 bits.
  SYMMEM_I16 = 3,
  // Unsigned integer of 16 bits.
  SYMMEM_U16 = 4,
  // Signed integer of 32 bits.
  SYMMEM_I32 = 5,
  // Unsigned integer of 32 bits.
  SYMMEM_U32 = 6,
  // Signed integer of 64 bits.
  SYMMEM_I64 = 7,
  // Unsigned integer of 64 bits.
  SYMMEM_U64 = 8,
  // IEEE 754 half precision.
  SYMMEM_F16 = 9,
  // bfloat16.
  SYMMEM_BF16 = 10,
  // IEEE 754 single precision.
  SYMMEM_F32 = 11,
  // IEEE 754 double precision.
  SYMMEM_F64 = 12,
  // fp8 with 4 bits of exponent.
  SYMMEM_F8_E4M3 = 13,
  // fp8 with 5 bits of exponent.
  SYMMEM_F8_E5M2 = 14,
};

// A reduction.
enum symmem_operator {
  // Sum.
  SYMMEM_SUM = 1,
  // Sum divided by the number of ranks.
  SYMMEM_AVERAGE = 2,
  // Minimum.
  SYMMEM_MINIMUM = 3,
  // Maximum.
  SYMMEM_MAXIMUM = 4,
  // Product.
  SYMMEM_PRODUCT = 5,
};

// A symmetric buffer: the same number of bytes at every rank.
struct symmem_buffer;

// A rank's communicator.
struct symmem_communicator;

// An all-gather + GEMM of one shape.
struct symmem_gemm;

// A stream: work that runs in order.
struct symmem_stream;

// Source or destination of a collective: memory at an address of this rank's device (symmem_at), which no peer needs to
// know, or a part of a symmetric buffer (symmem_in). If one operand of a call is an address, all ranks pass one, but each may
// pass any. In a call on symmetric buffers all ranks pass the same parts of the same buffers.
struct symmem_operand {
  // The buffer; null for an address.
  struct symmem_buffer *buffer;
  // The address; ignored if there is a buffer.
  void *address;
  // Bytes from the start of the buffer, or from the address.
  size_t offset;
};

// How a rank joins its world. Set `size` to `sizeof(struct symmem_options)` and the rest to 0; 0 stands for the default.
struct symmem_options {
  // The size of this struct, in bytes.
  uint32_t size;
  // The number of ranks, if no launcher's variables say it; 0: the variables say it.
  uint32_t world;
  // This rank, from 0; used if `world` is not 0.
  uint32_t rank;
  // 0, or 1 more than the number of the device.
  uint32_t device_plus_1;
  // A name that the ranks of a job share, and no other job on this machine; used if `world` is not 0, and needed if it is
  // more than 1.
  const char *job;
  // The backend ("cuda", "hip", "host" or a plugin); null: SYMMEM_BACKEND's, or the first that has a device.
  const char *backend;
  // The deadline of a wait for a peer, in milliseconds; 0: 10 seconds, or SYMMEM_DEADLINE's.
  uint64_t deadline_ms;
  // The deadline of each step of the setup, in milliseconds; 0: 60 seconds, or SYMMEM_SETUP_DEADLINE's.
  uint64_t setup_deadline_ms;
};

// The shape of C[m, n] = A[m, k] * B[k, n]. A and C are row-major, without gaps. Each rank has a shard of A and its own B, and
// gets its own C. Set `size` to `sizeof(struct symmem_gemm_shape)`; the same at all ranks.
struct symmem_gemm_shape {
  // The size of this struct, in bytes.
  uint32_t size;
  // SYMMEM_F16 or SYMMEM_BF16.
  uint32_t element;
  // Rows of A and C.
  size_t m;
  // Columns of B and C on each rank.
  size_t n;
  // Columns of A, rows of B.
  size_t k;
  // 0: rank r has the rows of A from r * ceil(m / world) on; 1: the columns from r * ceil(k / world) on.
  uint32_t by_columns;
  // 0: B is row-major; 1: column-major.
  uint32_t b_columns;
  // 1: a bias is added to each row.
  uint32_t bias;
  // 0.
  uint32_t reserved;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Reduces `count` elements of all ranks into `destination` at all ranks. In place if both operands are the same.
// `element` is a symmem_type, `operation` a symmem_operator.
//
// # Safety
// Addresses are of memory on this rank's device, with as many elements, until the stream has passed the work.
enum symmem_status symmem_all_reduce(struct symmem_stream *stream,
                                     struct symmem_operand destination,
                                     struct symmem_operand source,
                                     size_t count,
                                     uint32_t element,
                                     uint32_t operation);

// Reduces `count` elements of all ranks into `destination` at rank `root`.
// `element` is a symmem_type, `operation` a symmem_operator.
//
// # Safety
// Addresses are of memory on this rank's device, with as many elements, until the stream has passed the work.
enum symmem_status symmem_reduce(struct symmem_stream *stream,
                                 uint32_t root,
                                 struct symmem_operand destination,
                                 struct symmem_operand source,
                                 size_t count,
                                 uint32_t element,
                                 uint32_t operation);

// Reduces `count` elements for each rank: `source` has `count` times as many elements as there are ranks, and rank r gets
// part r.
// `element` is a symmem_type, `operation` a symmem_operator.
//
// # Safety
// Addresses are of memory on this rank's device, with as many elements, until the stream has passed the work.
enum symmem_status symmem_reduce_scatter(struct symmem_stream *stream,
                                         struct symmem_operand destination,
                                         struct symmem_operand source,
                                         size_t count,
                                         uint32_t element,
                                         uint32_t operation);

// Copies `bytes` bytes of every rank into `destination` of all ranks, in rank order.
//
// # Safety
// Addresses are of memory on this rank's device, with as many bytes, until the stream has passed the work.
enum symmem_status symmem_all_gather(struct symmem_stream *stream,
                                     struct symmem_operand destination,
                                     struct symmem_operand source,
                                     size_t bytes);

// Copies `bytes` bytes of rank `root` into `destination` of all ranks.
//
// # Safety
// Addresses are of memory on this rank's device, with as many bytes, until the stream has passed the work.
enum symmem_status symmem_broadcast(struct symmem_stream *stream,
                                    uint32_t root,
                                    struct symmem_operand destination,
                                    struct symmem_operand source,
                                    size_t bytes);

// Copies part r of `source` of rank s into part s of `destination` of rank r; a part has `bytes` bytes.
//
// # Safety
// Addresses are of memory on this rank's device, with as many bytes, until the stream has passed the work.
enum symmem_status symmem_all_to_all(struct symmem_stream *stream,
                                     struct symmem_operand destination,
                                     struct symmem_operand source,
                                     size_t bytes);

// Copies `bytes` bytes of every rank into `destination` of rank `root`, in rank order.
//
// # Safety
// Addresses are of memory on this rank's device, with as many bytes, until the stream has passed the work.
enum symmem_status symmem_gather(struct symmem_stream *stream,
                                 uint32_t root,
                                 struct symmem_operand destination,
                                 struct symmem_operand source,
                                 size_t bytes);

// Copies part r of `source` of rank `root` into `destination` of rank r; a part has `bytes` bytes.
//
// # Safety
// Addresses are of memory on this rank's device, with as many bytes, until the stream has passed the work.
enum symmem_status symmem_scatter(struct symmem_stream *stream,
                                  uint32_t root,
                                  struct symmem_operand destination,
                                  struct symmem_operand source,
                                  size_t bytes);

// Enqueues a barrier: later work of this stream starts once the streams of all ranks have reached it.
enum symmem_status symmem_barrier(struct symmem_stream *stream);

// Joins the world. Blocks until all ranks have joined, for at most the setup deadline in each step.
//
// @param options How to join; null for the launcher's variables and SYMMEM_BACKEND.
// @param communicator Where to store the communicator. End it by symmem_finalize.
//
// # Safety
// `options` is null or a struct of at least `size` bytes, whose texts end with a zero; `communicator` is null or valid.
enum symmem_status symmem_init(const struct symmem_options *options, struct symmem_communicator **communicator);

// Leaves in good order. Blocks until this rank's work is done and every rank has called it. The handle is gone then, even
// after a failure, unless another thread was in a call on it. Free buffers and memory of symmem_alloc, and destroy
// streams and symmem_gemms, before.
enum symmem_status symmem_finalize(struct symmem_communicator *communicator);

// Ends all waits of all ranks: every waiting kernel and stream leaves, and every later call fails. May be called from any
// thread, but not during symmem_finalize or symmem_rebuild, whose waits have deadlines. Does not block. symmem_finalize or symmem_rebuild comes after it.
enum symmem_status symmem_abort(struct symmem_communicator *communicator);

// Checks whether the communicator can still be used. Returns the failure that ended it otherwise, and says the rank by
// symmem_last_error_peer. Does not block.
enum symmem_status symmem_check(struct symmem_communicator *communicator);

// Makes a new communicator of the ranks that live, renumbered from 0 in the old order. Every one of them calls it. Blocks
// for seconds. The old handle is gone, even after a failure, unless an argument was invalid or another thread was in a call on it. Its streams and buffers
// cannot be used any more: destroy and symmem_buffer_drop them before.
//
// # Safety
// `rebuilt` is null or valid.
enum symmem_status symmem_rebuild(struct symmem_communicator *communicator,
                                  struct symmem_communicator **rebuilt);

// Stores this rank's number, from 0, and the number of ranks. Either pointer may be null.
//
// # Safety
// The pointers are null or valid.
enum symmem_status symmem_rank(struct symmem_communicator *communicator, uint32_t *rank, uint32_t *world);

// Blocks until every rank has called it. Does not wait for work of the device.
enum symmem_status symmem_host_barrier(struct symmem_communicator *communicator);

// Returns the library's version, such as "0.2.0".
const char *symmem_version(void);

// Prepares an all-gather + GEMM. All ranks call it, in the same order; blocks until they have, and tries the vendor's
// candidates on temporary memory of the matrices' size. If a field but m, n and k is refused at one rank, the others wait for
// the setup deadline.
//
// @param gemm Where to store it. End it by symmem_gemm_destroy.
// @param shard_elements Where to store how many elements the buffer for a shard of A has at every rank; may be null.
//
// # Safety
// `shape` is null or a struct of at least `size` bytes; the other pointers are null or valid.
enum symmem_status symmem_gemm_create(struct symmem_communicator *communicator,
                                      const struct symmem_gemm_shape *shape,
                                      struct symmem_gemm **gemm,
                                      size_t *shard_elements);

// Enqueues an all-gather + GEMM. `a` is a part of a symmetric buffer, the same at all ranks, of as many elements as
// symmem_gemm_create told; the other matrices are any memory of this rank's device, without gaps. `bias` is null unless the
// shape has one.
//
// # Safety
// The matrices are on this rank's device, aligned to an element, until the stream has passed the work.
enum symmem_status symmem_all_gather_gemm(struct symmem_stream *stream,
                                          struct symmem_gemm *gemm,
                                          struct symmem_operand a,
                                          const void *b,
                                          void *c,
                                          const void *bias);

// Destroys an all-gather + GEMM. The handle is gone then; its memory stays until work with it is done.
enum symmem_status symmem_gemm_destroy(struct symmem_gemm *gemm);

// Allocates a buffer of `bytes` zeroed bytes at every rank. All ranks call it, in the same order; blocks until they have.
//
// @param buffer Where to store the buffer. End it by symmem_buffer_free, or by symmem_buffer_drop.
//
// # Safety
// `buffer` is null or valid.
enum symmem_status symmem_buffer_allocate(struct symmem_communicator *communicator,
                                          size_t bytes,
                                          struct symmem_buffer **buffer);

// Makes memory of the caller symmetric: `bytes` bytes at `address` on this rank's device, which may differ between ranks. All
// ranks call it, in the same order; blocks until they have. Nothing may write the first 64 bytes meanwhile, which the ranks
// compare. Memory of symmem_alloc stays until the buffer is gone, whenever
// symmem_free is called. Collectives also take memory that is not registered.
//
// # Safety
// Other memory stays allocated until the buffer was freed; `buffer` is null or valid.
enum symmem_status symmem_buffer_register(struct symmem_communicator *communicator,
                                          void *address,
                                          size_t bytes,
                                          struct symmem_buffer **buffer);

// Frees a buffer. All ranks call it, in the same order; blocks until they have and this rank's streams are idle. The handle is
// gone then, even after a failure, as after symmem_buffer_drop.
enum symmem_status symmem_buffer_free(struct symmem_buffer *buffer);

// Gives a buffer up without waiting for the other ranks, also when the communicator has failed. It stays mapped until all have.
enum symmem_status symmem_buffer_drop(struct symmem_buffer *buffer);

// Stores the address of a rank's copy of a buffer, as this rank's device reaches it, and its length. Either pointer may be
// null.
//
// # Safety
// The pointers are null or valid.
enum symmem_status symmem_buffer_address(struct symmem_buffer *buffer,
                                         uint32_t rank,
                                         void **address,
                                         size_t *bytes);

// Copies from the host into this rank's copy of a buffer, from byte `offset` on, after the stream's earlier work. Blocks until
// the bytes are there.
//
// # Safety
// `data` is null or has `bytes` bytes.
enum symmem_status symmem_buffer_write(struct symmem_stream *stream,
                                       struct symmem_buffer *buffer,
                                       size_t offset,
                                       const void *data,
                                       size_t bytes);

// Copies from this rank's copy of a buffer, from byte `offset` on, to the host, after the stream's earlier work. Blocks until
// the bytes are there.
//
// # Safety
// `data` is null or has room for `bytes` bytes.
enum symmem_status symmem_buffer_read(struct symmem_stream *stream,
                                      struct symmem_buffer *buffer,
                                      size_t offset,
                                      void *data,
                                      size_t bytes);

// Allocates `bytes` zeroed bytes on the device with this number, by a communicator that this process has there: of several by
// one that has not failed, of a GPU rather than of the host. For allocators that take a C function, such as
// torch.cuda.memory.CUDAPluggableAllocator; `stream` is not used. Not collective. Returns null after a failure, whose
// message symmem_last_error has.
void *symmem_alloc(ptrdiff_t bytes,
                   int device,
                   void *_stream);

// Frees what symmem_alloc returned; null is ignored. The memory goes once no buffer is made of it any more, and `stream` and
// the communicator's streams are idle, so the call does not wait for a peer while the communicator lives. Other streams have
// passed their work on the memory by the time of the call. Only symmem_last_error shows a failure.
//
// # Safety
// `stream` is null, for the default stream, or a stream of the device that lives until its work is done.
void symmem_free(void *address,
                 ptrdiff_t _bytes,
                 int _device,
                 void *stream);

// Returns the message of this thread's last failure, or an empty text. Valid until the thread's next failure. Never null.
const char *symmem_last_error(void);

// Returns the rank that this thread's last failure concerns, or -1.
int32_t symmem_last_error_peer(void);

// Makes a stream on this rank's device.
//
// # Safety
// `stream` is null or valid.
enum symmem_status symmem_stream_create(struct symmem_communicator *communicator, struct symmem_stream **stream);

// Takes a stream of the caller: a CUstream, cudaStream_t or hipStream_t, as a number; 0 is the device's default stream. It is
// not destroyed with the handle.
//
// # Safety
// The stream belongs to this rank's device, and lives until the handle was destroyed after all its work was done; `stream`
// is null or valid.
enum symmem_status symmem_stream_wrap(struct symmem_communicator *communicator,
                                      uint64_t native,
                                      struct symmem_stream **stream);

// Stores the stream's number in the driver's API.
//
// # Safety
// `native` is null or valid.
enum symmem_status symmem_stream_native(struct symmem_stream *stream, uint64_t *native);

// Blocks until the stream's work is done, or until the communicator fails. Calls of other threads on the same stream wait
// meanwhile.
//
// @param deadline_ms How long to wait at most; 0: as long as the work's own waits take.
enum symmem_status symmem_stream_synchronize(struct symmem_stream *stream,
                                             uint64_t deadline_ms);

// Gives a stream up. Its work goes on.
enum symmem_status symmem_stream_destroy(struct symmem_stream *stream);

// Enqueues a copy of `bytes` bytes of this rank's `source` to `destination` at `peer`.
enum symmem_status symmem_put(struct symmem_stream *stream,
                              uint32_t peer,
                              struct symmem_buffer *destination,
                              size_t destination_offset,
                              struct symmem_buffer *source,
                              size_t source_offset,
                              size_t bytes);

// Enqueues a copy of `bytes` bytes of `source` at `peer` to this rank's `destination`.
enum symmem_status symmem_get(struct symmem_stream *stream,
                              uint32_t peer,
                              struct symmem_buffer *destination,
                              size_t destination_offset,
                              struct symmem_buffer *source,
                              size_t source_offset,
                              size_t bytes);

// Sends `bytes` bytes of a buffer, or of any memory of this rank's device, to `peer`, which must receive them. They may be
// overwritten once the stream has passed the call.
//
// # Safety
// An address is of memory on this rank's device, with as many bytes, until the stream has passed the work.
enum symmem_status symmem_send(struct symmem_stream *stream,
                               uint32_t peer,
                               struct symmem_operand source,
                               size_t bytes);

// Receives `bytes` bytes that `peer` sends, into a buffer or any memory of this rank's device.
//
// # Safety
// An address is of memory on this rank's device, with as many bytes, until the stream has passed the work.
enum symmem_status symmem_recv(struct symmem_stream *stream,
                               uint32_t peer,
                               struct symmem_operand destination,
                               size_t bytes);

// symmem_put, then raises the peer's signal for this rank on `channel`, once the bytes are there.
enum symmem_status symmem_put_signal(struct symmem_stream *stream,
                                     uint32_t peer,
                                     struct symmem_buffer *destination,
                                     size_t destination_offset,
                                     struct symmem_buffer *source,
                                     size_t source_offset,
                                     size_t bytes,
                                     uint32_t channel);

// Enqueues a wait for one signal of `peer` on `channel`, for at most the communicator's deadline.
enum symmem_status symmem_wait_signal(struct symmem_stream *stream, uint32_t peer, uint32_t channel);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SYMMEM_H */

#ifndef SYMMEM_H_OPERANDS
#define SYMMEM_H_OPERANDS

// An operand of a collective: memory at an address of this rank's device, or a part of a symmetric buffer from byte `offset` on.
static inline struct symmem_operand symmem_at(const void *address) {
  struct symmem_operand operand;
  operand.buffer = NULL;
  operand.address = (void *)address;
  operand.offset = 0;
  return operand;
}
static inline struct symmem_operand symmem_in(struct symmem_buffer *buffer, size_t offset) {
  struct symmem_operand operand;
  operand.buffer = buffer;
  operand.address = NULL;
  operand.offset = offset;
  return operand;
}

#endif  /* SYMMEM_H_OPERANDS */
