"""A short rank of benchmarks/soak.py: numbered lines, then the end it is told.

    soak_rank.py LINES SECONDS THEN [MEET]

THEN: good, exit:N, raise, or kill (SIGKILL to itself); of several ranks the last one does it. MEET:
torch or mpi, as which all ranks add up their numbers first. `hold` for SECONDS waits for ever, and
`hold-once` in the first attempt only.
"""

import os
import signal
import sys
import time

lines, seconds, then, meet = int(sys.argv[1]), sys.argv[2], sys.argv[3], (*sys.argv[4:], "")[0]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
attempt = int(os.environ["HPCKIT_RESTART"])


def add_up() -> int:
    """Return the sum of all ranks' numbers."""
    if meet == "torch":
        import torch  # noqa: PLC0415  # seldom, and slow
        import torch.distributed as dist  # noqa: PLC0415

        dist.init_process_group("gloo")
        number = torch.tensor(rank)
        dist.all_reduce(number)
        dist.destroy_process_group()
        return int(number)
    if meet == "mpi":
        from mpi4py import MPI  # noqa: PLC0415

        assert MPI.COMM_WORLD.size == world
        return int(MPI.COMM_WORLD.allreduce(rank))
    return sum(range(world))


assert add_up() == sum(range(world))
for number in range(lines):
    print(f"{attempt} {rank} {number}", flush=True)
    if seconds not in ("hold", "hold-once"):
        time.sleep(float(seconds) / lines)
if seconds == "hold" or (seconds == "hold-once" and attempt == 0):
    time.sleep(86400)
if rank == world - 1:
    if then.startswith("exit:"):
        sys.exit(int(then.removeprefix("exit:")))
    if then == "raise":
        raise ValueError("as told")
    if then == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
print(f"{attempt} {rank} end", flush=True)
