// Stands for NCCL: records which of its functions are called, one a line, in the file that STUB_LOG names, and does nothing
// else. It shows where calls go, not what NCCL makes of them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { char bytes[128]; } identifier;
typedef struct { int rank, world; } communicator;
typedef struct { int ranks, rank, stride; } team;

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
int ncclCommCount(void *comm, int *count) { *count = ((communicator *)comm)->world; return 0; }
int ncclCommUserRank(void *comm, int *rank) { *rank = ((communicator *)comm)->rank; return 0; }
int ncclCommGetAsyncError(void *comm, int *code) {
  (void)comm;
  *code = getenv("STUB_ASYNC") ? atoi(getenv("STUB_ASYNC")) : 0;
  return CALLED();
}
const char *ncclGetLastError(void *comm) { (void)comm; return "the stub's message"; }
int ncclGroupStart(void) { return CALLED(); }
int ncclGroupEnd(void) { return CALLED(); }
int ncclGroupSimulateEnd(void *information) { (void)information; return CALLED(); }
int ncclRedOpCreatePreMulSum(int *operator, void *factor, int type, int residence, void *comm) {
  (void)factor, (void)type, (void)residence, (void)comm;
  *operator = 5;
  return CALLED();
}
int ncclRedOpDestroy(int operator, void *comm) { (void)operator, (void)comm; return CALLED(); }
COLLECTIVE(ncclAllReduce, int operator)
COLLECTIVE(ncclReduceScatter, int operator)
COLLECTIVE(ncclAllGather)
COLLECTIVE(ncclBroadcast, int root)

// As NCCL does, it may call its own functions, which the loader may bind to another library's.
int ncclSend(const void *from, size_t count, int type, int peer, void *comm, void *stream) {
  int code = CALLED();
  return getenv("STUB_CALLS_ITSELF") ? ncclBroadcast(from, (void *)from, count, type, peer, comm, stream) : code;
}

team ncclTeamLsa(void *comm) { return (team){((communicator *)comm)->world, ((communicator *)comm)->rank, 3}; }
int ncclTeamRankToWorld(void *comm, team its, int rank) { return (int)(((communicator *)comm)->world * 1000 + its.ranks * 100 + its.stride * 10 + rank); }
int ncclGinBarrierCreateRequirement(void *comm, team its, int count, int *handle, int *requirement) {
  *handle = ncclTeamRankToWorld(comm, its, count), *requirement = its.rank;
  return CALLED();
}
