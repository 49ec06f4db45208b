"""What each node has to give now: the answer of one `scontrol show node`.

The fields are those of SchedMD's src/api/node_info.c, 20.11 to 25.05. `--details` adds GresUsed,
without which only AllocTRES tells of GPUs in use, and that only where accounting counts them.
"""

import re
from collections.abc import Mapping

from hpckit.frozen import frozen
from hpckit.slurm.client import ask
from hpckit.slurm.cluster import Gres, pairs, parse_gres
from hpckit.slurm.rows import parse_count, parse_tres
from hpckit.units import whole_number

SHOW_NODES = ("scontrol", "--details", "--oneliner", "show", "node")
# Not responding, powered down, ...: sinfo(1), "NODE STATE CODES".
_STATE_MARKS = "*~#!%$@^-+"
# Slurm starts nothing on a node in one of these states, or with one of these flags.
_OUT = frozenset(
    {
        *("DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "ERROR", "FUTURE", "UNKNOWN"),
        *("MAINT", "MAINTENANCE", "NOT_RESPONDING", "REBOOT", "REBOOT_ISSUED", "INVALID_REG"),
        *("POWERING_DOWN", "POWER_DOWN", "BLOCKED", "INVAL"),
    }
)
_TYPED_TRES = "gres/gpu:"
# `a100_1g.5gb`, `1g.10gb.me`: a MIG slice, as NVIDIA's tools and most sites' gres.conf call it.
_SLICE = re.compile(r"(?:^|[_.-])\d+g\.\d+gb", re.IGNORECASE | re.ASCII)


@frozen(kw_only=True)
class NodeGpus:
    """GPUs of one type on a node; `type` None has no name, `free` None is unknown."""

    type: str | None
    total: int
    free: int | None


@frozen(kw_only=True)
class Node:
    """One node; None is unknown. What is free is what jobs have not been given.

    Attributes:
        out: why Slurm starts nothing there: the state's words; "" if it does.
        reserved: it is in a reservation that has begun.
        planned: Slurm keeps it for a job that waits.
        idle: no job has a part of it.
        cpus, memory_mb: what jobs can be given in all.
    """

    name: str
    partitions: tuple[str, ...]
    out: str = ""
    reserved: bool = False
    planned: bool = False
    idle: bool = False
    cpus: int | None = None
    cpus_free: int | None = None
    memory_mb: int | None = None
    memory_free_mb: int | None = None
    gpus: tuple[NodeGpus, ...] = ()

    @property
    def open(self) -> bool:
        """Whether Slurm may start anyone's job there."""
        return not self.out and not self.reserved


def nodes() -> tuple[Node, ...]:
    """Ask the controller for all nodes.

    Raises:
        CommandError: it does not answer, or there is no scontrol.
    """
    return parse_nodes(ask(SHOW_NODES).stdout)


def is_slice(gpu_type: str | None) -> bool:
    """Say whether a type of GPUs is one of MIG slices, by its name."""
    return bool(gpu_type and _SLICE.search(gpu_type))


def parse_nodes(text: str) -> tuple[Node, ...]:
    """Read the output of `scontrol --oneliner show node`; a line of anything else is left out."""
    lines = (line for line in text.splitlines() if line.startswith("NodeName="))
    return tuple(_node(_fields(line)) for line in lines)


def _fields(line: str) -> dict[str, str]:
    """Return a line's fields, the first of each name: comments and reasons come last."""
    found: dict[str, str] = {}
    for name, value in pairs(line):
        found.setdefault(name, value)
    return found


def _node(fields: Mapping[str, str]) -> Node:
    state = fields.get("State", "UNKNOWN").upper()
    words = {word.strip(_STATE_MARKS) for word in state.split("+")}
    silent = {"NOT_RESPONDING"} if "*" in state else set()
    out = sorted((words | silent) & _OUT)
    cpus = whole_number(fields.get("CPUEfctv", "")) or whole_number(fields.get("CPUTot", ""))
    memory = whole_number(fields.get("RealMemory", ""))
    if memory is not None:
        memory = max(memory - (whole_number(fields.get("MemSpecLimit", "")) or 0), 0)
    partitions = fields.get("Partitions", "")
    return Node(
        name=fields["NodeName"],
        partitions=tuple(filter(None, partitions.split(","))) if partitions != "(null)" else (),
        out="+".join(out).lower(),
        reserved="RESERVED" in words,
        planned="PLANNED" in words,
        idle="IDLE" in words or words <= {"RESERVED", "PLANNED"},
        cpus=cpus,
        cpus_free=_rest(cpus, whole_number(fields.get("CPUAlloc", ""))),
        memory_mb=memory,
        memory_free_mb=_rest(memory, whole_number(fields.get("AllocMem", ""))),
        gpus=_gpus(fields),
    )


def _rest(total: int | None, used: int | None) -> int | None:
    return None if total is None or used is None else max(total - used, 0)


def _gpus(fields: Mapping[str, str]) -> tuple[NodeGpus, ...]:
    totals = _by_type(_gres(fields.get("Gres", "")))
    if "GresUsed" in fields:
        used = _used_gres(_gres(fields["GresUsed"]))
    else:
        used = _used_tres(parse_tres(fields.get("CfgTRES", "")), fields.get("AllocTRES", ""))
    if used is not None and None in used and None not in totals:
        # A number without a type says whose it is only where there is one type.
        (rest,) = used.values() if len(used) == 1 else (0,)
        used = dict.fromkeys(totals, rest) if len(totals) == 1 or not rest else None
    return tuple(
        NodeGpus(
            type=kind, total=total, free=_rest(total, None if used is None else used.get(kind, 0))
        )
        for kind, total in totals.items()
    )


def _gres(text: str) -> tuple[Gres, ...]:
    return parse_gres(text.replace("(null)", "").replace("::", ":"))


def _by_type(found: tuple[Gres, ...]) -> dict[str | None, int]:
    totals: dict[str | None, int] = {}
    for row in found:
        if row.name == "gpu":
            totals[row.type] = totals.get(row.type, 0) + row.count
    return totals


def _used_gres(found: tuple[Gres, ...]) -> dict[str | None, int] | None:
    """Return GPUs in use by type; None: of some only shares are, and nobody says of how many."""
    if any(row.name in ("shard", "mps") and row.count for row in found):
        return None
    return _by_type(found)


def _used_tres(configured: Mapping[str, str], allocated: str) -> dict[str | None, int] | None:
    """Return GPUs in use by what accounting counts; None: it counts no GPUs."""
    if not any(name.startswith("gres/gpu") for name in configured):
        return None
    used = parse_tres(allocated)
    typed = {
        name.removeprefix(_TYPED_TRES): parse_count(value)
        for name, value in used.items()
        if name.startswith(_TYPED_TRES)
    }
    counts: dict[str | None, int | None] = dict(typed.items())
    counts = counts or {None: parse_count(used.get("gres/gpu", "0"))}
    known = {kind: count for kind, count in counts.items() if count is not None}
    return known if len(known) == len(counts) else None
