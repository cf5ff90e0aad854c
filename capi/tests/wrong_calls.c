// Calls every function with null and with handles that are not live, also from another thread: each returns a status.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symmem.h>
#include <symmem.h>

static int failures = 0;

static void expect(const char *call, enum symmem_status status, enum symmem_status expected, const char *word) {
  if (status == expected && (expected == SYMMEM_OK || strstr(symmem_last_error(), word))) return;
  fprintf(stderr, "%s: %d (%s), not %d with \"%s\"\n", call, (int)status, symmem_last_error(), (int)expected, word);
  ++failures;
}

#define REFUSED(call, word) expect(#call, call, SYMMEM_INVALID_ARGUMENT, word)
#define DONE(call) expect(#call, call, SYMMEM_OK, "")

// Calls all functions with these handles, of which none is live.
static void all(struct symmem_communicator *c, struct symmem_stream *s, struct symmem_buffer *b, const char *word) {
  struct symmem_communicator *c2 = NULL;
  struct symmem_stream *s2 = NULL;
  struct symmem_buffer *b2 = NULL;
  struct symmem_gemm *g = (struct symmem_gemm *)b, *g2 = NULL;
  char data[8] = {0};
  uint64_t native;
  const struct symmem_operand at = symmem_at(data);
  REFUSED(symmem_finalize(c), word);
  REFUSED(symmem_abort(c), word);
  REFUSED(symmem_check(c), word);
  REFUSED(symmem_rebuild(c, &c2), word);
  REFUSED(symmem_rank(c, NULL, NULL), word);
  REFUSED(symmem_host_barrier(c), word);
  REFUSED(symmem_buffer_allocate(c, 8, &b2), word);
  REFUSED(symmem_buffer_register(c, data, 8, &b2), word);
  REFUSED(symmem_buffer_free(b), word);
  REFUSED(symmem_buffer_drop(b), word);
  REFUSED(symmem_buffer_address(b, 0, NULL, NULL), word);
  REFUSED(symmem_buffer_write(s, b, 0, data, 8), word);
  REFUSED(symmem_buffer_read(s, b, 0, data, 8), word);
  REFUSED(symmem_stream_create(c, &s2), word);
  REFUSED(symmem_stream_wrap(c, 0, &s2), word);
  REFUSED(symmem_stream_native(s, &native), word);
  REFUSED(symmem_stream_synchronize(s, 0), word);
  REFUSED(symmem_stream_destroy(s), word);
  REFUSED(symmem_put(s, 0, b, 0, b, 0, 8), word);
  REFUSED(symmem_get(s, 0, b, 0, b, 0, 8), word);
  REFUSED(symmem_send(s, 0, at, 8), word);
  REFUSED(symmem_recv(s, 0, at, 8), word);
  REFUSED(symmem_gemm_create(c, NULL, &g2, NULL), word);
  REFUSED(symmem_all_gather_gemm(s, g, at, data, data, NULL), word);
  REFUSED(symmem_gemm_destroy(g), word);
  REFUSED(symmem_put_signal(s, 0, b, 0, b, 0, 8, 0), word);
  REFUSED(symmem_wait_signal(s, 0, 0), word);
  REFUSED(symmem_all_reduce(s, at, at, 1, SYMMEM_F32, SYMMEM_SUM), word);
  REFUSED(symmem_reduce(s, 0, at, at, 1, SYMMEM_F32, SYMMEM_SUM), word);
  REFUSED(symmem_reduce_scatter(s, at, at, 1, SYMMEM_F32, SYMMEM_SUM), word);
  REFUSED(symmem_all_gather(s, at, at, 1), word);
  REFUSED(symmem_broadcast(s, 0, at, at, 1), word);
  REFUSED(symmem_all_to_all(s, at, at, 1), word);
  REFUSED(symmem_gather(s, 0, at, at, 1), word);
  REFUSED(symmem_scatter(s, 0, at, at, 1), word);
  REFUSED(symmem_barrier(s), word);
}

static void *other_thread(void *buffer) {
  // What failed on one thread is not this one's.
  if (strcmp(symmem_last_error(), "") != 0) ++failures;
  DONE(symmem_buffer_drop(buffer));
  REFUSED(symmem_buffer_drop(buffer), "no longer");
  all(NULL, NULL, NULL, "is null");
  return NULL;
}

