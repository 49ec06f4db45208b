"""Which GPUs of its nodes a job has: what `scontrol show job --details` says while it is known.

The controller forgets a job MinJobAge (300 s) after its end: slurm.conf(5). An index is that of
Slurm's own list (gres.conf), with AutoDetect=nvml the order of nvidia-smi.
"""

import re

from hpckit.errors import CommandError
from hpckit.slurm.client import ask, checked_id, patience
from hpckit.slurm.hostlist import nodes_or_none
from hpckit.units import number_ranges

# A job's name, which comes before, may hold lines like these: then none is believed.
_PART = re.compile(r"^   JOB_GRES=.*\n((?:     Nodes=.*\n)+)", re.MULTILINE)
_NODES = re.compile(r"     Nodes=(\S+) .*?GRES=(\S+)")
_GPUS = re.compile(r"(?:^|,)gpu(?::[^(:,]+)*\(IDX:([0-9,-]+)\)")
_MOST = 1024
_PATIENCE_S = 3.0


def gpu_indices(job_id: str) -> dict[str, frozenset[int]]:
    """Ask the controller for the indices of a job's GPUs, by node; none where it does not say."""
    try:
        with patience(_PATIENCE_S):
            said = ask(["scontrol", "show", "job", "--details", checked_id(job_id)], check=False)
    except CommandError:
        return {}
    return parse_gpu_indices(said.stdout)


def parse_gpu_indices(text: str) -> dict[str, frozenset[int]]:
    """Read what `scontrol show job --details` printed of one job."""
    parts = _PART.findall(text)
    if len(parts) != 1:
        return {}
    found: dict[str, set[int]] = {}
    for nodes, gres in _NODES.findall(parts[0]):
        for host in nodes_or_none(nodes) or ():
            for indices in _GPUS.findall(gres):
                found.setdefault(host, set()).update(number_ranges(indices, _MOST))
    return {host: frozenset(numbers) for host, numbers in found.items() if numbers}
