"""Training on several devices, in torch: for users' scripts and hpckit's workloads.

Never imported by hpckit's commands, which must start without torch.

- Which devices and ranks: `devices` (the only chooser of devices), `ranks`, `mpi` (the only module
  that knows mpi4py), `sharing` and `spans` (which samples are whose).
- Ways to train: `mirrored` (one process), `dp`, `scratch`, `microbatch`, with `copies` and
  `passes`; `optimizers`; `d2l` has the names of "Dive into Deep Learning".
- What is trained: `data`, `models`, `tasks` (both and the loss), `prefetch`.
- What the workloads share: `arguments`, `training`, `journal`, `run_folder`, `compiling`,
  `kept_memory`, `benchmark`, `throughput` and, for scripts of one's own, `throughput_writer`.
- `stopping`: ranks agree to stop after Slurm's warning. `errors`: the one that users can fix.
- `given`: checks of what a script gives, with words that say what to give.
- Older versions: `torch_versions` is all that differs between torches, `older_python` what Python
  3.10 lacks; `rank_device` is an old name.
"""

import sys
from typing import TYPE_CHECKING

from hpckit.oldest import refuse_older

refuse_older("Python", sys.version.split()[0])
if TYPE_CHECKING:
    from hpckit.parallel.stopping import should_stop

__all__ = ["should_stop"]


def __getattr__(name: str) -> object:
    # Only who asks for it gets the handler of SIGUSR2 that comes with it.
    if name == "should_stop":
        from hpckit.parallel.stopping import should_stop  # noqa: PLC0415

        return should_stop
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