int main(void) {
  struct symmem_communicator *communicator = NULL;
  struct symmem_stream *stream = NULL;
  struct symmem_buffer *buffer = NULL;
  char data[64] = {0};
  all(NULL, NULL, NULL, "is null");
  REFUSED(symmem_init(NULL, NULL), "is null");
  struct symmem_options options = {0};
  REFUSED(symmem_init(&options, &communicator), "options.size");
  options.size = sizeof options;
  options.world = 2;
  options.rank = 2;
  if (symmem_init(&options, &communicator) == SYMMEM_OK) ++failures;
  options.world = 1;
  options.rank = 0;
  options.job = "wrong-calls";
  options.backend = "host";
  DONE(symmem_init(&options, &communicator));
  DONE(symmem_stream_create(communicator, &stream));
  DONE(symmem_buffer_allocate(communicator, 64, &buffer));

  REFUSED(symmem_buffer_allocate(communicator, 8, NULL), "is null");
  REFUSED(symmem_buffer_write(stream, buffer, 0, NULL, 8), "is null");
  REFUSED(symmem_buffer_read(stream, buffer, 0, NULL, 8), "is null");
  if (symmem_buffer_write(stream, buffer, 60, data, 8) == SYMMEM_OK) ++failures;
  if (symmem_buffer_read(stream, buffer, SIZE_MAX, data, 8) == SYMMEM_OK) ++failures;
  if (symmem_put(stream, 9, buffer, 0, buffer, 32, 8) == SYMMEM_OK) ++failures;
  if (symmem_put(stream, 0, buffer, 0, buffer, 32, SIZE_MAX) == SYMMEM_OK) ++failures;
  if (symmem_wait_signal(stream, 9, 0) == SYMMEM_OK) ++failures;
  const struct symmem_operand in = symmem_in(buffer, 0), at = symmem_at(data);
  REFUSED(symmem_all_reduce(stream, in, in, 4, 0, SYMMEM_SUM), "no element type 0");
  REFUSED(symmem_all_reduce(stream, in, in, 4, 99, SYMMEM_SUM), "no element type 99");
  REFUSED(symmem_all_reduce(stream, in, in, 4, SYMMEM_F32, 0), "no reduction 0");
  REFUSED(symmem_all_reduce(stream, symmem_in(buffer, 2), in, 4, SYMMEM_F32, SYMMEM_SUM), "not whole elements");
  REFUSED(symmem_all_reduce(stream, symmem_at(NULL), at, 4, SYMMEM_F32, SYMMEM_SUM), "neither a buffer nor an address");
  REFUSED(symmem_all_reduce(stream, symmem_in(NULL, 64), at, 4, SYMMEM_F32, SYMMEM_SUM), "neither a buffer nor an address");
  REFUSED(symmem_all_reduce(stream, at, at, SIZE_MAX, SYMMEM_F32, SYMMEM_SUM), "elements");
  if (symmem_all_reduce(stream, in, in, 400, SYMMEM_F32, SYMMEM_SUM) == SYMMEM_OK) ++failures;
  if (symmem_broadcast(stream, 7, in, in, 8) == SYMMEM_OK) ++failures;
  REFUSED(symmem_send(stream, 0, symmem_at(NULL), 8), "neither a buffer nor an address");
  DONE(symmem_all_reduce(stream, at, at, 4, SYMMEM_F32, SYMMEM_SUM));
  DONE(symmem_stream_synchronize(stream, 1000));
  // A handle of another kind is refused.
  all((void *)buffer, (void *)buffer, (void *)stream, "no longer");

  struct symmem_buffer *dropped = NULL;
  DONE(symmem_buffer_allocate(communicator, 64, &dropped));
  pthread_t thread;
  if (pthread_create(&thread, NULL, other_thread, dropped) != 0 || pthread_join(thread, NULL) != 0) return 1;

  DONE(symmem_finalize(communicator));
  // The stream and the buffer outlive it; what needs the communicator says so.
  REFUSED(symmem_all_reduce(stream, at, at, 4, SYMMEM_F32, SYMMEM_SUM), "was finalized");
  DONE(symmem_buffer_drop(buffer));
  DONE(symmem_stream_destroy(stream));
  all(communicator, stream, buffer, "no longer");
  if (failures == 0) printf("every call returned\n");
  return failures != 0;
}
