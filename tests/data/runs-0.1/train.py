"""Two ranks that say who they are, log a figure, and fail or ask for another attempt if told so."""

import os
import sys
import time

rank, restart = int(os.environ["RANK"]), os.environ.get("HPCKIT_RESTART", "0")
print(
    f"rank {rank} of {os.environ['WORLD_SIZE']}, attempt {restart}, {' '.join(sys.argv[1:])}",
    flush=True,
)
time.sleep(1.6)
if "--fail" in sys.argv and rank == 1:
    raise ValueError("no luck on rank 1")
if "--requeue" in sys.argv and restart == "0":
    time.sleep(600)
print(f"rank {rank} is done", flush=True)
