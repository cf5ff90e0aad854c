// A program that calls NCCL. Its argument says what it does; every rank is a process, with its number in RANK of WORLD, or
// all are threads of one process, if there is no RANK. Rank 0 passes the identifier on in the file that ID names. It opens
// the library that NCCL_FILE names, as vLLM does, or uses the one that it was linked to.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { char bytes[128]; } identifier;
enum { INT32 = 2, FLOAT32 = 7, SUM = 0, MAX = 2, AVERAGE = 4 };

static int world;
static const char *role = "";
static _Thread_local int rank, device;
static _Thread_local void *stream, *other_stream;
static _Thread_local uint64_t allocated[100];
static _Thread_local int allocations;

static void *library(const char *name) {
  void *found = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!found) fprintf(stderr, "%s\n", dlerror()), exit(2);
  return found;
}

static void *look_up(void *where, const char *name) {
  void *found = dlsym(where, name);
  if (!found) fprintf(stderr, "there is no %s\n", name), exit(2);
  return found;
}

static void *nccl_library(void) {
  static _Thread_local void *opened;
  const char *file = getenv("NCCL_FILE");
  if (!opened) opened = file ? library(file) : dlopen(NULL, RTLD_NOW);
  return opened;
}

static void *driver(void) {
  static _Thread_local void *opened;
  if (!opened) opened = library("libcuda.so.1");
  return opened;
}

#define NCCL(name, ...) ((int (*)())look_up(nccl_library(), #name))(__VA_ARGS__)
#define CUDA(name, ...) check(#name, ((int (*)())look_up(driver(), #name))(__VA_ARGS__))

static const char *message(void *comm) {
  return ((const char *(*)(void *))look_up(nccl_library(), "ncclGetLastError"))(comm);
}

static void check(const char *what, int code) {
  if (code == 0) return;
  fprintf(stderr, "rank %d: %s: %d: %s\n", rank, what, code, message(NULL));
  exit(1);
}
#define OK(name, ...) check(#name, NCCL(name, __VA_ARGS__))

static void expect(int holds, const char *what) {
  if (holds) return;
  fprintf(stderr, "rank %d: not so: %s\n", rank, what);
  exit(1);
}
#define EXPECT(condition) expect(condition, #condition)

static uint64_t allocate(size_t bytes) {
  uint64_t address = 0;
  CUDA(cuMemAlloc_v2, &address, bytes);
  expect(allocations < 100, "room for an allocation");
  allocated[allocations++] = address;
  return address;
}

static void write_all(uint64_t to, const float *values, size_t count) {
  CUDA(cuMemcpyHtoD_v2, to, values, count * sizeof *values);
}

// Checks that all elements have a value.
static void holds_now(uint64_t from, size_t count, float value, const char *what) {
  float *values = malloc(count * sizeof *values);
  CUDA(cuMemcpyDtoH_v2, values, from, count * sizeof *values);
  for (size_t i = 0; i < count; i++) {
    if (values[i] == value) continue;
    fprintf(stderr, "rank %d: %s: element %zu is %g, not %g\n", rank, what, i, (double)values[i], (double)value);
    exit(1);
  }
  free(values);
}

// Checks that all elements have a value when both streams are done.
static void holds(uint64_t from, size_t count, float value, const char *what) {
  CUDA(cuStreamSynchronize, stream);
  CUDA(cuStreamSynchronize, other_stream);
  holds_now(from, count, value, what);
}

// Allocates elements that all have a value, not at a multiple of 16 bytes on odd ranks.
static uint64_t filled(size_t count, float value) {
  float *values = malloc(count * sizeof *values);
  for (size_t i = 0; i < count; i++) values[i] = value;
  uint64_t address = allocate(count * sizeof *values + 16) + (rank % 2 ? 4 : 0);
  write_all(address, values, count);
  free(values);
  return address;
}

static void open_device(void) {
  void *context;
  CUDA(cuInit, 0);
  device = getenv("DEVICE") ? atoi(getenv("DEVICE")) : rank;
  CUDA(cuDevicePrimaryCtxRetain, &context, device);
  CUDA(cuCtxSetCurrent, context);
  CUDA(cuStreamCreate, &stream, 1);
  CUDA(cuStreamCreate, &other_stream, 1);
}

static void close_device(void) {
  while (allocations > 0) CUDA(cuMemFree_v2, allocated[--allocations]);
  CUDA(cuStreamDestroy_v2, stream);
  CUDA(cuStreamDestroy_v2, other_stream);
  CUDA(cuDevicePrimaryCtxRelease_v2, device);
}

