// Collectives of an MPI library, as a baseline.
//
//   mpirun -n RANKS mpi_collectives [OP[,OP...] [MIN [MAX]]]
//
// OP is all_reduce (float, sum), all_gather, reduce_scatter (float, sum) or all_to_all; default: all.
// Measures every power of two from MIN (8) to MAX (16 MiB) bytes that divides into whole elements per
// rank. Bytes are nccl-tests' size: one rank's elements for an all-reduce, otherwise the buffer with
// one part per rank. Rank 0 prints one line per measurement:
//
//   {"op":"all_reduce","bytes":8,"world":2,"us":0.4,"least":0.4,"most":0.5,"us_apart":0.4,"wrong":0,"library":"..."}
//
//   mpirun -n RANKS mpi_collectives serve LARGEST
//
// Serves commands from standard input of rank 0, for up to LARGEST bytes, with one answer each. The
// head of benches/src/collectives/external.rs describes the protocol. Between commands the ranks sleep.
//
// `us` is the median over rounds of calls back to back of the mean time of a call; `least` and `most` are those of the
// fastest and the slowest round. `us_apart` is the median time of single calls, each after an untimed barrier. All are
// those of the slowest rank. `wrong` counts the wrong elements of one call before the timed ones and of one after them,
// over all ranks.

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPS = 4 };
static const char *const names[OPS] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"};

static int rank, world;

