// An all-gather + GEMM between two ranks, whose results they then send to each other.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symmem.h>

enum { M = 6, N = 8, K = 16, ROWS = M / 2 };

static void check(enum symmem_status status) {
  if (status == SYMMEM_OK) return;
  fprintf(stderr, "symmem failed (%d): %s\n", (int)status, symmem_last_error());
  exit(1);
}

static void refused(enum symmem_status status, const char *word) {
  if (status == SYMMEM_INVALID_ARGUMENT && strstr(symmem_last_error(), word) != NULL) return;
  fprintf(stderr, "not refused with \"%s\": %d, %s\n", word, (int)status, symmem_last_error());
  exit(1);
}

// bfloat16 of a small whole number, which is exact.
static uint16_t brief(float number) {
  uint32_t bits;
  memcpy(&bits, &number, sizeof bits);
  return (uint16_t)(bits >> 16);
}

static float of_a(int row, int column) { return (float)((row * 3 + column * 5) % 4); }
static float of_b(uint32_t rank, int row, int column) { return (float)((row + column * 2 + (int)rank) % 3); }

int main(void) {
  struct symmem_communicator *communicator;
  struct symmem_stream *stream;
  struct symmem_buffer *shard, *result;
  struct symmem_gemm *gemm;
  uint32_t rank, world;
  check(symmem_init(NULL, &communicator));
  check(symmem_rank(communicator, &rank, &world));
  check(symmem_stream_create(communicator, &stream));

  struct symmem_gemm_shape shape;
  memset(&shape, 0, sizeof shape);
  refused(symmem_gemm_create(communicator, &shape, &gemm, NULL), "shape.size");
  shape.size = sizeof shape;
  refused(symmem_gemm_create(communicator, &shape, &gemm, NULL), "shape.element");
  shape.element = SYMMEM_BF16;
  shape.m = M;
  shape.n = N;
  shape.k = K;
  shape.bias = 2;
  refused(symmem_gemm_create(communicator, &shape, &gemm, NULL), "shape.bias");
  shape.bias = 1;
  shape.reserved = 1;
  refused(symmem_gemm_create(communicator, &shape, &gemm, NULL), "shape.reserved");
  shape.reserved = 0;
  size_t elements;
  check(symmem_gemm_create(communicator, &shape, &gemm, &elements));
  if (elements != ROWS * K) return 1;
  check(symmem_buffer_allocate(communicator, elements * 2, &shard));
  check(symmem_buffer_allocate(communicator, M * N * 2, &result));

  uint16_t a[ROWS * K], b[K * N], bias[N], c[M * N], theirs[M * N];
  for (int i = 0; i < ROWS * K; ++i) a[i] = brief(of_a((int)rank * ROWS + i / K, i % K));
  for (int i = 0; i < K * N; ++i) b[i] = brief(of_b(rank, i / N, i % N));
  for (int i = 0; i < N; ++i) bias[i] = brief((float)i);
  memset(c, 0xff, sizeof c);
  memset(theirs, 0xff, sizeof theirs);
  check(symmem_buffer_write(stream, shard, 0, a, sizeof a));
  refused(symmem_all_gather_gemm(stream, gemm, symmem_at(a), b, c, bias), "symmem_in");
  refused(symmem_all_gather_gemm(stream, gemm, symmem_in(shard, 0), NULL, c, bias), "b is null");
  refused(symmem_all_gather_gemm(stream, gemm, symmem_in(shard, 0), b, c, NULL), "bias is null");
  refused(symmem_all_gather_gemm(stream, gemm, symmem_in(shard, 0), b, (char *)c + 1, bias), "multiple");
  check(symmem_all_gather_gemm(stream, gemm, symmem_in(shard, 0), b, c, bias));
  check(symmem_stream_synchronize(stream, 10000));
  check(symmem_buffer_write(stream, result, 0, c, sizeof c));
  if (rank == 0) {
    check(symmem_send(stream, 1, symmem_in(result, 0), sizeof c));
    check(symmem_recv(stream, 1, symmem_at(theirs), sizeof theirs));
  } else {
    check(symmem_recv(stream, 0, symmem_at(theirs), sizeof theirs));
    // From memory that only this rank knows.
    check(symmem_send(stream, 0, symmem_at(c), sizeof c));
  }
  check(symmem_stream_synchronize(stream, 10000));
  for (int of = 0; of < 2; ++of) {
    const uint16_t *seen = (uint32_t)of == rank ? c : theirs;
    for (int i = 0; i < M * N; ++i) {
      float sum = (float)(i % N);
      for (int k = 0; k < K; ++k) sum += of_a(i / N, k) * of_b((uint32_t)of, k, i % N);
      if (seen[i] == brief(sum)) continue;
      fprintf(stderr, "rank %u: element %d of rank %d is wrong\n", rank, i, of);
      return 1;
    }
  }
  printf("rank %u has both products\n", rank);

  check(symmem_gemm_destroy(gemm));
  refused(symmem_gemm_destroy(gemm), "no longer");
  check(symmem_buffer_free(shard));
  check(symmem_buffer_free(result));
  check(symmem_stream_destroy(stream));
  check(symmem_finalize(communicator));
  return 0;
}
