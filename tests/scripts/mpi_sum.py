"""MPI ranks add up what they have, and say where they were."""

import json
import os
import socket
from pathlib import Path

from mpi4py import MPI

world = MPI.COMM_WORLD
seen = {
    "sum": world.allreduce(world.rank + 1, op=MPI.SUM),
    "size": world.size,
    "hosts": world.allgather(socket.gethostname()),
    "rank": [world.rank, int(os.environ["RANK"])],
    "local_rank": int(os.environ["LOCAL_RANK"]),
}
Path(os.environ["HPCKIT_RUN_DIR"], f"seen-{world.rank}.json").write_text(json.dumps(seen))
