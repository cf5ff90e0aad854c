// Two ranks whose allocators took segments of different sizes share tensors that lie at different places in them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symmem.h>

#define BYTES 4096

static void check(enum symmem_status status) {
  if (status == SYMMEM_OK) return;
  fprintf(stderr, "symmem failed (%d): %s\n", (int)status, symmem_last_error());
  exit(1);
}

static void require(int holds, const char *what) {
  if (holds) return;
  fprintf(stderr, "not so: %s\n", what);
  exit(1);
}

int main(void) {
  struct symmem_communicator *communicator;
  struct symmem_stream *stream;
  struct symmem_buffer *buffer, *none = NULL;
  uint32_t rank, world;
  require(symmem_alloc(BYTES, 0, NULL) == NULL && strstr(symmem_last_error(), "symmem_init") != NULL,
          "without a communicator there is no memory, and the message says what to do");
  check(symmem_init(NULL, &communicator));
  check(symmem_rank(communicator, &rank, &world));
  check(symmem_stream_create(communicator, &stream));
  require(symmem_alloc(-1, 0, NULL) == NULL && symmem_alloc(0, 0, NULL) == NULL && symmem_alloc(8, 99, NULL) == NULL,
          "wrong sizes and devices get nothing");

  // Not collective: a rank may allocate more often than another.
  const size_t offset = 512 * (rank + 1);
  char *segment = (char *)symmem_alloc((ptrdiff_t)(offset + BYTES), 0, NULL);
  require(segment != NULL, "a segment");
  if (rank == 0) symmem_free(symmem_alloc(1 << 20, 0, NULL), 1 << 20, 0, NULL);

  check(symmem_buffer_register(communicator, segment + offset, BYTES, &buffer));
  // The buffer keeps the memory.
  symmem_free(segment, (ptrdiff_t)(offset + BYTES), 0, NULL);
  symmem_free(segment, (ptrdiff_t)(offset + BYTES), 0, NULL);
  require(strstr(symmem_last_error(), "is freed") != NULL, "a segment is freed once");
  symmem_free(NULL, 0, 0, NULL);

  void *mine;
  size_t bytes;
  check(symmem_buffer_address(buffer, rank, &mine, &bytes));
  require((char *)mine == segment + offset && bytes == BYTES, "the buffer is where the tensor was");
  char data[BYTES], seen[BYTES];
  memset(data, 'a' + (int)rank, BYTES);
  check(symmem_buffer_write(stream, buffer, 0, data, BYTES / 2));
  check(symmem_host_barrier(communicator));
  // Each rank's first half goes to the other's second half.
  check(symmem_put_signal(stream, 1 - rank, buffer, BYTES / 2, buffer, 0, BYTES / 2, 0));
  check(symmem_wait_signal(stream, 1 - rank, 0));
  check(symmem_buffer_read(stream, buffer, 0, seen, BYTES));
  memset(data + BYTES / 2, 'b' - (int)rank, BYTES / 2);
  require(memcmp(data, seen, BYTES) == 0, "what the other rank put is behind what this one wrote");
  check(symmem_buffer_free(buffer));

  // One rank's tensor does not fit into its segment: the call fails at all ranks.
  segment = (char *)symmem_alloc(1, 0, NULL);
  require(segment != NULL, "another segment");
  const enum symmem_status status = symmem_buffer_register(communicator, segment, rank == 0 ? 1 << 30 : 1, &none);
  require(status != SYMMEM_OK && none == NULL, "sizes that differ are refused");
  symmem_free(segment, 1, 0, NULL);

  check(symmem_stream_destroy(stream));
  check(symmem_finalize(communicator));
  printf("rank %u shared a part of its segment\n", rank);
  return 0;
}
