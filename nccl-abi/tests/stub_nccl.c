// Stands for NCCL: records which of its functions are called, one a line, in the file that STUB_LOG names, and does nothing
// else. It shows where calls go, not what NCCL makes of them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { char bytes[128]; } identifier;
typedef struct { int rank, world; } communicator;

static int called(const char *name) {
  const char *file = getenv("STUB_LOG");
  FILE *log = file ? fopen(file, "a") : NULL;
  if (log) {
    fprintf(log, "%s\n", name);
    fclose(log);
  }
  const char *refused = getenv("STUB_REFUSES");
  return refused && strcmp(refused, name) == 0 ? 5 : 0;
}

#define CALLED() called(__func__)
#define COLLECTIVE(name, ...) int name(const void *from, void *to, size_t count, int type, ##__VA_ARGS__, void *comm, void *stream) \
  { (void)from, (void)to, (void)count, (void)type, (void)comm, (void)stream; return CALLED(); }

static int init(void **comm, int world, int rank) {
  communicator *made = malloc(sizeof *made);
  made->rank = rank, made->world = world;
  *comm = made;
  return 0;
}

int ncclGetVersion(int *version) { *version = 22809; return 0; }
int ncclGetUniqueId(identifier *made) { memset(made, 0, sizeof *made); made->bytes[0] = 1; return CALLED(); }
int ncclCommInitRank(void **comm, int world, identifier id, int rank) {
  (void)id;
  int code = CALLED();
  return code ? code : init(comm, world, rank);
}
int ncclCommInitRankConfig(void **comm, int world, identifier id, int rank, void *config) {
  (void)id, (void)config;
  int code = CALLED();
  return code ? code : init(comm, world, rank);
}
int ncclCommSplit(void *comm, int color, int key, void **made, void *config) {
  (void)color, (void)key, (void)config;
  communicator *old = comm;
  return CALLED() || init(made, old->world, old->rank);
}
int ncclCommDestroy(void *comm) { free(comm); return CALLED(); }
int ncclCommAbort(void *comm) { free(comm); return CALLED(); }
int ncclCommFinalize(void *comm) { (void)comm; return CALLED(); }
int ncclCommGetAsyncError(void *comm, int *code) { (void)comm; *code = 0; return CALLED(); }
int ncclGroupStart(void) { return CALLED(); }
int ncclGroupEnd(void) { return CALLED(); }
int ncclRedOpCreatePreMulSum(int *operator, void *factor, int type, int residence, void *comm) {
  (void)factor, (void)type, (void)residence, (void)comm;
  *operator = 5;
  return CALLED();
}
int ncclRedOpDestroy(int operator, void *comm) { (void)operator, (void)comm; return CALLED(); }
int ncclSend(const void *from, size_t count, int type, int peer, void *comm, void *stream) {
  (void)from, (void)count, (void)type, (void)peer, (void)comm, (void)stream;
  return CALLED();
}
COLLECTIVE(ncclAllReduce, int operator)
COLLECTIVE(ncclReduceScatter, int operator)
COLLECTIVE(ncclAllGather)
COLLECTIVE(ncclBroadcast, int root)
