// Collectives of an MPI library on one host, as a baseline to measure beside.
//
//   mpirun -n RANKS mpi_collectives [OP[,OP...] [MIN [MAX]]]
//
// OP is all_reduce (float, sum), all_gather, reduce_scatter (float, sum) or all_to_all; all of them if
// none is named. Every power of two from MIN (8) to MAX (16 MiB) bytes that has a whole element for
// each rank is measured. Bytes are nccl-tests' size: of an all-reduce one rank's elements, else the
// whole buffer of a rank that has it. Rank 0 prints a line for each:
//
//   {"op":"all_reduce","bytes":8,"world":2,"us":0.4,"us_apart":0.4,"wrong":0,"library":"..."}
//
// `us` is the mean over calls one after the other. `us_apart` is as the OSU micro-benchmarks measure:
// the mean over calls with a barrier after each, which is not timed. Both are those of the slowest
// rank. `wrong` counts wrong elements of a call before the timed ones, over all ranks.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

// What rank `from` has at an index; small whole numbers, whose sums are exact in any order.
static float given(int from, int index) { return (float)((index * 7 + from * 13) % 101); }

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

static void measure(int op, long bytes, float *source, float *destination) {
    int count = (int)(bytes / (long)sizeof(float)), part = count / world;
    int given_count = op == 1 ? part : count, made_count = op == 2 ? part : count;
    for (int index = 0; index < given_count; index++) source[index] = given(rank, index);
    memset(destination, 0xff, (size_t)made_count * sizeof(float));
    call(op, source, destination, count);
    long wrong = 0, all_wrong;
    for (int index = 0; index < made_count; index++)
        wrong += destination[index] != wanted(op, index, part);
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);

    int calls = bytes <= 8192 ? 10000 : bytes <= 1 << 20 ? 1000 : 100;
    for (int index = 0; index < calls / 10; index++) call(op, source, destination, count);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int index = 0; index < calls; index++) call(op, source, destination, count);
    double looped = slowest((MPI_Wtime() - start) / calls);

    double apart = 0;
    for (int index = 0; index < calls; index++) {
        MPI_Barrier(MPI_COMM_WORLD);
        start = MPI_Wtime();
        call(op, source, destination, count);
        apart += MPI_Wtime() - start;
    }
    apart = slowest(apart / calls);

    if (rank == 0) {
        char library[MPI_MAX_LIBRARY_VERSION_STRING];
        int length;
        MPI_Get_library_version(library, &length);
        // Its first part names it; what follows is no business of a line of JSON.
        library[strcspn(library, ",\"\\\n")] = 0;
        printf("{\"op\":\"%s\",\"bytes\":%ld,\"world\":%d,\"us\":%.4f,\"us_apart\":%.4f,"
               "\"wrong\":%ld,\"library\":\"%s\"}\n",
               names[op], bytes, world, looped * 1e6, apart * 1e6, all_wrong, library);
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    const char *ops = argc > 1 ? argv[1] : "all_reduce,all_gather,reduce_scatter,all_to_all";
    long least = argc > 2 ? atol(argv[2]) : 8, most = argc > 3 ? atol(argv[3]) : 16L << 20;
    float *source = malloc((size_t)most), *destination = malloc((size_t)most);
    if (!source || !destination || least < 1) {
        fprintf(stderr, "mpi_collectives: no memory for two buffers of %ld bytes, or a MIN below 1\n", most);
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
