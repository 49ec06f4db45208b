"""Takes 200 steps over MPI; the first attempt waits for a preemption; says the end's bits."""

import os
import sys
from pathlib import Path

from mpi4py import MPI

from hpckit.parallel import should_stop

STEPS = 200
comm = MPI.COMM_WORLD
mine = Path(os.environ["HPCKIT_RUN_DIR"], "checkpoints", f"{comm.rank}.txt")
step, value = 0, 1.0 + comm.rank
if mine.exists():
    word, bits = mine.read_text().split()
    step, value = int(word), float.fromhex(bits)
waits = "undisturbed" not in sys.argv and os.environ["HPCKIT_RESTART"] == "0"
while (step < STEPS or waits) and not should_stop():
    if step == STEPS // 2 and waits:
        continue
    step += 1
    value = (value * 1.7 + comm.allreduce(value / (step + comm.rank))) % 3.1
    if comm.rank == 0:
        print(f"step {step}", flush=True)
if step < STEPS:
    mine.parent.mkdir(exist_ok=True)
    mine.write_text(f"{step} {value.hex()}")
elif comm.rank == 0:
    print(f"ends with {value.hex()}")
