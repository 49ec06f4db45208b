"""In the style of mpi4py's demo of futures: rank 0 hands out work, the other ranks do it."""

from mpi4py import MPI
from mpi4py.futures import MPICommExecutor


def square(number: int) -> tuple[int, int]:
    """Return a square, and the rank that found it."""
    return number * number, MPI.COMM_WORLD.rank


comm = MPI.COMM_WORLD
total = None
with MPICommExecutor(comm, root=0) as executor:
    if executor is not None:
        answers = list(executor.map(square, range(100)))
        total = sum(answer for answer, _ in answers)
        print("answers from ranks", sorted({rank for _, rank in answers}))
total = comm.bcast(total)
print(f"rank {comm.rank} of {comm.size}: weight {total}")
