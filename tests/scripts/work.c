/* Ranks add up, and the last one ends as it is told: --how 0, 3, segv, abort or fatal, while the others wait.
   Each waits for a sample of its node first: it would be done before the sampler has begun. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    int rank, size, sum, one = 1;
    const char *how = argc > 2 ? argv[2] : "0";
    if (system("until ls \"$HPCKIT_RUN_DIR/samples/$(uname -n)\".*; do sleep 0.1; done "
               ">/dev/null 2>&1"))
        return 9;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d of %d, how %s\n", rank, sum, how);
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD); /* all have said that: the last one's end ends the others */
    if (strcmp(how, "0") && rank == size - 1) {
        fprintf(stderr, "no luck on rank %d\n", rank);
        if (!strcmp(how, "segv")) raise(SIGSEGV);
        if (!strcmp(how, "abort")) MPI_Abort(MPI_COMM_WORLD, 5);
        if (!strcmp(how, "fatal")) MPI_Send(&one, 1, MPI_INT, 99, 0, MPI_COMM_WORLD);
        exit(atoi(how));
    }
    if (strcmp(how, "0")) MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