static identifier meet(void) {
  identifier id;
  static _Thread_local int met;
  char file[4000], fresh[4096];
  snprintf(file, sizeof file, "%s-%d", getenv("ID"), met++);
  snprintf(fresh, sizeof fresh, "%s.new", file);
  if (rank == 0) {
    if (getenv("ID_OF_NCCL")) {
      memset(&id, 0, sizeof id);
    } else {
      check("ncclGetUniqueId", ((int (*)(identifier *))look_up(nccl_library(), "ncclGetUniqueId"))(&id));
    }
    FILE *out = fopen(fresh, "w");
    fwrite(&id, sizeof id, 1, out);
    fclose(out);
    rename(fresh, file);
    return id;
  }
  while (access(file, R_OK) != 0) usleep(1000);
  FILE *in = fopen(file, "r");
  expect(fread(&id, sizeof id, 1, in) == 1, "the identifier is there");
  fclose(in);
  return id;
}

static void join_by(identifier id, void **comm) {
  int (*init)(void **, int, identifier, int) = (int (*)(void **, int, identifier, int))look_up(nccl_library(), "ncclCommInitRank");
  check("ncclCommInitRank", init(comm, world, id, rank));
}

static void *join(void) {
  void *comm = NULL;
  join_by(meet(), &comm);
  return comm;
}

static int is_served(void *comm) {
  return ((int (*)(void *))look_up(nccl_library(), "symmem_nccl_serves"))(comm);
}

// Every collective that symmem does, out of place and in place, alone and in groups, on two streams.
static void all_collectives(void *comm) {
  int count, number, its_device;
  OK(ncclCommCount, comm, &count);
  OK(ncclCommUserRank, comm, &number);
  OK(ncclCommCuDevice, comm, &its_device);
  EXPECT(count == world && number == rank && its_device == device);
  float sum = world * (world + 1) / 2.f;
  for (size_t length = 1; length <= 30000; length = length * 7 + 5) {
    uint64_t mine = filled(length, rank + 1), to = filled(length, -1);
    OK(ncclAllReduce, mine, to, length, FLOAT32, SUM, comm, stream);
    holds(to, length, sum, "all_reduce");
    OK(ncclAllReduce, to, to, length, FLOAT32, MAX, comm, other_stream);
    holds(to, length, sum, "all_reduce in place");
    OK(ncclReduce, mine, rank == 1 ? to : 0, length, FLOAT32, SUM, 1, comm, stream);
    holds(to, length, sum, "reduce");
    OK(ncclBroadcast, rank == 1 ? mine : 0, to, length, FLOAT32, 1, comm, stream);
    holds(to, length, 2, "broadcast");
    OK(ncclBcast, to, length, FLOAT32, 0, comm, other_stream);
    holds(to, length, 2, "bcast");

    uint64_t parts = filled(length * world, rank + 1), all = filled(length * world, -1);
    OK(ncclGroupStart);
    OK(ncclReduceScatter, parts, to, length, FLOAT32, SUM, comm, stream);
    OK(ncclGroupStart);
    OK(ncclAllGather, mine, all, length, FLOAT32, comm, stream);
    OK(ncclGroupEnd);
    OK(ncclGroupEnd);
    holds(to, length, sum, "reduce_scatter");
    for (int peer = 0; peer < world; peer++) holds(all + peer * length * 4, length, peer + 1, "all_gather");
    OK(ncclAlltoAll, parts, all, length, FLOAT32, comm, other_stream);
    for (int peer = 0; peer < world; peer++) holds(all + peer * length * 4, length, peer + 1, "all_to_all");
    // A group ends on all its streams at once.
    OK(ncclGroupStart);
    OK(ncclAllReduce, mine, to, length, FLOAT32, SUM, comm, stream);
    OK(ncclAllGather, to, all, length, FLOAT32, comm, other_stream);
    OK(ncclGroupEnd);
    CUDA(cuStreamSynchronize, stream);
    holds_now(all, length * world, sum, "all_gather of a group on another stream");
    OK(ncclAlltoAll, parts, all, length, FLOAT32, comm, stream);
    // In place, as NCCL has it: a rank's part is where it belongs.
    OK(ncclAllGather, all + rank * length * 4, all, length, FLOAT32, comm, stream);
    for (int peer = 0; peer < world; peer++) holds(all + peer * length * 4, length, peer + 1, "all_gather in place");
    OK(ncclReduceScatter, parts, parts + rank * length * 4, length, FLOAT32, SUM, comm, stream);
    holds(parts + rank * length * 4, length, sum, "reduce_scatter in place");
  }
  OK(ncclAllReduce, 0, 0, (size_t)0, FLOAT32, SUM, comm, stream);
}

