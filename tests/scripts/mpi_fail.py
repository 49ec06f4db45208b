"""The last MPI rank fails while the others wait for it in a barrier."""

import os
import sys
from pathlib import Path

from mpi4py import MPI

world = MPI.COMM_WORLD
world.Barrier()
if world.rank == world.size - 1:
    if sys.argv[1] == "raise":
        raise ValueError(f"no luck on rank {world.rank}")
    sys.exit(int(sys.argv[1]))
if sys.argv[1] != "0":
    world.Barrier()
Path(os.environ["HPCKIT_RUN_DIR"], f"through-{world.rank}").touch()
