// Every rank sums a vector with all others, then passes its result on in a ring.
//
//   cargo xtask capi --install target/c
//   export PKG_CONFIG_PATH=$PWD/target/c/lib/pkgconfig
//   cc -o target/c/ring examples/c/ring.c $(pkg-config --cflags --libs symmem) -Wl,-rpath,$PWD/target/c/lib
//   symmem run -n 2 -- target/c/ring
#include <stdio.h>
#include <stdlib.h>
#include <symmem.h>

#define COUNT 1000

// Ends the program if a call failed.
static void check(enum symmem_status status) {
  if (status == SYMMEM_OK) return;
  fprintf(stderr, "symmem failed (%d): %s\n", (int)status, symmem_last_error());
  exit(1);
}

int main(void) {
  struct symmem_communicator *communicator;
  struct symmem_stream *stream;
  struct symmem_buffer *mine, *theirs;
  uint32_t rank, world;
  check(symmem_init(NULL, &communicator));
  check(symmem_rank(communicator, &rank, &world));
  check(symmem_stream_create(communicator, &stream));
  check(symmem_buffer_allocate(communicator, COUNT * sizeof(float), &mine));
  check(symmem_buffer_allocate(communicator, COUNT * sizeof(float), &theirs));

  float numbers[COUNT];
  for (int i = 0; i < COUNT; ++i) numbers[i] = (float)(i + (int)rank);
  check(symmem_buffer_write(stream, mine, 0, numbers, sizeof numbers));

  // On symmetric buffers.
  check(symmem_all_reduce(stream, symmem_in(mine, 0), symmem_in(mine, 0), COUNT, SYMMEM_F32, SYMMEM_SUM));
  // On a plain address, which may be any memory of this rank's device.
  void *address;
  check(symmem_buffer_address(mine, rank, &address, NULL));
  check(symmem_all_reduce(stream, symmem_at(address), symmem_at(address), COUNT, SYMMEM_F32, SYMMEM_MAXIMUM));

  const uint32_t next = (rank + 1) % world, previous = (rank + world - 1) % world;
  check(symmem_put_signal(stream, next, theirs, 0, mine, 0, sizeof numbers, 0));
  check(symmem_wait_signal(stream, previous, 0));
  check(symmem_buffer_read(stream, theirs, 0, numbers, sizeof numbers));
  for (uint32_t i = 0; i < COUNT; ++i) {
    const float expected = (float)(i * world + world * (world - 1) / 2);
    if (numbers[i] == expected) continue;
    fprintf(stderr, "rank %u: element %u is %g, not %g\n", rank, i, numbers[i], expected);
    return 1;
  }
  printf("rank %u of %u: received from rank %u\n", rank, world, previous);

  check(symmem_buffer_free(theirs));
  check(symmem_buffer_free(mine));
  check(symmem_stream_destroy(stream));
  check(symmem_finalize(communicator));
  return 0;
}