// Calls in one group on two communicators, which the ranks join in one group, each in another order.
static void two_communicators(void) {
  identifier ids[2] = {meet(), meet()};
  void *comms[2] = {NULL, NULL};
  OK(ncclGroupStart);
  for (int i = 0; i < 2; i++) join_by(ids[i ^ (rank & 1)], &comms[i ^ (rank & 1)]);
  OK(ncclGroupEnd);
  EXPECT(is_served(comms[0]) && is_served(comms[1]));
  uint64_t mine = filled(100, rank + 1), to = filled(100, -1), other = filled(100, -1);
  OK(ncclGroupStart);
  OK(ncclAllReduce, mine, to, (size_t)100, FLOAT32, SUM, comms[0], stream);
  OK(ncclAllReduce, mine, other, (size_t)100, FLOAT32, MAX, comms[1], stream);
  OK(ncclGroupEnd);
  holds(to, 100, 3, "all_reduce on the first communicator");
  holds(other, 100, 2, "all_reduce on the second");
  OK(ncclCommDestroy, comms[0]);
  OK(ncclCommDestroy, comms[1]);
}

// A group that is simulated does nothing, and neither do later calls wait for its end.
static void simulate(void *comm, int beside_nccl) {
  uint64_t mine = filled(100, rank + 1), to = filled(100, -1);
  OK(ncclGroupStart);
  OK(ncclGroupStart);
  OK(ncclAllReduce, mine, to, (size_t)100, FLOAT32, SUM, comm, stream);
  OK(ncclGroupEnd);
  EXPECT(NCCL(ncclGroupSimulateEnd, NULL) == (beside_nccl ? 0 : 5));
  EXPECT(NCCL(ncclGroupSimulateEnd, NULL) == 5);
  EXPECT(strstr(message(NULL), "no group is open") != NULL);
  holds(to, 100, -1, "what a simulated call leaves alone");
  OK(ncclAllReduce, mine, to, (size_t)100, FLOAT32, SUM, comm, stream);
  holds(to, 100, 3, "all_reduce after a simulation");
}

// Two captures at once, of calls on one communicator.
static void capture_twice(void *comm) {
  uint64_t mine = filled(100, rank + 1), to[3] = {filled(100, -1), filled(100, -1), filled(100, -1)};
  void *streams[2] = {stream, other_stream}, *graph, *executables[2];
  for (int i = 0; i < 2; i++) CUDA(cuStreamBeginCapture_v2, streams[i], 1);
  for (int i = 0; i < 3; i++) OK(ncclAllReduce, mine, to[i], (size_t)100, FLOAT32, i ? SUM : MAX, comm, streams[i % 2]);
  for (int i = 0; i < 2; i++) {
    CUDA(cuStreamEndCapture, streams[i], &graph);
    CUDA(cuGraphInstantiateWithFlags, &executables[i], graph, (unsigned long long)0);
    CUDA(cuGraphDestroy, graph);
  }
  for (int i = 0; i < 2; i++) {
    CUDA(cuGraphLaunch, executables[i], streams[i]);
    CUDA(cuStreamSynchronize, streams[i]);
    CUDA(cuGraphExecDestroy, executables[i]);
  }
  for (int i = 0; i < 3; i++) holds(to[i], 100, i ? 3 : 2, "all_reduce of one of two captures");
}

// Calls on more streams than the library keeps in mind, which the program makes and destroys.
static void use_many_streams(void *comm) {
  uint64_t mine = filled(100, rank + 1), to = filled(100, -1);
  void *streams[150];
  for (int i = 0; i < 150; i++) {
    CUDA(cuStreamCreate, &streams[i], 1);
    OK(ncclAllReduce, mine, to, (size_t)100, FLOAT32, i % 2 ? SUM : MAX, comm, streams[i]);
    if (i % 7 == 0) CUDA(cuStreamSynchronize, streams[i]);
  }
  CUDA(cuStreamSynchronize, streams[149]);
  holds_now(to, 100, 3, "all_reduce on the last of many streams");
  OK(ncclCommDestroy, comm);
  for (int i = 0; i < 150; i++) CUDA(cuStreamDestroy_v2, streams[i]);
}

// Functions that pass a struct by value.
static void use_teams(void *comm) {
  typedef struct { int ranks, rank, stride; } team;
  team lsa = ((team (*)(void *))look_up(nccl_library(), "ncclTeamLsa"))(comm);
  EXPECT(lsa.ranks == world && lsa.rank == rank && lsa.stride == 3);
  EXPECT(((int (*)(void *, team, int))look_up(nccl_library(), "ncclTeamRankToWorld"))(comm, lsa, 1) == 2231);
  int handle = 0, requirement = -1;
  int (*require)(void *, team, int, int *, int *) = (int (*)(void *, team, int, int *, int *))look_up(nccl_library(), "ncclGinBarrierCreateRequirement");
  EXPECT(require(comm, lsa, 7, &handle, &requirement) == 0 && handle == 2237 && requirement == rank);
}

