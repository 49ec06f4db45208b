"""How a client gets to the node of a running job: a step of its own, beside those of the job."""

import os
from collections.abc import Mapping, Sequence

from hpckit.environ import own_python
from hpckit.slurm.client import checked_id


def step_argv(
    job_id: str, node: str, module: str, words: Sequence[str], *, pty: bool
) -> tuple[str, ...]:
    """Return the argv that runs a module of hpckit's on a job's node.

    `--overlap` (Slurm 20.11 and newer) shares what the job's own step has, and waits for nothing.
    It may use all cores of the job there, whatever the cluster binds single tasks to. `pty` gives
    the module a terminal there; else bytes pass as they come (`--unbuffered`, for which some
    versions of Slurm make stdout a terminal, too).
    """
    return (
        "srun",
        f"--jobid={checked_id(job_id)}",
        "--overlap",
        "--nodes=1",
        "--ntasks=1",
        f"--nodelist={node}",
        "--chdir=/",
        "--quiet",
        "--cpu-bind=none",
        "--pty" if pty else "--unbuffered",
        *own_python(),
        "-m",
        module,
        *words,
    )


def step_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of such a step: no size of the job, or of another, is asked again."""
    dropped = ("SLURM_", "SRUN_", "SBATCH_", "SALLOC_")
    kept = ("SLURM_CONF", "SLURM_CLUSTERS")
    return {
        name: value
        for name, value in environ.items()
        if name in kept or not name.startswith(dropped)
    }