static void call(int op, const float *source, float *destination, int count) {
    int part = count / world;
    switch (op) {
    case 0:
        MPI_Allreduce(source, destination, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case 1:
        MPI_Allgather(source, part, MPI_FLOAT, destination, part, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case 2:
        MPI_Reduce_scatter_block(source, destination, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    default:
        MPI_Alltoall(source, part, MPI_FLOAT, destination, part, MPI_FLOAT, MPI_COMM_WORLD);
    }
}

// Element of rank `from` at an index: small whole numbers that look random, whose sums are exact in any order.
static float given(int from, int index) {
    uint32_t word = (uint32_t)index * 2654435761u + (uint32_t)from * 40503u;
    word = (word ^ (word >> 15)) * 2246822519u;
    return (float)((word >> 16) % 101);
}

static float wanted(int op, int index, int part) {
    float sum = 0;
    switch (op) {
    case 0:
        for (int from = 0; from < world; from++) sum += given(from, index);
        return sum;
    case 1:
        return given(index / part, index % part);
    case 2:
        for (int from = 0; from < world; from++) sum += given(from, rank * part + index);
        return sum;
    default:
        return given(index / part, rank * part + index % part);
    }
}

static double slowest(double time) {
    double most;
    MPI_Allreduce(&time, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

static int by_size(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

// Calls once with the destination poisoned. Returns the number of wrong elements, over all ranks.
static long check(int op, int count, float *source, float *destination) {
    int part = count / world, made_count = op == 2 ? part : count;
    memset(destination, 0xff, (size_t)made_count * sizeof(float));
    call(op, source, destination, count);
    long wrong = 0, all_wrong;
    for (int index = 0; index < made_count; index++)
        wrong += destination[index] != wanted(op, index, part);
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    return all_wrong;
}

// Returns the mean time of calls back to back, in seconds.
static double looped(int op, int count, const float *source, float *destination, int calls) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int index = 0; index < calls; index++) call(op, source, destination, count);
    return slowest((MPI_Wtime() - start) / calls);
}

enum { ROUNDS = 7, SINGLES = 101 };

static void measure(int op, long bytes, float *source, float *destination) {
    int count = (int)(bytes / (long)sizeof(float));
    int given_count = op == 1 ? count / world : count;
    for (int index = 0; index < given_count; index++) source[index] = given(rank, index);
    long wrong = check(op, count, source, destination);

    // As many calls as take 100 ms, by the time of a few; all ranks have the same time.
    double once = looped(op, count, source, destination, bytes <= 1 << 20 ? 10 : 1);
    int calls = once > 0.1 / 10000 ? (int)(0.1 / once) : 10000;
    calls = calls < 2 ? 2 : calls;
    double rounds[ROUNDS], singles[SINGLES];
    for (int round = 0; round < ROUNDS; round++) rounds[round] = looped(op, count, source, destination, calls);
    qsort(rounds, ROUNDS, sizeof *rounds, by_size);

    int single_calls = calls < SINGLES ? calls | 1 : SINGLES;
    for (int single = 0; single < single_calls; single++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        call(op, source, destination, count);
        singles[single] = slowest(MPI_Wtime() - start);
    }
    qsort(singles, (size_t)single_calls, sizeof *singles, by_size);
    wrong += check(op, count, source, destination);

    if (rank == 0) {
        char library[MPI_MAX_LIBRARY_VERSION_STRING];
        int length;
        MPI_Get_library_version(library, &length);
        // Keeps only the name, without characters that JSON would have to escape.
        library[strcspn(library, ",\"\\\n")] = 0;
        printf("{\"op\":\"%s\",\"bytes\":%ld,\"world\":%d,\"us\":%.4f,\"least\":%.4f,\"most\":%.4f,"
               "\"us_apart\":%.4f,\"wrong\":%ld,\"library\":\"%s\"}\n",
               names[op], bytes, world, rounds[ROUNDS / 2] * 1e6, rounds[0] * 1e6, rounds[ROUNDS - 1] * 1e6,
               singles[single_calls / 2] * 1e6, wrong, library);
        fflush(stdout);
    }
}

// ---- serve: commands of `symmem bench collectives` ----

// Element types by nccl-tests' names. Types that MPI cannot reduce have MPI_DATATYPE_NULL and are moved as bytes.
typedef struct {
    const char *name;
    MPI_Datatype type;
    int width;
    char kind; // 'f': float, 'd': double, otherwise an integer of `width` bytes
} Element;

typedef struct {
    int op;
    const Element *element;
    int in_place;
    int whole, part; // elements; equal for operations without parts
} Task;

enum { GUARD = 4096, ROOT = 0, BROADCAST = OPS, REDUCE, COMMAND = 256 };
static const char *const more_names[] = {"all_reduce", "all_gather", "reduce_scatter",
                                         "all_to_all", "broadcast",  "reduce"};
static char *buffers[2];

static int task_has_parts(int op) { return op >= 1 && op <= 3; }
static int task_reduces(int op) { return op == 0 || op == 2 || op == REDUCE; }

static void put(const Element *element, char *buffer, long index, long value) {
    char *at = buffer + index * element->width;
    float single = (float)value;
    double twice = (double)value;
    if (element->kind == 'f') memcpy(at, &single, sizeof single);
    else if (element->kind == 'd') memcpy(at, &twice, sizeof twice);
    else memcpy(at, &value, (size_t)element->width); // requires a little-endian host
}

static long value_of(int from, long index) { return (index * 7 + from * 13) % 31; }

static long wanted_value(const Task *task, long index) {
    long sum = 0;
    switch (task->op) {
    case 0:
    case REDUCE:
        for (int from = 0; from < world; from++) sum += value_of(from, index);
        return sum;
    case 1:
        return value_of((int)(index / task->part), index % task->part);
    case 2:
        for (int from = 0; from < world; from++) sum += value_of(from, (long)rank * task->part + index);
        return sum;
    case 3:
        return value_of((int)(index / task->part), (long)rank * task->part + index % task->part);
    default:
        return value_of(ROOT, index);
    }
}

static int sent(const Task *task) { return task->op == 1 ? task->part : task->whole; }
static int received(const Task *task) { return task->op == 2 ? task->part : task->whole; }

static void run_task(const Task *task) {
    MPI_Datatype type = task->element->type;
    int whole = task->whole, part = task->part;
    if (type == MPI_DATATYPE_NULL) {
        type = MPI_BYTE;
        whole *= task->element->width;
        part *= task->element->width;
    }
    const void *source = task->in_place ? MPI_IN_PLACE : buffers[0];
    void *destination = buffers[1];
    switch (task->op) {
    case 0:
        MPI_Allreduce(source, destination, whole, type, MPI_SUM, MPI_COMM_WORLD);
        break;
    case 1:
        MPI_Allgather(source, part, type, destination, part, type, MPI_COMM_WORLD);
        break;
    case 2:
        MPI_Reduce_scatter_block(source, destination, part, type, MPI_SUM, MPI_COMM_WORLD);
        break;
    case 3:
        MPI_Alltoall(source, part, type, destination, part, type, MPI_COMM_WORLD);
        break;
    case BROADCAST:
        MPI_Bcast(destination, whole, type, ROOT, MPI_COMM_WORLD);
        break;
    default:
        if (task->in_place && rank != ROOT)
            MPI_Reduce(destination, NULL, whole, type, MPI_SUM, ROOT, MPI_COMM_WORLD);
        else
            MPI_Reduce(source, destination, whole, type, MPI_SUM, ROOT, MPI_COMM_WORLD);
    }
}

static void check_task(const Task *task, char *answer) {
    const Element *element = task->element;
    int width = element->width;
    char *input = buffers[task->in_place];
    if (task->in_place && task->op == 1) input += (long)rank * task->part * width;
    memset(buffers[1], 0xff, (size_t)task->whole * (size_t)width + GUARD);
    if (task->op != BROADCAST || rank == ROOT)
        for (long index = 0; index < sent(task); index++) put(element, input, index, value_of(rank, index));
    MPI_Barrier(MPI_COMM_WORLD);
    run_task(task);
    long counts[2] = {0, 0}, all[2]; // wrong, checked
    if (task->op != REDUCE || rank == ROOT) {
        char expected[8];
        for (long index = 0; index < received(task); index++) {
            put(element, expected, 0, wanted_value(task, index));
            counts[0] += memcmp(expected, buffers[1] + index * width, (size_t)width) != 0;
        }
        const char *behind = buffers[1] + (long)(task->in_place ? task->whole : received(task)) * width;
        for (int index = 0; index < GUARD; index++) counts[0] += behind[index] != (char)0xff;
        counts[1] = received(task);
    }
    MPI_Allreduce(counts, all, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    sprintf(answer, "wrong %ld %ld", all[0], all[1]);
}

static void time_task(const Task *task, long calls, char *answer) {
    run_task(task);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (long call = 0; call < calls; call++) run_task(task);
    sprintf(answer, "result %.3f", slowest((MPI_Wtime() - start) / (double)calls) * 1e9);
}

static void single_calls(const Task *task, long samples, char *answer) {
    int length = sprintf(answer, "samples");
    for (long sample = 0; sample < samples; sample++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        run_task(task);
        length += sprintf(answer + length, " %.0f", slowest(MPI_Wtime() - start) * 1e9);
    }
}

// Parses a command; returns the reason if it is not supported.
static const char *parse(char *line, const Element *elements, int kinds, Task *task, char **verb) {
    *verb = strtok(line, " ");
    char *library = strtok(NULL, " "), *op = strtok(NULL, " "), *kind = strtok(NULL, " ");
    char *bytes = strtok(NULL, " "), *placement = strtok(NULL, " ");
    if (!library || !op || !kind || !bytes || !placement) return "too few words";
    task->op = -1;
    task->element = NULL;
    for (int index = 0; index <= REDUCE; index++)
        if (!strcmp(op, more_names[index])) task->op = index;
    for (int index = 0; index < kinds; index++)
        if (!strcmp(kind, elements[index].name)) task->element = &elements[index];
    if (task->op < 0 || !task->element) return "operation or element type not supported";
    if (task_reduces(task->op) && task->element->type == MPI_DATATYPE_NULL) return "MPI does not reduce this type";
    task->in_place = !strcmp(placement, "in");
    if (task->in_place && task->op == 2) return "MPI's in-place reduce-scatter puts the result at the start";
    if (!task->in_place && task->op == BROADCAST) return "MPI has only an in-place broadcast";
    long elements_in_all = atol(bytes) / task->element->width;
    task->part = (int)(task_has_parts(task->op) ? elements_in_all / world : elements_in_all);
    task->whole = task_has_parts(task->op) ? task->part * world : task->part;
    return NULL;
}

static int serve(long largest) {
    const Element elements[] = {
        {"float", MPI_FLOAT, 4, 'f'},     {"double", MPI_DOUBLE, 8, 'd'},   {"int8", MPI_INT8_T, 1, 'i'},
        {"uint8", MPI_UINT8_T, 1, 'i'},   {"int16", MPI_INT16_T, 2, 'i'},   {"uint16", MPI_UINT16_T, 2, 'i'},
        {"int32", MPI_INT32_T, 4, 'i'},   {"uint32", MPI_UINT32_T, 4, 'i'}, {"int64", MPI_INT64_T, 8, 'i'},
        {"uint64", MPI_UINT64_T, 8, 'i'}, {"half", MPI_DATATYPE_NULL, 2, 'i'}, {"bfloat16", MPI_DATATYPE_NULL, 2, 'i'},
        {"f8e4m3", MPI_DATATYPE_NULL, 1, 'i'}, {"f8e5m2", MPI_DATATYPE_NULL, 1, 'i'},
    };
    for (int which = 0; which < 2; which++) buffers[which] = malloc((size_t)largest + GUARD);
    char *answer = malloc(64 * 1024), library[MPI_MAX_LIBRARY_VERSION_STRING];
    if (!buffers[0] || !buffers[1] || !answer) MPI_Abort(MPI_COMM_WORLD, 1);
    memset(buffers[0], 0, (size_t)largest);
    int length;
    MPI_Get_library_version(library, &length);
    library[strcspn(library, ",\n")] = 0;
    if (rank == ROOT) {
        printf("ready %s\n", library);
        fflush(stdout);
    }
    for (;;) {
        char line[COMMAND] = "quit";
        if (rank == ROOT && !fgets(line, sizeof line, stdin)) strcpy(line, "quit");
        // Polls with sleeps: a blocking broadcast would spin and slow down the library that is measured.
        MPI_Request request;
        int done = 0;
        MPI_Ibcast(line, sizeof line, MPI_CHAR, ROOT, MPI_COMM_WORLD, &request);
        for (;;) {
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
            if (done) break;
            usleep(1000);
        }
        line[strcspn(line, "\n")] = 0;
        if (!strcmp(line, "quit")) break;
        Task task;
        char *verb;
        const char *reason = parse(line, elements, (int)(sizeof elements / sizeof *elements), &task, &verb);
        char *first = strtok(NULL, " "), *second = strtok(NULL, " ");
        if (!reason && !strcmp(verb, "time") && first && !strcmp(first, "graph")) reason = "MPI has no graph capture";
        if (reason) sprintf(answer, "absent %s", reason);
        else if (!strcmp(verb, "check")) check_task(&task, answer);
        else if (!strcmp(verb, "time") && second) time_task(&task, atol(second), answer);
        else if (!strcmp(verb, "single") && first) single_calls(&task, atol(first), answer);
        else sprintf(answer, "absent unknown command");
        if (rank == ROOT) {
            puts(answer);
            fflush(stdout);
        }
    }
    MPI_Finalize();
    return 0;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    if (argc > 2 && !strcmp(argv[1], "serve")) return serve(atol(argv[2]));
    const char *ops = argc > 1 ? argv[1] : "all_reduce,all_gather,reduce_scatter,all_to_all";
    long least = argc > 2 ? atol(argv[2]) : 8, most = argc > 3 ? atol(argv[3]) : 16L << 20;
    float *source = malloc((size_t)most), *destination = malloc((size_t)most);
    if (!source || !destination || least < 1) {
        fprintf(stderr, "mpi_collectives: not enough memory for two buffers of %ld bytes, or MIN is below 1\n", most);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int op = 0; op < OPS; op++) {
        const char *found = strstr(ops, names[op]);
        if (!found) continue;
        for (long bytes = 1; bytes <= most; bytes *= 2)
            if (bytes >= least && bytes % ((long)sizeof(float) * (op == 0 ? 1 : world)) == 0)
                measure(op, bytes, source, destination);
    }
    free(source);
    free(destination);
    MPI_Finalize();
    return 0;
}
