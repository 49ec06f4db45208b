"""What samples tell of one step: they are of the whole job's GPUs, and of its cgroup. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from hpckit.stats.metric_table import NODE
from hpckit.stats.samples.columns import Columns
from hpckit.stats.samples.packing import Column

Item = TypeVar("Item")
# What a cgroup says, which is the job's.
_OF_JOB = frozenset(row.name for row in NODE if row.read)


def own_of_step(columns: Columns) -> Columns:
    """Leave what is the step's own of its samples, where Slurm gave it less than the job has.

    What other steps did beside it is in the counters of the job's cgroup, too.
    """
    header = columns.header
    part = (header.cores or 0) < (header.job_cores or 0)
    limit = None if part else header.memory_limit_bytes  # that of the job
    own = replace(header, job_cores=None, memory_limit_bytes=limit)
    columns = replace(columns, header=own)
    if part and header.summed is None:
        node, counters = _without(columns.node), _without(columns.counters)
        columns = replace(columns, node=node, counters=counters)
    said = header.ids.get("step_gpus", "").split(",")
    if header.gpu_method != "slurm_job_gpus" or not all(word.isdecimal() for word in said):
        return columns
    mine = {int(word) for word in said}
    return _of_gpus(columns, [at for at, gpu in enumerate(header.gpus) if gpu.index in mine])


def _without(columns: Mapping[str, Column]) -> dict[str, Column]:
    return {name: column for name, column in columns.items() if name not in _OF_JOB}


def _of_gpus(columns: Columns, places: Sequence[int]) -> Columns:
    """Leave some of the GPUs, by their places in the header's table."""

    def some(items: Sequence[Item]) -> tuple[Item, ...]:
        return tuple(items[at] for at in places if at < len(items))

    return replace(
        columns,
        header=replace(columns.header, gpus=some(columns.header.gpus)),
        gpus=some(columns.gpus),
        energies=some(columns.energies),
        drawn=some(columns.drawn),
        slow=replace(columns.slow, gpus=some(columns.slow.gpus)),
        states=tuple(replace(state, gpus=some(state.gpus)) for state in columns.states),
    )
