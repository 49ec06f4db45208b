"""This process among the ranks of an MPI job, by blackbirds' names.

`from hpckit.inference.mpi_setup import mpi_rank` stands for the same line with `blackbirds`. As
there, MPI starts with the import; a process alone is rank 0 of 1, and its `mpi_comm` is None.
"""

from hpckit.parallel.mpi import find_ranks

ranks = find_ranks()
mpi_comm = ranks.comm
mpi_rank = ranks.rank
mpi_size = ranks.size