// What a rank does.
static void *run(void *its_rank) {
  rank = (int)(intptr_t)its_rank;
  open_device();
  int version = 0, code = 0;
  OK(ncclGetVersion, &version);
  EXPECT(version == 22809);
  if (strcmp(role, "wrong") == 0) {
    // Before there is any communicator.
    EXPECT(NCCL(ncclAllReduce, 0, 0, (size_t)1, FLOAT32, SUM, 0, stream) == 5);
    EXPECT(strstr(message(NULL), "needs NCCL itself") != NULL);
    EXPECT(NCCL(ncclGroupEnd) == 5);
    EXPECT(NCCL(ncclGetUniqueId, 0) == 4);
    identifier id = {{0}};
    void *comm = NULL;
    int (*init)(void **, int, identifier, int) = (int (*)(void **, int, identifier, int))look_up(nccl_library(), "ncclCommInitRank");
    EXPECT(init(&comm, 2, id, 2) == 4 && init(NULL, 2, id, 0) == 4 && init(&comm, -1, id, -1) == 4);
    // An identifier that symmem did not make, and no NCCL.
    EXPECT(init(&comm, 2, id, 0) == 5);
    EXPECT(strstr(message(NULL), "without symmem") != NULL);
  }
  if (strcmp(role, "elsewhere") == 0 && rank > 0) {
    // As a rank on another host, which does not come.
    printf("not served\n");
    close_device();
    return NULL;
  }
  void *comm = join();
  printf("%s\n", is_served(comm) ? "served" : "not served");
  if (strcmp(role, "collectives") == 0) {
    all_collectives(comm);
  } else if (strcmp(role, "wrong") == 0) {
    EXPECT(NCCL(ncclAllReduce, 0, 0, (size_t)1, FLOAT32, SUM, comm, stream) == 4);
    EXPECT(NCCL(ncclAllReduce, 16, 16, (size_t)1, 99, SUM, comm, stream) == 5);
    EXPECT(NCCL(ncclAllReduce, 16, 16, (size_t)1, FLOAT32, 77, comm, stream) == 5);
    EXPECT(NCCL(ncclAllReduce, 16, 16, (size_t)1, INT32, AVERAGE, comm, stream) == 5);
    EXPECT(NCCL(ncclBroadcast, 16, 16, (size_t)1, FLOAT32, 2, comm, stream) == 4);
    EXPECT(NCCL(ncclAllGather, 16, 16, SIZE_MAX / 2, FLOAT32, comm, stream) == 4);
    float on_host = 1;
    EXPECT(NCCL(ncclAllReduce, &on_host, &on_host, (size_t)1, FLOAT32, SUM, comm, stream) == 4);
    EXPECT(strstr(message(comm), "knows no memory of a device") != NULL);
    EXPECT(NCCL(ncclSend, 16, (size_t)1, FLOAT32, 0, comm, stream) == 5);
    EXPECT(strstr(message(comm), "ncclSend needs NCCL") != NULL);
    EXPECT(NCCL(ncclCommGetAsyncError, comm, &code) == 0 && code == 0);
    all_collectives(comm);
  } else if (strcmp(role, "routes") == 0) {
    size_t small = 1000, large = 4 << 20;
    uint64_t mine = filled(large, rank + 1), to = filled(large, -1);
    OK(ncclAllReduce, mine, to, small, FLOAT32, SUM, comm, stream);
    holds(to, small, world * (world + 1) / 2.f, "all_reduce beside NCCL");
    // NCCL's, by size, by reduction, and by operation.
    OK(ncclAllReduce, mine, to, large, INT32, SUM, comm, stream);
    int premultiplied;
    float factor = 2;
    OK(ncclRedOpCreatePreMulSum, &premultiplied, &factor, FLOAT32, 1, comm);
    OK(ncclAllReduce, mine, to, small, FLOAT32, premultiplied, comm, stream);
    OK(ncclAllReduce, mine, to, small, INT32, AVERAGE, comm, stream);
    OK(ncclSend, mine, small, FLOAT32, 0, comm, stream);
    void *part;
    OK(ncclCommSplit, comm, 0, rank, &part, NULL);
    OK(ncclAllGather, mine, to, small, FLOAT32, part, stream);
    OK(ncclCommDestroy, part);
    OK(ncclCommFinalize, comm);
  } else if (strcmp(role, "capture") == 0) {
    // The stream is the program's, and so is its graph.
    size_t length = 1000;
    uint64_t mine = filled(length, rank + 1), to = filled(length, -1);
    void *graph, *executable;
    CUDA(cuStreamBeginCapture_v2, stream, 1);
    OK(ncclAllReduce, mine, to, length, FLOAT32, SUM, comm, stream);
    OK(ncclGroupStart);
    OK(ncclAllReduce, to, to, length, FLOAT32, SUM, comm, stream);
    OK(ncclGroupEnd);
    CUDA(cuStreamEndCapture, stream, &graph);
    holds(to, length, -1, "what a captured call leaves alone");
    CUDA(cuGraphInstantiateWithFlags, &executable, graph, (unsigned long long)0);
    for (int step = 0; step < 5; step++) {
      CUDA(cuGraphLaunch, executable, stream);
      holds(to, length, 6, "captured all_reduces");
      // Between the launches, as a server does where it has no graph.
      OK(ncclAllReduce, mine, to, length, FLOAT32, SUM, comm, step % 2 ? stream : other_stream);
      holds(to, length, 3, "all_reduce between graphs");
    }
    CUDA(cuGraphExecDestroy, executable);
    CUDA(cuGraphDestroy, graph);
  } else if (strcmp(role, "two communicators") == 0) {
    two_communicators();
  } else if (strcmp(role, "simulate") == 0 || strcmp(role, "simulate beside NCCL") == 0) {
    simulate(comm, strcmp(role, "simulate") != 0);
  } else if (strcmp(role, "two captures") == 0) {
    capture_twice(comm);
  } else if (strcmp(role, "teams") == 0) {
    use_teams(comm);
  } else if (strcmp(role, "many streams") == 0) {
    use_many_streams(comm);
    close_device();
    return NULL;
  } else if (strcmp(role, "failed group") == 0) {
    // Peers whose group did not fail wait for this rank's call.
    uint64_t mine = filled(100, rank + 1), to = filled(100, -1);
    OK(ncclGroupStart);
    OK(ncclAllReduce, mine, to, (size_t)100, FLOAT32, SUM, comm, stream);
    int failed = NCCL(ncclGroupEnd);
    EXPECT(failed == (rank == 0 ? 5 : 0) && (failed == 0 || strcmp(message(comm), "the stub's message") == 0));
    holds(to, 100, 3, "all_reduce of a group that NCCL failed");
  } else if (strcmp(role, "asynchronous") == 0) {
    float on_host = 1;
    EXPECT(NCCL(ncclAllReduce, &on_host, &on_host, (size_t)1, FLOAT32, SUM, comm, stream) == 4);
    EXPECT(strstr(message(comm), "knows no memory of a device") != NULL);
    EXPECT(NCCL(ncclCommGetAsyncError, comm, &code) == 0 && code == 6);
    EXPECT(strcmp(message(comm), "the stub's message") == 0);
  } else if (strcmp(role, "death") == 0) {
    if (rank == 1) raise(SIGKILL);
    for (int waited = 0; code == 0 && waited < 20000; waited++) {
      usleep(1000);
      OK(ncclCommGetAsyncError, comm, &code);
    }
    EXPECT(code == 6);
    EXPECT(strstr(message(comm), "rank 1") != NULL);
    OK(ncclCommAbort, comm);
    printf("told\n");
    close_device();
    return NULL;
  } else if (strcmp(role, "late") == 0) {
    // What a rank ends does not wait for another that ends it much later.
    if (rank == 1) usleep(2000000);
  } else if (strcmp(role, "abort") == 0) {
    uint64_t to = filled(1000, 1);
    // Only one rank comes; the others abort.
    if (rank == 0) OK(ncclAllReduce, to, to, (size_t)1000, FLOAT32, SUM, comm, stream);
    OK(ncclCommAbort, comm);
    close_device();
    return NULL;
  }
  OK(ncclCommDestroy, comm);
  close_device();
  return NULL;
}

int main(int count, char **arguments) {
  if (count > 1) role = arguments[1];
  world = atoi(getenv("WORLD"));
  if (getenv("RANK")) {
    run((void *)(intptr_t)atoi(getenv("RANK")));
    return 0;
  }
  pthread_t threads[16];
  for (intptr_t one = 0; one < world; one++) expect(pthread_create(&threads[one], NULL, run, (void *)one) == 0, "a thread");
  for (int one = 0; one < world; one++) pthread_join(threads[one], NULL);
  return 0;
}
